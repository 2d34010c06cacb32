// Integrals of products of factors between a background row and a row, of which Shapley values of kernel expansions consist.
#pragma once
#include <cstddef>

namespace gyrfalcon {

// out[i][g][l] = sum_b (z[i][g][l] - b[b][g][l]) sum_q weights[q] prod_{h != g} ((1 - t_q) b[b][h][l] + t_q z[i][h][l]).
// `z` is n_rows x n_groups x n_centers, `b` n_background x n_groups x n_centers, `nodes` are the t_q; scratch begins at a
// whole vector and holds kShapleyBuffers * kShapleyLanes * n_groups numbers.
struct ShapleyJob {
  const double *z, *b, *nodes, *weights;
  size_t n_rows, n_background, n_groups, n_centers, n_nodes;
  double* out;
  double* scratch;
};

constexpr size_t kShapleyLanes = 32;  // centers of a panel: four vectors of the widest instruction set
constexpr size_t kShapleyBuffers = 5;

namespace baseline { void shapley_sums(const ShapleyJob&); }
namespace avx2 { void shapley_sums(const ShapleyJob&); }
namespace avx512 { void shapley_sums(const ShapleyJob&); }

}  // namespace gyrfalcon
