// Products of one column with a stored block of K, in float32, float64 or 16 bits.
#pragma once
#include "fixed16.h"
#include "profiles.h"

namespace gyrfalcon {
namespace GYRFALCON_ISA {
namespace {

// Four rows are read once and used twice.
template <class T, class Stored>
void dense(Verb verb, const Stored* block, size_t n, size_t m, const T* v, const T* u, const T* added, T* out_rows,
           double* out_centers, T* sums) {
  constexpr size_t W = kWidth<T>;
  constexpr size_t G = 4;
  constexpr double unit = kUnit<Stored>;
  const bool right = verb == kMatvec || verb == kSandwich, left = verb != kMatvec;
  const size_t whole = m / W * W;
  if (left) memset(sums, 0, m * sizeof(T));
  size_t summed = 0;
  for (size_t i = 0; i < n; i += G) {
    const size_t count = n - i < G ? n - i : G;
    const Stored* row[G];
    for (size_t r = 0; r < G; ++r) row[r] = block + (i + (r < count ? r : 0)) * m;
    T weight[G];
    if (right) {
      double total[G] = {};
      for (size_t j0 = 0; j0 < whole; j0 += 64 * W) {
        const size_t j1 = j0 + 64 * W < whole ? j0 + 64 * W : whole;
        vec_t<T> part[G] = {};
        for (size_t j = j0; j < j1; j += W) {
          vec_t<T> x = load_loose<T>(v + j);
#pragma GCC unroll 4
          for (size_t r = 0; r < G; ++r) part[r] += x * entries_at<T>(row[r] + j);
        }
        for (size_t r = 0; r < G; ++r) total[r] += sum<T>(part[r]);
      }
      for (size_t r = 0; r < G; ++r) {
        for (size_t j = whole; j < m; ++j) total[r] += double(v[j]) * double(entry_at<T>(row[r] + j));
        total[r] *= unit;
        if (added && r < count) total[r] += double(added[i + r]);
        weight[r] = T(verb == kSandwich && u && r < count ? total[r] * double(u[i + r]) : total[r]);
      }
      if (verb == kMatvec) {
        for (size_t r = 0; r < count; ++r) out_rows[i + r] = weight[r];
        continue;
      }
    } else {
      for (size_t r = 0; r < count; ++r) weight[r] = u[i + r];
    }
    vec_t<T> w[G];
    for (size_t r = 0; r < G; ++r) {
      weight[r] = r < count ? T(double(weight[r]) * unit) : T(0);
      w[r] = splat<T>(weight[r]);
    }
    for (size_t j = 0; j < whole; j += W) {
      vec_t<T> x = load_loose<T>(sums + j);
#pragma GCC unroll 4
      for (size_t r = 0; r < G; ++r) x += w[r] * entries_at<T>(row[r] + j);
      store_loose<T>(sums + j, x);
    }
    for (size_t j = whole; j < m; ++j)
      for (size_t r = 0; r < count; ++r) sums[j] += weight[r] * entry_at<T>(row[r] + j);
    summed += G;
    if (summed >= kSumRows || i + G >= n) {
      for (size_t j = 0; j < m; ++j) out_centers[j] += double(sums[j]);
      memset(sums, 0, m * sizeof(T));
      summed = 0;
    }
  }
}

#if defined(__AVX2__)
void narrow(const float* entries, size_t count, uint16_t* out) {
  constexpr size_t W = kWidth<float>;
  size_t i = 0;
  for (; i + W <= count; i += W) store_steps(out + i, load_loose<float>(entries + i));
  for (; i < count; ++i) out[i] = steps_of(entries[i]);
}

void half_sandwich(const uint16_t* block, size_t n, size_t m, const float* v, const float* u, double* out_centers,
                   float* sums) {
  dense<float>(kSandwich, reinterpret_cast<const Fixed16*>(block), n, m, v, u, nullptr, nullptr, out_centers, sums);
}
#else
constexpr void (*narrow)(const float*, size_t, uint16_t*) = nullptr;
constexpr void (*half_sandwich)(const uint16_t*, size_t, size_t, const float*, const float*, double*, float*) = nullptr;
#endif

}  // namespace
}  // namespace GYRFALCON_ISA
}  // namespace gyrfalcon
