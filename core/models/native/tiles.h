// Products of tiles: registers of up to 16 rows of 64 bytes, of which one instruction multiplies two (AMX).

#pragma once

#if defined(__AMX_INT8__) && defined(__linux__)

#define POLYDRAFT_TILES

#include <algorithm>
#include <cstdint>

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vectors.h"

namespace {

constexpr int64_t TILE_ROWS = 16, ROWS_AT_ONCE = 2 * TILE_ROWS;

// Whether the system lets this process use tiles. Without being asked first, Linux ends a process that uses them.
inline bool tiles_allowed() {
  constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
  static const bool allowed = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
  return allowed;
}

// Compilers write what tiles are loaded from before this. GCC does not know that the instructions read memory.
inline void write_to_memory() { asm volatile("" ::: "memory"); }

// This thread's tiles, for products of up to ROWS_AT_ONCE rows of `bytes` signed bytes with a panel of signed bytes. The
// panel is words of four inputs, for each of its outputs.
class Tiles {
 public:
  Tiles(int64_t rows, int64_t bytes) : two(rows > TILE_ROWS) {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } shape;
    const auto set = [&](int tile, int64_t rows, int64_t bytes) {
      shape.rows[tile] = static_cast<uint8_t>(rows);
      shape.bytes[tile] = static_cast<uint16_t>(bytes);
    };
    for (int part = 0; part < (two ? 2 : 1); part++) {
      const int64_t some = std::min(rows - part * TILE_ROWS, TILE_ROWS);
      set(2 * part, some, 4 * LANES);
      set(2 * part + 1, some, 4 * LANES);
      set(4 + part, some, bytes);
    }
    set(6, bytes / 4, 4 * LANES);
    set(7, bytes / 4, 4 * LANES);
    write_to_memory();
    _tile_loadconfig(&shape);
  }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
  ~Tiles() { _tile_release(); }

  // Computes `dots` (rows, PANEL). `x` has the first row's bytes, and each next one's `stride` bytes further on.
  void multiply(const int8_t* x, int64_t stride, const uint32_t* words, int32_t* dots) const {
    constexpr int64_t LINE = 4 * PANEL;  // bytes of a panel's words, and of its sums
    write_to_memory();
    _tile_loadd(6, words, LINE);
    _tile_loadd(7, words + LANES, LINE);
    _tile_loadd(4, x, stride);
    _tile_zero(0);
    _tile_zero(1);
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    if (two) {
      _tile_loadd(5, x + TILE_ROWS * stride, stride);
      _tile_zero(2);
      _tile_zero(3);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, dots, LINE);
    _tile_stored(1, dots + LANES, LINE);
    if (two) {
      _tile_stored(2, dots + TILE_ROWS * PANEL, LINE);
      _tile_stored(3, dots + TILE_ROWS * PANEL + LANES, LINE);
    }
  }

 private:
  const bool two;  // whether the rows fill more than one tile
};

}  // namespace

#endif
