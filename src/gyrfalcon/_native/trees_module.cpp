// Sums of the leaves of regression trees, and their binding. Rows are taken a few at a time, so that the nodes of a tree
// are read once for all of them.
#include <algorithm>
#include <cmath>

#include "bindings.h"

namespace gyrfalcon {
namespace {

constexpr size_t kTreeRows = 64;

// The nodes of all trees, as in TreeArrays of tables/tree_arrays.py.
struct Trees {
  const int32_t *feature, *left, *right, *root, *output;
  const double *threshold, *value;
  const bool* missing_left;
  size_t n_nodes, n_trees;
};

// Every index that a row can reach is checked here, and children come after their parents, so that paths end.
void check_trees(const Trees& trees, size_t n_features, size_t n_outputs) {
  for (size_t i = 0; i < trees.n_nodes; ++i) {
    const int64_t left = trees.left[i], right = trees.right[i], at = int64_t(i), n = int64_t(trees.n_nodes);
    if (left < 0 && right < 0) continue;
    require(left > at && right > at && left < n && right < n, "children of a node must be nodes that come after it");
    require(trees.feature[i] >= 0 && size_t(trees.feature[i]) < n_features, "a feature of a node does not exist");
  }
  for (size_t t = 0; t < trees.n_trees; ++t) {
    require(trees.root[t] >= 0 && size_t(trees.root[t]) < trees.n_nodes, "a root must be a node");
    require(trees.output[t] >= 0 && size_t(trees.output[t]) < n_outputs, "an output of a tree does not exist");
  }
}

template <class T> double leaf_value(const Trees& trees, size_t root, const T* x) {
  size_t node = root;
  while (trees.left[node] >= 0) {
    const double here = double(x[trees.feature[node]]);
    const bool goes_left = std::isnan(here) ? trees.missing_left[node] : here <= trees.threshold[node];
    node = size_t(goes_left ? trees.left[node] : trees.right[node]);
  }
  return trees.value[node];
}

template <class T>
void tree_sums(Vector<int32_t> feature, Vector<double> threshold, Vector<int32_t> left, Vector<int32_t> right,
               Vector<bool> missing_left, Vector<double> value, Vector<int32_t> root, Vector<int32_t> output,
               Matrix<T> X, OutMatrix<double> out) {
  const size_t nodes = feature.shape(0), n = X.shape(0), d = X.shape(1), k = out.shape(1);
  require(threshold.shape(0) == nodes && left.shape(0) == nodes && right.shape(0) == nodes &&
              missing_left.shape(0) == nodes && value.shape(0) == nodes,
          "all arrays of nodes must have one length");
  require(output.shape(0) == root.shape(0), "there must be as many outputs as roots");
  require(out.shape(0) == n, "out must have the rows of X");
  const Trees trees{feature.data(),   left.data(),  right.data(),        root.data(), output.data(),
                    threshold.data(), value.data(), missing_left.data(), nodes,       root.shape(0)};
  const T* const rows = X.data();
  double* const sums = out.data();
  nb::gil_scoped_release unlocked;
  check_trees(trees, d, k);
  std::fill(sums, sums + n * k, 0.0);
  for (size_t start = 0; start < n; start += kTreeRows) {
    const size_t end = std::min(n, start + kTreeRows);
    for (size_t t = 0; t < trees.n_trees; ++t)
      for (size_t i = start; i < end; ++i)
        sums[i * k + size_t(trees.output[t])] += leaf_value(trees, size_t(trees.root[t]), rows + i * d);
  }
}

template <class T> void bind_for(nb::module_& m) {
  m.def("tree_sums", &tree_sums<T>, nb::arg("feature").noconvert(), nb::arg("threshold").noconvert(),
        nb::arg("left").noconvert(), nb::arg("right").noconvert(), nb::arg("missing_left").noconvert(),
        nb::arg("value").noconvert(), nb::arg("root").noconvert(), nb::arg("output").noconvert(),
        nb::arg("X").noconvert(), nb::arg("out").noconvert(), "Sum the values of the leaves of rows.");
}

}  // namespace

void bind_trees(nb::module_& m) {
  bind_for<float>(m);
  bind_for<double>(m);
}

}  // namespace gyrfalcon
