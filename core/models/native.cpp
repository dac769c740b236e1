// One pass through a model of the Llama family on a CPU, with few inputs at a time, at the speed of its memory.
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
// Numbers are float32. A matrix's weights may be bfloat16 (the upper half of a float32) or in a format of GGUF files: 4
// or 8 bits each, with a scale (and an offset) for every 32 inputs of an output; they are decoded in registers. The
// factor of an RMS norm is applied to the product that follows it. Shapes: B lines of n inputs each, D width, H query
// heads on K key heads, w width of a head, I inner width, C columns of the cache.
//
// The caller owns all memory. The fields of `Model` and `Pass` state its obligations. `polydraft_fault` checks those that
// affect sizes or addresses before each pass, in about a hundred comparisons. It cannot check that a pointer refers to as
// many numbers as its field states.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>
#include <omp.h>
#include <utility>

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 12;  // 24 sums, two weights and an input in 32 registers
#else
constexpr int LANES = 8, ROWS = 4;  // 8 sums in 16 registers
#endif
constexpr int PANEL = 2 * LANES;
constexpr int AHEAD = 2048;  // bytes: the hardware's own prefetch ends at each page of 4 KB
constexpr int64_t IN_CACHE = 400'000;  // bytes: twice as many, and some inputs, fit into a core's cache
constexpr int64_t MANY = 13;           // inputs from which decoding coded weights once is faster
constexpr int WIDEST = 256;            // of a head
constexpr int64_t LARGEST = INT32_MAX;  // of a size: the product of two fits in 64 bits
constexpr int64_t MOST = int64_t{1} << 40;  // numbers between two matrices: products and sums end here
constexpr int64_t THREADS = 1024;
constexpr float UNSEEN = -1e30f;

typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef float Unaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t Word __attribute__((vector_size(4 * LANES)));
typedef int32_t Int __attribute__((vector_size(4 * LANES)));
typedef uint16_t Half __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef uint32_t Words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

inline Vec load(const float* p) { return *reinterpret_cast<const Unaligned*>(p); }
// bfloat16 as float32.
inline Vec load(const uint16_t* p) {
  return reinterpret_cast<Vec>(__builtin_convertvector(*reinterpret_cast<const Half*>(p), Word) << 16);
}
inline Word load_words(const uint32_t* p) { return *reinterpret_cast<const Words*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<Unaligned*>(p) = v; }

// The sum of a vector's lanes, by halves.
template <int LENGTH, class V>
inline float sum(V v) {
  if constexpr (LENGTH == 1) {
    return v[0];
  } else if constexpr (LENGTH == 2) {
    return v[0] + v[1];
  } else {
    typedef float Lower __attribute__((vector_size(2 * LENGTH)));
    Lower low, high;
    std::memcpy(&low, &v, sizeof low);
    std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof low, sizeof high);
    return sum<LENGTH / 2>(low + high);
  }
}

// e^x with a relative error of 2e-7; 0 below -87. It is 2^n · 2^f with |f| <= 1/2, the second by its Taylor series.
inline Vec exp(Vec x) {
  constexpr float MAGIC = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer
  const Vec z = (x > 88.0f ? x - x + 88.0f : x) * 1.442695041f;
  const Vec n = (z + MAGIC) - MAGIC;
  const Vec f = z - n;
  const Vec p =
      ((((((f * 1.5403530e-4f + 1.3333558e-3f) * f + 9.6181291e-3f) * f + 5.5504109e-2f) * f + 2.4022651e-1f) * f +
        6.9314718e-1f) *
           f +
       1.0f);
  const Vec power = reinterpret_cast<Vec>((__builtin_convertvector(n, Int) + 127) << 23);
  return x < -87.0f ? x - x : p * power;
}

}  // namespace

extern "C" {

enum Kind : int64_t { FLOAT32, BFLOAT16, BITS8, BITS4 };

// The change that adapters make to the outputs of a matrix: B · (strengths · (A x)). Several adapters are concatenated.
struct LowRank {
  const void* a;           // (rank, in)
  const void* b;           // (panels of the matrix, count, PANEL): the columns of B that a panel of outputs has
  const int64_t* first;    // (panels,) the first of these columns; -1 for none
  const float* strengths;  // (rank,)
  int64_t rank, count;     // above 0, `count` at most `rank`
  int64_t kind;            // of A and B: FLOAT32 or BFLOAT16
  int64_t a_bytes, b_bytes;
};

struct Matrix {
  const char* panels;  // ceil(out / PANEL) panels, each in the format of its kind
  const float* bias;   // (out,) or null
  const float* norm;   // (in,) factors of the inputs, or null
  int64_t out, in;     // with coded weights, `in` is a multiple of BLOCK
  int64_t kind;        // a Kind
  int64_t bytes;       // of all panels
  const LowRank* low;  // or null
};

struct Layer {
  Matrix qkv;      // D -> (H + 2 key heads) · w; the first layer's may have other inputs, those of `entering`
  Matrix out;      // H · w -> D
  Matrix gate_up;  // D -> a panel of the gate, one of up, the next of the gate, …, for I outputs each
  Matrix down;     // I -> D
};

// All sizes are above 0, `heads` a multiple of `key_heads`, `width` one of LANES up to WIDEST.
struct Model {
  int64_t layers, dim, heads, key_heads, width, inner;
  double eps;  // finite, not below 0
  const Layer* layer;  // (layers,)
  Matrix head;         // D -> V
};

// One sequence: its cache, and the inputs that it advances by. Lines have different numbers of both.
struct Line {
  int64_t n, past;           // inputs, above 0; columns of the cache before them
  float* cache;              // keys of the first layer; `of_plane` further its values, then the second's keys
  int64_t of_plane, of_head;  // strides of the cache in numbers; a column's w numbers are contiguous
  int64_t cache_size;        // numbers from `cache` to the end of its memory
  const uint8_t* seen;       // (n, past + n) the columns that each input attends to; null is all up to itself
};

struct Pass {
  int64_t lines, inputs, threads;  // above 0; `inputs` N is the sum of the lines' n
  const Line* line;                // (lines,), no two of one cache
  float* h;                        // (N, D): embeddings; overwritten by the residual stream, then the last output
  const float* entering;           // (N, in) the input of the first layer's q, k, v; null is h, normed
  int64_t entering_width;          // in
  const float *cos, *sin;          // (N, w)
  const int64_t* kept;             // indices of the inputs, of N, after which logits are computed
  int64_t kept_count;              // at most N
  float* logits;                   // (kept, V)
  const int64_t* watched;  // layers whose input residual stream is returned, ascending; `layers` is the last's output
  int64_t watched_count;
  float* features;  // (N, watched · D)
};

}  // extern "C"

namespace {

constexpr int64_t BLOCK = 32;  // inputs that share a scale

// The address to prefetch from, and the bytes by which it advances with each input.
struct Fetch {
  const char* from;
  int64_t step;
};

// Each kind of weights has a struct with the bytes of a panel for K inputs, and a function for the panel's outputs
// `found` (R, PANEL) for R inputs x (R, K). `sums` (R, K / BLOCK) are the sums of the inputs of each block.

// Adds the contribution of one input of each row to the totals of a panel.
template <int R>
inline void add_up(Vec totals[R][2], Vec first, Vec second, const float* x, int64_t K) {
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) {
    totals[r][0] += first * x[r * K];
    totals[r][1] += second * x[r * K];
  }
}

struct Float32 {
  static constexpr bool CODED = false;

  static int64_t bytes(int64_t K) { return K * PANEL * 4; }

  template <int R>
  static void panel(const char* panel, const float* x, int64_t K, const float*, Fetch fetch, float* found) {
    const float* w = reinterpret_cast<const float*>(panel);
    Vec totals[R][2] = {};
    for (int64_t k = 0; k < K; k++, w += PANEL, fetch.from += fetch.step) {
      __builtin_prefetch(fetch.from);
      __builtin_prefetch(fetch.from + 64);
      add_up<R>(totals, load(w), load(w + LANES), x + k, K);
    }
    for (int i = 0; i < 2 * R; i++) store(found + i * LANES, totals[i / 2][i % 2]);
  }
};

// The weights of two inputs share a word, so that a read is as wide as a float32 vector.
struct Bfloat16 {
  static constexpr bool CODED = false;

  static int64_t bytes(int64_t K) { return (K + 1) / 2 * PANEL * 4; }

  template <int R>
  static void panel(const char* panel, const float* x, int64_t K, const float*, Fetch fetch, float* found) {
    const uint32_t* w = reinterpret_cast<const uint32_t*>(panel);
    Vec totals[R][2] = {};
    for (int64_t k = 0; k < K; k += 2, w += PANEL, fetch.from += 2 * fetch.step) {
      __builtin_prefetch(fetch.from);
      __builtin_prefetch(fetch.from + 64);
      const Word a = load_words(w), b = load_words(w + LANES);
      add_up<R>(totals, reinterpret_cast<Vec>(a << 16), reinterpret_cast<Vec>(b << 16), x + k, K);
      if (k + 1 == K) break;
      add_up<R>(totals, reinterpret_cast<Vec>(a & 0xffff0000), reinterpret_cast<Vec>(b & 0xffff0000), x + k + 1, K);
    }
    for (int i = 0; i < 2 * R; i++) store(found + i * LANES, totals[i / 2][i % 2]);
  }
};

// Converts IEEE half precision: the same bits, shifted into a float32's places, are 2^-112 of the value.
inline Vec load_half(const char* p) {
  const Word bits = __builtin_convertvector(*reinterpret_cast<const Half*>(p), Word);
  const Vec size = reinterpret_cast<Vec>((bits & 0x7fff) << 13) * 0x1p112f;
  return reinterpret_cast<Vec>(reinterpret_cast<Word>(size) | ((bits & 0x8000) << 16));
}

// Codes of BITS bits. A block of a panel: PANEL scales, PANEL offsets if there are 4 bits, both in half precision, then
// words with the codes of 32 / BITS inputs each, the first one's lowest. A weight is scale · code + offset.
template <int BITS>
struct Coded {
  static constexpr bool CODED = true, OFFSETS = BITS == 4;
  static constexpr int IN_WORD = 32 / BITS;
  static constexpr int64_t HEAD = (OFFSETS ? 2 : 1) * 2 * PANEL, SIZE = HEAD + BLOCK * PANEL * BITS / 8;  // bytes

  static int64_t bytes(int64_t K) { return K / BLOCK * SIZE; }

  static Vec code(Word words, int place) {
    if constexpr (BITS == 8) {
      return __builtin_convertvector(reinterpret_cast<Int>(words << (24 - 8 * place)) >> 24, Vec);
    }
#if defined(__AVX512F__) && !defined(__clang__)
    constexpr Vec VALUES = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return __builtin_shuffle(VALUES, reinterpret_cast<Int>(words >> (4 * place)));  // by the lowest 4 bits
#else
    return __builtin_convertvector(reinterpret_cast<Int>((words >> (4 * place)) & 15), Vec);
#endif
  }

  // A panel as `Float32` has it.
  static void decode(const char* w, int64_t K, float* decoded) {
    for (int64_t k = 0; k < K; k += BLOCK, w += SIZE) {
      for (int half = 0; half < 2; half++) {
        const uint32_t* codes = reinterpret_cast<const uint32_t*>(w + HEAD) + half * LANES;
        const Vec scale = load_half(w + half * 2 * LANES);
        const Vec offset = OFFSETS ? load_half(w + 2 * PANEL + half * 2 * LANES) : Vec{};
        float* to = decoded + k * PANEL + half * LANES;
        for (int64_t i = 0; i < BLOCK; i += IN_WORD, codes += PANEL) {
          const Word words = load_words(codes);
#pragma GCC unroll 8
          for (int place = 0; place < IN_WORD; place++, to += PANEL) store(to, scale * code(words, place) + offset);
        }
      }
    }
  }

  template <int R>
  static void panel(const char* w, const float* x, int64_t K, const float* sums, Fetch fetch, float* found) {
    std::fill_n(found, R * PANEL, 0.0f);
    for (int64_t k = 0; k < K; k += BLOCK, w += SIZE) {
      const uint32_t* codes = reinterpret_cast<const uint32_t*>(w + HEAD);
      Vec totals[R][2] = {};
      for (int64_t i = k; i < k + BLOCK; i += IN_WORD, codes += PANEL, fetch.from += IN_WORD * fetch.step) {
        for (int64_t at = 0; at < IN_WORD * fetch.step; at += 64) __builtin_prefetch(fetch.from + at);
        const Word a = load_words(codes), b = load_words(codes + LANES);
#pragma GCC unroll 8
        for (int place = 0; place < IN_WORD; place++) {
          add_up<R>(totals, code(a, place), code(b, place), x + i + place, K);
        }
      }
      for (int half = 0; half < 2; half++) {
        const Vec scale = load_half(w + half * 2 * LANES);
        for (int r = 0; r < R; r++) {
          float* to = found + r * PANEL + half * LANES;
          Vec total = load(to) + scale * totals[r][half];
          if constexpr (OFFSETS) {
            total += load_half(w + 2 * PANEL + half * 2 * LANES) * sums[r * (K / BLOCK) + k / BLOCK];
          }
          store(to, total);
        }
      }
    }
  }
};

template <class Format, int... R>
void panel_of(std::integer_sequence<int, R...>, int rows, const char* w, const float* x, int64_t K, const float* sums,
              Fetch fetch, float* found) {
  static constexpr void (*ways[])(const char*, const float*, int64_t, const float*, Fetch, float*) = {
      Format::template panel<R + 1>...};
  ways[rows - 1](w, x, K, sums, fetch, found);
}

struct Share {
  int64_t begin, end;
};

// This thread's range of `pieces` units of work.
Share share(int64_t pieces) {
  const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
  return {pieces * thread / threads, pieces * (thread + 1) / threads};
}

// One thread's memory for values derived from the inputs of a product; each array has `rows` rows.
struct Own {
  float *scale, *sums, *weighed, *scores, *decoded, *low;
};

// 1 / root mean square of each row. Every thread computes all of them, which is faster than synchronising.
void norms(const float* x, int64_t rows, int64_t D, double eps, float* scale) {
  for (int64_t r = 0; r < rows; r++) {
    float total = 0.0f;
    int64_t i = 0;
    Vec squares = {};
    for (; i + LANES <= D; i += LANES) squares += load(x + r * D + i) * load(x + r * D + i);
    for (; i < D; i++) total += x[r * D + i] * x[r * D + i];
    total += sum<LANES>(squares);
    scale[r] = static_cast<float>(1.0 / std::sqrt(total / static_cast<double>(D) + eps));
  }
}

float number(const float* p) { return *p; }
float number(const uint16_t* p) {
  const uint32_t bits = uint32_t{*p} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// strengths · (A x) for x (rows, K), to `found` (rows, rank). Every thread computes all of them, as for the norms.
template <class Number>
void into_low_rank(const LowRank& low, const float* x, int64_t rows, int64_t K, float* found) {
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t j = 0; j < low.rank; j++) {
      const Number* a = static_cast<const Number*>(low.a) + j * K;
      Vec totals[2] = {};
      int64_t k = 0;
      for (; k + 2 * LANES <= K; k += 2 * LANES) {
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

// y = scale · x Wᵀ + b for x (rows, K), a panel at a time: `take(row, first output, how many, values)`. A scale for
// each row, or null. With PAIR, two panels at a time: values[0 … PANEL) of the one, values[ROWS · PANEL …) of the other.
template <bool PAIR, class Format, class Take>
void product_of(const Matrix& m, const float* x, int64_t rows, const float* scale, const Own& own, Take take) {
  alignas(64) float found[(PAIR ? 2 : 1) * ROWS * PANEL];
  const auto counts = std::make_integer_sequence<int, ROWS>{};
  const int64_t panels = (m.out + PANEL - 1) / PANEL;
  const auto mine = share(PAIR ? panels / 2 : panels);
  const int64_t blocks = (rows + ROWS - 1) / ROWS;
  if (blocks == 0) return;
  // While one panel is computed, each block of inputs prefetches its part of the next panel. In a panel too large for the
  // cache, the weights just ahead are prefetched instead.
  const int64_t bytes = Format::bytes(m.in), size = (PAIR ? 2 : 1) * bytes, each = (bytes + m.in - 1) / m.in;
  const bool whole = size <= IN_CACHE;
  const int64_t step = whole ? (each + blocks - 1) / blocks : each;
  // For many inputs, weights are decoded once.
  const bool decode = Format::CODED && rows >= MANY && 2 * Float32::bytes(m.in) <= IN_CACHE;
  for (int64_t p = mine.begin; p < mine.end; p++) {
    if constexpr (Format::CODED) {
      for (int half = 0; decode && half < (PAIR ? 2 : 1); half++) {
        const int64_t at = PAIR ? 2 * p + half : p;
        Format::decode(m.panels + at * bytes, m.in, own.decoded + half * m.in * PANEL);
      }
    }
    for (int64_t block = 0; block < blocks; block++) {
      const int64_t row = rows * block / blocks;
      const int some = static_cast<int>(rows * (block + 1) / blocks - row);
      for (int half = 0; half < (PAIR ? 2 : 1); half++) {
        const int64_t at = PAIR ? 2 * p + half : p;
        float* values = found + half * ROWS * PANEL;
        const char* w = m.panels + at * bytes;
        const Fetch fetch{w + (whole ? size + block * step * m.in : AHEAD), step};
        const float* sums = own.sums + row * (m.in / BLOCK);
        if (decode) {
          const char* panel = reinterpret_cast<const char*>(own.decoded + half * m.in * PANEL);
          panel_of<Float32>(counts, some, panel, x + row * m.in, m.in, sums, fetch, values);
        } else {
          panel_of<Format>(counts, some, w, x + row * m.in, m.in, sums, fetch, values);
        }
        if (m.low) {
          const float* inner = own.low + row * m.low->rank;
          if (m.low->kind == BFLOAT16) {
            out_of_low_rank<uint16_t>(*m.low, at, inner, some, values);
          } else {
            out_of_low_rank<float>(*m.low, at, inner, some, values);
          }
        }
        const int count = static_cast<int>(std::min<int64_t>(PANEL, m.out - at * PANEL));
        for (int r = 0; r < some; r++) {
          const float factor = scale ? scale[row + r] : 1.0f;
          for (int i = 0; i < count; i++) {
            values[r * PANEL + i] = values[r * PANEL + i] * factor + (m.bias ? m.bias[at * PANEL + i] : 0.0f);
          }
        }
      }
      for (int r = 0; r < some; r++) {
        take(row + r, p * PANEL, std::min<int64_t>(PANEL, m.out - p * PANEL), found + r * PANEL);
      }
    }
  }
}

template <bool PAIR = false, class Take>
void product(const Matrix& m, const float* x, int64_t rows, const float* scale, const Own& own, Take take) {
  if (m.norm) {
    for (int64_t r = 0; r < rows; r++) {
      for (int64_t i = 0; i < m.in; i++) own.weighed[r * m.in + i] = x[r * m.in + i] * m.norm[i];
    }
    x = own.weighed;
  }
  if (m.kind == BITS4) {
    for (int64_t at = 0; at < rows * m.in; at += BLOCK) {
      Vec total = load(x + at);
      for (int64_t i = LANES; i < BLOCK; i += LANES) total += load(x + at + i);
      own.sums[at / BLOCK] = sum<LANES>(total);
    }
  }
  if (m.low) {
    if (m.low->kind == BFLOAT16) {
      into_low_rank<uint16_t>(*m.low, x, rows, m.in, own.low);
    } else {
      into_low_rank<float>(*m.low, x, rows, m.in, own.low);
    }
  }
  switch (static_cast<Kind>(m.kind)) {
    case FLOAT32: return product_of<PAIR, Float32>(m, x, rows, scale, own, take);
    case BFLOAT16: return product_of<PAIR, Bfloat16>(m, x, rows, scale, own, take);
    case BITS8: return product_of<PAIR, Coded<8>>(m, x, rows, scale, own, take);
    case BITS4: return product_of<PAIR, Coded<4>>(m, x, rows, scale, own, take);
  }
}

// Rotates the pairs (i, i + w/2) of one head.
void rotate(const float* x, const float* cos, const float* sin, int64_t w, float* out) {
  for (int64_t i = 0, half = w / 2; i < half; i++) {
    const float a = x[i], b = x[i + half];
    out[i] = a * cos[i] - b * sin[i];
    out[i + half] = b * cos[i + half] + a * sin[i + half];
  }
}

// Attention of one query to `columns` keys and values of w = N · LANES numbers each, limited to `seen` (null: all).
template <int N>
void attend(const float* q, const float* keys, const float* values, const uint8_t* seen, int64_t columns, float* scores,
            float* out) {
  const float temper = 1.0f / std::sqrt(static_cast<float>(N * LANES));
  Vec query[N], found[N] = {};
  for (int i = 0; i < N; i++) query[i] = load(q + i * LANES) * temper;
  float most = UNSEEN;
  for (int64_t c = 0; c < columns; c++) {
    Vec dot = {};
    for (int i = 0; i < N; i++) dot += query[i] * load(keys + (c * N + i) * LANES);
    scores[c] = seen && !seen[c] ? UNSEEN : sum<LANES>(dot);
    most = std::max(most, scores[c]);
  }
  const int64_t filled = (columns + LANES - 1) / LANES * LANES;
  std::fill(scores + columns, scores + filled, UNSEEN);
  Vec total = {};
  for (int64_t c = 0; c < filled; c += LANES) {
    const Vec weight = exp(load(scores + c) - most);
    total += weight;
    store(scores + c, weight);
  }
  for (int64_t c = 0; c < columns; c++) {
    for (int i = 0; i < N; i++) found[i] += load(values + (c * N + i) * LANES) * scores[c];
  }
  const float whole = 1.0f / sum<LANES>(total);
  for (int i = 0; i < N; i++) store(out + i * LANES, found[i] * whole);
}

using Attend = void (*)(const float*, const float*, const float*, const uint8_t*, int64_t, float*, float*);

template <int... N>
Attend attend_of(std::integer_sequence<int, N...>, int64_t width) {
  static constexpr Attend ways[] = {attend<N + 1>...};
  return ways[width / LANES - 1];
}

// The smaller of a · b and MOST, for a, b >= 0.
int64_t times(int64_t a, int64_t b) { return b && a > MOST / b ? MOST : a * b; }

// Sizes, in numbers, of the intermediate results of `run`: the shared ones, and those of each thread.
struct Room {
  int64_t qkv, attended, acted, last, scale, sums, weighed, scores, decoded, low;

  Room(const Model& m, const Pass& p) {
    const int64_t rows = p.inputs, entering = m.layer[0].qkv.in;
    int64_t columns = 0;
    for (int64_t l = 0; l < p.lines; l++) columns = std::max(columns, p.line[l].past + p.line[l].n);
    const int64_t widest = std::max({m.dim, m.inner, m.heads * m.width, entering});
    qkv = times(rows, (m.heads + 2 * m.key_heads) * m.width);
    attended = times(rows, m.heads * m.width);
    acted = times(rows, m.inner);
    last = times(p.kept_count, m.dim);
    scale = rows;
    sums = times(rows, (widest + BLOCK) / BLOCK);
    weighed = times(rows, std::max(m.dim, entering));
    scores = (columns + LANES - 1) / LANES * LANES;
    decoded = IN_CACHE / 4;
    int64_t rank = 0;
    for (int64_t l = 0; l < m.layers; l++) {
      const Layer& layer = m.layer[l];
      for (const Matrix* matrix : {&layer.qkv, &layer.out, &layer.gate_up, &layer.down}) {
        if (matrix->low) rank = std::max(rank, matrix->low->rank);
      }
    }
    low = times(rows, rank);
  }

  int64_t shared() const { return qkv + attended + acted + last; }
  int64_t own() const { return scale + sums + weighed + scores + decoded + low; }
};

bool sizes(std::initializer_list<int64_t> all) {
  return std::all_of(all.begin(), all.end(), [](int64_t size) { return 0 < size && size <= LARGEST; });
}

// Whether the fields of an addition to this many panels of outputs are valid.
bool fits(const LowRank& low, int64_t panels, int64_t in) {
  if (!low.a || !low.b || !low.first || !low.strengths || !sizes({low.rank, low.count})) return false;
  if (low.count > low.rank || (low.kind != FLOAT32 && low.kind != BFLOAT16)) return false;
  const int64_t size = low.kind == FLOAT32 ? 4 : 2, a = times(low.rank, in), b = times(times(panels, PANEL), low.count);
  if (a == MOST || b == MOST || low.a_bytes != a * size || low.b_bytes != b * size) return false;
  const int64_t most = low.rank - low.count;
  return std::all_of(low.first, low.first + panels, [&](int64_t first) { return -1 <= first && first <= most; });
}

// Whether a matrix has this shape, and its panels have the number of bytes that the shape requires.
bool fits(const Matrix& m, int64_t out, int64_t in) {
  if (!m.panels || m.out != out || m.in != in || !sizes({out, in})) return false;
  const int64_t panels = (out + PANEL - 1) / PANEL;
  if (m.low && !fits(*m.low, panels, in)) return false;
  switch (m.kind) {
    case FLOAT32: return m.bytes == panels * Float32::bytes(in);
    case BFLOAT16: return m.bytes == panels * Bfloat16::bytes(in);
    case BITS8: return in % BLOCK == 0 && m.bytes == panels * Coded<8>::bytes(in);
    case BITS4: return in % BLOCK == 0 && m.bytes == panels * Coded<4>::bytes(in);
  }
  return false;
}

const char* fault_of(const Model& m) {
  if (!m.layer || !sizes({m.layers, m.dim, m.heads, m.key_heads, m.width, m.inner})) return "a size is not above 0";
  if (m.heads % m.key_heads) return "the heads are no multiple of the key heads";
  if (m.width % LANES || m.width > WIDEST) return "the heads are of a width that is not computed here";
  if (!(m.eps >= 0) || std::isinf(m.eps)) return "the norms' epsilon is no number from 0 on";
  const int64_t queries = m.heads * m.width, all = queries + 2 * m.key_heads * m.width;
  const int64_t both = (m.inner + PANEL - 1) / PANEL * 2 * PANEL;
  for (int64_t l = 0; l < m.layers; l++) {
    const Layer& layer = m.layer[l];
    if (!fits(layer.qkv, all, l ? m.dim : layer.qkv.in)) return "queries, keys and values have another shape";
    if (!fits(layer.out, m.dim, queries)) return "the output of attention has another shape";
    if (!fits(layer.gate_up, both, m.dim)) return "gate and up have another shape";
    if (!fits(layer.down, m.dim, m.inner)) return "down has another shape";
  }
  if (m.head.low) return "an adapter changes the output rows";
  return fits(m.head, m.head.out, m.dim) ? nullptr : "the output rows have another shape";
}

const char* fault_of(const Model& m, const Line& line) {
  if (line.past < 0 || line.past > LARGEST || !sizes({line.n, line.past + line.n})) return "too many inputs";
  if (!line.cache) return "something is not given";
  const int64_t columns = line.past + line.n;
  for (const int64_t stride : {line.of_plane, line.of_head}) {
    if (stride < columns * m.width || stride > MOST) return "the cache's strides are wrong";  // no overlap
  }
  // Each factor is below 2^32, and `times` saturates at MOST = 2^40, so the sums fit in 64 bits.
  const int64_t last =
      times(2 * m.layers - 1, line.of_plane) + times(m.key_heads - 1, line.of_head) + times(columns, m.width);
  return last > line.cache_size ? "the cache has no room for the inputs" : nullptr;
}

const char* fault_of(const Model& m, const Pass& p) {
  if (!sizes({p.lines, p.inputs, p.threads}) || p.threads > THREADS) return "no inputs, or no threads";
  if (!p.line || !p.h || !p.cos || !p.sin) return "something is not given";
  if (p.entering ? p.entering_width != m.layer[0].qkv.in : m.layer[0].qkv.in != m.dim) {
    return "the first layer's inputs have another width";
  }
  int64_t left = p.inputs;
  for (int64_t l = 0; l < p.lines; l++) {
    if (!left) return "a line has no inputs";
    if (const char* found = fault_of(m, p.line[l])) return found;
    if (p.line[l].n > left) return "the lines have more inputs than the pass";
    left -= p.line[l].n;
  }
  if (left) return "the lines have fewer inputs than the pass";
  const int64_t rows = p.inputs;
  if (p.kept_count < 0 || p.kept_count > rows) return "more inputs are kept than there are";
  if (p.kept_count && (!p.kept || !p.logits)) return "something is not given";
  for (int64_t i = 0; i < p.kept_count; i++) {
    if (p.kept[i] < 0 || p.kept[i] >= rows) return "an input is kept that is not there";
  }
  if (p.watched_count < 0 || (p.watched_count && (!p.watched || !p.features))) return "something is not given";
  for (int64_t i = 0; i < p.watched_count; i++) {
    if (p.watched[i] < (i ? p.watched[i - 1] : 0) || p.watched[i] > m.layers) return "a layer is watched that is not there";
  }
  return nullptr;
}

void run(const Model& m, const Pass& p, const Room& room, float* scratch) {
  const int64_t rows = p.inputs, D = m.dim, w = m.width, heads = m.heads + 2 * m.key_heads;
  float* qkv = scratch;                      // (rows, (H + 2K) · w)
  float* attended = qkv + room.qkv;          // (rows, H · w)
  float* acted = attended + room.attended;   // (rows, I)
  float* last = acted + room.acted;          // (kept, D)
  Own own;
  own.scale = last + room.last + omp_get_thread_num() * room.own();  // (rows,)
  own.sums = own.scale + room.scale;                                 // (rows, inputs / BLOCK)
  own.weighed = own.sums + room.sums;                                // (rows, D)
  own.scores = own.weighed + room.weighed;                           // (C,)
  own.decoded = own.scores + room.scores;                            // (2, inputs, PANEL)
  own.low = own.decoded + room.decoded;                              // (rows, rank)
  const Attend over = attend_of(std::make_integer_sequence<int, WIDEST / LANES>{}, w);

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
    if (!given) norms(p.h, rows, D, m.eps, own.scale);
    const float* x = given ? p.entering : p.h;
    const auto keep = [&](int64_t r, int64_t at, int64_t count, const float* found) {
      std::copy_n(found, count, qkv + r * heads * w + at);
    };
    product(layer.qkv, x, rows, given ? nullptr : own.scale, own, keep);
#pragma omp barrier
    const auto turned = share(rows * heads);
    const Line* line = p.line;
    for (int64_t i = turned.begin, first = 0; i < turned.end; i++) {  // `first`: the line's first input
      const int64_t r = i / heads, head = i % heads;
      while (r >= first + line->n) first += line++->n;
      float* x = qkv + i * w;
      float* keys = line->cache + 2 * l * line->of_plane;
      float* values = keys + line->of_plane;
      const int64_t to = (line->past + r - first) * w;
      if (head < m.heads) {
        rotate(x, p.cos + r * w, p.sin + r * w, w, x);
      } else if (head < m.heads + m.key_heads) {
        rotate(x, p.cos + r * w, p.sin + r * w, w, keys + to + (head - m.heads) * line->of_head);
      } else {
        std::copy_n(x, w, values + to + (head - m.heads - m.key_heads) * line->of_head);
      }
    }
#pragma omp barrier
    // Inputs of one head are consecutive, so that its keys stay in the cache. Later inputs attend to more columns, so
    // threads take them in turn.
    int64_t i = omp_get_thread_num(), first = 0;  // of all pieces; the line's first input
    for (line = p.line; line < p.line + p.lines; first += line++->n) {
      const int64_t columns = line->past + line->n;
      for (; i < (first + line->n) * m.heads; i += omp_get_num_threads()) {
        const int64_t piece = i - first * m.heads, head = piece / line->n, input = piece % line->n, r = first + input;
        const float* keys =
            line->cache + 2 * l * line->of_plane + head / (m.heads / m.key_heads) * line->of_head;
        const uint8_t* seen = line->seen ? line->seen + input * columns : nullptr;
        over(qkv + (r * heads + head) * w, keys, keys + line->of_plane, seen, seen ? columns : line->past + input + 1,
             own.scores, attended + (r * m.heads + head) * w);
      }
    }
#pragma omp barrier
    const auto add = [&](int64_t r, int64_t at, int64_t count, const float* found) {
      for (int64_t i = 0; i < count; i++) p.h[r * D + at + i] += found[i];
    };
    product(layer.out, attended, rows, nullptr, own, add);
#pragma omp barrier
    norms(p.h, rows, D, m.eps, own.scale);
    product<true>(layer.gate_up, p.h, rows, own.scale, own, [&](int64_t r, int64_t at, int64_t, const float* gate) {
      const float* up = gate + ROWS * PANEL;
      alignas(64) float found[PANEL];
      for (int i = 0; i < PANEL; i += LANES) {
        const Vec x = load(gate + i);
        store(found + i, x / (1.0f + exp(-x)) * load(up + i));  // SiLU
      }
      std::copy_n(found, std::min<int64_t>(PANEL, m.inner - at), acted + r * m.inner + at);
    });
#pragma omp barrier
    product(layer.down, acted, rows, nullptr, own, add);
#pragma omp barrier
  }
  if (!p.kept_count) return;
  const auto mine = share(p.kept_count);
  for (int64_t i = mine.begin; i < mine.end; i++) std::copy_n(p.h + p.kept[i] * D, D, last + i * D);
#pragma omp barrier
  norms(last, p.kept_count, D, m.eps, own.scale);  // `own.scale` has room: kept_count is at most the number of inputs
  product(m.head, last, p.kept_count, own.scale, own, [&](int64_t r, int64_t at, int64_t count, const float* found) {
    std::copy_n(found, count, p.logits + r * m.head.out + at);
  });
}

}  // namespace

extern "C" {

int64_t polydraft_panel() { return PANEL; }

int64_t polydraft_lanes() { return LANES; }

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
  const std::unique_ptr<float[]> scratch(new (std::nothrow) float[room.shared() + p.threads * room.own()]);
  if (!scratch) return 1;
#pragma omp parallel num_threads(static_cast<int>(p.threads))
  run(m, p, room, scratch.get());
  return 0;
}

}  // extern "C"
