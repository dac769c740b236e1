// Checks of every field that determines a size or an address, before a pass touches memory.

#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "attention.h"
#include "weights.h"

namespace {

constexpr int64_t LARGEST = INT32_MAX;      // of a size: the product of two fits in 64 bits
constexpr int64_t MOST = int64_t{1} << 40;  // numbers between two matrices: products and sums end here
constexpr int64_t THREADS = 1024;

// The smaller of a · b and MOST, for a, b >= 0.
int64_t times(int64_t a, int64_t b) { return b && a > MOST / b ? MOST : a * b; }

int64_t rank_of(const Matrix& m) { return m.low ? m.low->rank : 0; }

bool sizes(std::initializer_list<int64_t> all) {
  return std::all_of(all.begin(), all.end(), [](int64_t size) { return 0 < size && size <= LARGEST; });
}

// Whether the fields of an addition to this many panels of outputs are valid.
bool fits(const LowRank& low, int64_t panels, int64_t in) {
  if (!low.a || !low.b || !low.first || !low.strengths || !sizes({low.rank, low.count})) return false;
  if (low.count > low.rank || (low.kind != FLOAT32 && low.kind != BFLOAT16 && low.kind != BITS8)) return false;
  const int64_t size = bytes_of_number(low), a = times(low.rank, in), b = times(times(panels, PANEL), low.count);
  if (a == MOST || b == MOST || low.a_bytes != a * size || low.b_bytes != b * size) return false;
  const int64_t most = low.rank - low.count;
  return std::all_of(low.first, low.first + panels, [&](int64_t first) { return -1 <= first && first <= most; });
}

// Whether a part has at most `most` outputs, and its panels the number of bytes that they require.
bool fits(const Part& part, int64_t most, int64_t in) {
  if (!part.panels || part.out < 1 || part.out > most || part.kind < 0 || part.kind >= KINDS) return false;
  const Format& format = FORMATS[part.kind];
  const int64_t bytes = times(panels_of(part), format.bytes(in));
  return in % format.multiple() == 0 && bytes < MOST && part.bytes == bytes;
}

// Whether a matrix has this shape, and the panels of its parts have the number of bytes that it requires.
bool fits(const Matrix& m, int64_t out, int64_t in) {
  if (m.out != out || m.in != in || !sizes({out, in}) || m.parts < 1 || m.parts > 3) return false;
  int64_t left = out, panels = 0;
  for (int64_t i = 0; i < m.parts; i++) {
    const Part& part = m.part[i];
    if (!fits(part, left, in)) return false;
    left -= part.out;
    panels += panels_of(part);
  }
  return left == 0 && (!m.low || fits(*m.low, panels, in));
}

bool fits(const Rows& of) {
  if (!sizes({of.part.out, of.in}) || of.count < 0 || !of.ids || !of.rows) return false;
  return fits(of.part, LARGEST, of.in) &&
         std::all_of(of.ids, of.ids + of.count, [&](int64_t id) { return 0 <= id && id < of.part.out; });
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

}  // namespace
