// How coded weights are stored.

#pragma once

#include <cstdint>

#include "vectors.h"

namespace {

constexpr int64_t BLOCK = 32;          // inputs that share an offset, and a scale or two
constexpr int64_t SUPER_BLOCK = 256;   // inputs that share factors of scales and offsets

// IEEE half precision in the lower halves of words: the same bits, shifted into a float32's places, are 2^-112 of the
// value.
inline Vec half(Word bits) {
  const Vec size = reinterpret_cast<Vec>((bits & 0x7fff) << 13) * 0x1p112f;
  return reinterpret_cast<Vec>(reinterpret_cast<Word>(size) | ((bits & 0x8000) << 16));
}

inline Vec load_half(const char* p) {
  return half(__builtin_convertvector(*reinterpret_cast<const Half*>(p), Word));
}
inline Vec load_bytes(const char* p) {
  return __builtin_convertvector(*reinterpret_cast<const Bytes*>(p), Vec);
}

// How the blocks of coded weights are stored: PANEL scales for each `group` inputs, PANEL offsets if there are any, then
// words with the codes of 32 / bits inputs each: those of 8 bits in the order of the inputs, the first one's lowest; of
// those with 4 bits the first four in the lower halves of the four bytes, and the last four in the upper ones. A weight is scale · code + offset. Scales and
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

// The code of input `at` of the block, of output `o` of the panel.
inline int32_t code_at(const Layout& layout, const uint32_t* words, int64_t at, int64_t o) {
  const char* bytes = reinterpret_cast<const char*>(words + (layout.bits == 8 ? at / 4 : at / 8) * PANEL + o) + at % 4;
  if (layout.bits == 8) return *reinterpret_cast<const int8_t*>(bytes);
  return *reinterpret_cast<const uint8_t*>(bytes) >> (at % 8 / 4 * 4) & 15;
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
    return layout.super ? load_half(by + half * 2 * LANES) * load_bytes(p + half * LANES) : load_half(p + half * 2 * LANES);
  }
};

}  // namespace
