// Sums of signed entries, compiled once for each instruction set: a few rows share each center's feature that is read.
#include "signs.h"

#include "profiles.h"

namespace gyrfalcon {
namespace GYRFALCON_ISA {
namespace {

constexpr size_t kSumVectors = 128;  // vectors summed in T before they go to double

// sum_l w_l sign(x - z_l) over `count` centers, a multiple of the vector's width, for kSignRows rows.
template <class T>
GYRFALCON_INLINE void add_signed(const T (&x)[kSignRows], const T* z, const T* w, size_t stride, size_t count,
                                 double (&totals)[kSignRows]) {
  typedef typename Lane<T>::ivec ivec;
  constexpr size_t W = kWidth<T>;
  vec_t<T> above[kSignRows] = {}, below[kSignRows] = {};
  for (size_t l = 0; l < count; l += W) {
    const vec_t<T> at = load_loose<T>(z + l);
#pragma GCC unroll 4
    for (size_t r = 0; r < kSignRows; ++r) {
      const ivec weight = (ivec)load_loose<T>(w + r * stride + l);
      const vec_t<T> here = splat<T>(x[r]);
      above[r] += (vec_t<T>)(weight & (ivec)(here > at));
      below[r] += (vec_t<T>)(weight & (ivec)(here < at));
    }
  }
  for (size_t r = 0; r < kSignRows; ++r) totals[r] += sum<T>(above[r]) - sum<T>(below[r]);
}

template <class T> void run(const SignJob<T>& job) {
  const size_t m = job.n_centers, d = job.n_features, k = job.n_columns;
  constexpr size_t W = kWidth<T>;
  const size_t whole = m / W * W;
  for (size_t i = 0; i < job.n_rows; i += kSignRows) {
    const size_t count = job.n_rows - i < kSignRows ? job.n_rows - i : kSignRows;
    for (size_t c = 0; c < k; ++c) {
      const T* const coef = job.coef + c * m;
      for (size_t r = 0; r < kSignRows; ++r) {
        const T* const entries = job.block + (i + (r < count ? r : 0)) * m;
        for (size_t l = 0; l < m; ++l) job.scratch[r * m + l] = entries[l] * coef[l];
      }
      for (size_t j = 0; j < d; ++j) {
        const T* const z = job.centers + j * m;
        double totals[kSignRows] = {};
        T x[kSignRows];
        for (size_t r = 0; r < kSignRows; ++r) x[r] = job.rows[(i + (r < count ? r : 0)) * d + j];
        for (size_t l = 0; l < whole; l += kSumVectors * W)
          add_signed<T>(x, z + l, job.scratch + l, m, whole - l < kSumVectors * W ? whole - l : kSumVectors * W,
                        totals);
        for (size_t r = 0; r < count; ++r) {
          for (size_t l = whole; l < m; ++l)
            totals[r] += double(job.scratch[r * m + l]) * (double(x[r] > z[l]) - double(x[r] < z[l]));
          job.out[((i + r) * d + j) * k + c] = T(totals[r]);
        }
      }
    }
  }
}

}  // namespace

void sign_sums(const SignJob<float>& job) { run<float>(job); }
void sign_sums(const SignJob<double>& job) { run<double>(job); }

}  // namespace GYRFALCON_ISA
}  // namespace gyrfalcon
