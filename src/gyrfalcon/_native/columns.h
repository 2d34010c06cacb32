// Products of a strip of K with several columns at once: K V, and K'U added to sums.
//
// A strip is [panel][row][panel width], as tiles.cpp makes it. Both products are register tiles of their own: K V is
// summed along the centers in vectors (so that ten columns need no padding to a vector's width) for a few rows and
// columns at a time, K'U along the rows for one panel and as many columns as there are registers.
#pragma once
#include "profiles.h"

namespace gyrfalcon {
namespace GYRFALCON_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kRightRows = 6, kRightColumns = 4, kLeftColumns = 12;
#elif defined(__aarch64__)
constexpr int kRightRows = 8, kRightColumns = 2, kLeftColumns = 10;
#else
constexpr int kRightRows = 6, kRightColumns = 2, kLeftColumns = 6;
#endif
constexpr size_t kCachedColumns = 16;  // columns of V that stay in cache while they meet all rows of a strip
static_assert(kCachedColumns % kRightColumns == 0, "columns of a tile stay together");
static_assert(kRightRows <= 8 && kRightColumns <= 4 && kLeftColumns <= 12, "loops are unrolled at most so many times");

// Keeps the compiler from reading a vector from memory again in each instruction that uses it: loads are the limit here.
template <class T> GYRFALCON_INLINE vec_t<T> in_register(vec_t<T> x) {
#if defined(__AVX512F__)
  asm("" : "+v"(x));
#elif defined(__x86_64__)
  asm("" : "+x"(x));
#endif
  return x;
}

// The sum of a vector's numbers, by halves. The first halves of a long vector are added by hand: loops of more than four
// additions are not unrolled.
#if defined(__AVX512F__)
GYRFALCON_INLINE void store_halves(float* parts, vec_t<float> x) {
  _mm256_storeu_ps(parts, _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)));
}
GYRFALCON_INLINE void store_halves(double* parts, vec_t<double> x) {
  _mm256_storeu_pd(parts, _mm256_add_pd(_mm512_castpd512_pd256(x), _mm512_extractf64x4_pd(x, 1)));
}
template <class T> constexpr int kFolded = kWidth<T> / 2;
#else
template <class T> GYRFALCON_INLINE void store_halves(T* parts, vec_t<T> x) { store_loose<T>(parts, x); }
template <class T> constexpr int kFolded = kWidth<T>;
#endif
template <class T> GYRFALCON_INLINE T folded(vec_t<T> x) {
  T parts[kFolded<T>];
  store_halves(parts, x);
  for (int half = kFolded<T> / 2; half; half /= 2)
    for (int i = 0; i < half; ++i) parts[i] += parts[i + half];
  return parts[0];
}

// totals[row][column] += K V for kRightRows rows and kColumns columns; `v` holds `panels` whole panels of each column.
template <class T, int kColumns>
GYRFALCON_INLINE void right_tile(const T* tiles, size_t panels, size_t stride, const T* v, double* totals, size_t k) {
  constexpr size_t W = kWidth<T>, NR = kPanel<T>;
  const size_t length = panels * NR;
  vec_t<T> acc[kRightRows][kColumns] = {};
  for (size_t p = 0; p < panels; ++p, tiles += stride, v += NR) {
#pragma GCC unroll 2
    for (size_t j = 0; j < NR; j += W) {
      vec_t<T> x[kColumns];
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) x[c] = load<T>(v + c * length + j);
#pragma GCC unroll 8
      for (int r = 0; r < kRightRows; ++r) {
        const vec_t<T> entries = in_register<T>(load<T>(tiles + r * NR + j));
#pragma GCC unroll 4
        for (int c = 0; c < kColumns; ++c) acc[r][c] += entries * x[c];
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRightRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) totals[r * k + c] += double(folded<T>(acc[r][c]));
}

// The columns that are left when whole tiles of them are done.
template <class T, int kColumns>
GYRFALCON_INLINE void right_rest(size_t count, const T* tiles, size_t panels, size_t stride, const T* v, double* totals,
                                 size_t k) {
  if constexpr (kColumns > 0) {
    if (count == kColumns) return right_tile<T, kColumns>(tiles, panels, stride, v, totals, k);
    right_rest<T, kColumns - 1>(count, tiles, panels, stride, v, totals, k);
  }
}

// Numbers from a panel of a strip of `rows` rows (an even number) to the next: an odd number of rows, because panels a
// power of two apart would push each other out of the first cache.
template <class T> GYRFALCON_INLINE size_t panel_stride(size_t rows) { return (rows + 1) * kPanel<T>; }

// totals += K V for `rows` rows, a multiple of kRightRows, and the centers of `panels` panels: at most kChunkPanels, so
// that sums in T stay short, and the panels in the first cache.
template <class T>
__attribute__((noinline)) void right_columns(const T* tiles, size_t panels, size_t rows, const T* v, double* totals,
                                             size_t k) {
  const size_t stride = panel_stride<T>(rows), length = panels * kPanel<T>;
  for (size_t c0 = 0; c0 < k; c0 += kCachedColumns) {
    const size_t c1 = k - c0 < kCachedColumns ? k : c0 + kCachedColumns;
    for (size_t i = 0; i < rows; i += kRightRows) {
      const T* const strip = tiles + i * kPanel<T>;
      size_t c = c0;
      for (; c + kRightColumns <= c1; c += kRightColumns)
        right_tile<T, kRightColumns>(strip, panels, stride, v + c * length, totals + i * k + c, k);
      right_rest<T, kRightColumns - 1>(c1 - c, strip, panels, stride, v + c * length, totals + i * k + c, k);
    }
  }
}

// sums[column][center] += K'U for one panel and kColumns columns.
template <class T, int kColumns>
GYRFALCON_INLINE void left_tile(const T* tiles, size_t rows, const T* u, size_t k, T* sums) {
  constexpr size_t W = kWidth<T>, NR = kPanel<T>;
  vec_t<T> acc[kColumns][2];
#pragma GCC unroll 12
  for (int c = 0; c < kColumns; ++c) {
    acc[c][0] = load<T>(sums + c * NR);
    acc[c][1] = load<T>(sums + c * NR + W);
  }
  for (size_t i = 0; i < rows; ++i, tiles += NR, u += k) {
    const vec_t<T> k0 = load<T>(tiles), k1 = load<T>(tiles + W);
#pragma GCC unroll 12
    for (int c = 0; c < kColumns; ++c) {
      const vec_t<T> x = splat<T>(u[c]);
      acc[c][0] += x * k0;
      acc[c][1] += x * k1;
    }
  }
#pragma GCC unroll 12
  for (int c = 0; c < kColumns; ++c) {
    store<T>(sums + c * NR, acc[c][0]);
    store<T>(sums + c * NR + W, acc[c][1]);
  }
}

template <class T, int kColumns>
GYRFALCON_INLINE void left_some(size_t count, const T* tiles, size_t rows, const T* u, size_t k, T* sums) {
  if constexpr (kColumns > 0) {
    if (count == kColumns) return left_tile<T, kColumns>(tiles, rows, u, k, sums);
    left_some<T, kColumns - 1>(count, tiles, rows, u, k, sums);
  }
}

// sums[panel][column][center] += K'U for `panels` panels; groups of columns are as even as can be, since a tile of
// one or two waits for its own additions.
template <class T>
__attribute__((noinline)) void left_columns(const T* tiles, size_t panels, size_t rows, const T* u, size_t k, T* sums) {
  constexpr size_t NR = kPanel<T>;
  const size_t groups = (k + kLeftColumns - 1) / kLeftColumns;
  for (size_t p = 0; p < panels; ++p, tiles += panel_stride<T>(rows), sums += k * NR) {
    size_t c = 0;
    for (size_t g = 0; g < groups; ++g) {
      const size_t count = (k - c + groups - g - 1) / (groups - g);
      left_some<T, kLeftColumns>(count, tiles, rows, u + c, k, sums + c * NR);
      c += count;
    }
  }
}

}  // namespace
}  // namespace GYRFALCON_ISA
}  // namespace gyrfalcon
