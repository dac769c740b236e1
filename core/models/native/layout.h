// How coded weights are stored.

#pragma once

#include <cstdint>

#include "vectors.h"

namespace {

constexpr int64_t BLOCK = 32;          // inputs that share an offset, and a scale or two
constexpr int64_t SUPER_BLOCK = 256;   // inputs that share factors of scales and offsets

// IEEE half precision in the lower halves of words. Scales of K types are often subnormal in half precision, and then in the
// places of float32 as well: multiplying those took an Intel processor most of a pass, and converting them takes it no longer.
inline Vec half(Word bits) {
#if defined(__AVX512F__)
  return (Vec)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)bits));
#elif defined(__AVX2__) && defined(__F16C__)
  const __m256i lower = _mm256_and_si256((__m256i)bits, _mm256_set1_epi32(0xffff));
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(lower, lower), 0x08);
  return (Vec)_mm256_cvtph_ps(_mm256_castsi256_si128(packed));
#elif defined(__aarch64__)
  return (Vec)vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32((uint32x4_t)bits)));
#else
  // The same bits, shifted into a float32's places, are 2^-112 of the value.
  const Vec size = reinterpret_cast<Vec>((bits & 0x7fff) << 13) * 0x1p112f;
  return reinterpret_cast<Vec>(reinterpret_cast<Word>(size) | ((bits & 0x8000) << 16));
#endif
}

inline Vec load_half(const char* p) {
#if defined(__AVX512F__)
  return (Vec)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__) && defined(__F16C__)
  return (Vec)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  return half(__builtin_convertvector(*reinterpret_cast<const Half*>(p), Word));
#endif
}

// The address to prefetch from, and the bytes by which it advances with each input. It is of the next panel, or of this one
// ahead of what is read.
struct Fetch {
  const char* from;
  int64_t step;
  bool next;

  void prefetch(int64_t inputs) {
    for (int64_t to = 0; to < inputs * step; to += 64) __builtin_prefetch(from + to);
    from += inputs * step;
  }

  // For so many readings of a panel, each of which fetches its part of the next one.
  Fetch shared_by(int64_t readings) const { return {from, next ? (step + readings - 1) / readings : step, next}; }

  // Ends a reading of the panel, which is in the cache now.
  void end_reading() {
    if (!next) step = 0;
  }
};

// How the blocks of coded weights are stored: PANEL scales for each `group` inputs, PANEL offsets if there are any, then
// words of four bytes with the codes. A weight is scale · code + offset. Scales and offsets have half precision; in
// `super` blocks they are signed bytes, and SUPER_BLOCK inputs begin with PANEL factors of the scales and of the offsets,
// in half precision. Codes of 6 and 8 bits are signed.
//
//      8 bits   a word has four inputs, the first one's code in the lowest byte
//      4 bits   a word has eight inputs: the first four in the lower halves of the bytes, the last four in the upper ones
//      6 bits   three words have 16 inputs: the first twelve in the upper six bits of the bytes, the last four in the
//               lower two bits, of which the first word has the highest
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

// The code of input `at` of the block, of output `o` of the panel.
inline int32_t code_at(const Layout& layout, const uint32_t* words, int64_t at, int64_t o) {
  const auto byte = [&](int64_t word) { return words[word * PANEL + o] >> at % 4 * 8 & 255; };
  if (layout.bits == 8) return static_cast<int8_t>(byte(at / 4));
  if (layout.bits == 4) return byte(at / 8) >> (at % 8 / 4 * 4) & 15;
  const int64_t first = at / 16 * 3, place = at % 16 / 4;
  if (place < 3) return static_cast<int8_t>(byte(first + place)) >> 2;
  return static_cast<int8_t>(byte(first) << 6 | (byte(first + 1) & 3) << 4 | (byte(first + 2) & 3) << 2) >> 2;
}

// Codes of 6 bits of the inputs 4 place … 4 place + 3 of 16, in the upper bits of the bytes.
template <int PLACE>
inline Word six_bits(const uint32_t* codes) {
  constexpr uint32_t LOWEST = 0x03030303;
  if constexpr (PLACE < 3) return load_words(codes + PLACE * PANEL);
  return (load_words(codes) & LOWEST) << 6 | (load_words(codes + PANEL) & LOWEST) << 4 |
         (load_words(codes + 2 * PANEL) & LOWEST) << 2;
}

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
    if (!layout.super) return load_half(p + half * 2 * LANES);
    return load_half(by + half * 2 * LANES) * load(reinterpret_cast<const int8_t*>(p) + half * LANES);
  }
};

}  // namespace
