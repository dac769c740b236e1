// What is used of OpenMP. Its header is not included, because Apple's compiler has none. A compiler without OpenMP ignores
// the pragmas, and one thread computes everything. And how work is shared.
#pragma once

#include <cstdint>

#ifdef _OPENMP
extern "C" int omp_get_thread_num();
extern "C" int omp_get_num_threads();
constexpr bool OPENMP = true;
#else
inline int omp_get_thread_num() { return 0; }
inline int omp_get_num_threads() { return 1; }
constexpr bool OPENMP = false;
#endif

namespace {

// Units of work, of inputs or of panels.
struct Share {
  int64_t begin, end;

  int64_t count() const { return end - begin; }
};

// One of so many nearly equal parts of `pieces` units.
inline Share part_of(int64_t pieces, int64_t part, int64_t parts) {
  return {pieces * part / parts, pieces * (part + 1) / parts};
}

// This thread's part.
inline Share share(int64_t pieces) { return part_of(pieces, omp_get_thread_num(), omp_get_num_threads()); }

}  // namespace
