// Products of inputs and matrices, with adapters: each thread computes its share of the panels.

#pragma once

#include <algorithm>
#include <cmath>

#include "rounded_ways.h"
#include "threads.h"
#include "weights.h"

namespace {

constexpr int64_t IN_CACHE = 400'000;  // bytes: twice as many, and some inputs, fit into a core's cache
constexpr int AHEAD = 2048;            // bytes: the hardware's own prefetch ends at each page of 4 KB
constexpr int64_t FETCHING = 2;        // blocks of inputs during which the next panel is fetched, at most
// Inputs from which decoding a panel of coded weights once is faster, and up to how many bytes it may have then.
constexpr int64_t MANY = 13, DECODED = LANES == 8 ? 1'100'000 : 400'000;
constexpr int64_t CHUNK = 32;  // rounded inputs that are stored together
constexpr int64_t INPUTS_IN_CACHE = 400'000;  // bytes of inputs that stay in the cache while panels pass by
constexpr int64_t APART = CHUNK * PANEL;  // numbers from the outputs of one matrix to those of another

// Memory for what is computed beside products: of one thread; and of values derived from a product's inputs, each array
// with `rows` rows. Every thread computes all of those, which is faster than synchronising; those of many inputs are in
// memory that threads share, and each thread computes a part.
struct Own {
  float *scale, *scores, *decoded;
  float *sums, *weighed, *low;
  Rounded* rounded;
  bool rounds;  // whether products with coded weights round their inputs
  bool shared;  // whether threads share the derived values
  Barrier* barrier;
};

// 1 / root mean square of D numbers.
float norm(const float* x, int64_t D, double eps) {
  float total = 0.0f;
  int64_t i = 0;
  Vec squares = {};
  for (; i + LANES <= D; i += LANES) squares += load(x + i) * load(x + i);
  for (; i < D; i++) total += x[i] * x[i];
  total += sum<LANES>(squares);
  return static_cast<float>(1.0 / std::sqrt(total / static_cast<double>(D) + eps));
}

// Of each row. Every thread computes all of them.
void norms(const float* x, int64_t rows, int64_t D, double eps, float* scale) {
  for (int64_t r = 0; r < rows; r++) scale[r] = norm(x + r * D, D, eps);
}

float number(const float* p) { return *p; }
float number(const int8_t* p) { return *p; }
float number(const uint16_t* p) {
  const uint32_t bits = uint32_t{*p} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Calls a function with a number of the type of A's and B's.
template <class Call>
void with_number_of(const LowRank& low, Call call) {
  if (low.kind == FLOAT32) {
    call(float{});
  } else if (low.kind == BFLOAT16) {
    call(uint16_t{});
  } else {
    call(int8_t{});
  }
}

// strengths · (A x) for some rows of x (rows, K), to `found` (rows, rank).
template <class Number>
void into_low_rank(const LowRank& low, const float* x, Share rows, int64_t K, float* found) {
  for (int64_t r = rows.begin; r < rows.end; r++) {
    for (int64_t j = 0; j < low.rank; j++) {
      const Number* a = static_cast<const Number*>(low.a) + j * K;
      Vec totals[2] = {};
      int64_t k = 0;
      for (; k + 2 * LANES <= K; k += 2 * LANES) {
        if (r == rows.begin) __builtin_prefetch(a + k + 2 * K);  // the processor's own prefetching ends at each page
        totals[0] += load(a + k) * load(x + r * K + k);
        totals[1] += load(a + k + LANES) * load(x + r * K + k + LANES);
      }
      float rest = 0.0f;
      for (; k < K; k++) rest += number(a + k) * x[r * K + k];
      found[r * low.rank + j] = low.strengths[j] * (sum<LANES>(totals[0] + totals[1]) + rest);
    }
  }
}

// Adds the product of B and the inner values (rows, rank) to the outputs `values` (rows, PANEL) of one panel.
template <class Number>
void out_of_low_rank(const LowRank& low, int64_t panel, const float* inner, int rows, float* values) {
  const int64_t first = low.first[panel];
  if (first < 0) return;
  const Number* b = static_cast<const Number*>(low.b) + panel * low.count * PANEL;
  for (int r = 0; r < rows; r++) {
    Vec one = load(values + r * PANEL), other = load(values + r * PANEL + LANES);
    for (int64_t j = 0; j < low.count; j++) {
      const float x = inner[r * low.rank + first + j];
      one += load(b + j * PANEL) * x;
      other += load(b + j * PANEL + LANES) * x;
    }
    store(values + r * PANEL, one);
    store(values + r * PANEL + LANES, other);
  }
}

// Prefetches the columns of B of one panel, while the panel itself is computed.
void fetch_low_rank(const LowRank& low, int64_t panel) {
  const int64_t bytes = low.count * PANEL * bytes_of_number(low);
  const char* b = static_cast<const char*>(low.b) + panel * bytes;
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(b + at);
}

// Values of the inputs x (rows, K) of a product with one matrix.
struct Inputs {
  const float* x;
  int64_t rows;
  const float* scale;  // (rows,) factors of the results, or null
  const float* sums;   // see `Own`
  Rounded* rounded;     // the same inputs in chunks, or null
};

int64_t chunks_of(int64_t rows) { return (rows + CHUNK - 1) / CHUNK; }

// Where a chunk of rounded inputs begins.
Rounded* chunk_at(Rounded* rounded, int64_t row, int64_t K) {
  return reinterpret_cast<Rounded*>(reinterpret_cast<float*>(rounded) + row * (K / BLOCK + 1) * FLOATS_OF_ROUNDED);
}

// Panels of a part of a matrix, for this thread's products.
struct Panels {
  const Matrix* matrix;
  const Part* part;
  const Format* format;
  int64_t K, bytes;   // inputs; bytes of a panel
  float* decoded;     // where this thread decodes a panel for many inputs, or null
  int64_t first, at;  // this part's first output in the matrix, and its panel

  const char* panel(int64_t p) const { return part->panels + p * bytes; }

  // The outputs (rows, PANEL) of panel p for some of the inputs, from `row` on. `inner`: the inner values of its adapters.
  void outputs(int64_t p, const Inputs& inputs, bool rounded, int64_t row, int rows, const float* inner, Fetch fetch,
               float* found) const {
    const float *x = inputs.x + row * K, *sums = inputs.sums + row * (K / BLOCK);
    if (rounded) {
      const RoundedRows chunk = rounded_rows(chunk_at(inputs.rounded, row, K), rows, K);
      rounded_of(format->layout)(format->layout, panel(p), chunk, K, fetch, found);
    } else if (decoded) {
      FORMATS[FLOAT32].panel[rows - 1]({}, reinterpret_cast<const char*>(decoded), x, K, sums, fetch, found);
    } else {
      format->panel[rows - 1](format->layout, panel(p), x, K, sums, fetch, found);
    }
    if (const LowRank* low = matrix->low) {
      with_number_of(*low, [&](auto number) {
        out_of_low_rank<decltype(number)>(*low, at + p, inner + row * low->rank, rows, found);
      });
    }
    for (int r = 0; inputs.scale && r < rows; r++) {
      for (int j = 0; j < PANEL; j += LANES) store(found + r * PANEL + j, load(found + r * PANEL + j) * inputs.scale[row + r]);
    }
    if (const float* bias = matrix->bias) {
      const int64_t count = std::min<int64_t>(PANEL, part->out - p * PANEL);
      for (int r = 0; r < rows; r++) {
        for (int64_t j = 0; j < count; j++) found[r * PANEL + j] += bias[first + p * PANEL + j];
      }
    }
  }
};

// y = scale · x Wᵀ + b, for this thread's share of the panels of COUNT parts, of as many matrices with the same inputs
// and outputs: `take(row, first output, how many, values)` gets a panel of each, PANEL values APART from each other.
// `first`: the first output of these parts, and its panel; `low`: the inner values of each matrix's adapters.
template <int COUNT, class Take>
void some_panels(const Matrix* const (&matrices)[COUNT], const Part* const (&parts)[COUNT], Share mine, int64_t first,
                 int64_t first_panel, const Inputs& inputs, const Own& own, const float* const (&low)[COUNT], Take take) {
  alignas(64) float found[COUNT * APART];
  const int64_t rows = inputs.rows, K = matrices[0]->in;
  Panels of[COUNT];
  int64_t size = 0;
  bool rounded = inputs.rounded;  // if all of these weights are coded
  for (int i = 0; i < COUNT; i++) {
    const Format& format = FORMATS[parts[i]->kind];
    of[i] = {matrices[i], parts[i], &format, K, format.bytes(K), nullptr, first, first_panel};
    size += of[i].bytes;
    rounded = rounded && format.coded();
  }
  const int64_t blocks = rounded ? chunks_of(rows) : (rows + ROWS - 1) / ROWS;
  if (blocks == 0) return;
  // For many inputs, weights are decoded once.
  for (int i = 0; i < COUNT; i++) {
    const bool decodes = !rounded && of[i].format->coded() && rows >= MANY && Float32::bytes(K) <= DECODED;
    of[i].decoded = decodes ? own.decoded + i * K * PANEL : nullptr;
  }
  // While one panel is computed, the first blocks of inputs prefetch the next panel. In a panel too large for the cache,
  // the weights just ahead are prefetched instead.
  const bool whole = size <= IN_CACHE;
  // Inputs that stay in the cache are multiplied with all panels before the next inputs are.
  const int64_t bytes = rows * (rounded ? K / BLOCK * FLOATS_OF_ROUNDED : K) * int64_t{sizeof(float)};
  const int64_t groups = std::min((bytes + INPUTS_IN_CACHE - 1) / INPUTS_IN_CACHE, blocks);
  for (int64_t i = 0; i < groups * mine.count(); i++) {
    const Share group = part_of(blocks, i / mine.count(), groups);
    const int64_t p = mine.begin + i % mine.count(), fetching = std::min(group.count(), FETCHING);
    for (const Panels& each : of) {
      if (each.decoded) each.format->decode(each.format->layout, each.panel(p), K, each.decoded);
      if (each.matrix->low) fetch_low_rank(*each.matrix->low, first_panel + p);
    }
    for (int64_t block = group.begin; block < group.end; block++) {
      const Share some = part_of(rows, block, blocks);
      for (int j = 0; j < COUNT; j++) {
        const int64_t each = (of[j].bytes + K - 1) / K, piece = (each + fetching - 1) / fetching, before = block - group.begin;
        const char* w = of[j].panel(p);
        Fetch fetch{w + AHEAD, each, false};
        if (whole) fetch = {w + of[j].bytes + before * piece * K, before < fetching ? piece : 0, true};
        of[j].outputs(p, inputs, rounded, some.begin, static_cast<int>(some.count()), low[j], fetch, found + j * APART);
      }
      const int64_t count = std::min<int64_t>(PANEL, parts[0]->out - p * PANEL);
      for (int64_t r = 0; r < some.count(); r++) take(some.begin + r, first + p * PANEL, count, found + r * PANEL);
    }
  }
}

bool has_offsets(const Matrix& m) {
  return std::any_of(m.part, m.part + m.parts, [](const Part& part) { return FORMATS[part.kind].layout.offsets; });
}

bool has_codes(const Matrix* m) {
  return std::any_of(m->part, m->part + m->parts, [](const Part& part) { return FORMATS[part.kind].coded(); });
}

// Which chunks of inputs this thread derives values from, and which inputs.
Share chunks_to_derive(int64_t rows, const Own& own) {
  return own.shared ? share(chunks_of(rows)) : Share{0, chunks_of(rows)};
}

Share rows_to_derive(int64_t rows, const Own& own) {
  const Share chunks = chunks_to_derive(rows, own);
  const int64_t all = std::max<int64_t>(chunks_of(rows), 1);
  return {rows * chunks.begin / all, rows * chunks.end / all};
}

// What the products of x with these matrices share: they have the norm of the first one. `inner`: where the inner values of
// each matrix's adapters go.
template <int COUNT>
Inputs inputs_of(const Matrix* const (&matrices)[COUNT], const float* x, int64_t rows, const float* scale, const Own& own,
                 float* const (&inner)[COUNT]) {
  const int64_t K = matrices[0]->in;
  const Share mine = rows_to_derive(rows, own);
  if (const float* norm = matrices[0]->norm) {
    for (int64_t r = mine.begin; r < mine.end; r++) {
      for (int64_t i = 0; i < K; i++) own.weighed[r * K + i] = x[r * K + i] * norm[i];
    }
    x = own.weighed;
  }
  const bool rounds = own.rounds && std::all_of(matrices, matrices + COUNT, has_codes);
  const Share chunks = chunks_to_derive(rows, own);
  for (int64_t chunk = chunks.begin; rounds && chunk < chunks.end; chunk++) {
    const Share some = part_of(rows, chunk, chunks_of(rows));
    round_inputs(x + some.begin * K, some.count(), K, chunk_at(own.rounded, some.begin, K));
  }
  if (!rounds && std::any_of(matrices, matrices + COUNT, [](const Matrix* m) { return has_offsets(*m); })) {
    for (int64_t at = mine.begin * K; at < mine.end * K; at += BLOCK) {
      Vec total = load(x + at);
      for (int64_t i = LANES; i < BLOCK; i += LANES) total += load(x + at + i);
      own.sums[at / BLOCK] = sum<LANES>(total);
    }
  }
  for (int i = 0; i < COUNT; i++) {
    if (const LowRank* low = matrices[i]->low) {
      with_number_of(*low, [&](auto number) { into_low_rank<decltype(number)>(*low, x, mine, K, inner[i]); });
    }
  }
  if (own.shared) own.barrier->wait();
  return {x, rows, scale, own.sums, rounds ? own.rounded : nullptr};
}

// y = scale · x Wᵀ + b for x (rows, K), a panel at a time: `take(row, first output, how many, values)`. A scale for
// each row, or null.
template <class Take>
void product(const Matrix& m, const float* x, int64_t rows, const float* scale, const Own& own, Take take) {
  const Inputs inputs = inputs_of<1>({&m}, x, rows, scale, own, {own.low});
  int64_t panels = 0, first = 0, before = 0;
  for (int64_t i = 0; i < m.parts; i++) panels += panels_of(m.part[i]);
  const Share mine = share(panels);
  for (int64_t i = 0; i < m.parts; i++) {
    const Part& part = m.part[i];
    const int64_t some = panels_of(part);
    const Share here{std::max<int64_t>(mine.begin - before, 0), std::min(mine.end - before, some)};
    some_panels<1>({&m}, {&part}, here, first, before, inputs, own, {own.low}, take);
    first += part.out;
    before += some;
  }
}

// The same of two matrices of one part, with the first one's norm. `take` gets a panel of both.
template <class Take>
void products(const Matrix& a, const Matrix& b, const float* x, int64_t rows, const float* scale, const Own& own,
              Take take) {
  float* second = own.low + (a.low ? rows * a.low->rank : 0);
  const Inputs inputs = inputs_of<2>({&a, &b}, x, rows, scale, own, {own.low, second});
  some_panels<2>({&a, &b}, {a.part, b.part}, share(panels_of(a.part[0])), 0, 0, inputs, own, {own.low, second}, take);
}

}  // namespace
