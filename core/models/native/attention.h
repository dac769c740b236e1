// Rotation of queries and keys, and attention.

#pragma once

#include <algorithm>
#include <utility>

#include "vectors.h"

namespace {

constexpr int WIDEST = 256;  // of a head
constexpr float UNSEEN = -1e30f;

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

}  // namespace
