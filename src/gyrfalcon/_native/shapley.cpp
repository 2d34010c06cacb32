// Integrals of products, compiled once for each instruction set: a panel of centers at a time, all of it in cache.
#include "shapley.h"

#include "profiles.h"

namespace gyrfalcon {
namespace GYRFALCON_ISA {
namespace {

constexpr size_t kLanes = kWidth<double>;
constexpr size_t kVectors = 4;  // independent products, which hide the latency of a multiplication
constexpr size_t kStep = kLanes * kVectors;
static_assert(kShapleyLanes % kStep == 0, "a panel is a whole number of steps");

// The numbers of one panel, each n_groups x kShapleyLanes.
struct Panel {
  double *row, *base, *before, *sums, *total;
};

// Add the integrals of one row and one background row to panel.total, for kStep centers from lane `at` on.
GYRFALCON_INLINE void add_integrals(const ShapleyJob& job, const Panel& panel, size_t at) {
  typedef vec_t<double> vec;
  const size_t groups = job.n_groups;
  for (size_t q = 0; q < job.n_nodes; ++q) {
    const vec t = splat<double>(job.nodes[q]);
    vec product[kVectors];
#pragma GCC unroll 4
    for (size_t v = 0; v < kVectors; ++v) product[v] = splat<double>(job.weights[q]);
    for (size_t g = 0; g < groups; ++g) {
#pragma GCC unroll 4
      for (size_t v = 0; v < kVectors; ++v) {
        const size_t i = g * kShapleyLanes + at + v * kLanes;
        const vec b = load<double>(panel.base + i);
        store<double>(panel.before + i, product[v]);
        product[v] *= b + t * (load<double>(panel.row + i) - b);
      }
    }
#pragma GCC unroll 4
    for (size_t v = 0; v < kVectors; ++v) product[v] = splat<double>(1.0);
    for (size_t g = groups; g-- > 0;) {
#pragma GCC unroll 4
      for (size_t v = 0; v < kVectors; ++v) {
        const size_t i = g * kShapleyLanes + at + v * kLanes;
        const vec b = load<double>(panel.base + i);
        const vec so_far = q == 0 ? vec{} : load<double>(panel.sums + i);
        store<double>(panel.sums + i, so_far + load<double>(panel.before + i) * product[v]);
        product[v] *= b + t * (load<double>(panel.row + i) - b);
      }
    }
  }
  for (size_t g = 0; g < groups; ++g) {
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t i = g * kShapleyLanes + at + v * kLanes;
      const vec difference = load<double>(panel.row + i) - load<double>(panel.base + i);
      store<double>(panel.total + i, load<double>(panel.total + i) + difference * load<double>(panel.sums + i));
    }
  }
}

// Copy `count` centers of each group to a panel, and zeros for the others.
GYRFALCON_INLINE void copy_panel(const double* from, size_t groups, size_t stride, size_t count, double* to) {
  for (size_t g = 0; g < groups; ++g)
    for (size_t i = 0; i < kShapleyLanes; ++i) to[g * kShapleyLanes + i] = i < count ? from[g * stride + i] : 0.0;
}

}  // namespace

void shapley_sums(const ShapleyJob& job) {
  const size_t m = job.n_centers, groups = job.n_groups, size = groups * kShapleyLanes;
  double* const s = job.scratch;
  const Panel panel{s, s + size, s + 2 * size, s + 3 * size, s + 4 * size};
  for (size_t l = 0; l < m; l += kShapleyLanes) {
    const size_t count = m - l < kShapleyLanes ? m - l : kShapleyLanes;
    for (size_t r = 0; r < job.n_rows; ++r) {
      copy_panel(job.z + r * groups * m + l, groups, m, count, panel.row);
      for (size_t i = 0; i < size; ++i) panel.total[i] = 0.0;
      for (size_t b = 0; b < job.n_background; ++b) {
        copy_panel(job.b + b * groups * m + l, groups, m, count, panel.base);
        for (size_t at = 0; at < count; at += kStep) add_integrals(job, panel, at);
      }
      for (size_t g = 0; g < groups; ++g)
        for (size_t i = 0; i < count; ++i) job.out[(r * groups + g) * m + l + i] = panel.total[g * kShapleyLanes + i];
    }
  }
}

}  // namespace GYRFALCON_ISA
}  // namespace gyrfalcon
