// What is used of OpenMP. Its header is not included, because Apple's compiler has none. A compiler without OpenMP ignores
// the pragmas, and one thread computes everything. And how threads share work and wait for one another.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

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

// Where a pass's threads wait for one another. OpenMP's own barrier keeps its core for milliseconds: if another process
// computes on the same cores, a thread waits there for one that has no core because of this waiting, at every one of a
// pass's hundred barriers. This one offers its core to others after `SPINS` looks, some ten microseconds.
class Barrier {
 public:
  void wait() {
    const int threads = omp_get_num_threads();
    if (threads == 1) return;
    const uint32_t now = round_.load(std::memory_order_relaxed);  // it cannot rise before this thread has arrived
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(now + 1, std::memory_order_release);
      return;
    }
    for (int looks = 0; round_.load(std::memory_order_acquire) == now; looks++) {
      if (looks >= SPINS) std::this_thread::yield();
    }
  }

 private:
  static constexpr int SPINS = 4096;
  alignas(64) std::atomic<int> arrived_{0};    // of this round
  alignas(64) std::atomic<uint32_t> round_{0};  // a line of the cache of its own, which waiting threads read
};

}  // namespace
