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
typedef int8_t Bytes __attribute__((vector_size(LANES), aligned(1), may_alias));
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

// c · tanh(x / c), with an error of 1e-7 · c.
inline Vec capped(Vec x, float c) { return c - 2 * c / (1.0f + exp(x * (2 / c))); }

}  // namespace

extern "C" {

// Of weights. The bits of a code; then OFFSETS if there are some; SUPER if scales and offsets are products of a byte and
// a factor for SUPER_BLOCK inputs; 16 if that many inputs share a scale, and not BLOCK.
enum Kind : int64_t { FLOAT32, BFLOAT16, FLOAT16, BITS8, BITS4, BITS8_OFFSETS, BITS4_SUPER, BITS8_SUPER, BITS8_SUPER_16,
                      KINDS };

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

// Outputs of a matrix whose weights have one kind.
struct Part {
  const char* panels;  // ceil(out / PANEL) panels, each in the format of its kind
  int64_t out;
  int64_t kind;        // a Kind
  int64_t bytes;       // of all panels
};

struct Matrix {
  Part part[3];        // from the first output on
  int64_t parts;       // 1 to 3
  const float* bias;   // (out,) or null
  const float* norm;   // (in,) factors of the inputs, or null; for `qkv`, `gate`, `up` and `head` alone
  int64_t out, in;     // with coded weights, `in` is a multiple of their blocks' inputs
  const LowRank* low;  // or null; with panels of all parts
};

struct Layer {
  Matrix qkv;   // D -> (H + 2 key heads) · w; the first layer's may have other inputs, those of `entering`
  Matrix out;   // H · w -> D
  Matrix gate;  // D -> I, in one part
  Matrix up;    // D -> I, in one part, with the gate's norm
  Matrix down;  // I -> D
  // Weights of norms, or null: of each query and key, and of what attention and the feed-forward part add to the
  // residual stream, (D,).
  const float *q_norm, *k_norm, *after_attention, *after_feed_forward;
  int64_t table;  // of the rotation of queries and keys; -1 for none
  int64_t near;   // whether attention is limited to the window
  int64_t plain;  // whether there are no norms before attention and before the feed-forward part
};

// All sizes are above 0, `heads` a multiple of `key_heads`, `width` one of LANES up to WIDEST. Other numbers are finite.
struct Model {
  int64_t layers, dim, heads, key_heads, width, inner;
  int64_t turned;  // numbers of a head that the rotation turns: even, at most w; the first of them
  int64_t tables;  // of the rotation, from 0 on
  int64_t window;  // positions, up to its own, that an input attends to in layers that are `near`; above 0 if any is
  int64_t gelu;    // whether the gate is GELU (by tanh), not SiLU
  int64_t whole;   // whether the norms of queries and keys are over all heads, with (H · w,) weights, not (w,)
  double eps;      // not below 0
  double attention, residual, logits;  // factors of scores, of what is added to the residual stream, and of logits
  double attention_cap, logit_cap;     // c limits x to c · tanh(x / c); 0 is no limit
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
  const uint8_t* near;       // the same in layers that are `near`; given if `seen` is and the model has a window
};

struct Pass {
  int64_t lines, inputs, threads;  // above 0; `inputs` N is the sum of the lines' n
  const Line* line;                // (lines,), no two of one cache
  float* h;                        // (N, D): embeddings; overwritten by the residual stream, then the last output
  const float* entering;           // (N, in) the input of the first layer's q, k, v; null is h, normed
  int64_t entering_width;          // in
  const float *cos, *sin;          // (tables, N, turned)
  const int64_t* kept;             // indices of the inputs, of N, after which logits are computed
  int64_t kept_count;              // at most N
  float* logits;                   // (kept, V)
  const int64_t* watched;  // layers whose input residual stream is returned, ascending; `layers` is the last's output
  int64_t watched_count;
  float* features;  // (N, watched · D)
};

}  // extern "C"

namespace {

constexpr int64_t BLOCK = 32;          // inputs that share an offset, and a scale or two
constexpr int64_t SUPER_BLOCK = 256;   // inputs that share factors of scales and offsets

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

// A sum waits for the one before it, so few inputs have several for each output, added at the end.
template <int R>
constexpr int CHAINS = R == 1 ? 4 : R == 2 ? 2 : 1;

struct Layout;

struct Float32 {
  static int64_t bytes(int64_t K) { return K * PANEL * 4; }

  template <int R>
  static void panel(const Layout&, const char* panel, const float* x, int64_t K, const float*, Fetch fetch,
                    float* found) {
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

// IEEE half precision in the lower halves of words: the same bits, shifted into a float32's places, are 2^-112 of the
// value.
inline Vec half(Word bits) {
  const Vec size = reinterpret_cast<Vec>((bits & 0x7fff) << 13) * 0x1p112f;
  return reinterpret_cast<Vec>(reinterpret_cast<Word>(size) | ((bits & 0x8000) << 16));
}

// bfloat16, or half precision if IEEE. The weights of two inputs share a word, so that a read is as wide as a float32
// vector.
template <bool IEEE>
struct Bits16 {
  static int64_t bytes(int64_t K) { return (K + 1) / 2 * PANEL * 4; }

  static Vec lower(Word words) { return IEEE ? half(words) : reinterpret_cast<Vec>(words << 16); }
  static Vec upper(Word words) { return IEEE ? half(words >> 16) : reinterpret_cast<Vec>(words & 0xffff0000); }

  template <int R>
  static void panel(const Layout&, const char* panel, const float* x, int64_t K, const float*, Fetch fetch,
                    float* found) {
    const uint32_t* w = reinterpret_cast<const uint32_t*>(panel);
    Vec totals[R][2] = {};
    for (int64_t k = 0; k < K; k += 2, w += PANEL, fetch.from += 2 * fetch.step) {
      __builtin_prefetch(fetch.from);
      __builtin_prefetch(fetch.from + 64);
      const Word a = load_words(w), b = load_words(w + LANES);
      add_up<R>(totals, lower(a), lower(b), x + k, K);
      if (k + 1 == K) break;
      add_up<R>(totals, upper(a), upper(b), x + k + 1, K);
    }
    for (int i = 0; i < 2 * R; i++) store(found + i * LANES, totals[i / 2][i % 2]);
  }
};

inline Vec load_half(const char* p) {
  return half(__builtin_convertvector(*reinterpret_cast<const Half*>(p), Word));
}
inline Vec load_bytes(const char* p) {
  return __builtin_convertvector(*reinterpret_cast<const Bytes*>(p), Vec);
}

// How the blocks of coded weights are stored: PANEL scales for each `group` inputs, PANEL offsets if there are any, then
// words with the codes of 32 / bits inputs each, the first one's lowest. A weight is scale · code + offset. Scales and
// offsets have half precision; in `super` blocks they are signed bytes, and SUPER_BLOCK inputs begin with PANEL factors
// of the scales and of the offsets, in half precision. Codes of 8 bits are signed.
struct Layout {
  int64_t bits;
  bool offsets, super;
  int64_t group;

  constexpr int64_t each() const { return (super ? 1 : 2) * PANEL; }  // bytes of a panel's scales, or offsets
  constexpr int64_t scales() const { return BLOCK / group * each(); }
  constexpr int64_t head() const { return scales() + (offsets ? each() : 0); }
  constexpr int64_t block() const { return head() + BLOCK * PANEL * bits / 8; }
  constexpr int64_t factors() const { return super ? (offsets ? 4 : 2) * PANEL : 0; }
  constexpr int64_t multiple() const { return super ? SUPER_BLOCK : BLOCK; }
  constexpr int64_t bytes(int64_t K) const { return K / BLOCK * block() + K / SUPER_BLOCK * factors(); }
};

// The blocks of one panel, in order.
struct Blocks {
  const Layout& layout;
  const char* w;  // the block
  const char* factors = nullptr;

  // Moves over the factors before input k, if there are some.
  void begin(int64_t k) {
    if (layout.super && k % SUPER_BLOCK == 0) {
      factors = w;
      w += layout.factors();
    }
  }

  const uint32_t* codes() const { return reinterpret_cast<const uint32_t*>(w + layout.head()); }

  // Of one half of the panel: the scales from input `at` of the block on, and the offsets.
  Vec scale(int half, int64_t at) const {
    return number(w + at / layout.group * layout.each(), factors, half);
  }
  Vec offset(int half) const { return number(w + layout.scales(), factors + 2 * PANEL, half); }

 private:
  Vec number(const char* p, const char* by, int half) const {
    return layout.super ? load_half(by + half * 2 * LANES) * load_bytes(p + half * LANES) : load_half(p + half * 2 * LANES);
  }
};

// Which layout the functions of a kind are compiled for: any, which they read at each call; or one, which makes them
// faster, and each such kind takes its time to compile.
struct Any {
  static const Layout& of(const Layout& given) { return given; }
};

template <int64_t BITS, bool OFFSETS>
struct Plain {
  static constexpr Layout of(const Layout&) { return {BITS, OFFSETS, false, BLOCK}; }
};

template <int BITS, class Compiled>
struct Coded {
  static constexpr int IN_WORD = 32 / BITS;

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
  static void decode(const Layout& given, const char* w, int64_t K, float* decoded) {
    const Layout layout = Compiled::of(given);
    Blocks blocks{layout, w};
    for (int64_t k = 0; k < K; k += BLOCK, blocks.w += layout.block()) {
      blocks.begin(k);
      for (int half = 0; half < 2; half++) {
        const uint32_t* codes = blocks.codes() + half * LANES;
        const Vec offset = layout.offsets ? blocks.offset(half) : Vec{};
        float* to = decoded + k * PANEL + half * LANES;
        for (int64_t at = 0; at < BLOCK; at += layout.group) {
          const Vec scale = blocks.scale(half, at);
          for (int64_t i = 0; i < layout.group; i += IN_WORD, codes += PANEL) {
            const Word words = load_words(codes);
#pragma GCC unroll 8
            for (int place = 0; place < IN_WORD; place++, to += PANEL) store(to, scale * code(words, place) + offset);
          }
        }
      }
    }
  }

  template <int R>
  static void panel(const Layout& given, const char* w, const float* x, int64_t K, const float* sums, Fetch fetch,
                    float* found) {
    const Layout layout = Compiled::of(given);
    std::fill_n(found, R * PANEL, 0.0f);
    Blocks blocks{layout, w};
    for (int64_t k = 0; k < K; k += BLOCK, blocks.w += layout.block()) {
      blocks.begin(k);
      const uint32_t* codes = blocks.codes();
      for (int64_t at = 0; at < BLOCK; at += layout.group) {
        Vec chains[CHAINS<R>][R][2] = {};
        const float* input = x + k + at;
        for (int64_t i = 0; i < layout.group; i += IN_WORD, codes += PANEL, fetch.from += IN_WORD * fetch.step) {
          for (int64_t to = 0; to < IN_WORD * fetch.step; to += 64) __builtin_prefetch(fetch.from + to);
          const Word a = load_words(codes), b = load_words(codes + LANES);
#pragma GCC unroll 8
          for (int place = 0; place < IN_WORD; place++) {
            add_up<R>(chains[place % CHAINS<R>], code(a, place), code(b, place), input + i + place, K);
          }
        }
        Vec (&totals)[R][2] = chains[0];
        for (int chain = 1; chain < CHAINS<R>; chain++) {
          for (int j = 0; j < 2 * R; j++) totals[j / 2][j % 2] += chains[chain][j / 2][j % 2];
        }
        const bool shifted = layout.offsets && at + layout.group == BLOCK;  // once for each block
        for (int half = 0; half < 2; half++) {
          const Vec scale = blocks.scale(half, at), offset = shifted ? blocks.offset(half) : Vec{};
          for (int r = 0; r < R; r++) {
            float* to = found + r * PANEL + half * LANES;
            Vec total = load(to) + scale * totals[r][half];
            if (shifted) total += offset * sums[r * (K / BLOCK) + k / BLOCK];
            store(to, total);
          }
        }
      }
    }
  }
};

// What the products need to know of a kind.
struct Format {
  using Panel = void (*)(const Layout&, const char*, const float*, int64_t, const float*, Fetch, float*);

  Layout layout;  // of coded weights
  int64_t (*plain)(int64_t);  // bytes of a panel; null of coded weights
  void (*decode)(const Layout&, const char*, int64_t, float*);
  const Panel* panel;  // for 1 … ROWS inputs

  bool coded() const { return !plain; }
  int64_t multiple() const { return plain ? 1 : layout.multiple(); }
  int64_t bytes(int64_t K) const { return plain ? plain(K) : layout.bytes(K); }
};

template <class F, int... R>
const Format::Panel* ways_of(std::integer_sequence<int, R...>) {
  static constexpr Format::Panel ways[] = {F::template panel<R + 1>...};
  return ways;
}

template <class F>
Format plain() {
  return {{}, F::bytes, nullptr, ways_of<F>(std::make_integer_sequence<int, ROWS>{})};
}

template <int64_t BITS, class Compiled = Any>
Format coded(bool offsets, bool super = false, int64_t group = BLOCK) {
  return {{BITS, offsets, super, group}, nullptr, Coded<BITS, Compiled>::decode,
          ways_of<Coded<BITS, Compiled>>(std::make_integer_sequence<int, ROWS>{})};
}

// By kind.
const Format FORMATS[] = {
    plain<Float32>(), plain<Bits16<false>>(), plain<Bits16<true>>(),
    coded<8, Plain<8, false>>(false), coded<4, Plain<4, true>>(true), coded<8>(true),
    coded<4>(true, true), coded<8>(true, true), coded<8>(false, true, 16),
};

int64_t panels_of(const Part& part) { return (part.out + PANEL - 1) / PANEL; }

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

// Of each row. Every thread computes all of them, which is faster than synchronising.
void norms(const float* x, int64_t rows, int64_t D, double eps, float* scale) {
  for (int64_t r = 0; r < rows; r++) scale[r] = norm(x + r * D, D, eps);
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

// Values of the inputs x (rows, K) of a product with one matrix.
struct Inputs {
  const float* x;
  int64_t rows;
  const float* scale;  // (rows,) factors of the results, or null
  const float* sums;   // see `Own`
};

// y = scale · x Wᵀ + b, for this thread's share of the panels of COUNT parts, of as many matrices with the same inputs
// and outputs: `take(row, first output, how many, values)` gets a panel of each, PANEL values at a distance of ROWS ·
// PANEL. `first`: the first output of these parts, and its panel; `low`: the inner values of each matrix's adapters.
template <int COUNT, class Take>
void some_panels(const Matrix* const (&matrices)[COUNT], const Part* const (&parts)[COUNT], Share mine, int64_t first,
                 int64_t first_panel, const Inputs& inputs, const Own& own, const float* const (&low)[COUNT], Take take) {
  alignas(64) float found[COUNT * ROWS * PANEL];
  const int64_t rows = inputs.rows, K = matrices[0]->in, out = parts[0]->out;
  const int64_t blocks = (rows + ROWS - 1) / ROWS;
  if (blocks == 0) return;
  const Format* formats[COUNT];
  int64_t bytes[COUNT], size = 0;
  for (int i = 0; i < COUNT; i++) {
    formats[i] = &FORMATS[parts[i]->kind];
    size += bytes[i] = formats[i]->bytes(K);
  }
  // While one panel is computed, each block of inputs prefetches its part of the next panel. In a panel too large for the
  // cache, the weights just ahead are prefetched instead.
  const bool whole = size <= IN_CACHE;
  // For many inputs, weights are decoded once.
  const bool decode = rows >= MANY && 2 * Float32::bytes(K) <= IN_CACHE;
  for (int64_t p = mine.begin; p < mine.end; p++) {
    for (int i = 0; decode && i < COUNT; i++) {
      if (formats[i]->coded()) formats[i]->decode(formats[i]->layout, parts[i]->panels + p * bytes[i], K, own.decoded + i * K * PANEL);
    }
    for (int64_t block = 0; block < blocks; block++) {
      const int64_t row = rows * block / blocks;
      const int some = static_cast<int>(rows * (block + 1) / blocks - row);
      const int count = static_cast<int>(std::min<int64_t>(PANEL, out - p * PANEL));
      for (int i = 0; i < COUNT; i++) {
        float* values = found + i * ROWS * PANEL;
        const char* w = parts[i]->panels + p * bytes[i];
        const int64_t each = (bytes[i] + K - 1) / K, step = whole ? (each + blocks - 1) / blocks : each;
        const Fetch fetch{w + (whole ? bytes[i] + block * step * K : AHEAD), step};
        const float* sums = inputs.sums + row * (K / BLOCK);
        if (decode && formats[i]->coded()) {
          const char* panel = reinterpret_cast<const char*>(own.decoded + i * K * PANEL);
          FORMATS[FLOAT32].panel[some - 1]({}, panel, inputs.x + row * K, K, sums, fetch, values);
        } else {
          formats[i]->panel[some - 1](formats[i]->layout, w, inputs.x + row * K, K, sums, fetch, values);
        }
        if (const LowRank* added = matrices[i]->low) {
          const float* inner = low[i] + row * added->rank;
          if (added->kind == BFLOAT16) {
            out_of_low_rank<uint16_t>(*added, first_panel + p, inner, some, values);
          } else {
            out_of_low_rank<float>(*added, first_panel + p, inner, some, values);
          }
        }
        for (int r = 0; inputs.scale && r < some; r++) {
          for (int j = 0; j < PANEL; j += LANES) {
            store(values + r * PANEL + j, load(values + r * PANEL + j) * inputs.scale[row + r]);
          }
        }
        if (const float* bias = matrices[i]->bias) {
          for (int r = 0; r < some; r++) {
            for (int j = 0; j < count; j++) values[r * PANEL + j] += bias[first + p * PANEL + j];
          }
        }
      }
      for (int r = 0; r < some; r++) take(row + r, first + p * PANEL, count, found + r * PANEL);
    }
  }
}

bool has_offsets(const Matrix& m) {
  return std::any_of(m.part, m.part + m.parts, [](const Part& part) { return FORMATS[part.kind].layout.offsets; });
}

// What the products of x with these matrices share: they have the norm of the first one.
template <int COUNT>
Inputs inputs_of(const Matrix* const (&matrices)[COUNT], const float* x, int64_t rows, const float* scale, const Own& own) {
  const int64_t K = matrices[0]->in;
  if (const float* norm = matrices[0]->norm) {
    for (int64_t r = 0; r < rows; r++) {
      for (int64_t i = 0; i < K; i++) own.weighed[r * K + i] = x[r * K + i] * norm[i];
    }
    x = own.weighed;
  }
  if (std::any_of(matrices, matrices + COUNT, [](const Matrix* m) { return has_offsets(*m); })) {
    for (int64_t at = 0; at < rows * K; at += BLOCK) {
      Vec total = load(x + at);
      for (int64_t i = LANES; i < BLOCK; i += LANES) total += load(x + at + i);
      own.sums[at / BLOCK] = sum<LANES>(total);
    }
  }
  return {x, rows, scale, own.sums};
}

void inner_of(const LowRank* low, const Inputs& inputs, int64_t K, float* found) {
  if (!low) return;
  if (low->kind == BFLOAT16) {
    into_low_rank<uint16_t>(*low, inputs.x, inputs.rows, K, found);
  } else {
    into_low_rank<float>(*low, inputs.x, inputs.rows, K, found);
  }
}

// y = scale · x Wᵀ + b for x (rows, K), a panel at a time: `take(row, first output, how many, values)`. A scale for
// each row, or null.
template <class Take>
void product(const Matrix& m, const float* x, int64_t rows, const float* scale, const Own& own, Take take) {
  const Inputs inputs = inputs_of<1>({&m}, x, rows, scale, own);
  inner_of(m.low, inputs, m.in, own.low);
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
  const Inputs inputs = inputs_of<2>({&a, &b}, x, rows, scale, own);
  float* second = own.low + (a.low ? rows * a.low->rank : 0);
  inner_of(a.low, inputs, a.in, own.low);
  inner_of(b.low, inputs, b.in, second);
  some_panels<2>({&a, &b}, {a.part, b.part}, share(panels_of(a.part[0])), 0, 0, inputs, own, {own.low, second}, take);
}

// Rotates the pairs (i, i + t/2) of the first t of w numbers.
void rotate(const float* x, const float* cos, const float* sin, int64_t t, int64_t w, float* out) {
  for (int64_t i = 0, half = t / 2; i < half; i++) {
    const float a = x[i], b = x[i + half];
    out[i] = a * cos[i] - b * sin[i];
    out[i + half] = b * cos[i + half] + a * sin[i + half];
  }
  if (out != x) std::copy(x + t, x + w, out + t);
}

// Attention of one query to `columns` keys and values of w = N · LANES numbers each, limited to `seen` (null: all).
template <int N>
void attend(const float* q, const float* keys, const float* values, const uint8_t* seen, int64_t columns, float factor,
            float cap, float* scores, float* out) {
  Vec query[N], found[N] = {};
  for (int i = 0; i < N; i++) query[i] = load(q + i * LANES) * factor;
  float most = UNSEEN;
  for (int64_t c = 0; c < columns; c++) {
    Vec dot = {};
    for (int i = 0; i < N; i++) dot += query[i] * load(keys + (c * N + i) * LANES);
    scores[c] = seen && !seen[c] ? UNSEEN : sum<LANES>(dot);
    most = std::max(most, scores[c]);
  }
  const int64_t filled = (columns + LANES - 1) / LANES * LANES;
  std::fill(scores + columns, scores + filled, UNSEEN);
  if (cap > 0) {
    for (int64_t c = 0; c < filled; c += LANES) {
      const Vec score = load(scores + c);
      store(scores + c, score == UNSEEN ? score : capped(score, cap));
    }
    most = *std::max_element(scores, scores + columns);
  }
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

using Attend = void (*)(const float*, const float*, const float*, const uint8_t*, int64_t, float, float, float*, float*);

template <int... N>
Attend attend_of(std::integer_sequence<int, N...>, int64_t width) {
  static constexpr Attend ways[] = {attend<N + 1>...};
  return ways[width / LANES - 1];
}

// The smaller of a · b and MOST, for a, b >= 0.
int64_t times(int64_t a, int64_t b) { return b && a > MOST / b ? MOST : a * b; }

int64_t rank_of(const Matrix& m) { return m.low ? m.low->rank : 0; }

// Sizes, in numbers, of the intermediate results of `run`: the shared ones, and those of each thread.
struct Room {
  int64_t qkv, attended, acted, added, last, scale, sums, weighed, scores, decoded, low;

  Room(const Model& m, const Pass& p) {
    const int64_t rows = p.inputs, entering = m.layer[0].qkv.in;
    int64_t columns = 0;
    for (int64_t l = 0; l < p.lines; l++) columns = std::max(columns, p.line[l].past + p.line[l].n);
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
    scores = (columns + LANES - 1) / LANES * LANES;
    decoded = IN_CACHE / 4;
    int64_t rank = 0;
    for (int64_t l = 0; l < m.layers; l++) {
      const Layer& layer = m.layer[l];
      for (const Matrix* matrix : {&layer.qkv, &layer.out, &layer.gate, &layer.down}) rank = std::max(rank, rank_of(*matrix));
      rank = std::max(rank, rank_of(layer.gate) + rank_of(layer.up));
    }
    low = times(rows, rank);
  }

  int64_t shared() const { return qkv + attended + acted + added + last; }
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

// Whether a matrix has this shape, and the panels of its parts have the number of bytes that it requires.
bool fits(const Matrix& m, int64_t out, int64_t in) {
  if (m.out != out || m.in != in || !sizes({out, in}) || m.parts < 1 || m.parts > 3) return false;
  int64_t left = out, panels = 0;
  for (int64_t i = 0; i < m.parts; i++) {
    const Part& part = m.part[i];
    if (!part.panels || part.out < 1 || part.out > left || part.kind < 0 || part.kind >= KINDS) return false;
    const Format& format = FORMATS[part.kind];
    const int64_t bytes = times(panels_of(part), format.bytes(in));
    if (in % format.multiple() || bytes >= MOST || part.bytes != bytes) return false;
    left -= part.out;
    panels += panels_of(part);
  }
  return left == 0 && (!m.low || fits(*m.low, panels, in));
}

const char* fault_of(const Model& m) {
  if (!m.layer || !sizes({m.layers, m.dim, m.heads, m.key_heads, m.width, m.inner})) return "a size is not above 0";
  if (m.heads % m.key_heads) return "the heads are no multiple of the key heads";
  if (m.width % LANES || m.width > WIDEST) return "the heads are of a width that is not computed here";
  if (!(m.eps >= 0) || std::isinf(m.eps)) return "the norms' epsilon is no number from 0 on";
  if (m.turned < 1 || m.turned > m.width || m.turned % 2) return "the rotation is of a width that is not computed here";
  if (m.tables < 0 || m.tables > LARGEST || m.window < 0 || m.window > LARGEST) return "a size is not above 0";
  for (const double factor : {m.attention, m.residual, m.logits, m.attention_cap, m.logit_cap}) {
    if (!std::isfinite(factor) || std::abs(factor) > MOST) return "a factor is no finite number";
  }
  if (m.attention_cap < 0 || m.logit_cap < 0) return "a limit is below 0";
  const int64_t queries = m.heads * m.width, all = queries + 2 * m.key_heads * m.width;
  for (int64_t l = 0; l < m.layers; l++) {
    const Layer& layer = m.layer[l];
    if (!fits(layer.qkv, all, l ? m.dim : layer.qkv.in)) return "queries, keys and values have another shape";
    if (layer.table < -1 || layer.table >= m.tables) return "a layer's rotation is not there";
    if (layer.near && !m.window) return "a layer's window is not there";
    if (!fits(layer.out, m.dim, queries)) return "the output of attention has another shape";
    for (const Matrix* matrix : {&layer.gate, &layer.up}) {
      if (!fits(*matrix, m.inner, m.dim) || matrix->parts > 1) return "gate and up have another shape";
    }
    if (!fits(layer.down, m.dim, m.inner)) return "down has another shape";
    // The room for inputs with their factors (`Room::weighed`) is as wide as the inputs of the other products.
    if (layer.out.norm || layer.down.norm) return "a norm is given where the model has none";
  }
  if (m.head.low) return "an adapter changes the output rows";
  return fits(m.head, m.head.out, m.dim) ? nullptr : "the output rows have another shape";
}

const char* fault_of(const Model& m, const Line& line) {
  if (line.past < 0 || line.past > LARGEST || !sizes({line.n}) || line.n > LARGEST - line.past) return "too many inputs";
  if (!line.cache || (m.window && line.seen && !line.near)) return "something is not given";
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
  if (!p.line || !p.h || (m.tables && (!p.cos || !p.sin))) return "something is not given";
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
  float* added = acted + room.acted;         // (rows, D)
  float* last = added + room.added;          // (kept, D)
  Own own;
  own.scale = last + room.last + omp_get_thread_num() * room.own();  // (rows,), or of queries and keys (2, rows)
  own.sums = own.scale + room.scale;                                 // (rows, inputs / BLOCK)
  own.weighed = own.sums + room.sums;                                // (rows, D)
  own.scores = own.weighed + room.weighed;                           // (C,)
  own.decoded = own.scores + room.scores;                            // (2, inputs, PANEL)
  own.low = own.decoded + room.decoded;                              // (rows, rank)
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
#pragma omp barrier
    if (!after) return;
    const auto mine = share(rows);
    for (int64_t r = mine.begin; r < mine.end; r++) {
      const float scale = residual * norm(added + r * D, D, m.eps);
      for (int64_t i = 0; i < D; i++) p.h[r * D + i] += scale * after[i] * added[r * D + i];
    }
#pragma omp barrier
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
#pragma omp barrier
    if (m.whole) {
      for (int64_t r = 0; r < rows; r++) {
        const float* queries = qkv + r * heads * w;
        own.scale[r] = norm(queries, m.heads * w, m.eps);
        own.scale[rows + r] = norm(queries + m.heads * w, m.key_heads * w, m.eps);
      }
#pragma omp barrier
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
        const uint8_t* seen = line->seen ? (layer.near ? line->near : line->seen) + input * columns : nullptr;
        const int64_t end = seen ? columns : line->past + input + 1;
        int64_t from = layer.near && !seen ? std::max<int64_t>(end - m.window, 0) : 0;
        while (seen && from + 1 < end && !seen[from]) from++;
        over(qkv + (r * heads + head) * w, keys + from * w, keys + line->of_plane + from * w, seen ? seen + from : nullptr,
             end - from, factor, cap, own.scores, attended + (r * m.heads + head) * w);
      }
    }
#pragma omp barrier
    add(layer.out, attended, layer.after_attention);
    if (!layer.plain) norms(p.h, rows, D, m.eps, own.scale);
    const auto act = [&](int64_t r, int64_t at, int64_t count, const float* gate) {
      const float* up = gate + ROWS * PANEL;
      alignas(64) float found[PANEL];
      for (int i = 0; i < PANEL; i += LANES) {
        const Vec x = load(gate + i);
        const Vec z = m.gelu ? x * (1.5957691216f + 0.0713548163f * x * x) : x;  // 2 √(2/π) (x + 0.044715 x³)
        store(found + i, x / (1.0f + exp(-z)) * load(up + i));
      }
      std::copy_n(found, count, acted + r * m.inner + at);
    };
    products(layer.gate, layer.up, p.h, rows, layer.plain ? nullptr : own.scale, own, act);
#pragma omp barrier
    add(layer.down, acted, layer.after_feed_forward);
  }
  if (!p.kept_count) return;
  const auto mine = share(p.kept_count);
  for (int64_t i = mine.begin; i < mine.end; i++) std::copy_n(p.h + p.kept[i] * D, D, last + i * D);
#pragma omp barrier
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
