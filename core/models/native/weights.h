// The kinds of weights: how a panel is stored, and its outputs for some inputs.

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "interface.h"
#include "layout.h"
#include "vectors.h"

namespace {

// Of a number of an adapter.
inline int64_t bytes_of_number(const LowRank& low) { return low.kind == FLOAT32 ? 4 : low.kind == BFLOAT16 ? 2 : 1; }

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

// Which layout the functions of a kind are compiled for: any, which they read at each call; or one, which makes them
// faster, and each such kind takes its time to compile.
struct Any {
  static const Layout& of(const Layout& given) { return given; }
};

template <int64_t BITS, bool OFFSETS, bool SUPER = false, int64_t GROUP = BLOCK>
struct One {
  static constexpr Layout of(const Layout&) { return {BITS, OFFSETS, SUPER, GROUP}; }
};

template <int BITS, class Compiled>
struct Coded {
  static constexpr int IN_WORD = BITS == 4 ? 8 : 4;
  static constexpr int STEP = BITS == 6 ? 16 : IN_WORD;  // inputs whose codes are in the same words

  // The words of the inputs from IN_WORD · PLACE of a step on.
  template <int PLACE>
  static Word words(const uint32_t* codes) {
    if constexpr (BITS == 6) return six_bits<PLACE>(codes);
    return load_words(codes);
  }

  static Vec code(Word words, int place) {
    if constexpr (BITS != 4) {
      return __builtin_convertvector(reinterpret_cast<Int>(words << (24 - 8 * place)) >> (32 - BITS), Vec);
    }
    const int shift = place % 4 * 8 + place / 4 * 4;
#if defined(__AVX512F__) && !defined(__clang__)
    constexpr Vec VALUES = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return __builtin_shuffle(VALUES, reinterpret_cast<Int>(words >> shift));  // by the lowest 4 bits
#else
    return __builtin_convertvector(reinterpret_cast<Int>((words >> shift) & 15), Vec);
#endif
  }

  // Calls `act` with the number of each word of a step.
  template <class Act>
  static void each_word(Act act) {
    act(std::integral_constant<int, 0>{});
    if constexpr (BITS == 6) {
      act(std::integral_constant<int, 1>{});
      act(std::integral_constant<int, 2>{});
      act(std::integral_constant<int, 3>{});
    }
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
          for (int64_t i = 0; i < layout.group; i += STEP, codes += STEP * BITS / 32 * PANEL) {
            each_word([&](auto number) {
              const Word found = words<number>(codes);
#pragma GCC unroll 8
              for (int place = 0; place < IN_WORD; place++, to += PANEL) store(to, scale * code(found, place) + offset);
            });
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
        for (int64_t i = 0; i < layout.group; i += STEP, codes += STEP * BITS / 32 * PANEL) {
          each_word([&](auto number) {
            fetch.prefetch(IN_WORD);
            const Word a = words<number>(codes), b = words<number>(codes + LANES);
#pragma GCC unroll 8
            for (int place = 0; place < IN_WORD; place++) {
              add_up<R>(chains[place % CHAINS<R>], code(a, place), code(b, place), input + i + IN_WORD * number + place, K);
            }
          });
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
    coded<8, One<8, false>>(false), coded<4, One<4, true>>(true), coded<6>(false), coded<6>(true),
    coded<4, One<4, true, true>>(true, true), coded<6>(true, true), coded<6, One<6, false, true, 16>>(false, true, 16),
};

// The weights (K,) of output `o` of a panel, as float32.
void decode_output(int64_t kind, const char* w, int64_t K, int64_t o, float* to) {
  const Layout& layout = FORMATS[kind].layout;
  const int64_t lane = o % LANES;
  const int half_panel = static_cast<int>(o / LANES);
  if (FORMATS[kind].coded()) {
    Blocks blocks{layout, w};
    for (int64_t k = 0; k < K; k += BLOCK, blocks.w += layout.block()) {
      blocks.begin(k);
      for (int64_t at = 0; at < BLOCK; at += layout.group) {
        const float scale = blocks.scale(half_panel, at)[lane];
        for (int64_t i = at; i < at + layout.group; i++) {
          to[k + i] = scale * static_cast<float>(code_at(layout, blocks.codes(), i, o));
        }
      }
      if (!layout.offsets) continue;
      const float offset = blocks.offset(half_panel)[lane];
      for (int64_t i = 0; i < BLOCK; i++) to[k + i] += offset;
    }
    return;
  }
  const uint32_t* words = reinterpret_cast<const uint32_t*>(w) + o;
  for (int64_t k = 0; k < K; k++) {
    if (kind == FLOAT32) {
      std::memcpy(to + k, words + k * PANEL, sizeof(float));
      continue;
    }
    const Word word = Word{} + (words[k / 2 * PANEL] >> k % 2 * 16 & 0xffff);
    to[k] = kind == BFLOAT16 ? Bits16<false>::lower(word)[0] : Bits16<true>::lower(word)[0];
  }
}

int64_t panels_of(const Part& part) { return (part.out + PANEL - 1) / PANEL; }

}  // namespace
