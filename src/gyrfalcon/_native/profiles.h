// Vectors, elementary functions and the table of kernel profiles, shared by tiles.cpp and sparse.cpp.
//
// These sources are compiled once for each instruction set, named GYRFALCON_ISA: everything is inside that namespace
// and an unnamed one, so that the linker cannot confuse the code of two instruction sets.
#pragma once
#include "tiles.h"

#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define GYRFALCON_INLINE static inline __attribute__((always_inline))

namespace gyrfalcon {
namespace GYRFALCON_ISA {
namespace {

#if defined(__AVX512F__)
constexpr size_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr size_t kVectorBytes = 32;
#else
constexpr size_t kVectorBytes = 16;
#endif
constexpr size_t kSumRows = 256;  // rows summed in T before the sum is added in double
constexpr size_t kAlign = kBufferAlign;
static_assert(kAlign % kVectorBytes == 0, "buffers begin at whole vectors");

template <class T> struct Lane;
template <> struct Lane<float> {
  typedef float vec __attribute__((vector_size(kVectorBytes)));
  typedef int32_t ivec __attribute__((vector_size(kVectorBytes)));
  typedef float loose __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
  static constexpr int mantissa = 23;
  static constexpr float lowest_exponent = -126.0f;
  static constexpr float largest = 3e38f;
  static constexpr float round_magic = 12582912.0f;  // 1.5 * 2^23
};
template <> struct Lane<double> {
  typedef double vec __attribute__((vector_size(kVectorBytes)));
  typedef int64_t ivec __attribute__((vector_size(kVectorBytes)));
  typedef double loose __attribute__((vector_size(kVectorBytes), aligned(8), may_alias));
  static constexpr int mantissa = 52;
  static constexpr double lowest_exponent = -1022.0;
  static constexpr double largest = 1e308;
  static constexpr double round_magic = 6755399441055744.0;  // 1.5 * 2^52
};
template <class T> using vec_t = typename Lane<T>::vec;
template <class T> constexpr int kWidth = int(kVectorBytes / sizeof(T));
constexpr int NV = 2;  // vectors across a panel of centers
template <class T> constexpr size_t kPanel = size_t(NV) * kWidth<T>;

template <class T> GYRFALCON_INLINE vec_t<T> splat(T x) { return x - vec_t<T>{}; }
template <class T> GYRFALCON_INLINE vec_t<T> load(const T* p) { return *reinterpret_cast<const vec_t<T>*>(p); }
template <class T> GYRFALCON_INLINE vec_t<T> load_loose(const T* p) {
  return *reinterpret_cast<const typename Lane<T>::loose*>(p);
}
template <class T> GYRFALCON_INLINE void store(T* p, vec_t<T> x) { *reinterpret_cast<vec_t<T>*>(p) = x; }
template <class T> GYRFALCON_INLINE void store_loose(T* p, vec_t<T> x) {
  *reinterpret_cast<typename Lane<T>::loose*>(p) = x;
}
// Intrinsics, since vector extensions have no maximum: compare and blend would be two instructions.
#if defined(__AVX512F__)
GYRFALCON_INLINE vec_t<float> max_of(vec_t<float> a, vec_t<float> b) { return _mm512_max_ps(a, b); }
GYRFALCON_INLINE vec_t<double> max_of(vec_t<double> a, vec_t<double> b) { return _mm512_max_pd(a, b); }
#elif defined(__AVX2__)
GYRFALCON_INLINE vec_t<float> max_of(vec_t<float> a, vec_t<float> b) { return _mm256_max_ps(a, b); }
GYRFALCON_INLINE vec_t<double> max_of(vec_t<double> a, vec_t<double> b) { return _mm256_max_pd(a, b); }
#elif defined(__SSE2__)
GYRFALCON_INLINE vec_t<float> max_of(vec_t<float> a, vec_t<float> b) { return _mm_max_ps(a, b); }
GYRFALCON_INLINE vec_t<double> max_of(vec_t<double> a, vec_t<double> b) { return _mm_max_pd(a, b); }
#else
template <class V> GYRFALCON_INLINE V max_of(V a, V b) { return a > b ? a : b; }
#endif
template <class T> GYRFALCON_INLINE vec_t<T> larger(vec_t<T> a, T b) { return max_of(a, splat<T>(b)); }
template <class T> GYRFALCON_INLINE vec_t<T> smaller(vec_t<T> a, T b) { return -max_of(-a, splat<T>(-b)); }
// -|x|, by setting the sign bit
template <class T> GYRFALCON_INLINE vec_t<T> minus_size(vec_t<T> x) {
  typedef typename Lane<T>::ivec ivec;
  return (vec_t<T>)((ivec)x | (ivec)splat<T>(T(-0.0)));
}
GYRFALCON_INLINE float root(float x) { return __builtin_sqrtf(x); }
GYRFALCON_INLINE double root(double x) { return __builtin_sqrt(x); }
template <class T> GYRFALCON_INLINE vec_t<T> root_of(vec_t<T> x) {
  vec_t<T> y;
  for (int i = 0; i < kWidth<T>; ++i) y[i] = root(T(x[i]));
  return y;
}
// The sum of a vector in double, by halves: one number after the other would wait for each addition.
#if defined(__AVX512F__)
GYRFALCON_INLINE double sum_of_vector(vec_t<double> x) { return _mm512_reduce_add_pd(x); }
GYRFALCON_INLINE double sum_of_vector(vec_t<float> x) {
  return sum_of_vector(
      vec_t<double>(_mm512_cvtps_pd(_mm512_castps512_ps256(x)) + _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))));
}
#elif defined(__AVX2__)
GYRFALCON_INLINE double sum_of_vector(vec_t<double> x) {
  const __m128d half = _mm256_castpd256_pd128(x) + _mm256_extractf128_pd(x, 1);
  return half[0] + half[1];
}
GYRFALCON_INLINE double sum_of_vector(vec_t<float> x) {
  return sum_of_vector(
      vec_t<double>(_mm256_cvtps_pd(_mm256_castps256_ps128(x)) + _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))));
}
#else
GYRFALCON_INLINE double sum_of_vector(vec_t<double> x) { return x[0] + x[1]; }
GYRFALCON_INLINE double sum_of_vector(vec_t<float> x) {
  return (double(x[0]) + double(x[1])) + (double(x[2]) + double(x[3]));
}
#endif
template <class T> GYRFALCON_INLINE double sum(vec_t<T> x) { return sum_of_vector(x); }

// ---- elementary functions: polynomials by Chebyshev interpolation -------------------------------------------------

template <class T, int N> GYRFALCON_INLINE vec_t<T> horner(vec_t<T> x, const double (&c)[N]) {
  vec_t<T> y = splat<T>(T(c[N - 1]));
  for (int i = N - 2; i >= 0; --i) y = y * x + splat<T>(T(c[i]));
  return y;
}

// (2^f - 1) / f for |f| <= 1/2.
template <class T> GYRFALCON_INLINE vec_t<T> exp2_slope(vec_t<T> f) {
  if constexpr (sizeof(T) == 4) {
    constexpr double c[] = {0.69314718056, 0.24022349038, 0.055503810138, 0.00966636851539, 0.00133813025373};
    return horner<T>(f, c);
  } else {
    constexpr double c[] = {0.69314718055994530925,    0.24022650695910159567,   0.055504108664821627039,
                            0.0096181291075872566681,  0.0013333558146406470697, 0.00015403530463724354209,
                            0.000015252733841556772589, 1.3215432535912376166e-6, 1.0178057087733941105e-7,
                            7.0741942972885210056e-9,  4.455817908336064493e-10};
    return horner<T>(f, c);
  }
}

// 2^x for lowest_exponent <= x <= ~0: x = k + f, |f| <= 1/2; k is added to the exponent of 2^f.
#if defined(__AVX512DQ__)
GYRFALCON_INLINE vec_t<float> fraction_of(vec_t<float> x) { return _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT); }
GYRFALCON_INLINE vec_t<double> fraction_of(vec_t<double> x) { return _mm512_reduce_pd(x, _MM_FROUND_TO_NEAREST_INT); }
GYRFALCON_INLINE vec_t<float> times_exp2(vec_t<float> p, vec_t<float> k) { return _mm512_scalef_ps(p, k); }
GYRFALCON_INLINE vec_t<double> times_exp2(vec_t<double> p, vec_t<double> k) { return _mm512_scalef_pd(p, k); }
template <class T> GYRFALCON_INLINE vec_t<T> exp2_in_range(vec_t<T> x) {
  const vec_t<T> f = fraction_of(x);
  return times_exp2(exp2_slope<T>(f) * f + splat<T>(T(1)), x - f);
}
#else
template <class T> GYRFALCON_INLINE vec_t<T> exp2_in_range(vec_t<T> x) {
  using L = Lane<T>;
  vec_t<T> rounded = x + splat<T>(L::round_magic);
  vec_t<T> f = x - (rounded - splat<T>(L::round_magic));
  vec_t<T> p = exp2_slope<T>(f) * f + splat<T>(T(1));
  typename L::ivec k = (typename L::ivec)rounded << L::mantissa;
  return (vec_t<T>)((typename L::ivec)p + k);
}
#endif
template <class T> GYRFALCON_INLINE vec_t<T> exp2_of(vec_t<T> x) {
  return exp2_in_range<T>(larger<T>(x, Lane<T>::lowest_exponent));
}

// 2^x - 1 for x <= 0, without cancellation near 0.
template <class T> GYRFALCON_INLINE vec_t<T> exp2_minus_1(vec_t<T> x) {
  using L = Lane<T>;
  x = larger<T>(x, L::lowest_exponent);
  vec_t<T> rounded = x + splat<T>(L::round_magic);
  vec_t<T> f = x - (rounded - splat<T>(L::round_magic));
  typename L::ivec k = (typename L::ivec)rounded << L::mantissa;
  vec_t<T> power = (vec_t<T>)((typename L::ivec)splat<T>(T(1)) + k);
  return power * (exp2_slope<T>(f) * f) + (power - splat<T>(T(1)));
}

// log2(1 + t) for t >= 0: 1 + t = 2^k m, m in [sqrt(1/2), sqrt(2)), log m = 2 artanh((m - 1) / (m + 1)). Where k = 0,
// t is m - 1 before it was rounded.
template <class T> GYRFALCON_INLINE vec_t<T> log2_of_1_plus(vec_t<T> t) {
  using L = Lane<T>;
  typedef typename L::ivec ivec;
  ivec bits = (ivec)(t + splat<T>(T(1)));
  const vec_t<T> sqrt_half = splat<T>(T(0.70710678118654752440));
  ivec k = (bits - (ivec)sqrt_half) >> L::mantissa;
  vec_t<T> m = (vec_t<T>)(bits - (k << L::mantissa));
  vec_t<T> s = (k == ivec{} ? t : m - splat<T>(T(1))) / (m + splat<T>(T(1)));
  vec_t<T> z = s * s;
  vec_t<T> p;
  if constexpr (sizeof(T) == 4) {
    constexpr double c[] = {1.0, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9};
    p = horner<T>(z, c);
  } else {
    constexpr double c[] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                            1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
    p = horner<T>(z, c);
  }
  return __builtin_convertvector(k, vec_t<T>) + splat<T>(T(2.88539008177792681472)) * s * p;
}

// acos(1 - y) / sqrt(y) for y in [0, 1], accurate for small angles too.
template <class T> GYRFALCON_INLINE vec_t<T> acos_slope(vec_t<T> y) {
  if constexpr (sizeof(T) == 4) {
    constexpr double c[] = {1.414213565,     0.1178507595,     0.02652625288,  0.007794370296,  0.003165561433,
                            -0.0003102686954, 0.002373227605, -0.001501676829, 0.0006845318166};
    return horner<T>(y, c);
  } else {
    constexpr double c[] = {
        1.4142135623730950492,      0.11785113019775755334,     0.026516504294549270866,   0.0078918167511983359101,
        0.0026854099632398177403,   0.00098871730208733701882,  0.00038346777627487398366, 0.00015409629993610557836,
        0.000065064942566217605844, 0.000020941883596183593203, 0.000033793385165677613353, -0.000058406191243053625095,
        0.00014368698307475771643,  -0.00024545341111490858145, 0.00033476327668173514132, -0.00034946035315777285953,
        0.00027687516218464797724,  -0.00016059648723674871259, 0.000064686574687966934766, -0.00001620608465790301697,
        1.9321562114749931377e-6};
    return horner<T>(y, c);
  }
}

// ---- profiles -------------------------------------------------------------------------------------------------------

constexpr double kLn2 = 0.69314718055994530942;
constexpr double kInvPi = 0.31830988618379067154;

template <class T> struct Parameters {
  vec_t<T> a, b;
  int degree;
  Parameters(double param0, double param1, int power) : a(splat<T>(T(param0))), b(splat<T>(T(param1))), degree(power) {}
};

// sqrt(-q), limited to where 2^-r is the smallest normal number: beyond it r 2^-r would grow again
template <class T> GYRFALCON_INLINE vec_t<T> radius(vec_t<T> q) {
  constexpr T farthest = Lane<T>::lowest_exponent;
  return root_of<T>(larger<T>(-larger<T>(q, -farthest * farthest), T(0)));
}

// |z| of a vector of centers and |x| of the row, for the arc-cosine kernel of degree 1
template <class T> struct Norms {
  const T* z;
  T x;
};

// An entry of the table: a name, a geometry, and the kernel `of` the argument that the geometry defines.
struct Entry {
  static constexpr bool identity = false;  // whether the kernel equals its argument
};

struct Gaussian : Entry {  // 2^q
  static constexpr const char* name = "gaussian";
  static constexpr Geometry geometry = kDistance;
  template <class T> GYRFALCON_INLINE vec_t<T> of(vec_t<T> q, const Parameters<T>&, Norms<T>) {
    return exp2_of<T>(q);
  }
};

struct Laplacian : Entry {  // 2^-r, r = sqrt(-q); also Matern 1/2
  static constexpr const char* name = "laplacian";
  static constexpr Geometry geometry = kDistance;
  template <class T> GYRFALCON_INLINE vec_t<T> of(vec_t<T> q, const Parameters<T>&, Norms<T>) {
    return exp2_in_range<T>(-radius<T>(q));
  }
};

struct Laplacian1 : Entry {  // 2^q, of the 1-norm
  static constexpr const char* name = "laplacian1";
  static constexpr Geometry geometry = kManhattan;
  template <class T> GYRFALCON_INLINE vec_t<T> of(vec_t<T> q, const Parameters<T>&, Norms<T>) {
    return exp2_of<T>(q);
  }
};

struct Matern32 : Entry {  // (1 + r ln 2) 2^-r
  static constexpr const char* name = "matern32";
  static constexpr Geometry geometry = kDistance;
  template <class T> GYRFALCON_INLINE vec_t<T> of(vec_t<T> q, const Parameters<T>&, Norms<T>) {
    vec_t<T> r = radius<T>(q);
    return (r * T(kLn2) + T(1)) * exp2_in_range<T>(-r);
  }
};

struct Matern52 : Entry {  // (1 + r ln 2 + (r ln 2)^2 / 3) 2^-r
  static constexpr const char* name = "matern52";
  static constexpr Geometry geometry = kDistance;
  template <class T> GYRFALCON_INLINE vec_t<T> of(vec_t<T> q, const Parameters<T>&, Norms<T>) {
    vec_t<T> r = radius<T>(q);
    return ((r * T(kLn2 * kLn2 / 3) + T(kLn2)) * r + T(1)) * exp2_in_range<T>(-r);
  }
};

struct Rational : Entry {  // (1 - q)^-a
  static constexpr const char* name = "rational";
  static constexpr Geometry geometry = kDistance;
  template <class T> GYRFALCON_INLINE vec_t<T> of(vec_t<T> q, const Parameters<T>& p, Norms<T>) {
    return exp2_of<T>(-p.a * log2_of_1_plus<T>(larger<T>(-larger<T>(q, -Lane<T>::largest), T(0))));
  }
};

struct Linear : Entry {
  static constexpr const char* name = "linear";
  static constexpr Geometry geometry = kDot;
  static constexpr bool identity = true;
  template <class T> GYRFALCON_INLINE vec_t<T> of(vec_t<T> q, const Parameters<T>&, Norms<T>) {
    return q;
  }
};

struct Polynomial : Entry {  // (a q + b)^degree
  static constexpr const char* name = "polynomial";
  static constexpr Geometry geometry = kDot;
  template <class T> GYRFALCON_INLINE vec_t<T> of(vec_t<T> q, const Parameters<T>& p, Norms<T>) {
    vec_t<T> x = q * p.a + p.b;
    vec_t<T> y = p.degree & 1 ? x : splat<T>(T(1));
    for (int e = p.degree >> 1; e; e >>= 1) {
      x = x * x;
      if (e & 1) y = y * x;
    }
    return y;
  }
};

struct Sigmoid : Entry {  // tanh(a q + b)
  static constexpr const char* name = "sigmoid";
  static constexpr Geometry geometry = kDot;
  template <class T> GYRFALCON_INLINE vec_t<T> of(vec_t<T> q, const Parameters<T>& p, Norms<T>) {
    // tanh x = -sign(x) e / (2 + e), e = exp(-2|x|) - 1: never overflows, and is accurate near 0
    vec_t<T> x = q * p.a + p.b;
    vec_t<T> size = x < splat<T>(T(0)) ? -x : x;
    vec_t<T> e = exp2_minus_1<T>(size * T(-2 / kLn2));
    vec_t<T> t = -e / (T(2) + e);
    return x < splat<T>(T(0)) ? -t : t;
  }
};

// y = 1 - cos(theta) = -q / 2, measured from the nearer end of [0, 2] for accuracy at both
template <class T> struct Angle {
  vec_t<T> y, rest, left;  // rest: 2 - y; left: 1 - theta / pi
  inline __attribute__((always_inline)) explicit Angle(vec_t<T> q)
      : y(smaller<T>(larger<T>(q * T(-0.5), T(0)), T(2))), rest(T(2) - y) {
    const auto wide = y > splat<T>(T(1));
    const vec_t<T> near = wide ? rest : y;
    const vec_t<T> angle = root_of<T>(near) * acos_slope<T>(near) * T(kInvPi);  // theta or pi - theta, over pi
    left = wide ? angle : T(1) - angle;
  }
};

struct ArcCosine0 : Entry {  // 1 - theta / pi
  static constexpr const char* name = "arccosine0";
  static constexpr Geometry geometry = kAngle;
  template <class T> GYRFALCON_INLINE vec_t<T> of(vec_t<T> q, const Parameters<T>&, Norms<T>) {
    return Angle<T>(q).left;
  }
};

struct ArcCosine1 : Entry {  // |x||z| (sin theta + (pi - theta) cos theta) / pi
  static constexpr const char* name = "arccosine1";
  static constexpr Geometry geometry = kAngle;
  template <class T> GYRFALCON_INLINE vec_t<T> of(vec_t<T> q, const Parameters<T>&, Norms<T> norms) {
    const Angle<T> angle(q);
    const vec_t<T> sine = root_of<T>(angle.y * angle.rest) * T(kInvPi);
    return load<T>(norms.z) * splat<T>(norms.x) * (sine + angle.left * (T(1) - angle.y));
  }
};

template <class... P> struct Table {
  static constexpr int size = int(sizeof...(P));
  static constexpr ProfileEntry entries[] = {{P::name, P::geometry, P::identity}...};
};

// The table: dense and sparse tiles can compute all of these, and Python knows them by name.
using Profiles = Table<Gaussian, Laplacian, Laplacian1, Matern32, Matern52, Rational, Linear, Polynomial, Sigmoid,
                       ArcCosine0, ArcCosine1>;

}  // namespace
}  // namespace GYRFALCON_ISA
}  // namespace gyrfalcon
