// What is used of OpenMP. Its header is not included, because Apple's compiler has none. A compiler without OpenMP ignores
// the pragmas, and one thread computes everything.
#pragma once

#ifdef _OPENMP
extern "C" int omp_get_thread_num();
extern "C" int omp_get_num_threads();
constexpr bool OPENMP = true;
#else
inline int omp_get_thread_num() { return 0; }
inline int omp_get_num_threads() { return 1; }
constexpr bool OPENMP = false;
#endif
