// Sums of signed entries, of which gradients of 1-norm kernels consist.
#pragma once
#include <cstddef>

namespace gyrfalcon {

// out[i][j][c] = sum_l block[i][l] coef[c][l] sign(rows[i][j] - centers[j][l]), with sign(0) = 0. `block` is n_rows x
// n_centers, `rows` n_rows x n_features, `centers` n_features x n_centers, `coef` n_columns x n_centers; scratch holds
// kSignRows * n_centers numbers.
constexpr size_t kSignRows = 4;
template <class T>
struct SignJob {
  const T *block, *rows, *centers, *coef;
  size_t n_rows, n_centers, n_features, n_columns;
  T* out;
  T* scratch;
};

namespace baseline { void sign_sums(const SignJob<float>&); void sign_sums(const SignJob<double>&); }
namespace avx2 { void sign_sums(const SignJob<float>&); void sign_sums(const SignJob<double>&); }
namespace avx512 { void sign_sums(const SignJob<float>&); void sign_sums(const SignJob<double>&); }

}  // namespace gyrfalcon
