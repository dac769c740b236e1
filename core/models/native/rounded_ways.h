// How processors compute products with rounded inputs.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "rounded.h"
#include "threads.h"

namespace {

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

#if defined(__aarch64__)
// The same, signed.
template <int BITS>
inline Word signed_word_of(const uint32_t* codes, int j) {
  const Word word = word_of<BITS>(codes, j);
  if constexpr (BITS != 6) return word;
  return (Word)vshrq_n_s8((int8x16_t)word, 2);
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

// The products of four inputs of a row with a word, added to the sums.
inline Int with_dots(Int sum, Word word, const int8_t* q) {
#if defined(__AVX512VNNI__)
  return (Int)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)word, _mm512_set1_epi32(four(q)));
#else
  return (Int)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)word, _mm256_set1_epi32(four(q)));
#endif
}

template <int BITS, int WORDS>
struct Dots {
  Word words[WORDS];

  explicit Dots(const uint32_t* codes) {
    for (int j = 0; j < WORDS; j++) words[j] = unsigned_word_of<BITS>(codes, j);
  }

  Int operator()(const int8_t* q, int32_t shift) const {
    Int sum = Int{} - raised<BITS>(shift);
#pragma GCC unroll 8
    for (int j = 0; j < WORDS; j++) sum = with_dots(sum, words[j], q + 4 * j);
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

// Blocks that were decoded for many rows. Each has PANEL scales in float32 for each group of inputs, PANEL
// offsets if there are any, and unsigned codes of 8 bits, in the order in which a layout of 8 bits has them.
template <bool OFFSETS, int GROUP>
struct DecodedBlocks {
  static constexpr int64_t SCALES = BLOCK / GROUP * PANEL, HEAD = SCALES + (OFFSETS ? PANEL : 0);
  static constexpr int64_t SIZE = HEAD + BLOCK / 4 * PANEL;  // numbers of four bytes

  // Where the numbers of a block are.
  static constexpr int64_t scales(int half, int64_t at) { return at / GROUP * PANEL + half * LANES; }
  static constexpr int64_t offsets(int half) { return SCALES + half * LANES; }
  static constexpr int64_t words(int half, int j) { return HEAD + j * PANEL + half * LANES; }

  using Number = float;
  const float* block;

  void begin(int64_t) {}
  void next() { block += SIZE; }

  Vec scale(int half, int64_t at) const { return load(block + scales(half, at)); }
  Vec offset(int half) const { return load(block + offsets(half)); }
  Word word(int half, int j) const { return reinterpret_cast<Word>(load(block + words(half, j))); }
};

// Products with the codes of one layout.
template <int BITS, bool OFFSETS, bool SUPER = false, int GROUP = BLOCK>
struct RoundedProduct {
  static_assert(!OFFSETS || GROUP == BLOCK);  // an offset is added once for each block
  static constexpr Layout layout = {BITS, OFFSETS, SUPER, GROUP};

  // The blocks of a panel.
  struct FromCodes : Blocks {
    using Number = char;
    explicit FromCodes(const char* w) : Blocks{RoundedProduct::layout, w} {}

    void next() { w += RoundedProduct::layout.block(); }

    // Four inputs' codes of each output of one half, unsigned.
    Word word(int half, int j) const { return unsigned_word_of<BITS>(codes() + half * LANES, j); }
  };
  using FromDecoded = DecodedBlocks<OFFSETS, GROUP>;

  // A total, and the product of a row's codes of a block, or of a rest of it, after it.
  template <bool REST>
  static Vec added(Vec total, Int dot, Vec scale, Vec offset, const Rounded& x) {
    total = fused(scale * x.scale, __builtin_convertvector(dot, Vec), total);
    return OFFSETS && !REST ? fused(offset, x.sum - Vec{}, total) : total;
  }

  static int32_t shift_of(const Rounded& x, int at) { return GROUP == BLOCK ? x.shift[0] + x.shift[1] : x.shift[at / GROUP]; }

  // A tile has the rows whose totals are computed together; more rows are in tiles of nearly equal sizes. `size` has the sizes
  // that are compiled, and `which` tells the one for so many rows.
#if defined(__AVX512VNNI__)
  static constexpr int SIZES = 8;
  static constexpr int size(int i) { return i + 1; }
  static constexpr int64_t which(int64_t rows) { return rows - 1; }
  // Up to so many rows, both halves of a panel are computed at once, so that it is read once.
  static constexpr int WHOLE = 8;
#else
  // For another odd number than 1, a tile computes the row that follows too, and does not store it.
  static constexpr int SIZES = 9;
  static constexpr int size(int i) { return i == 0 ? 1 : 2 * i; }
  static constexpr int64_t which(int64_t rows) { return rows == 1 ? 0 : (rows + 1) / 2; }
  static constexpr int WHOLE = 4;
#endif

  // Adds the products of R rows with a block, or with a rest of it, to their totals of HALVES halves, from `first` on: one
  // row after the other.
  template <int R, bool REST, int HALVES>
  static void add(const Rounded* x, const Blocks& blocks, int first, Vec (&totals)[HALVES][R]) {
#pragma GCC unroll 2
    for (int i = 0; i < HALVES; i++) {
      const int half = first + i;
      for (int at = 0; at < BLOCK; at += GROUP) {
        const Dots<BITS, GROUP / 4> dots(blocks.codes() + at * BITS / 32 * PANEL + half * LANES);
        const Vec scale = blocks.scale(half, at), offset = OFFSETS && !REST ? blocks.offset(half) : Vec{};
        const auto add_to = [&](int r, Int dot) { totals[i][r] = added<REST>(totals[i][r], dot, scale, offset, x[r]); };
        constexpr int EACH = PAIRS && R % 2 == 0 ? 2 : 1;
#pragma GCC unroll 16
        for (int r = 0; r < R; r += EACH) {
          if constexpr (EACH == 2) {
            Int found[2];
            dots.both(x[r].codes + at, x[r + 1].codes + at, found);
            add_to(r, found[0]);
            add_to(r + 1, found[1]);
          } else {
            add_to(r, dots(x[r].codes + at, shift_of(x[r], at)));
          }
        }
      }
    }
  }

#if defined(__AVX512VNNI__)
  // The same of both halves: one word after the other, so that a load of four inputs serves both. An instruction computes
  // 64 products, and the processor executes more of them at once than it loads inputs for.
  template <int R, class Weights>
  static void add_words(const Rounded* x, const Weights& blocks, Vec (&totals)[2][R]) {
    for (int at = 0; at < BLOCK; at += GROUP) {
      Int sums[2][R];
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) sums[0][r] = sums[1][r] = Int{} - raised<BITS>(shift_of(x[r], at));
#pragma GCC unroll 8
      for (int j = 0; j < GROUP / 4; j++) {
        const Word lower = blocks.word(0, at / 4 + j), upper = blocks.word(1, at / 4 + j);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
          sums[0][r] = with_dots(sums[0][r], lower, x[r].codes + at + 4 * j);
          sums[1][r] = with_dots(sums[1][r], upper, x[r].codes + at + 4 * j);
        }
      }
#pragma GCC unroll 2
      for (int half = 0; half < 2; half++) {
        const Vec scale = blocks.scale(half, at), offset = OFFSETS ? blocks.offset(half) : Vec{};
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) totals[half][r] = added<false>(totals[half][r], sums[half][r], scale, offset, x[r]);
      }
    }
  }
  template <int R, class Weights>
  static constexpr bool BY_WORDS = !std::is_same_v<Weights, FromCodes> || (GROUP == BLOCK && R > 2);
#else
  template <int R, class Weights>
  static constexpr bool BY_WORDS = false;
#endif

  // A panel's outputs for up to R rows, without the rests. Products with decoded blocks are added to those of the blocks before.
  template <int R, class Weights>
  static void tile(const typename Weights::Number* w, const RoundedRows& inputs, int64_t K, Fetch& fetch, float* found) {
    constexpr int HALVES = R <= WHOLE ? 2 : 1;
    for (int first = 0; first < 2; first += HALVES) {
      const auto each = [&](Vec (&totals)[HALVES][R], auto act) {
        for (int r = 0; r < R && r < inputs.rows; r++) {
          for (int half = 0; half < HALVES; half++) act(found + r * PANEL + (first + half) * LANES, totals[half][r]);
        }
      };
      Vec totals[HALVES][R] = {};
      if constexpr (!std::is_same_v<Weights, FromCodes>) each(totals, [](const float* from, Vec& total) { total = load(from); });
      Weights blocks{w};
      const Rounded* x = inputs.blocks;
      for (int64_t k = 0; k < K; k += BLOCK, blocks.next(), x += inputs.stride) {
        blocks.begin(k);
        fetch.prefetch(BLOCK);
        if constexpr (BY_WORDS<R, Weights>) {
          add_words(x, blocks, totals);
        } else {
          add<R, false>(x, blocks, first, totals);
        }
      }
      each(totals, [](float* to, Vec& total) { store(to, total); });
      fetch.end_reading();
    }
  }

  // The same for all rows, in tiles of the compiled sizes.
  template <class Weights, int... I>
  static void tiles(const typename Weights::Number* w, const RoundedRows& inputs, int64_t K, Fetch& fetch, float* found,
                    std::integer_sequence<int, I...>) {
    using Tile = void (*)(const typename Weights::Number*, const RoundedRows&, int64_t K, Fetch&, float*);
    static constexpr Tile ways[] = {tile<size(I), Weights>...};
    const int64_t parts = tiles_of(inputs.rows, size(sizeof...(I) - 1));
    for (int64_t i = 0; i < parts; i++) {
      const Share some = part_of(inputs.rows, i, parts);
      ways[which(some.count())](w, inputs.part(some.begin, some.count()), K, fetch, found + some.begin * PANEL);
    }
  }

  static int64_t tiles_of(int64_t rows, int64_t most) { return (rows + most - 1) / most; }

#if defined(__AVX512VNNI__)
  // The same for many rows of codes that take long to decode: those of some inputs at a time are decoded once for all tiles,
  // and stay in the cache's first level meanwhile. The totals, sums and words of 6 rows fit into the registers.
  static void in_slices(const char* w, const RoundedRows& inputs, int64_t K, Fetch fetch, float* found) {
    constexpr int MOST = 6;
    constexpr int64_t SLICE = 512;  // inputs
    alignas(64) float decoded[SLICE / BLOCK * FromDecoded::SIZE];
    std::fill_n(found, inputs.rows * PANEL, 0.0f);
    fetch = fetch.next ? fetch.shared_by(tiles_of(inputs.rows, MOST)) : Fetch{};
    FromCodes blocks{w};
    for (int64_t k = 0; k < K; k += SLICE) {
      const int64_t some = std::min(SLICE, K - k);
      float* to = decoded;
      for (int64_t at = 0; at < some; at += BLOCK, blocks.next(), to += FromDecoded::SIZE) {
        blocks.begin(k + at);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
#pragma GCC unroll 2
          for (int i = 0; i < BLOCK; i += GROUP) store(to + FromDecoded::scales(half, i), blocks.scale(half, i));
          if (OFFSETS) store(to + FromDecoded::offsets(half), blocks.offset(half));
#pragma GCC unroll 8
          for (int j = 0; j < BLOCK / 4; j++) store(to + FromDecoded::words(half, j), reinterpret_cast<Vec>(blocks.word(half, j)));
        }
      }
      tiles<FromDecoded>(decoded, inputs.after(k), some, fetch, found, std::make_integer_sequence<int, MOST>{});
    }
  }
#endif

  // A panel's outputs for all rows, without the rests.
  static void outputs(const char* w, const RoundedRows& inputs, int64_t K, Fetch fetch, float* found) {
    constexpr int MOST = size(SIZES - 1);
#if defined(__AVX512VNNI__)
    if (BITS == 6 && inputs.rows > MOST) return in_slices(w, inputs, K, fetch, found);
#endif
    fetch = fetch.shared_by(tiles_of(inputs.rows, MOST) * (inputs.rows <= WHOLE || MOST <= WHOLE ? 1 : 2));
    tiles<FromCodes>(w, inputs, K, fetch, found, std::make_integer_sequence<int, SIZES>{});
  }

  static void panel(const Layout&, const char* w, const RoundedRows& inputs, int64_t K, Fetch fetch, float* found) {
    outputs(w, inputs, K, fetch, found);
    each_rest(layout, w, inputs, K, [&](const Rounded& x, const Blocks& blocks, int64_t row) {
      float* to = found + row * PANEL;
      Vec totals[2][1] = {{load(to)}, {load(to + LANES)}};
      add<1, true>(&x, blocks, 0, totals);
      store(to, totals[0][0]);
      store(to + LANES, totals[1][0]);
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
