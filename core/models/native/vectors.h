// Vectors of float32 in the width of this processor's registers, and what is computed with them everywhere.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 12;  // 24 sums, two weights and an input in 32 registers
#elif defined(__aarch64__)
constexpr int LANES = 4, ROWS = 12;  // the same, in registers of 128 bits
#else
constexpr int LANES = 8, ROWS = 6;  // 12 sums, two weights and an input in 16 registers
#endif
constexpr int PANEL = 2 * LANES;  // outputs

typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef float Unaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t Word __attribute__((vector_size(4 * LANES)));
typedef int32_t Int __attribute__((vector_size(4 * LANES)));
typedef uint16_t Half __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef int8_t Bytes __attribute__((vector_size(LANES), aligned(1), may_alias));
typedef uint32_t Words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

inline Vec load(const float* p) { return *reinterpret_cast<const Unaligned*>(p); }
// bfloat16 as float32.
inline Vec load(const uint16_t* p) {
  return reinterpret_cast<Vec>(__builtin_convertvector(*reinterpret_cast<const Half*>(p), Word) << 16);
}
// Signed bytes. GCC converts them one by one unless told how.
inline Vec load(const int8_t* p) {
#if defined(__AVX512F__)
  return (Vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return (Vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#elif defined(__aarch64__)
  uint32_t bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return (Vec)vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(bytes)))));
#else
  return __builtin_convertvector(*reinterpret_cast<const Bytes*>(p), Vec);
#endif
}
inline Word load_words(const uint32_t* p) { return *reinterpret_cast<const Words*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<Unaligned*>(p) = v; }

// a · b + c with one rounding. (Compilers may round a * b + c once or twice.)
inline Vec fused(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
  return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (Vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  for (int i = 0; i < LANES; i++) c[i] = std::fma(a[i], b[i], c[i]);
  return c;
#endif
}

// Merges the halves of a vector until one number is left.
template <class Number, int LENGTH, class V, class Merge>
inline Number folded(V v, Merge merge) {
  if constexpr (LENGTH == 1) {
    return v[0];
  } else {
    typedef Number Lower __attribute__((vector_size(LENGTH / 2 * sizeof(Number))));
    Lower low, high;
    std::memcpy(&low, &v, sizeof low);
    std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof low, sizeof high);
    return folded<Number, LENGTH / 2>(merge(low, high), merge);
  }
}

// The sum of a vector's lanes, by halves.
template <int LENGTH, class Number = float, class V>
inline Number sum(V v) {
  return folded<Number, LENGTH>(v, [](auto a, auto b) { return a + b; });
}

// The sums of the lanes of LANES vectors, each by halves as above.
inline Vec sums(const Vec (&v)[LANES]) {
#if defined(__AVX512F__) || defined(__AVX2__)
  const auto halves = [](Vec a, Vec b) {
#if defined(__AVX512F__)
    return (Vec)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0x44) + (Vec)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0xee);
#else
    return (Vec)_mm256_permute2f128_ps((__m256)a, (__m256)b, 0x20) + (Vec)_mm256_permute2f128_ps((__m256)a, (__m256)b, 0x31);
#endif
  };
  const auto of_four = [](Vec a, Vec b, Vec c, Vec d) {  // within each 128 bits
#if defined(__AVX512F__)
    const __m512d ab = (__m512d)a, e = (__m512d)b, cd = (__m512d)c, f = (__m512d)d;
    const __m512 first = (__m512)(_mm512_unpacklo_pd(ab, e)) + (__m512)(_mm512_unpackhi_pd(ab, e));
    const __m512 last = (__m512)(_mm512_unpacklo_pd(cd, f)) + (__m512)(_mm512_unpackhi_pd(cd, f));
    return (Vec)_mm512_shuffle_ps(first, last, 0x88) + (Vec)_mm512_shuffle_ps(first, last, 0xdd);
#else
    const __m256d ab = (__m256d)a, e = (__m256d)b, cd = (__m256d)c, f = (__m256d)d;
    const __m256 first = (__m256)(_mm256_unpacklo_pd(ab, e)) + (__m256)(_mm256_unpackhi_pd(ab, e));
    const __m256 last = (__m256)(_mm256_unpacklo_pd(cd, f)) + (__m256)(_mm256_unpackhi_pd(cd, f));
    return (Vec)_mm256_shuffle_ps(first, last, 0x88) + (Vec)_mm256_shuffle_ps(first, last, 0xdd);
#endif
  };
  Vec folded[4];  // for each 128 bits of a result, the sums of a vector's
  for (int i = 0; i < 4; i++) {
#if defined(__AVX512F__)
    const __m512 a = (__m512)halves(v[i], v[i + 4]), b = (__m512)halves(v[i + 8], v[i + 12]);
    folded[i] = (Vec)_mm512_shuffle_f32x4(a, b, 0x88) + (Vec)_mm512_shuffle_f32x4(a, b, 0xdd);
#else
    folded[i] = halves(v[i], v[i + 4]);
#endif
  }
  return of_four(folded[0], folded[1], folded[2], folded[3]);
#elif defined(__aarch64__)
  const auto halves = [](Vec a, Vec b) {
    const float64x2_t first = (float64x2_t)a, next = (float64x2_t)b;
    return (float32x4_t)vzip1q_f64(first, next) + (float32x4_t)vzip2q_f64(first, next);
  };
  const float32x4_t first = halves(v[0], v[1]), last = halves(v[2], v[3]);
  return (Vec)vuzp1q_f32(first, last) + (Vec)vuzp2q_f32(first, last);
#else
  Vec found;
  for (int i = 0; i < LANES; i++) found[i] = sum<LANES>(v[i]);
  return found;
#endif
}

// e^x with a relative error of 2e-7; 0 below -87. It is 2^n · 2^f with |f| <= 1/2, the second by its Taylor series.
inline Vec exp(Vec x) {
  constexpr float MAGIC = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer
  const Vec z = (x > 88.0f ? x - x + 88.0f : x) * 1.442695041f;
  const Vec n = (z + MAGIC) - MAGIC;
  const Vec f = z - n;
  const Vec p =
      ((((((f * 1.5403530e-4f + 1.3333558e-3f) * f + 9.6181291e-3f) * f + 5.5504109e-2f) * f + 2.4022651e-1f) * f +
        6.9314718e-1f) *
           f +
       1.0f);
  const Vec power = reinterpret_cast<Vec>((__builtin_convertvector(n, Int) + 127) << 23);
  return x < -87.0f ? x - x : p * power;
}

// c · tanh(x / c), with an error of 1e-7 · c.
inline Vec capped(Vec x, float c) { return c - 2 * c / (1.0f + exp(x * (2 / c))); }

}  // namespace
