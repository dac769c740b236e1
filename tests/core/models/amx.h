// The instructions of AMX for tiles, number by number, as the manual of the instruction set describes them, for processors
// that have none. Included before a source, it replaces the compiler's.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <sys/syscall.h>
#include <unistd.h>

#ifndef __AMX_INT8__
#define __AMX_INT8__ 1
#endif

namespace amx {

struct Shape {
  uint8_t palette, start, reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
};

inline thread_local Shape shape = {};
inline thread_local uint8_t tile[8][16][64];

// An invalid use ends the process, as it does on a processor.
inline void require(bool valid) {
  if (!valid) std::abort();
}

inline void load_shape(const void* from) {
  std::memcpy(&shape, from, sizeof shape);
  require(shape.palette == 1 && shape.start == 0);
  for (int i = 0; i < 16; i++) {
    require(shape.rows[i] <= 16 && shape.bytes[i] <= 64 && !shape.rows[i] == !shape.bytes[i] && (i < 8 || !shape.rows[i]));
  }
  std::memset(tile, 0, sizeof tile);
}

inline void load(int to, const void* from, int64_t stride) {
  require(shape.rows[to]);
  std::memset(tile[to], 0, sizeof tile[to]);
  for (int64_t i = 0; i < shape.rows[to]; i++) {
    std::memcpy(tile[to][i], static_cast<const char*>(from) + i * stride, shape.bytes[to]);
  }
}

inline void store(int from, void* to, int64_t stride) {
  require(shape.rows[from]);
  for (int64_t i = 0; i < shape.rows[from]; i++) {
    std::memcpy(static_cast<char*>(to) + i * stride, tile[from][i], shape.bytes[from]);
  }
}

inline void zero(int to) {
  require(shape.rows[to]);
  std::memset(tile[to], 0, sizeof tile[to]);
}

// Adds the products of signed bytes, four at a time.
inline void multiply(int to, int a, int b) {
  require(to != a && to != b && a != b && shape.rows[to] && shape.rows[to] == shape.rows[a]);
  require(shape.bytes[to] == shape.bytes[b] && shape.bytes[a] == 4 * shape.rows[b]);
  for (int m = 0; m < shape.rows[to]; m++) {
    for (int n = 0; n < shape.bytes[to] / 4; n++) {
      int32_t sum;
      std::memcpy(&sum, tile[to][m] + 4 * n, sizeof sum);
      for (int k = 0; k < shape.bytes[a]; k++) {
        sum += static_cast<int8_t>(tile[a][m][k]) * static_cast<int8_t>(tile[b][k / 4][4 * n + k % 4]);
      }
      std::memcpy(tile[to][m] + 4 * n, &sum, sizeof sum);
    }
  }
}

}  // namespace amx

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbssd
#define _tile_loadconfig amx::load_shape
#define _tile_release() (amx::shape = {})
#define _tile_loadd amx::load
#define _tile_stored amx::store
#define _tile_zero amx::zero
#define _tile_dpbssd amx::multiply
#define syscall(...) 0L  // the system allows it
