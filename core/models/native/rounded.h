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

#include "layout.h"
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
  RoundedRows after(int64_t inputs) const { return {blocks + inputs / BLOCK * stride, rests, first, rows, stride}; }
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

}  // namespace
