// Coded weights as GGUF files have them, and how they become panels.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "faults.h"
#include "interface.h"
#include "layout.h"

namespace {

// A block of a file, BLOCK inputs of one output or SUPER_BLOCK, in the form of `layout.h` but for one output alone:
// first the factors, then for each BLOCK inputs the scales, the offset and the words of codes.
struct Unpacked {
  uint16_t factors[2];
  struct Inputs {
    uint16_t scales[2];  // half precision, or bytes
    uint16_t offset;
    uint32_t words[BLOCK / 4];
  } of[SUPER_BLOCK / BLOCK];
};

constexpr uint32_t LOWER_HALVES = 0x0f0f0f0f, UPPER_HALVES = 0xf0f0f0f0;

inline uint16_t half_at(const uint8_t* p) {
  uint16_t number;
  std::memcpy(&number, p, sizeof number);
  return number;
}

inline uint32_t word_at(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// -8 times a number in half precision; exact, if the result is finite.
inline uint16_t minus_eight(uint16_t number) {
  const uint32_t sign = (number & 0x8000) ^ 0x8000;
  uint32_t exponent = number >> 10 & 31, mantissa = number & 0x3ff;
  if (exponent) return static_cast<uint16_t>(sign | std::min(exponent + 3, 31u) << 10 | mantissa);
  for (mantissa <<= 3, exponent = 0; mantissa >= 2048; mantissa >>= 1) exponent++;
  return static_cast<uint16_t>(sign | ((exponent << 10) + mantissa));  // a mantissa from 1024 on adds 1 to the exponent
}

// Eight codes of 4 bits in a word, of two words with them in the lower halves of their bytes, or in the upper ones.
inline uint32_t of_lower(uint32_t first, uint32_t last) { return (first & LOWER_HALVES) | (last & LOWER_HALVES) << 4; }
inline uint32_t of_upper(uint32_t first, uint32_t last) { return (first & UPPER_HALVES) >> 4 | (last & UPPER_HALVES); }

// Bytes with 2n codes, those of n inputs in their lower halves and those of the n next ones in the upper ones.
inline void four_bits(const uint8_t* p, int64_t n, uint32_t* lower, uint32_t* upper) {
  for (int64_t i = 0; i < n / 8; i++, p += 8) {
    lower[i] = of_lower(word_at(p), word_at(p + 4));
    upper[i] = of_upper(word_at(p), word_at(p + 4));
  }
}

// Signed codes in the lower 6 bits of BLOCK bytes.
inline void pack_six(const uint8_t* codes, uint32_t* words) {
  for (int64_t i = 0; i < BLOCK; i += 16) {
    const uint32_t last = word_at(codes + i + 12);
    for (int64_t j = 0; j < 3; j++) {
      *words++ = (word_at(codes + i + 4 * j) & 0x3f3f3f3f) << 2 | (last >> (4 - 2 * j) & 0x03030303);
    }
  }
}

// Of Q5_0 and Q5_1: the fifth bits of BLOCK codes in a word, then the others; `less` is subtracted.
inline void five_bits(const uint8_t* p, uint8_t less, uint32_t* words) {
  const uint32_t fifth = word_at(p);
  uint8_t codes[BLOCK];
  for (int64_t i = 0; i < BLOCK; i++) {
    const uint8_t others = i < 16 ? p[4 + i] & 15 : p[4 + i - 16] >> 4;
    codes[i] = static_cast<uint8_t>((others | (fifth >> i & 1) << 4) - less);
  }
  pack_six(codes, words);
}

// Of Q4_K and Q5_K: the factors, and scales and offsets of 6 bits in twelve bytes. The file has what to subtract.
inline void unpack_scales(const uint8_t* p, Unpacked& to) {
  to.factors[0] = half_at(p);
  to.factors[1] = half_at(p + 2) ^ 0x8000;
  const uint8_t *first = p + 4, *second = p + 8, *rest = p + 12;
  for (int64_t i = 0; i < 4; i++) {
    to.of[i].scales[0] = first[i] & 63;
    to.of[i].offset = second[i] & 63;
    to.of[i + 4].scales[0] = (rest[i] & 15) | (first[i] >> 2 & 48);
    to.of[i + 4].offset = rest[i] >> 4 | (second[i] >> 2 & 48);
  }
}

// The types, each with the bytes of its block, and a function that unpacks one.
struct FileType {
  int64_t number;  // in GGUF
  int64_t bytes;
  Layout layout;
  void (*unpack)(const uint8_t* p, Unpacked& to);
};

const FileType FILE_TYPES[] = {
    {2, 18, {4, true, false, BLOCK},  // Q4_0
     [](const uint8_t* p, Unpacked& to) {
       to.of[0].scales[0] = half_at(p);
       to.of[0].offset = minus_eight(half_at(p));
       four_bits(p + 2, 16, to.of[0].words, to.of[0].words + 2);
     }},
    {3, 20, {4, true, false, BLOCK},  // Q4_1
     [](const uint8_t* p, Unpacked& to) {
       to.of[0].scales[0] = half_at(p);
       to.of[0].offset = half_at(p + 2);
       four_bits(p + 4, 16, to.of[0].words, to.of[0].words + 2);
     }},
    {6, 22, {6, false, false, BLOCK},  // Q5_0
     [](const uint8_t* p, Unpacked& to) {
       to.of[0].scales[0] = half_at(p);
       five_bits(p + 2, 16, to.of[0].words);
     }},
    {7, 24, {6, true, false, BLOCK},  // Q5_1
     [](const uint8_t* p, Unpacked& to) {
       to.of[0].scales[0] = half_at(p);
       to.of[0].offset = half_at(p + 2);
       five_bits(p + 4, 0, to.of[0].words);
     }},
    {8, 34, {8, false, false, BLOCK},  // Q8_0
     [](const uint8_t* p, Unpacked& to) {
       to.of[0].scales[0] = half_at(p);
       std::memcpy(to.of[0].words, p + 2, BLOCK);
     }},
    {12, 144, {4, true, true, BLOCK},  // Q4_K
     [](const uint8_t* p, Unpacked& to) {
       unpack_scales(p, to);
       for (int64_t i = 0; i < 8; i += 2) four_bits(p + 16 + 16 * i, 32, to.of[i].words, to.of[i + 1].words);
     }},
    {13, 176, {6, true, true, BLOCK},  // Q5_K
     [](const uint8_t* p, Unpacked& to) {
       unpack_scales(p, to);
       for (int64_t i = 0; i < 8; i++) {
         const uint8_t *fifth = p + 16, *others = p + 48 + i / 2 * BLOCK;
         uint8_t codes[BLOCK];
         for (int64_t j = 0; j < BLOCK; j++) {
           codes[j] = static_cast<uint8_t>((others[j] >> i % 2 * 4 & 15) | (fifth[j] >> i & 1) << 4);
         }
         pack_six(codes, to.of[i].words);
       }
     }},
    {14, 210, {6, false, true, 16},  // Q6_K: codes 32 above their values
     [](const uint8_t* p, Unpacked& to) {
       to.factors[0] = half_at(p + 208);
       for (int64_t i = 0; i < 8; i++) {
         const uint8_t *lower = p + i / 4 * 64 + i % 2 * BLOCK, *upper = p + 128 + i / 4 * BLOCK;
         uint8_t codes[BLOCK];
         for (int64_t j = 0; j < BLOCK; j++) {
           codes[j] = static_cast<uint8_t>(((lower[j] >> i % 4 / 2 * 4 & 15) | (upper[j] >> i % 4 * 2 & 3) << 4) ^ 32);
         }
         for (int64_t j = 0; j < 2; j++) to.of[i].scales[j] = p[192 + 2 * i + j];
         pack_six(codes, to.of[i].words);
       }
     }},
};

const FileType* file_type(int64_t number) {
  for (const FileType& type : FILE_TYPES) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

// Bytes of a panel of so many outputs.
int64_t panel_bytes(const FileType& type, int64_t in, int64_t outputs) {
  return type.layout.bytes(in) / PANEL * outputs;
}

constexpr int64_t MOST_OUTPUTS = 64;  // of a panel

// Writes a number of each output, beside each other, and returns the place behind them.
template <class Number, class Get>
inline char* put(char* to, int64_t outputs, Get get) {
  for (int64_t o = 0; o < outputs; o++) {
    const Number number = static_cast<Number>(get(o));
    std::memcpy(to + o * sizeof number, &number, sizeof number);
  }
  return to + outputs * sizeof(Number);
}

// The outputs of one panel, of which `count` have blocks in `rows`.
void fill_panel(const FileType& type, const uint8_t* const* rows, int64_t count, int64_t in, int64_t outputs, char* to) {
  const Layout& layout = type.layout;
  const int64_t inputs = layout.multiple();
  Unpacked blocks[MOST_OUTPUTS] = {};
  for (int64_t block = 0; block < in / inputs; block++) {
    for (int64_t o = 0; o < count; o++) type.unpack(rows[o] + block * type.bytes, blocks[o]);
    for (int64_t i = 0; i < (layout.super ? layout.offsets + 1 : 0); i++) {
      to = put<uint16_t>(to, outputs, [&](int64_t o) { return blocks[o].factors[i]; });
    }
    for (int64_t b = 0; b < inputs / BLOCK; b++) {
      const auto scales = [&](auto get) {
        to = layout.super ? put<uint8_t>(to, outputs, get) : put<uint16_t>(to, outputs, get);
      };
      for (int64_t i = 0; i < BLOCK / layout.group; i++) scales([&](int64_t o) { return blocks[o].of[b].scales[i]; });
      if (layout.offsets) scales([&](int64_t o) { return blocks[o].of[b].offset; });
      for (int64_t i = 0; i < layout.bits; i++) {  // 32 codes take `bits` words
        to = put<uint32_t>(to, outputs, [&](int64_t o) { return blocks[o].of[b].words[i]; });
      }
    }
  }
}

// Bytes of a row.
int64_t bytes_of_row(const FileType& type, int64_t in) { return in / type.layout.multiple() * type.bytes; }

bool fits(const Stored& of) {
  const FileType* type = file_type(of.type);
  if (!type || !of.rows || !of.panels || of.threads < 1 || of.threads > THREADS) return false;
  if (!sizes({of.out, of.in, of.outputs}) || of.outputs > MOST_OUTPUTS || of.in % type->layout.multiple()) return false;
  const int64_t panels = (of.out + of.outputs - 1) / of.outputs, row = bytes_of_row(*type, of.in);
  const int64_t bytes = times(panels, times(of.outputs, type->layout.bytes(of.in) / PANEL));
  if (bytes >= MOST || of.bytes != bytes || of.row_bytes < 0 || of.row_bytes >= MOST || of.row_bytes % row) return false;
  const int64_t rows = of.row_bytes / row;
  if (!of.order) return rows == of.out;
  return std::all_of(of.order, of.order + of.out, [&](int64_t at) { return 0 <= at && at < rows; });
}

}  // namespace
