// One pass through a language model on a CPU, with few inputs at a time, at the speed of its memory. Layers of the Llama
// family and its relatives differ in the fields of `Model` and `Layer`, and in nothing else.
//
// With few inputs, reading the weights takes nearly all the time of a pass. So a weight matrix is stored in the order in
// which it is read: in panels of PANEL outputs, and within a panel input by input, so that each core reads one stream.
//
//      panel 0                  panel 1
//      w[0][0] … w[31][0]       w[32][0] … w[63][0]       w[o][k]: from input k to output o
//      w[0][1] … w[31][1]       …
//      …
//
// A panel's outputs for up to ROWS inputs are summed in registers. Further inputs use the panel while it is in the cache,
// and the next panel is prefetched meanwhile. Threads divide a matrix's panels and synchronise after each matrix; a pass
// allocates nothing and calls nothing else. The ABI is plain C, so `native.py` compiles it without Python's or torch's
// headers.
//
// Numbers are float32. A matrix's weights may have 16 bits, or one of the forms of GGUF files: codes of 4 or 8 bits with
// a scale (and an offset) for every 16 or 32 inputs of an output; they are decoded in registers, to exactly the values
// of the file. The factor of an RMS norm is applied to the product that follows it. Shapes: B lines of n inputs each, D
// width, H query heads on K key heads, w width of a head, I inner width, C columns of the cache.
//
// The other files of this folder are parts of this one: `interface.h` what the caller hands over, `vectors.h` the
// processor's registers, `layout.h` how coded weights are stored, `weights.h` the kinds of weights, `rounded.h` inputs of 8
// bits, `rounded_ways.h` products with them, `products.h` products with matrices, `attention.h` attention, `files.h` weights
// as a file has them, `faults.h` the checks, `threads.h` what is used of OpenMP.
//
// The caller owns all memory. The fields of `Model` and `Pass` state its obligations. `polydraft_fault` checks those that
// affect sizes or addresses before each pass, in about a hundred comparisons. It cannot check that a pointer refers to as
// many numbers as its field states.

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "attention.h"
#include "faults.h"
#include "files.h"
#include "interface.h"
#include "products.h"
#include "threads.h"

namespace {

constexpr int64_t CACHE_LINE = 64;  // bytes of a line of the cache; a vector that crosses two takes twice as long to load

// Memory that begins with a line.
struct Freed {
  void operator()(float* p) const { operator delete[](p, std::align_val_t{CACHE_LINE}); }
};

// Sizes, in numbers, of the intermediate results of `run`: the shared ones, and those of each thread. Each begins with a line.
struct Room {
  int64_t qkv, attended, acted, added, last, scale, scores, decoded, sums, weighed, low, rounded;
  bool derived_shared;

  Room(const Model& m, const Pass& p) {
    const int64_t rows = p.inputs, entering = m.layer[0].qkv.in;
    derived_shared = chunks_of(rows) > 1;
    int64_t columns = 0, together = 0;
    for (int64_t l = 0; l < p.lines; l++) {
      columns = std::max(columns, p.line[l].past + p.line[l].n);
      together = std::max(together, std::min(p.line[l].n, TOGETHER));
    }
    const int64_t widest = std::max({m.dim, m.inner, m.heads * m.width, entering});
    qkv = times(rows, (m.heads + 2 * m.key_heads) * m.width);
    attended = times(rows, m.heads * m.width);
    acted = times(rows, m.inner);
    const bool after = std::any_of(
        m.layer, m.layer + m.layers, [](const Layer& each) { return each.after_attention || each.after_feed_forward; });
    added = after ? times(rows, m.dim) : 0;
    last = times(p.kept_count, m.dim);
    scale = 2 * rows;
    sums = times(rows, (widest + BLOCK) / BLOCK);
    weighed = times(rows, std::max(m.dim, entering));
    scores = together * filled(columns);
    decoded = rows < MANY ? 0 : 2 * DECODED / static_cast<int64_t>(sizeof(float));
    int64_t rank = 0;
    for (int64_t l = 0; l < m.layers; l++) {
      const Layer& layer = m.layer[l];
      for (const Matrix* matrix : {&layer.qkv, &layer.out, &layer.gate, &layer.down}) rank = std::max(rank, rank_of(*matrix));
      rank = std::max(rank, rank_of(layer.gate) + rank_of(layer.up));
    }
    low = times(rows, rank);
    rounded = m.rounded ? times(rows, (widest + BLOCK) / BLOCK * FLOATS_OF_ROUNDED) : 0;
    constexpr int64_t NUMBERS = CACHE_LINE / sizeof(float);
    for (int64_t* each : {&qkv, &attended, &acted, &added, &last, &scale, &scores, &decoded, &sums, &weighed, &low, &rounded}) {
      *each = (*each + NUMBERS - 1) / NUMBERS * NUMBERS;
    }
  }

  int64_t derived() const { return sums + weighed + low + rounded; }
  int64_t shared() const { return qkv + attended + acted + added + last + (derived_shared ? derived() : 0); }
  int64_t own() const { return scale + scores + decoded + (derived_shared ? 0 : derived()); }
};

void run(const Model& m, const Pass& p, const Room& room, float* scratch, Barrier& barrier) {
  const int64_t rows = p.inputs, D = m.dim, w = m.width, heads = m.heads + 2 * m.key_heads;
  float* qkv = scratch;                      // (rows, (H + 2K) · w)
  float* attended = qkv + room.qkv;          // (rows, H · w)
  float* acted = attended + room.attended;   // (rows, I)
  float* added = acted + room.acted;         // (rows, D)
  float* last = added + room.added;          // (kept, D)
  Own own;
  own.scale = scratch + room.shared() + omp_get_thread_num() * room.own();  // (rows,), or of queries and keys (2, rows)
  own.scores = own.scale + room.scale;                                      // (TOGETHER, C)
  own.decoded = own.scores + room.scores;                                   // (2, inputs, PANEL)
  own.sums = room.derived_shared ? last + room.last : own.decoded + room.decoded;  // (rows, inputs / BLOCK)
  own.weighed = own.sums + room.sums;                                              // (rows, D)
  own.low = own.weighed + room.weighed;                                            // (rows, rank)
  own.rounded = reinterpret_cast<Rounded*>(own.low + room.low);                    // see `round_inputs`
  own.rounds = m.rounded != 0;
  own.shared = room.derived_shared;
  own.barrier = &barrier;
  const Attend over = attend_of(std::make_integer_sequence<int, WIDEST / LANES>{}, w);
  const float residual = static_cast<float>(m.residual), factor = static_cast<float>(m.attention);
  const float cap = static_cast<float>(m.attention_cap), most = static_cast<float>(m.logit_cap);

  // Adds the product of x and a matrix to the residual stream, after a norm if there are its weights.
  const auto add = [&](const Matrix& matrix, const float* x, const float* after) {
    product(matrix, x, rows, nullptr, own, [&](int64_t r, int64_t at, int64_t count, const float* found) {
      float* to = (after ? added : p.h) + r * D + at;
      if (after) {
        std::copy_n(found, count, to);
      } else {
        for (int64_t i = 0; i < count; i++) to[i] += residual * found[i];
      }
    });
    barrier.wait();
    if (!after) return;
    const auto mine = share(rows);
    for (int64_t r = mine.begin; r < mine.end; r++) {
      const float scale = residual * norm(added + r * D, D, m.eps);
      for (int64_t i = 0; i < D; i++) p.h[r * D + i] += scale * after[i] * added[r * D + i];
    }
    barrier.wait();
  };

  for (int64_t l = 0, watched = 0; l <= m.layers; l++) {
    for (; watched < p.watched_count && p.watched[watched] == l; watched++) {
      const auto mine = share(rows);
      for (int64_t r = mine.begin; r < mine.end; r++) {
        std::copy_n(p.h + r * D, D, p.features + (r * p.watched_count + watched) * D);
      }
    }
    if (l == m.layers) break;
    const Layer& layer = m.layer[l];

    const bool given = p.entering && l == 0;
    const float* scale = given || layer.plain ? nullptr : own.scale;
    if (scale) norms(p.h, rows, D, m.eps, own.scale);
    const float* x = given ? p.entering : p.h;
    const auto keep = [&](int64_t r, int64_t at, int64_t count, const float* found) {
      std::copy_n(found, count, qkv + r * heads * w + at);
    };
    product(layer.qkv, x, rows, scale, own, keep);
    barrier.wait();
    if (m.whole) {
      for (int64_t r = 0; r < rows; r++) {
        const float* queries = qkv + r * heads * w;
        own.scale[r] = norm(queries, m.heads * w, m.eps);
        own.scale[rows + r] = norm(queries + m.heads * w, m.key_heads * w, m.eps);
      }
      barrier.wait();
    }
    const auto turned = share(rows * heads);
    const Line* line = p.line;
    for (int64_t i = turned.begin, first = 0; i < turned.end; i++) {  // `first`: the line's first input
      const int64_t r = i / heads, head = i % heads;
      while (r >= first + line->n) first += line++->n;
      float* x = qkv + i * w;
      float* keys = line->cache + 2 * l * line->of_plane;
      float* values = keys + line->of_plane;
      const int64_t to = (line->past + r - first) * w, key = head - m.heads;
      if (key >= m.key_heads) {
        std::copy_n(x, w, values + to + (key - m.key_heads) * line->of_head);
        continue;
      }
      if (const float* weight = key < 0 ? layer.q_norm : layer.k_norm) {
        const float by = m.whole ? own.scale[key < 0 ? r : rows + r] : norm(x, w, m.eps);
        if (m.whole) weight += (key < 0 ? head : key) * w;
        for (int64_t j = 0; j < w; j++) x[j] *= by * weight[j];
      }
      float* out = key < 0 ? x : keys + to + key * line->of_head;
      if (layer.table >= 0) {
        const int64_t angles = (layer.table * rows + r) * m.turned;
        rotate(x, p.cos + angles, p.sin + angles, m.turned, w, out);
      } else if (out != x) {
        std::copy_n(x, w, out);
      }
    }
    barrier.wait();
    // Neighbouring inputs of a head are a group, whose keys stay in the cache; of a line with few inputs there are as many
    // groups as threads. Later inputs attend to more columns, so threads take the groups in turn.
    const int64_t threads = omp_get_num_threads(), for_all = (threads + m.heads - 1) / m.heads;
    int64_t first = 0, group = 0;  // the line's first input; of all groups
    for (line = p.line; line < p.line + p.lines; first += line++->n) {
      const int64_t columns = line->past + line->n;
      const int64_t parts = std::max((line->n + TOGETHER - 1) / TOGETHER, std::min(line->n, for_all));
      for (int64_t piece = 0; piece < m.heads * parts; piece++) {
        if (group++ % threads != omp_get_thread_num()) continue;
        const int64_t head = piece / parts;
        const Share some = part_of(line->n, piece % parts, parts);
        const float* keys =
            line->cache + 2 * l * line->of_plane + head / (m.heads / m.key_heads) * line->of_head;
        Query queries[TOGETHER];
        int64_t count = 0, from = 0;  // the first column of these queries
        const auto flush = [&] {
          over(queries, count, keys + from * w, keys + line->of_plane + from * w, factor, cap, own.scores);
          count = 0;
        };
        for (int64_t input = some.begin; input < some.end; input++) {
          const int64_t r = first + input;
          const uint8_t* seen = line->seen ? (layer.near ? line->near : line->seen) + input * columns : nullptr;
          const int64_t end = seen ? columns : line->past + input + 1;
          int64_t begin = layer.near && !seen ? std::max<int64_t>(end - m.window, 0) : 0;
          while (seen && begin + 1 < end && !seen[begin]) begin++;
          if (count > 0 && begin != from) flush();
          from = begin;
          queries[count++] = {qkv + (r * heads + head) * w, seen ? seen + from : nullptr, end - from,
                              attended + (r * m.heads + head) * w};
        }
        flush();
      }
    }
    barrier.wait();
    add(layer.out, attended, layer.after_attention);
    if (!layer.plain) norms(p.h, rows, D, m.eps, own.scale);
    const auto act = [&](int64_t r, int64_t at, int64_t count, const float* gate) {
      const float* up = gate + APART;
      alignas(64) float found[PANEL];
      for (int i = 0; i < PANEL; i += LANES) {
        const Vec x = load(gate + i);
        const Vec z = m.gelu ? x * (1.5957691216f + 0.0713548163f * x * x) : x;  // 2 √(2/π) (x + 0.044715 x³)
        store(found + i, x / (1.0f + exp(-z)) * load(up + i));
      }
      std::copy_n(found, count, acted + r * m.inner + at);
    };
    products(layer.gate, layer.up, p.h, rows, layer.plain ? nullptr : own.scale, own, act);
    barrier.wait();
    add(layer.down, acted, layer.after_feed_forward);
  }
  if (!p.kept_count) return;
  const auto mine = share(p.kept_count);
  for (int64_t i = mine.begin; i < mine.end; i++) std::copy_n(p.h + p.kept[i] * D, D, last + i * D);
  barrier.wait();
  norms(last, p.kept_count, D, m.eps, own.scale);  // `own.scale` has room: kept_count is at most the number of inputs
  product(m.head, last, p.kept_count, own.scale, own, [&](int64_t r, int64_t at, int64_t count, const float* found) {
    float* to = p.logits + r * m.head.out + at;
    alignas(64) float made[PANEL];
    for (int i = 0; i < PANEL; i += LANES) {
      const Vec logit = load(found + i) * static_cast<float>(m.logits);
      store(made + i, most > 0 ? capped(logit, most) : logit);
    }
    std::copy_n(made, count, to);
  });
}

}  // namespace

extern "C" {

int64_t polydraft_panel() { return PANEL; }

int64_t polydraft_lanes() { return LANES; }

// Whether several threads can compute a pass.
int64_t polydraft_threads() { return OPENMP; }

// Whether the processor has instructions for products with rounded inputs; `reference` takes many times as long.
int64_t polydraft_rounds() { return ROUNDS; }

// Bytes of a panel of so many outputs for `in` inputs, of weights that a file has in this type; 0 if there is none.
int64_t polydraft_panel_bytes(int64_t type, int64_t in, int64_t outputs) {
  const FileType* of = file_type(type);
  return of && sizes({in, outputs}) && in % of->layout.multiple() == 0 ? panel_bytes(*of, in, outputs) : 0;
}

// Rearranges a file's weights into panels. Returns 0; or 2 for a field that is invalid, and then it changes nothing.
int polydraft_panels(const Stored* given) {
  const Stored& of = *given;
  if (!fits(of)) return 2;
  const FileType& type = *file_type(of.type);
  const int64_t row = bytes_of_row(type, of.in), size = panel_bytes(type, of.in, of.outputs), panels = of.bytes / size;
#pragma omp parallel for num_threads(static_cast<int>(of.threads)) schedule(static)
  for (int64_t i = 0; i < panels; i++) {
    const int64_t first = i * of.outputs, count = std::min(of.outputs, of.out - first);
    const uint8_t* rows[MOST_OUTPUTS];
    for (int64_t o = 0; o < count; o++) rows[o] = of.rows + (of.order ? of.order[first + o] : first + o) * row;
    fill_panel(type, rows, count, of.in, of.outputs, of.panels + i * size);
  }
  return 0;
}

// Decodes rows of a matrix. Returns 0; or 2 for a field that is invalid, and then it changes nothing.
int polydraft_rows(const Rows* given) {
  const Rows& of = *given;
  if (!fits(of)) return 2;
  const int64_t bytes = FORMATS[of.part.kind].bytes(of.in);
  for (int64_t i = 0; i < of.count; i++) {
    const int64_t panel = of.ids[i] / PANEL, o = of.ids[i] % PANEL;
    decode_output(of.part.kind, of.part.panels + panel * bytes, of.in, o, of.rows + i * of.in);
  }
  return 0;
}

// A description of the first invalid field of the model, or of the pass if one is given; null if all are valid.
const char* polydraft_fault(const Model* model, const Pass* pass) {
  const char* found = fault_of(*model);
  return found || !pass ? found : fault_of(*model, *pass);
}

// Advances every line by its inputs: writes keys and values to the cache, and the pass's logits and features. Returns 0; or
// 1 without memory for intermediate results, or 2 if `polydraft_fault` finds an invalid field; then it changes nothing.
int polydraft_forward(const Model* model, const Pass* pass) {
  if (polydraft_fault(model, pass)) return 2;
  const Model& m = *model;
  const Pass& p = *pass;
  const Room room(m, p);
  const std::unique_ptr<float[], Freed> scratch(
      new (std::align_val_t{CACHE_LINE}, std::nothrow) float[room.shared() + p.threads * room.own()]);
  if (!scratch) return 1;
  Barrier barrier;
#pragma omp parallel num_threads(static_cast<int>(p.threads))
  run(m, p, room, scratch.get(), barrier);
  return 0;
}

}  // extern "C"
