// Entries of a stored K, which may be in 16 bits: those between 0 and 1, in steps of 1/65535.
//
// All are off by 4e-6 then, as a root mean square. A float of 16 bits would be off by 1e-4 where entries are near 1, and
// what matters is not how large that is beside the entry: rounding adds its variance, times the rows, to the diagonal of
// K'K, in whose small eigenvalues there is much to be learnt.
#pragma once
#include "profiles.h"

namespace gyrfalcon {
namespace GYRFALCON_ISA {
namespace {

struct Fixed16 {
  uint16_t steps;
};
constexpr float kSteps = 65535.0f;

// An entry is kUnit times what is read.
template <class Stored> constexpr double kUnit = 1.0;
template <> constexpr double kUnit<Fixed16> = 1.0 / kSteps;

template <class T> GYRFALCON_INLINE vec_t<T> entries_at(const T* p) { return load_loose<T>(p); }
template <class T> GYRFALCON_INLINE T entry_at(const T* p) { return *p; }
template <class T> GYRFALCON_INLINE T entry_at(const Fixed16* p) { return T(p->steps); }

// What is not between 0 and 1 becomes the nearer of them, and what is not a number 0.
GYRFALCON_INLINE uint16_t steps_of(float x) { return x > 0 ? uint16_t((x < 1 ? x : 1.0f) * kSteps + 0.5f) : 0; }

#if defined(__AVX512F__)
template <class T> GYRFALCON_INLINE vec_t<T> entries_at(const Fixed16* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
}
GYRFALCON_INLINE void store_steps(uint16_t* p, vec_t<float> x) {
  // the second operand of a minimum or maximum is taken where the first is not a number
  const vec_t<float> inside = _mm512_min_ps(_mm512_max_ps(x, vec_t<float>{}), splat<float>(1.0f));
  const __m512i steps = _mm512_cvttps_epi32(inside * splat<float>(kSteps) + splat<float>(0.5f));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtusepi32_epi16(steps));
}
#elif defined(__AVX2__)
template <class T> GYRFALCON_INLINE vec_t<T> entries_at(const Fixed16* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
GYRFALCON_INLINE void store_steps(uint16_t* p, vec_t<float> x) {
  const vec_t<float> inside = _mm256_min_ps(_mm256_max_ps(x, vec_t<float>{}), splat<float>(1.0f));
  const __m256i steps = _mm256_cvttps_epi32(inside * splat<float>(kSteps) + splat<float>(0.5f));
  const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(steps), _mm256_extracti128_si256(steps, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}
#endif

}  // namespace
}  // namespace GYRFALCON_ISA
}  // namespace gyrfalcon
