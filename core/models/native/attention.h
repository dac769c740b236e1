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

// A query of one head.
struct Query {
  const float* q;
  const uint8_t* seen;  // which columns it attends to, or null: all
  int64_t columns;
  float* out;
};

// So many queries read the keys and values of their head together, LANES columns at a time, which stay in the cache.
constexpr int64_t TOGETHER = 8;

inline int64_t filled(int64_t columns) { return (columns + LANES - 1) / LANES * LANES; }

// Scores of a query of w = N · LANES numbers with LANES keys.
template <int N>
inline Vec scores_of(const float* q, float factor, const float* keys) {
  Vec dots[LANES] = {};
  for (int i = 0; i < N; i++) {
    const Vec part = load(q + i * LANES) * factor;
#pragma GCC unroll 16
    for (int c = 0; c < LANES; c++) dots[c] = fused(part, load(keys + (c * N + i) * LANES), dots[c]);
  }
  return sums(dots);
}

// The same with fewer keys, and for any width.
Vec some_scores_of(const float* q, int64_t w, float factor, const float* keys, int64_t count) {
  alignas(64) float found[LANES];
  store(found, Vec{} + UNSEEN);
  for (int64_t c = 0; c < count; c++) {
    Vec dot = {};
    for (int64_t i = 0; i < w; i += LANES) dot = fused(load(q + i) * factor, load(keys + c * w + i), dot);
    found[c] = sum<LANES>(dot);
  }
  return load(found);
}

// Sums of the values of a query, of even and odd columns apart where few sums would wait for each other.
template <int N>
constexpr int VALUE_CHAINS = N <= 4 ? 2 : 1;

template <int N>
struct Sums {
  Vec of[VALUE_CHAINS<N>][N] = {};
};

// Adds the values of `count` columns to the sums of R queries, times their weights. Each next query's are `stride` further.
template <int N, int R>
inline void add_values(const float* values, const float* weights, int64_t stride, int64_t count, Sums<N>* found) {
  Sums<N> totals[R];
  for (int r = 0; r < R; r++) totals[r] = found[r];
  const auto add = [&](int64_t column, int chain) {
    Vec weight[R];
    for (int r = 0; r < R; r++) weight[r] = weights[r * stride + column] - Vec{};
#pragma GCC unroll 16
    for (int i = 0; i < N; i++) {
      const Vec value = load(values + (column * N + i) * LANES);
      for (int r = 0; r < R; r++) totals[r].of[chain][i] = fused(value, weight[r], totals[r].of[chain][i]);
    }
  };
  int64_t column = 0;
  for (; column + VALUE_CHAINS<N> <= count; column += VALUE_CHAINS<N>) {
#pragma GCC unroll 2
    for (int chain = 0; chain < VALUE_CHAINS<N>; chain++) add(column + chain, chain);
  }
  if (column < count) add(column, 0);
  for (int r = 0; r < R; r++) found[r] = totals[r];
}

// Turns the scores of so many columns into weights, and returns 1 / their sum. `highest` has the highest score.
float weights_of(float* scores, int64_t columns, float cap, Vec highest) {
  const int64_t end = filled(columns);
  if (cap > 0) {
    highest = Vec{} + UNSEEN;
    for (int64_t c = 0; c < end; c += LANES) {
      Vec score = load(scores + c);
      score = score == UNSEEN ? score : capped(score, cap);
      store(scores + c, score);
      highest = score > highest ? score : highest;
    }
  }
  const float most = folded<float, LANES>(highest, [](auto a, auto b) { return a > b ? a : b; });
  Vec total = {};
  for (int64_t c = 0; c < end; c += LANES) {
    const Vec weight = exp(load(scores + c) - most);
    total += weight;
    store(scores + c, weight);
  }
  return 1.0f / sum<LANES>(total);
}

// Attention of up to TOGETHER queries to keys and values of w = N · LANES numbers each. `scores` has room for as many
// numbers as `filled` gives for the most columns, for each query. A query's result does not depend on the others.
template <int N>
void attend(const Query* queries, int64_t count, const float* keys, const float* values, float factor, float cap,
            float* scores) {
  int64_t most_columns = 0;
  for (int64_t r = 0; r < count; r++) most_columns = std::max(most_columns, queries[r].columns);
  const int64_t stride = filled(most_columns);

  Vec highest[TOGETHER];
  std::fill_n(highest, count, Vec{} + UNSEEN);
  for (int64_t c = 0; c < stride; c += LANES) {
    for (int64_t r = 0; r < count; r++) {
      const Query& of = queries[r];
      const int64_t some = std::min<int64_t>(of.columns - c, LANES);
      if (some <= 0) continue;
      float* to = scores + r * stride + c;
      const float* some_keys = keys + c * N * LANES;
      store(to, some == LANES ? scores_of<N>(of.q, factor, some_keys)
                              : some_scores_of(of.q, N * LANES, factor, some_keys, some));
      if (of.seen) {
        for (int64_t j = 0; j < some; j++) to[j] = of.seen[c + j] ? to[j] : UNSEEN;
      }
      const Vec score = load(to);
      highest[r] = score > highest[r] ? score : highest[r];
    }
  }

  float inverse[TOGETHER];
  for (int64_t r = 0; r < count; r++) inverse[r] = weights_of(scores + r * stride, queries[r].columns, cap, highest[r]);

  Sums<N> found[TOGETHER];
  constexpr bool PAIRED = 2 * VALUE_CHAINS<N> * N <= LANES;  // whether the sums of two queries fit into the registers
  for (int64_t c = 0; c < stride; c += LANES) {
    const float* some_values = values + c * N * LANES;
    for (int64_t r = 0; r < count; r++) {
      const int64_t some = std::min<int64_t>(queries[r].columns - c, LANES);
      const float* weights = scores + r * stride + c;
      if (PAIRED && r + 1 < count && some == LANES && queries[r + 1].columns - c >= LANES) {
        add_values<N, 2>(some_values, weights, stride, some, found + r++);
      } else if (some > 0) {
        add_values<N, 1>(some_values, weights, stride, some, found + r);
      }
    }
  }
  for (int64_t r = 0; r < count; r++) {
    for (int i = 0; i < N; i++) {
      Vec total = found[r].of[0][i];
      for (int chain = 1; chain < VALUE_CHAINS<N>; chain++) total += found[r].of[chain][i];
      store(queries[r].out + i * LANES, total * inverse[r]);
    }
  }
}

using Attend = void (*)(const Query*, int64_t, const float*, const float*, float, float, float*);

template <int... N>
Attend attend_of(std::integer_sequence<int, N...>, int64_t width) {
  static constexpr Attend ways[] = {attend<N + 1>...};
  return ways[width / LANES - 1];
}

}  // namespace
