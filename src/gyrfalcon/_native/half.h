// Entries of a stored K, which may be in half precision: every processor with AVX2 converts it.
#pragma once
#include "profiles.h"

namespace gyrfalcon {
namespace GYRFALCON_ISA {
namespace {

struct Float16 {
  uint16_t bits;
};
template <class T> GYRFALCON_INLINE vec_t<T> entries_at(const T* p) { return load_loose<T>(p); }
template <class T> GYRFALCON_INLINE T entry_at(const T* p) { return *p; }
#if defined(__F16C__)
#if defined(__AVX512F__)
template <class T> GYRFALCON_INLINE vec_t<T> entries_at(const Float16* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
GYRFALCON_INLINE void store_half(uint16_t* p, vec_t<float> x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
#else
template <class T> GYRFALCON_INLINE vec_t<T> entries_at(const Float16* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
GYRFALCON_INLINE void store_half(uint16_t* p, vec_t<float> x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
#endif
template <class T> GYRFALCON_INLINE T entry_at(const Float16* p) { return _cvtsh_ss(p->bits); }
#endif

}  // namespace
}  // namespace GYRFALCON_ISA
}  // namespace gyrfalcon
