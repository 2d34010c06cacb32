// Gradient boosting of regression trees on binned rows, and its binding. One thread fits one model: callers fit several
// models side by side, so that results do not depend on the number of threads.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "bindings.h"

namespace gyrfalcon {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSignalTime{200};
std::atomic<uint64_t> interrupts{0};  // number of times that Ctrl-C has ended a fit

// Ends fits of all threads when Ctrl-C is pressed, which Python tells its main thread alone.
class Interruption {
 public:
  bool comes() {
    if (Clock::now() - last < kSignalTime) return false;
    last = Clock::now();
    if (interrupts.load() != before) return true;
    nb::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() == 0) return false;
    ++interrupts;
    throw nb::python_error();
  }

 private:
  Clock::time_point last = Clock::now();
  const uint64_t before = interrupts.load();
};

// How trees grow, as in `Growth` of backends/boosting.py.
struct Growth {
  double rate, l2, share;
  size_t max_leaves, min_leaf;
  bool symmetric;
};

// Sums of the rows of a bin: gradients, second derivatives, and their number.
struct Bin {
  double g = 0.0, h = 0.0;
  uint32_t n = 0;
};

struct Derivatives {
  double g, h;
};

struct Split {
  double gain = 0.0;
  size_t feature = 0, bin = 0;
  Bin left;
};

struct Leaf {
  size_t begin, end, node;
  Bin total;
  Split split;
  std::vector<Bin> histogram;
};

// The nodes of all trees; a row goes to the left if its bin is at most that of the node.
struct Nodes {
  std::vector<int32_t> feature, bin, left, right, root;
  std::vector<double> value;

  size_t add(double leaf_value) {
    feature.push_back(0), bin.push_back(0), left.push_back(-1), right.push_back(-1), value.push_back(leaf_value);
    return feature.size() - 1;
  }
};

struct Binned {
  const uint8_t* bins;  // those of one feature after another
  const int32_t* n_bins;
  size_t n, d;
};

class Grower {
 public:
  Grower(const Binned& binned, std::vector<int64_t> train, const Growth& growth, uint64_t seed, Clock::time_point deadline)
      : data(binned), settings(growth), rows(std::move(train)), spare(rows.size()), ordered(rows.size()),
        first(binned.d + 1), state(seed * 2 + 1), end_time(deadline) {
    first[0] = 0;
    for (size_t f = 0; f < data.d; ++f) first[f + 1] = first[f] + size_t(data.n_bins[f]);
    if (settings.symmetric) gains.resize(first.back());
    features.resize(data.d);
    std::iota(features.begin(), features.end(), size_t(0));
    used = std::clamp<size_t>(size_t(std::lround(settings.share * double(data.d))), 1, data.d);
  }

  // Grow a tree with the derivatives of each row, the most valuable split first, or level by level; add its leaves to the
  // scores of training rows, of which there are `stride` for each row.
  void grow(const std::vector<Derivatives>& derivatives, Nodes& nodes, double* scores, size_t stride) {
    draw_features();
    nodes.root.push_back(int32_t(nodes.feature.size()));
    std::vector<Leaf> leaves;
    leaves.push_back(Leaf{0, rows.size(), nodes.add(0.0), {}, {}, take_histogram()});
    fill(leaves[0], derivatives);
    for (size_t i = 0; i < rows.size(); ++i) add(leaves[0].total, derivatives[size_t(rows[i])]);
    if (settings.symmetric)
      grow_levels(leaves, derivatives, nodes);
    else
      grow_leaves(leaves, derivatives, nodes);
    for (Leaf& leaf : leaves) {
      const double value = -settings.rate * leaf.total.g / (leaf.total.h + settings.l2 + kTiny);
      nodes.value[leaf.node] = value;
      for (size_t i = leaf.begin; i < leaf.end; ++i) scores[size_t(rows[i]) * stride] += value;
      if (!leaf.histogram.empty()) pool.push_back(std::move(leaf.histogram));
    }
  }

 private:
  static constexpr double kTiny = 1e-300;
  static constexpr size_t kFewBins = 16, kCopies = 4;
  static constexpr double kLeastCurvature = 1e-3;  // least sum of second derivatives of a leaf, as in scikit-learn

  const Binned& data;
  const Growth settings;
  std::vector<int64_t> rows, spare;
  std::vector<Derivatives> ordered;
  std::vector<size_t> first, features;
  size_t used;
  uint64_t state;
  Clock::time_point end_time;
  std::vector<std::vector<Bin>> pool;
  std::vector<double> gains;  // of the split of all leaves at each bin of each feature

  void grow_leaves(std::vector<Leaf>& leaves, const std::vector<Derivatives>& derivatives, Nodes& nodes) {
    find_split(leaves[0]);
    while (leaves.size() < settings.max_leaves && Clock::now() < end_time) {
      size_t best = 0;
      for (size_t i = 1; i < leaves.size(); ++i)
        if (leaves[i].split.gain > leaves[best].split.gain) best = i;
      if (leaves[best].split.gain <= 0.0) break;
      const bool again = leaves.size() + 1 < settings.max_leaves;
      const size_t other = leaves.size();
      divide(leaves, best, derivatives, nodes, again);
      if (again) find_split(leaves[best]), find_split(leaves[other]);
    }
  }

  // All leaves of a level are split at the same bin of the same feature, if that leaves both sides enough rows.
  void grow_levels(std::vector<Leaf>& leaves, const std::vector<Derivatives>& derivatives, Nodes& nodes) {
    for (size_t most = 2; most <= settings.max_leaves && Clock::now() < end_time; most *= 2) {
      const Split split = find_common_split(leaves);
      if (split.gain <= 0.0) return;
      for (size_t i = 0, count = leaves.size(); i < count; ++i) {
        leaves[i].split = split;
        leaves[i].split.left = left_of(leaves[i], split);
        if (is_allowed(leaves[i].total, leaves[i].split.left))
          divide(leaves, i, derivatives, nodes, 2 * most <= settings.max_leaves);
      }
    }
  }

  Bin left_of(const Leaf& leaf, const Split& split) const {
    const Bin* const bins = leaf.histogram.data() + first[split.feature];
    Bin left;
    for (size_t b = 0; b <= split.bin; ++b) left.g += bins[b].g, left.h += bins[b].h, left.n += bins[b].n;
    return left;
  }

  bool is_allowed(const Bin& all, const Bin& left) const {
    return std::min(left.n, all.n - left.n) >= settings.min_leaf && std::min(left.h, all.h - left.h) >= kLeastCurvature;
  }

  Split find_common_split(const std::vector<Leaf>& leaves) {
    double size = 0.0;
    for (const Leaf& leaf : leaves) size += worth(leaf.total.g, leaf.total.h) + leaf.total.h;
    Split split;
    double best = 1e-12 * size;
    for (size_t j = 0; j < used; ++j) {
      const size_t f = features[j], n_bins = size_t(data.n_bins[f]);
      double* const here = gains.data() + first[f];
      std::fill(here, here + n_bins, 0.0);
      for (const Leaf& leaf : leaves) {
        const Bin& all = leaf.total;
        if (all.n < 2 * settings.min_leaf) continue;
        const Bin* const bins = leaf.histogram.data() + first[f];
        const double now = worth(all.g, all.h);
        Bin left;
        double gain = 0.0;
        for (size_t b = 0; b + 1 < n_bins; ++b) {
          if (bins[b].n > 0) {
            left.g += bins[b].g, left.h += bins[b].h, left.n += bins[b].n;
            gain = is_allowed(all, left) ? worth(left.g, left.h) + worth(all.g - left.g, all.h - left.h) - now : 0.0;
          }
          here[b] += gain;
        }
      }
      for (size_t b = 0; b + 1 < n_bins; ++b)
        if (here[b] > best) best = here[b], split = Split{here[b], f, b, {}};
    }
    return split;
  }

  static void add(Bin& bin, const Derivatives& d) { bin.g += d.g, bin.h += d.h, ++bin.n; }

  uint64_t random() {  // SplitMix64
    uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  void draw_features() {  // the first `used` of `features`, in ascending order
    if (used == data.d) return;
    std::iota(features.begin(), features.end(), size_t(0));
    for (size_t i = 0; i < used; ++i) std::swap(features[i], features[i + random() % (data.d - i)]);
    std::sort(features.begin(), features.begin() + std::ptrdiff_t(used));
  }

  std::vector<Bin> take_histogram() {
    if (pool.empty()) return std::vector<Bin>(first.back());
    std::vector<Bin> histogram = std::move(pool.back());
    pool.pop_back();
    return histogram;
  }

  void fill(Leaf& leaf, const std::vector<Derivatives>& derivatives) {
    const int64_t* const here = rows.data() + leaf.begin;
    const size_t m = leaf.end - leaf.begin;
    for (size_t i = 0; i < m; ++i) ordered[i] = derivatives[size_t(here[i])];
    for (size_t j = 0; j < used; ++j) {
      const size_t f = features[j];
      const uint8_t* const column = data.bins + f * data.n;
      Bin* const bins = leaf.histogram.data() + first[f];
      const size_t size = size_t(data.n_bins[f]);
      std::fill(bins, bins + size, Bin{});
      if (size > kFewBins) {
        for (size_t i = 0; i < m; ++i) add(bins[column[here[i]]], ordered[i]);
        continue;
      }
      // rows that follow each other are often in the same bin, and an addition waits for the one before: several copies
      Bin copies[kCopies][kFewBins];
      size_t i = 0;
      for (; i + kCopies <= m; i += kCopies)
        for (size_t c = 0; c < kCopies; ++c) add(copies[c][column[here[i + c]]], ordered[i + c]);
      for (; i < m; ++i) add(copies[0][column[here[i]]], ordered[i]);
      for (size_t b = 0; b < size; ++b)
        for (size_t c = 0; c < kCopies; ++c) bins[b].g += copies[c][b].g, bins[b].h += copies[c][b].h, bins[b].n += copies[c][b].n;
    }
  }

  double worth(double g, double h) const { return g * g / (h + settings.l2 + kTiny); }

  void find_split(Leaf& leaf) {
    leaf.split = Split{};
    const Bin& all = leaf.total;
    if (all.n < 2 * settings.min_leaf) return;
    const double now = worth(all.g, all.h);
    // a gain below the rounding of the sums is none
    double best = 1e-12 * (now + all.h);
    for (size_t j = 0; j < used; ++j) {
      const size_t f = features[j];
      const Bin* const bins = leaf.histogram.data() + first[f];
      Bin left;
      for (size_t b = 0; b + 1 < size_t(data.n_bins[f]); ++b) {
        if (bins[b].n == 0) continue;
        left.g += bins[b].g, left.h += bins[b].h, left.n += bins[b].n;
        if (left.n < settings.min_leaf) continue;
        const double h_right = all.h - left.h;
        if (all.n - left.n < settings.min_leaf || h_right < kLeastCurvature) break;
        if (left.h < kLeastCurvature) continue;
        const double gain = worth(left.g, left.h) + worth(all.g - left.g, h_right) - now;
        if (gain > best) best = gain, leaf.split = Split{gain, f, b, left};
      }
    }
  }

  void divide(std::vector<Leaf>& leaves, size_t place, const std::vector<Derivatives>& derivatives, Nodes& nodes,
              bool again) {
    Leaf& parent = leaves[place];
    const Split split = parent.split;
    const uint8_t* const column = data.bins + split.feature * data.n;
    size_t at = parent.begin, others = 0;
    for (size_t i = parent.begin; i < parent.end; ++i) {
      const int64_t row = rows[i];
      if (column[row] <= split.bin)
        rows[at++] = row;
      else
        spare[others++] = row;
    }
    std::copy(spare.begin(), spare.begin() + std::ptrdiff_t(others), rows.begin() + std::ptrdiff_t(at));
    const size_t node = parent.node;
    nodes.feature[node] = int32_t(split.feature), nodes.bin[node] = int32_t(split.bin);
    Bin right{parent.total.g - split.left.g, parent.total.h - split.left.h, parent.total.n - split.left.n};
    Leaf two{at, parent.end, 0, right, {}, {}};
    Leaf one{parent.begin, at, 0, split.left, {}, {}};
    one.node = nodes.add(0.0), two.node = nodes.add(0.0);
    nodes.left[node] = int32_t(one.node), nodes.right[node] = int32_t(two.node);
    if (again) {
      Leaf& small = one.total.n <= two.total.n ? one : two;
      Leaf& large = one.total.n <= two.total.n ? two : one;
      small.histogram = take_histogram();
      large.histogram = std::move(parent.histogram);
      fill(small, derivatives);
      for (size_t j = 0; j < used; ++j)
        for (size_t b = first[features[j]]; b < first[features[j] + 1]; ++b) {
          large.histogram[b].g -= small.histogram[b].g;
          large.histogram[b].h -= small.histogram[b].h;
          large.histogram[b].n -= small.histogram[b].n;
        }
    } else {
      pool.push_back(std::move(parent.histogram));
    }
    leaves[place] = std::move(one);
    leaves.push_back(std::move(two));
  }
};

// Squared error of one output, or the log-loss of two or more classes; k scores for each row.
class Loss {
 public:
  Loss(const double* targets, const double* weights, size_t n_classes)
      : y(targets), weight(weights), classes(n_classes), k(n_classes > 2 ? n_classes : 1) {}

  const double* y;
  const double* weight;  // null without weights
  size_t classes, k;

  double weight_of(size_t row) const { return weight ? weight[row] : 1.0; }

  // Derivatives of output o for rows; `P` are the probabilities of all classes.
  void derivatives(const std::vector<int64_t>& rows, const std::vector<double>& scores, const std::vector<double>& P,
                   size_t o, std::vector<Derivatives>& out) const {
    for (const int64_t each : rows) {
      const size_t row = size_t(each);
      const double w = weight_of(row);
      if (classes == 0) {
        out[row] = {w * (scores[row] - y[row]), w};
      } else {
        const double p = P[row * k + o], hit = classes == 2 ? y[row] : double(size_t(y[row]) == o);
        out[row] = {w * (p - hit), w * p * (1.0 - p)};
      }
    }
  }

  void probabilities(const std::vector<int64_t>& rows, const std::vector<double>& scores, std::vector<double>& P) const {
    if (classes == 0) return;
    for (const int64_t each : rows) {
      const size_t row = size_t(each);
      const double* const s = scores.data() + row * k;
      if (classes == 2) {
        P[row] = 1.0 / (1.0 + std::exp(-s[0]));
        continue;
      }
      const double most = *std::max_element(s, s + k);
      double sum = 0.0;
      for (size_t o = 0; o < k; ++o) sum += P[row * k + o] = std::exp(s[o] - most);
      for (size_t o = 0; o < k; ++o) P[row * k + o] /= sum;
    }
  }

  double mean(const std::vector<int64_t>& rows, const std::vector<double>& scores) const {
    double total = 0.0, sum = 0.0;
    for (const int64_t each : rows) {
      const size_t row = size_t(each);
      const double* const s = scores.data() + row * k;
      const double w = weight_of(row);
      double loss;
      if (classes == 0) {
        loss = 0.5 * (s[0] - y[row]) * (s[0] - y[row]);
      } else if (classes == 2) {
        const double margin = y[row] > 0.5 ? s[0] : -s[0];
        loss = margin > 0 ? std::log1p(std::exp(-margin)) : std::log1p(std::exp(margin)) - margin;
      } else {
        const double most = *std::max_element(s, s + k);
        double exps = 0.0;
        for (size_t o = 0; o < k; ++o) exps += std::exp(s[o] - most);
        loss = std::log(exps) + most - s[size_t(y[row])];
      }
      total += w * loss, sum += w;
    }
    return total / sum;
  }
};

void add_tree(const Binned& data, const Nodes& nodes, size_t root, const std::vector<int64_t>& rows, double* scores,
              size_t stride) {
  for (const int64_t each : rows) {
    const size_t row = size_t(each);
    size_t node = root;
    while (nodes.left[node] >= 0) {
      const uint8_t bin = data.bins[size_t(nodes.feature[node]) * data.n + row];
      node = size_t(bin <= nodes.bin[node] ? nodes.left[node] : nodes.right[node]);
    }
    scores[row * stride] += nodes.value[node];
  }
}

template <class T> nb::ndarray<nb::numpy, T, nb::ndim<1>> as_array(std::vector<T>&& values) {
  auto* const held = new std::vector<T>(std::move(values));
  nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(held->data(), {held->size()}, owner);
}

std::vector<int64_t> checked_rows(const Vector<int64_t>& rows, size_t n) {
  std::vector<int64_t> out(rows.data(), rows.data() + rows.shape(0));
  require(!out.empty(), "there must be rows to learn from, and rows that judge");
  for (const int64_t row : out) require(row >= 0 && size_t(row) < n, "a row does not exist");
  return out;
}

nb::tuple boost(Matrix<uint8_t> bins, Vector<int32_t> n_bins, Vector<int64_t> train, Vector<int64_t> held,
                Vector<double> y, Vector<double> weight, Vector<double> offset, size_t n_classes, double rate,
                double l2, double share, size_t max_leaves, size_t min_leaf, bool symmetric, size_t iterations,
                size_t patience, double seconds, uint64_t seed) {
  const Clock::time_point deadline =
      seconds < 1e9 ? Clock::now() + std::chrono::microseconds(int64_t(1e6 * std::max(seconds, 0.0)))
                    : Clock::time_point::max();
  const Binned data{bins.data(), n_bins.data(), bins.shape(1), bins.shape(0)};
  const size_t n = data.n;
  require(n_bins.shape(0) == data.d && data.d > 0, "there must be a number of bins for each feature");
  require(y.shape(0) == n && (weight.shape(0) == n || weight.shape(0) == 0), "y and weights must have all rows");
  const Loss loss(y.data(), weight.shape(0) ? weight.data() : nullptr, n_classes);
  require(n_classes != 1 && offset.shape(0) == loss.k, "there must be an offset for each output");
  require(max_leaves >= 2 && min_leaf >= 1, "trees must have two leaves and rows in them");
  for (size_t i = 0; i < n && n_classes > 0; ++i)
    require(y(i) >= 0 && y(i) < double(n_classes), "y must be numbers of classes");
  for (size_t f = 0; f < data.d; ++f) {
    require(n_bins(f) >= 1 && n_bins(f) <= 256, "a feature must have 1 to 256 bins");
    for (size_t i = 0; i < n; ++i) require(data.bins[f * n + i] < n_bins(f), "a bin does not exist");
  }
  const std::vector<int64_t> learnt = checked_rows(train, n), judging = checked_rows(held, n);
  Nodes nodes;
  std::vector<double> curve;
  {
    nb::gil_scoped_release unlocked;
    const size_t k = loss.k;
    std::vector<double> scores(n * k), P(n_classes ? n * k : 0);
    for (size_t i = 0; i < n; ++i) std::copy(offset.data(), offset.data() + k, scores.data() + i * k);
    std::vector<Derivatives> derivatives(n);
    Grower grower(data, learnt, Growth{rate, l2, share, max_leaves, min_leaf, symmetric}, seed, deadline);
    curve.push_back(loss.mean(judging, scores));
    size_t best = 0;
    Interruption interruption;
    while (curve.size() <= iterations && curve.size() - 1 - best < patience) {
      if (interruption.comes() || (curve.size() > 1 && Clock::now() >= deadline)) break;
      loss.probabilities(learnt, scores, P);
      for (size_t o = 0; o < k; ++o) {
        loss.derivatives(learnt, scores, P, o, derivatives);
        grower.grow(derivatives, nodes, scores.data() + o, k);
        add_tree(data, nodes, size_t(nodes.root.back()), judging, scores.data() + o, k);
      }
      curve.push_back(loss.mean(judging, scores));
      if (curve.back() < curve[best]) best = curve.size() - 1;
    }
  }
  return nb::make_tuple(as_array(std::move(nodes.feature)), as_array(std::move(nodes.bin)),
                        as_array(std::move(nodes.left)), as_array(std::move(nodes.right)),
                        as_array(std::move(nodes.value)), as_array(std::move(nodes.root)), as_array(std::move(curve)));
}

}  // namespace

void bind_boosting(nb::module_& m) {
  m.def("boost", &boost, nb::arg("bins").noconvert(), nb::arg("n_bins").noconvert(), nb::arg("train").noconvert(),
        nb::arg("held").noconvert(), nb::arg("y").noconvert(), nb::arg("weight").noconvert(),
        nb::arg("offset").noconvert(), nb::arg("n_classes"), nb::arg("rate"), nb::arg("l2"), nb::arg("share"),
        nb::arg("max_leaves"), nb::arg("min_leaf"), nb::arg("symmetric"), nb::arg("iterations"), nb::arg("patience"),
        nb::arg("seconds"), nb::arg("seed"),
        "Fit gradient-boosted trees until the loss of held-out rows falls no more, or time is up.");
}

}  // namespace gyrfalcon
