// Products with inputs that are rounded to 8 bits. Their sums are integers, which a processor adds up several times as fast
// as float32, and codes become integers in fewer steps than float32.
//
// The inputs of a block become d · q, with d = max |x| / 127 and whole q from -127 to 127. With weights s · c + o,
//
//      Σ (s · c + o) · d · q  =  s · d · Σ c · q  +  o · (d · Σ q).
//
// Some channels of a model are much larger than all others, and all inputs of their block would be rounded as coarsely.
// So where d is above COARSE times the root mean square of d over the row's blocks, what rounding left of the block is
// rounded as well, and added as a second product. Less than one block in COARSE² is so.
//
// Sums of integers are exact in any order, and each block adds its products to an output with one rounding each: first those
// of all blocks in turn, then those of what was left. So every processor computes the same bits as `reference`, number by
// number.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "layout.h"
#include "threads.h"
#include "tiles.h"
#include "vectors.h"

namespace {

// The inputs of a block of one row.
struct Rounded {
  int8_t codes[BLOCK];  // q
  float scale, sum;     // d; Σ d · q, also of what was left
  int32_t shift[2];     // 128 · Σ q, of each half of the block
  int32_t rests;        // how many blocks before this one, of all rows, have a `Rest`
};

// What rounding left of a block.
struct Rest {
  Rounded block;
  int32_t row;
};

constexpr float LEAST_INPUT = 1e-30f;  // a block of smaller ones is rounded to zeros
constexpr int64_t COARSE = 3;
// Numbers of float32 that have room for a block, and for its share of the rests.
constexpr int64_t FLOATS_OF_ROUNDED = (sizeof(Rounded) + sizeof(Rest) / (COARSE * COARSE)) / sizeof(float) + 1;

// Inputs of some neighbouring rows, from row `first` on.
struct RoundedRows {
  const Rounded* blocks;  // (K / BLOCK, stride), of which the first `rows` count; another follows the last one
  const Rest* rests;      // of all rows, in the order of the blocks
  int64_t first, rows, stride;

  RoundedRows part(int64_t from, int64_t count) const { return {blocks + from, rests, first + from, count, stride}; }
};

// The largest size of a block's inputs.
inline float largest_of(const float* x) {
  Vec most = {};
  for (int64_t i = 0; i < BLOCK; i += LANES) {
    const Vec value = load(x + i), size = value < 0.0f ? -value : value;
    most = size > most ? size : most;
  }
  return folded<float, LANES>(most, [](auto a, auto b) { return a > b ? a : b; });
}

// Rounds a block, of which `largest` is the largest size, and returns Σ q. Writes what that leaves to `left`, unless it is
// null.
inline float round_block(const float* x, float largest, Rounded& to, float* left) {
  constexpr float MAGIC = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer, in the lowest bits
  const float by = largest < LEAST_INPUT ? 0.0f : 127.0f / largest;
  to.scale = largest < LEAST_INPUT ? 0.0f : largest / 127.0f;
  Int sums[2] = {};
  for (int64_t i = 0; i < BLOCK; i += LANES) {
    const Vec moved = fused(load(x + i), by - Vec{}, MAGIC - Vec{});
    const Int codes = reinterpret_cast<Int>(reinterpret_cast<Word>(moved) << 24) >> 24;
    const Bytes bytes = __builtin_convertvector(codes, Bytes);
    std::memcpy(to.codes + i, &bytes, sizeof bytes);
    sums[i / (BLOCK / 2)] += codes;
    if (left) store(left + i, fused(__builtin_convertvector(codes, Vec), -to.scale - Vec{}, load(x + i)));
  }
  int32_t totals[2];
  for (int half = 0; half < 2; half++) {
    totals[half] = sum<LANES, int32_t>(sums[half]);
    to.shift[half] = 128 * totals[half];
  }
  return static_cast<float>(totals[0] + totals[1]);
}

// What `round_inputs` wrote to `room`.
RoundedRows rounded_rows(const Rounded* room, int64_t rows, int64_t K) {
  return {room, reinterpret_cast<const Rest*>(room + K / BLOCK * rows + 1), 0, rows, rows};
}

// Rounds x (rows, K). `room` has FLOATS_OF_ROUNDED numbers for each of (K / BLOCK + 1, rows) blocks.
void round_inputs(const float* x, int64_t rows, int64_t K, Rounded* room) {
  const int64_t blocks = K / BLOCK;
  Rest* const rests = reinterpret_cast<Rest*>(room + blocks * rows + 1);
  for (int64_t r = 0; r < rows; r++) {
    double squares = 0.0;  // of products of float32, which are exact in double precision
    for (int64_t b = 0; b < blocks; b++) {
      const double largest = room[b * rows + r].scale = largest_of(x + r * K + b * BLOCK);
      squares += largest * largest;
    }
    for (int64_t b = 0; b < blocks; b++) {
      Rounded& of = room[b * rows + r];
      const double largest = of.scale;
      of.rests = largest * largest * static_cast<double>(blocks) > COARSE * COARSE * squares;
    }
  }
  int32_t found = 0;
  for (int64_t i = 0; i < blocks * rows; i++) {
    alignas(64) float left[BLOCK];
    Rounded& to = room[i];
    const bool coarse = to.rests;
    to.rests = found;
    const float total = round_block(x + i % rows * K + i / rows * BLOCK, to.scale, to, coarse ? left : nullptr);
    to.sum = to.scale * total;
    if (!coarse) continue;
    Rest& rest = rests[found++];
    rest.row = static_cast<int32_t>(i % rows);
    const float rest_total = round_block(left, largest_of(left), rest.block, nullptr);
    to.sum = std::fma(rest.block.scale, rest_total, to.scale * total);  // rounded alike everywhere
  }
  Rounded& last = room[blocks * rows] = {};
  last.rests = found;
}

// A panel's outputs `found` (rows, PANEL) for inputs of K numbers.
using RoundedPanel = void (*)(const Layout&, const char*, const RoundedRows&, int64_t K, Fetch, float* found);

// Calls `act` with every rest of these rows, the weights of its block, and its row.
template <class Act>
void each_rest(const Layout& layout, const char* w, const RoundedRows& inputs, int64_t K, Act act) {
  Blocks blocks{layout, w};
  const Rounded* x = inputs.blocks;
  for (int64_t k = 0; k < K; k += BLOCK, blocks.w += layout.block(), x += inputs.stride) {
    blocks.begin(k);
    for (int32_t i = x[0].rests; i < x[inputs.rows].rests; i++) {
      act(inputs.rests[i].block, blocks, inputs.rests[i].row - inputs.first);
    }
  }
}

void reference(const Layout& layout, const char* w, const RoundedRows& inputs, int64_t K, Fetch, float* found) {
  std::fill_n(found, inputs.rows * PANEL, 0.0f);
  const auto add = [&](const Rounded& x, const Blocks& blocks, int64_t row, bool rest) {
    for (int64_t o = 0; o < PANEL; o++) {
      const int half = static_cast<int>(o / LANES);
      const int64_t lane = o % LANES;
      float& total = found[row * PANEL + o];
      for (int64_t at = 0; at < BLOCK; at += layout.group) {
        int32_t dot = 0;
        for (int64_t i = at; i < at + layout.group; i++) dot += code_at(layout, blocks.codes(), i, o) * x.codes[i];
        total = std::fma(blocks.scale(half, at)[lane] * x.scale, static_cast<float>(dot), total);
      }
      if (layout.offsets && !rest) total = std::fma(blocks.offset(half)[lane], x.sum, total);
    }
  };
  Blocks blocks{layout, w};
  const Rounded* x = inputs.blocks;
  for (int64_t k = 0; k < K; k += BLOCK, blocks.w += layout.block(), x += inputs.stride) {
    blocks.begin(k);
    for (int64_t r = 0; r < inputs.rows; r++) add(x[r], blocks, r, false);
  }
  each_rest(layout, w, inputs, K, [&](const Rounded& x, const Blocks& of, int64_t row) { add(x, of, row, true); });
}

// What processors have for sums of products of bytes. `Dots<BITS, WORDS>` prepares the codes of a group of inputs, for as
// many outputs as a vector has lanes, and multiplies them with the inputs of one row after the other.

constexpr uint32_t LOWER = 0x0f0f0f0f, LOWER_SIX = 0x3f3f3f3f, SIGNS = 0x80808080;  // of four codes

inline int32_t four(const int8_t* codes) {
  int32_t word;
  std::memcpy(&word, codes, sizeof word);
  return word;
}

// The j-th word of a group, each of four inputs' codes, as the file has them; of 6 bits in the upper bits of the bytes.
template <int BITS>
inline Word word_of(const uint32_t* codes, int j) {
  if constexpr (BITS == 8) return load_words(codes + j * PANEL);
  if constexpr (BITS == 6) {
    const uint32_t* first = codes + j / 4 * 3 * PANEL;
    return j % 4 == 3 ? six_bits<3>(first) : load_words(first + j % 4 * PANEL);
  }
  const Word both = load_words(codes + j / 2 * PANEL);
  return (j % 2 ? both >> 4 : both) & LOWER;
}

#if defined(__aarch64__) || defined(POLYDRAFT_TILES)
// The same, signed.
template <int BITS>
inline Word signed_word_of(const uint32_t* codes, int j) {
  const Word word = word_of<BITS>(codes, j);
  if constexpr (BITS != 6) return word;
#if defined(__aarch64__)
  return (Word)vshrq_n_s8((int8x16_t)word, 2);
#else
  typedef int8_t Each __attribute__((vector_size(4 * LANES)));
  return (Word)((Each)((word ^ SIGNS) >> 2 & LOWER_SIX) - int8_t{32});
#endif
}
#endif

// The same, unsigned: codes of 8 bits are 128 more, of 6 bits 32.
template <int BITS>
inline Word unsigned_word_of(const uint32_t* codes, int j) {
  const Word word = word_of<BITS>(codes, j);
  if constexpr (BITS == 8) return word ^ SIGNS;
  if constexpr (BITS == 6) return (word ^ SIGNS) >> 2 & LOWER_SIX;
  return word;
}

// By how much that raises the product with inputs, of which 128 times the sum is `shift`.
template <int BITS>
inline int32_t raised(int32_t shift) {
  return BITS == 8 ? shift : BITS == 6 ? shift / 4 : 0;
}

// Whether `Dots` multiplies two rows at once, by `both`.
#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr bool PAIRS = true;
#else
constexpr bool PAIRS = false;
#endif

#if defined(__AVX512VNNI__) || (defined(__AVXVNNI__) && !defined(__AVX512F__))
#define POLYDRAFT_ROUNDED

template <int BITS, int WORDS>
struct Dots {
  Word words[WORDS];

  explicit Dots(const uint32_t* codes) {
    for (int j = 0; j < WORDS; j++) words[j] = unsigned_word_of<BITS>(codes, j);
  }

  Int operator()(const int8_t* q, int32_t shift) const {
    Int sum = Int{} - raised<BITS>(shift);
#pragma GCC unroll 8
    for (int j = 0; j < WORDS; j++) {
#if defined(__AVX512VNNI__)
      sum = (Int)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)words[j], _mm512_set1_epi32(four(q + 4 * j)));
#else
      sum = (Int)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)words[j], _mm256_set1_epi32(four(q + 4 * j)));
#endif
    }
    return sum;
  }
};

#elif defined(__AVX512BW__) || (defined(__AVX2__) && !defined(__AVX512F__))
#define POLYDRAFT_ROUNDED

// Two products of a code of 4 bits fit into 16 bits for a whole block: 15 · 127 · 2 · 8 < 2^15; of 6 bits for two words:
// 63 · 127 · 2 · 2 < 2^15. Codes of 8 bits are two of 4.
template <int BITS, int WORDS>
struct Dots {
  static constexpr int PARTS = BITS == 8 ? 2 : 1, AT_ONCE = BITS == 6 ? 2 : WORDS;
  Word words[PARTS][WORDS];  // of codes of 8 bits the lower four, and the upper ones

  explicit Dots(const uint32_t* codes) {
    for (int j = 0; j < WORDS; j++) {
      const Word word = unsigned_word_of<BITS>(codes, j);
      words[0][j] = BITS == 8 ? word & LOWER : word;
      if constexpr (BITS == 8) words[1][j] = word >> 4 & LOWER;
    }
  }

  Int operator()(const int8_t* q, int32_t shift) const {
    Int found[PARTS] = {};
    for (int part = 0; part < PARTS; part++) {
#pragma GCC unroll 4
      for (int first = 0; first < WORDS; first += AT_ONCE) {
#if defined(__AVX512F__)
        __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int j = first; j < first + AT_ONCE; j++) {
          const __m512i input = _mm512_set1_epi32(four(q + 4 * j));
          sum = _mm512_add_epi16(sum, _mm512_maddubs_epi16((__m512i)words[part][j], input));
        }
        found[part] += (Int)_mm512_madd_epi16(sum, _mm512_set1_epi16(1));
#else
        __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int j = first; j < first + AT_ONCE; j++) {
          const __m256i input = _mm256_set1_epi32(four(q + 4 * j));
          sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16((__m256i)words[part][j], input));
        }
        found[part] += (Int)_mm256_madd_epi16(sum, _mm256_set1_epi16(1));
#endif
      }
    }
    if constexpr (BITS == 8) return found[0] + (found[1] << 4) - shift;
    return found[0] - raised<BITS>(shift);
  }
};

#elif defined(__ARM_FEATURE_MATMUL_INT8)
#define POLYDRAFT_ROUNDED

// One instruction multiplies eight inputs of two rows with those of two outputs.
template <int BITS, int WORDS>
struct Dots {
  int8x16_t words[WORDS];  // of each eight inputs: the first two outputs' codes, then the last two's

  explicit Dots(const uint32_t* codes) {
    for (int j = 0; j < WORDS; j += 2) {
      const int32x4_t first = (int32x4_t)signed_word_of<BITS>(codes, j), next = (int32x4_t)signed_word_of<BITS>(codes, j + 1);
      words[j] = vreinterpretq_s8_s32(vzip1q_s32(first, next));
      words[j + 1] = vreinterpretq_s8_s32(vzip2q_s32(first, next));
    }
  }

  void both(const int8_t* q, const int8_t* other, Int (&found)[2]) const {
    int32x4_t lower = vdupq_n_s32(0), upper = lower;  // an output's sums of both rows, then the next output's
#pragma GCC unroll 4
    for (int j = 0; j < WORDS; j += 2) {
      const int8x16_t inputs = vcombine_s8(vld1_s8(q + 4 * j), vld1_s8(other + 4 * j));
      lower = vmmlaq_s32(lower, words[j], inputs);
      upper = vmmlaq_s32(upper, words[j + 1], inputs);
    }
    found[0] = (Int)vuzp1q_s32(lower, upper);
    found[1] = (Int)vuzp2q_s32(lower, upper);
  }

  Int operator()(const int8_t* q, int32_t) const {
    Int found[2];
    both(q, q, found);
    return found[0];
  }
};

#elif defined(__aarch64__)
#define POLYDRAFT_ROUNDED

// Adds the products of each four neighbouring bytes.
inline int32x4_t dots_of_four(int32x4_t sum, int8x16_t a, int8x16_t b) {
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(sum, a, b);
#else
  const int16x8_t lower = vmull_s8(vget_low_s8(a), vget_low_s8(b)), upper = vmull_high_s8(a, b);
  return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(lower), vpaddlq_s16(upper)));
#endif
}

template <int BITS, int WORDS>
struct Dots {
  Word words[WORDS];

  explicit Dots(const uint32_t* codes) {
    for (int j = 0; j < WORDS; j++) words[j] = signed_word_of<BITS>(codes, j);
  }

  Int operator()(const int8_t* q, int32_t) const {
    int32x4_t sum = vdupq_n_s32(0);
#pragma GCC unroll 8
    for (int j = 0; j < WORDS; j++) {
      sum = dots_of_four(sum, (int8x16_t)words[j], vreinterpretq_s8_s32(vdupq_n_s32(four(q + 4 * j))));
    }
    return (Int)sum;
  }
};

#endif

#if defined(POLYDRAFT_ROUNDED)

constexpr bool ROUNDS = true;

// Products with the codes of one layout.
template <int BITS, bool OFFSETS, bool SUPER = false, int GROUP = BLOCK>
struct RoundedProduct {
  static_assert(!OFFSETS || GROUP == BLOCK);  // an offset is added once for each block
  static constexpr Layout layout = {BITS, OFFSETS, SUPER, GROUP};

  // Rows whose totals are computed together, from the same prepared codes; more rows are in tiles of nearly equal sizes.
  // Each even size is compiled; an odd one above 1 computes the input that follows too, and does not store it.
  static constexpr int TILE = 16;
  // Up to so many rows, both halves of a panel are computed at once, so that it is read once.
  static constexpr int WHOLE = 4;

  // A total, and the product of a row's codes of a block, or of a rest of it, after it.
  template <bool REST>
  static Vec added(Vec total, Int dot, Vec scale, Vec offset, const Rounded& x) {
    total = fused(scale * x.scale, __builtin_convertvector(dot, Vec), total);
    return OFFSETS && !REST ? fused(offset, x.sum - Vec{}, total) : total;
  }

  // Adds the products of R rows with a block, or with a rest of it, to their totals of half a panel.
  template <int R, bool REST>
  static void add(const Rounded* x, const Blocks& blocks, int half, Vec (&totals)[R]) {
    for (int at = 0; at < BLOCK; at += GROUP) {
      const Dots<BITS, GROUP / 4> dots(blocks.codes() + at * BITS / 32 * PANEL + half * LANES);
      const Vec scale = blocks.scale(half, at), offset = OFFSETS && !REST ? blocks.offset(half) : Vec{};
      const auto add_to = [&](int r, Int dot) { totals[r] = added<REST>(totals[r], dot, scale, offset, x[r]); };
      constexpr int EACH = PAIRS && R % 2 == 0 ? 2 : 1;
#pragma GCC unroll 16
      for (int r = 0; r < R; r += EACH) {
        if constexpr (EACH == 2) {
          Int found[2];
          dots.both(x[r].codes + at, x[r + 1].codes + at, found);
          add_to(r, found[0]);
          add_to(r + 1, found[1]);
        } else {
          const int32_t shift = GROUP == BLOCK ? x[r].shift[0] + x[r].shift[1] : x[r].shift[at / GROUP];
          add_to(r, dots(x[r].codes + at, shift));
        }
      }
    }
  }

  // A panel's outputs for R rows, or R - 1, without the rests.
  template <int R>
  static void tile(const char* w, const RoundedRows& inputs, int64_t K, Fetch& fetch, float* found) {
    constexpr int HALVES = R <= WHOLE ? 2 : 1;
    for (int first = 0; first < 2; first += HALVES) {
      Vec totals[HALVES][R] = {};
      Blocks blocks{layout, w};
      const Rounded* x = inputs.blocks;
      for (int64_t k = 0; k < K; k += BLOCK, blocks.w += layout.block(), x += inputs.stride) {
        blocks.begin(k);
        fetch.prefetch(BLOCK);
#pragma GCC unroll 2
        for (int half = 0; half < HALVES; half++) add<R, false>(x, blocks, first + half, totals[half]);
      }
      for (int r = 0; r < R && r < inputs.rows; r++) {
        for (int half = 0; half < HALVES; half++) store(found + r * PANEL + (first + half) * LANES, totals[half][r]);
      }
      fetch.end_reading();
    }
  }

#if defined(POLYDRAFT_TILES)
  // Whether tiles compute so many rows.
  static bool in_tiles(int64_t rows) { return rows > TILE_ROWS / 2 && tiles_allowed(); }

  // Of a product of tiles.
  struct Product {
    const Rounded* x;  // the block's first row
    Vec scale[2], offset[2];
    alignas(64) int32_t dots[ROWS_AT_ONCE][PANEL];
  };

  // A panel's outputs for up to ROWS_AT_ONCE rows, without the rests, by products of tiles. While the processor computes
  // a product, the one before it is added to the totals.
  static void tiled(const char* w, const RoundedRows& inputs, int64_t K, Fetch& fetch, float* found) {
    std::fill_n(found, inputs.rows * PANEL, 0.0f);
    const Tiles tiles(inputs.rows, GROUP);
    Product products[2];
    const auto add_up = [&](const Product& of) {
      for (int64_t r = 0; r < inputs.rows; r++) {
        for (int half = 0; half < 2; half++) {
          float* to = found + r * PANEL + half * LANES;
          const Int dot = (Int)load_words(reinterpret_cast<const uint32_t*>(of.dots[r] + half * LANES));
          store(to, added<false>(load(to), dot, of.scale[half], of.offset[half], of.x[r]));
        }
      }
    };
    Blocks blocks{layout, w};
    const Rounded* x = inputs.blocks;
    int64_t count = 0;
    for (int64_t k = 0; k < K; k += BLOCK, blocks.w += layout.block(), x += inputs.stride) {
      blocks.begin(k);
      fetch.prefetch(BLOCK);
      for (int at = 0; at < BLOCK; at += GROUP, count++) {
        Product& next = products[count % 2];
        next.x = x;
        for (int half = 0; half < 2; half++) {
          next.scale[half] = blocks.scale(half, at);
          next.offset[half] = OFFSETS ? blocks.offset(half) : Vec{};
        }
        const uint32_t* codes = blocks.codes() + at * BITS / 32 * PANEL;
        alignas(64) uint32_t words[GROUP / 4 * PANEL];
        for (int j = 0; BITS != 8 && j < GROUP / 4; j++) {
          for (int half = 0; half < 2; half++) {
            const Word word = signed_word_of<BITS>(codes + half * LANES, j);
            std::memcpy(words + j * PANEL + half * LANES, &word, sizeof word);
          }
        }
        tiles.multiply(x->codes + at, sizeof(Rounded), BITS == 8 ? codes : words, next.dots[0]);
        if (count > 0) add_up(products[(count + 1) % 2]);
      }
    }
    if (count > 0) add_up(products[(count + 1) % 2]);
    fetch.end_reading();
  }
#endif

  using Tile = void (*)(const char*, const RoundedRows&, int64_t K, Fetch&, float*);

  template <int... I>
  static Tile tile_of(int64_t rows, std::integer_sequence<int, I...>) {
#if defined(POLYDRAFT_TILES)
    if (in_tiles(rows)) return tiled;
#endif
    static constexpr Tile ways[] = {tile<2 * I + 2>...};
    return rows == 1 ? tile<1> : ways[(rows - 1) / 2];
  }

  // How many of these rows are computed at once.
  static int64_t at_once([[maybe_unused]] int64_t rows) {
#if defined(POLYDRAFT_TILES)
    if (in_tiles(rows)) return ROWS_AT_ONCE;
#endif
    return TILE;
  }

  static void panel(const Layout&, const char* w, const RoundedRows& inputs, int64_t K, Fetch fetch, float* found) {
    const int64_t rows = inputs.rows, most = at_once(rows), tiles = (rows + most - 1) / most;
    fetch = fetch.shared_by(rows <= WHOLE || most > TILE ? tiles : 2 * tiles);
    for (int64_t i = 0; i < tiles; i++) {
      const Share some = part_of(rows, i, tiles);
      const Tile tile = tile_of(some.count(), std::make_integer_sequence<int, TILE / 2>{});
      tile(w, inputs.part(some.begin, some.count()), K, fetch, found + some.begin * PANEL);
    }
    each_rest(layout, w, inputs, K, [&](const Rounded& x, const Blocks& blocks, int64_t row) {
      for (int half = 0; half < 2; half++) {
        float* to = found + row * PANEL + half * LANES;
        Vec total[1] = {load(to)};
        add<1, true>(&x, blocks, half, total);
        store(to, total[0]);
      }
    });
  }
};

RoundedPanel rounded_of(const Layout& layout) {
  if (layout.bits == 4) return layout.super ? RoundedProduct<4, true, true>::panel : RoundedProduct<4, true>::panel;
  if (layout.bits == 8) return RoundedProduct<8, false>::panel;
  if (!layout.super) return layout.offsets ? RoundedProduct<6, true>::panel : RoundedProduct<6, false>::panel;
  return layout.offsets ? RoundedProduct<6, true, true>::panel : RoundedProduct<6, false, true, 16>::panel;
}

#else

constexpr bool ROUNDS = false;

RoundedPanel rounded_of(const Layout&) { return reference; }

#endif

}  // namespace
