// Sparse rows against sparse centers: one row of K at a time, computed and used in L1.
//
// x.z of a row with all centers is a sum over its columns of that column's row in the transposed centers, which is a
// list of (center, value), or a dense row if many centers have the column. Dot products are summed in double for any T,
// because distances are |x|^2 + |z|^2 - 2 x.z: sparse rows cannot be centered first. Where even double would lose
// digits, for rows that nearly equal a center, squared differences are summed instead.
//
// In the 1-norm, the overlap of two numbers, 2 min(|x|, |z|) if their signs agree and 0 otherwise, takes the place of
// their product: sum_j |x_j - z_j| is sum_j |x_j| + sum_j |z_j| minus the sum of overlaps.
#include "sparse.h"

#include "profiles.h"

namespace gyrfalcon {
namespace GYRFALCON_ISA {
namespace {

// A squared distance below this share of |x|^2 + |z|^2 has lost 12 bits to cancellation, and is recomputed.
constexpr double kNear = 1.0 / 4096;
constexpr int kTogether = 8;  // dense rows added in one pass over the sums
static_assert(kTogether == 8, "the remaining ones are added by 4, 2 and 1");
static_assert(kPadded % kWidth<float> == 0 && kPadded % kWidth<double> == 0, "centers are padded to whole vectors");
static_assert(kPadded * sizeof(float) % kAlign == 0, "every dense row begins at a whole vector");

// ---- reading rows ---------------------------------------------------------------------------------------------------

template <class T> struct Row {
  uint32_t* at;      // numbers of its columns that occur in centers
  T* values;         // ... the values there
  double* weights;   // ... times the squared scale; manhattan: twice the scale
  size_t count;
  double size;       // |x'|^2; manhattan: sum_j |x'_j|
  double elsewhere;  // ... its part in columns that no center has
};

template <class T, class I, Measure kMeasure>
GYRFALCON_INLINE Status read(const SparseCenters<T>& c, const SparseRows<T>& rows, size_t i, Row<T>& row) {
  const I* indptr = static_cast<const I*>(rows.indptr);
  const I* indices = static_cast<const I*>(rows.indices);
  const size_t begin = size_t(indptr[i]), end = size_t(indptr[i + 1]);
  const uint64_t width = c.n_features;
  uint64_t previous = 0;
  bool increasing = true;
  double size = 0, elsewhere = 0;
  size_t count = 0;
  for (size_t k = begin; k < end; ++k) {
    const uint64_t column = uint64_t(int64_t(indices[k]));  // negative indices become large
    if (__builtin_expect(column >= width, 0)) return kOutside;
    const uint64_t word = c.bits[column >> 6], bit = uint64_t(1) << (column & 63);
    const bool occurs = word & bit;
    if constexpr (kMeasure != Measure::none) {
      increasing &= k == begin || column > previous;
      previous = column;
      const double x = double(rows.data[k]), scale = c.scale[column * c.scale_step];
      const double weight = kMeasure == Measure::sizes ? 2 * scale : x * scale;
      const double other = kMeasure == Measure::sizes ? 0.5 * __builtin_fabs(x) : x;
      size += weight * other;
      if (occurs) {
        row.weights[count] = weight;
      } else {
        elsewhere += weight * other;
      }
    }
    if (occurs) {
      row.at[count] = c.ranks[column >> 6] + uint32_t(__builtin_popcountll(word & (bit - 1)));
      row.values[count] = rows.data[k];
      ++count;
    }
  }
  row.count = count;
  row.size = size;
  row.elsewhere = elsewhere;
  return increasing ? kRead : kUnsorted;
}

template <class T, Measure kMeasure>
Status read_row(const SparseCenters<T>& c, const SparseRows<T>& rows, size_t i, Row<T>& row) {
  return rows.wide ? read<T, int64_t, kMeasure>(c, rows, i, row) : read<T, int32_t, kMeasure>(c, rows, i, row);
}

// ---- x.z, or the overlap of x and z, with every center --------------------------------------------------------------

template <class T> struct Half {
  typedef T type __attribute__((vector_size(kVectorBytes / 8 * sizeof(T))));
};
template <class T> GYRFALCON_INLINE vec_t<double> widened(const T* p) {
  return __builtin_convertvector(*reinterpret_cast<const typename Half<T>::type*>(p), vec_t<double>);
}

// (|x| + |z| - |x - z|) / 2 for a number or a vector z
GYRFALCON_INLINE double overlap(double x, double z) {
  const double size = __builtin_fabs(x), along = x < 0 ? -z : z;
  return along <= 0 ? 0.0 : along < size ? along : size;
}
GYRFALCON_INLINE vec_t<double> overlap(double x, vec_t<double> z) {
  return larger<double>(smaller<double>(z * (x < 0 ? -1.0 : 1.0), __builtin_fabs(x)), 0.0);
}

template <class T, int N, Measure kMeasure>
void add_rows(double* sums, size_t length, const T* const* from, const double* weights, const double* values) {
  vec_t<double> w[N];
  for (int r = 0; r < N; ++r) w[r] = splat<double>(weights[r]);
  for (size_t j = 0; j < length; j += kWidth<double>) {
    vec_t<double> sum = load<double>(sums + j);
#pragma GCC unroll 8
    for (int r = 0; r < N; ++r) {
      const vec_t<double> z = widened<T>(from[r] + j);
      if constexpr (kMeasure == Measure::sizes) {
        sum += w[r] * overlap(values[r], z);
      } else {
        sum += w[r] * z;
      }
    }
    store<double>(sums + j, sum);
  }
}

template <class T, Measure kMeasure> void products(const SparseCenters<T>& c, const Row<T>& row, double* sums) {
  memset(sums, 0, c.n_padded * sizeof(double));
  const T* waiting[kTogether];
  double weights[kTogether], values[kTogether];
  int count = 0;
  for (size_t h = 0; h < row.count; ++h) {
    const uint32_t at = row.at[h];
    const double weight = row.weights[h], value = double(row.values[h]);
    if (c.dense_of[at] != kNoDenseRow) {
      waiting[count] = c.dense_rows + size_t(c.dense_of[at]) * c.n_padded;
      weights[count] = weight;
      values[count] = value;
      if (++count == kTogether) {
        add_rows<T, kTogether, kMeasure>(sums, c.n_padded, waiting, weights, values);
        count = 0;
      }
      continue;
    }
    for (size_t k = c.column_start[at]; k < c.column_start[at + 1]; ++k) {
      const double z = double(c.column_values[k]);
      sums[c.column_centers[k]] += weight * (kMeasure == Measure::sizes ? overlap(value, z) : z);
    }
  }
  int done = 0;
  if (count & 4) {
    add_rows<T, 4, kMeasure>(sums, c.n_padded, waiting, weights, values);
    done += 4;
  }
  if (count & 2) {
    add_rows<T, 2, kMeasure>(sums, c.n_padded, waiting + done, weights + done, values + done);
    done += 2;
  }
  if (count & 1) add_rows<T, 1, kMeasure>(sums, c.n_padded, waiting + done, weights + done, values + done);
}

// ---- arguments of the profile -----------------------------------------------------------------------------------------

// Sum over the columns of scale (a x - b z)^2, or of scale |x - z|.
template <class T, Measure kMeasure = Measure::squares>
double difference(const SparseCenters<T>& c, const Row<T>& row, size_t center, double a = 1.0, double b = 1.0) {
  double sum = row.elsewhere * a * a;
  size_t h = 0, k = c.center_start[center];
  const size_t end = c.center_start[center + 1];
  while (h < row.count || k < end) {
    const uint32_t in_row = h < row.count ? row.at[h] : kNoColumn;
    const uint32_t in_center = k < end ? c.center_columns[k] : kNoColumn;
    const uint32_t at = in_row < in_center ? in_row : in_center;
    const double x = in_row == at ? a * double(row.values[h++]) : 0.0;
    const double z = in_center == at ? b * double(c.center_values[k++]) : 0.0;
    const double scale = c.scale[c.columns[at] * c.scale_step];
    sum += kMeasure == Measure::sizes ? scale * __builtin_fabs(x - z) : scale * (x - z) * (x - z);
  }
  return sum;
}

// -|x' - z'|^2 / 2, or -sum_j |x'_j - z'_j|: products or overlaps minus the sizes of both
template <class T, Measure kMeasure>
void difference_arguments(const SparseCenters<T>& c, const Row<T>& row, const double* sums, T* out) {
  constexpr double part = kMeasure == Measure::sizes ? 1.0 : 0.5;
  const double own = part * row.size;
  if (!(own <= 1.7e308)) {  // its square overflowed: NaN cannot be mistaken for a result
    for (size_t j = 0; j < c.n_padded; ++j) out[j] = T(__builtin_nan(""));
    return;
  }
  int64_t near = 0;
  for (size_t j = 0; j < c.n_padded; ++j) {
    const double size = own + c.sizes[j], q = sums[j] - size;
    near |= q + kNear * size > 0 ? -1 : 0;
    out[j] = T(q);
  }
  if (near)
    for (size_t j = 0; j < c.n_centers; ++j) {
      const double size = own + c.sizes[j], q = sums[j] - size;
      if (q + kNear * size > 0) out[j] = T(-part * difference<T, kMeasure>(c, row, j));
    }
}

template <class T> void dot_arguments(const SparseCenters<T>& c, const double* sums, T* out) {
  for (size_t j = 0; j < c.n_padded; ++j) out[j] = T(sums[j]);
}

// q = -|x^ - z^|^2 between directions; the zero vector is orthogonal to all but itself
template <class T> void angle_arguments(const SparseCenters<T>& c, const Row<T>& row, const double* sums, T* out) {
  const double inverse = row.size > 0 ? 1 / __builtin_sqrt(row.size) : 0.0;
  const auto is_near = [](double q) { return q > -2 * kNear; };
  const auto is_opposite = [](double q) { return q < -4 + 2 * kNear; };
  int64_t extreme = 0;
  for (size_t j = 0; j < c.n_padded; ++j) {
    const double q = 2 * (sums[j] * inverse * c.inverse_norms[j]) - 2;
    extreme |= is_near(q) || is_opposite(q) ? -1 : 0;
    out[j] = T(q);
  }
  if (extreme || inverse == 0)
    for (size_t j = 0; j < c.n_centers; ++j) {
      const double other = c.inverse_norms[j], q = 2 * (sums[j] * inverse * other) - 2;
      if (inverse == 0 && other == 0) {
        out[j] = T(0);
      } else if (is_near(q)) {
        out[j] = T(-difference(c, row, j, inverse, other));
      } else if (is_opposite(q)) {
        out[j] = T(difference(c, row, j, inverse, -other) - 4);
      }
    }
}

template <class T, class P> void kernel_row(const SparseCenters<T>& c, const Row<T>& row, double* sums, T* out) {
  constexpr Measure kMeasure = measure_of(P::geometry);
  products<T, kMeasure>(c, row, sums);
  switch (P::geometry) {
    case kDistance:
    case kManhattan:
      difference_arguments<T, kMeasure>(c, row, sums, out);
      if (out[0] != out[0]) return;
      break;
    case kDot: dot_arguments(c, sums, out); break;
    case kAngle: angle_arguments(c, row, sums, out); break;
  }
  if (P::identity) return;
  const Parameters<T> parameters(c.param0, c.param1, c.degree);
  const T norm = T(__builtin_sqrt(row.size));
  for (size_t j = 0; j < c.n_padded; j += kWidth<T>)
    store<T>(out + j, P::template of<T>(load<T>(out + j), parameters, {c.norms + j, norm}));
}

template <class T> struct Steps {
  Status (*read)(const SparseCenters<T>&, const SparseRows<T>&, size_t, Row<T>&);
  void (*make)(const SparseCenters<T>&, const Row<T>&, double*, T*);
};
template <class T, class Table> struct AllSteps;
template <class T, class... P> struct AllSteps<T, Table<P...>> {
  static constexpr Steps<T> of[] = {{read_row<T, measure_of(P::geometry)>, kernel_row<T, P>}...};
};

// ---- products ---------------------------------------------------------------------------------------------------------

template <class T> struct Space {
  Row<T> row;
  double* sums;  // x.z with each center
  T* entries;    // the row of K
  T* totals;     // the second product, before it is added in double
};

GYRFALCON_INLINE size_t rounded_up(size_t x, size_t to) { return (x + to - 1) / to * to; }

template <class T> size_t carve_row(unsigned char* scratch, size_t at, size_t longest, bool norms, Row<T>& row) {
  auto take = [&](size_t bytes) {
    unsigned char* p = scratch + at;
    at += rounded_up(bytes, kAlign);
    return p;
  };
  row.at = reinterpret_cast<uint32_t*>(take(longest * sizeof(uint32_t)));
  row.values = reinterpret_cast<T*>(take(longest * sizeof(T)));
  row.weights = reinterpret_cast<double*>(take(norms ? longest * sizeof(double) : 0));
  return at;
}

template <class T> size_t carve(const SparseJob<T>& job, Space<T>& s) {
  const size_t padded = job.centers.n_padded;
  s.sums = reinterpret_cast<double*>(job.scratch);
  size_t at = rounded_up(padded * sizeof(double), kAlign);
  s.entries = reinterpret_cast<T*>(job.scratch + at);
  at += rounded_up(padded * sizeof(T), kAlign);
  s.totals = reinterpret_cast<T*>(job.scratch + at);
  at += rounded_up(padded * sizeof(T), kAlign);
  return carve_row(job.scratch, at, job.rows.longest, true, s.row);
}

template <class T> size_t scratch_bytes(const SparseJob<T>& job) {
  Space<T> s;
  return carve(job, s);
}

// Sums in T within a few hundred terms, in double beyond.
template <class T> double inner(const T* a, const T* b, size_t length) {
  constexpr size_t W = kWidth<T>, kRun = 128 * W;
  double total = 0;
  for (size_t start = 0; start < length; start += kRun) {
    const size_t stop = length - start < kRun ? length : start + kRun;
    vec_t<T> even = {}, odd = {};
    size_t j = start;
    for (; j + 2 * W <= stop; j += 2 * W) {
      even += load<T>(a + j) * load<T>(b + j);
      odd += load<T>(a + j + W) * load<T>(b + j + W);
    }
    for (; j < stop; j += W) even += load<T>(a + j) * load<T>(b + j);
    total += sum<T>(even + odd);
  }
  return total;
}

template <class T> Status run(const SparseJob<T>& job) {
  const SparseCenters<T>& c = job.centers;
  const bool right = job.verb == kMatvec || job.verb == kSandwich, left = job.verb == kRmatvec || job.verb == kSandwich;
  Space<T> s;
  carve(job, s);
  if (left) memset(s.totals, 0, c.n_padded * sizeof(T));
  const Steps<T>& steps = AllSteps<T, Profiles>::of[int(c.profile)];
  size_t summed = 0;
  for (size_t i = 0; i < job.rows.n_rows; ++i) {
    const Status status = steps.read(c, job.rows, i, s.row);
    if (status != kRead) return status;
    steps.make(c, s.row, s.sums, s.entries);
    if (job.verb == kFill) memcpy(job.out_rows + i * c.n_centers, s.entries, c.n_centers * sizeof(T));
    T factor = left && job.u ? job.u[i] : T(1);
    if (right) {
      const double product = inner(s.entries, job.v, c.n_padded);
      if (job.verb == kMatvec) job.out_rows[i] = T(product);
      factor = T(product * double(factor));
    }
    if (left) {
      const vec_t<T> w = splat<T>(factor);
      for (size_t j = 0; j < c.n_padded; j += kWidth<T>)
        store<T>(s.totals + j, load<T>(s.totals + j) + w * load<T>(s.entries + j));
      if (++summed == kSumRows || i + 1 == job.rows.n_rows) {
        for (size_t j = 0; j < c.n_padded; ++j) job.out_centers[j] += double(s.totals[j]);
        memset(s.totals, 0, c.n_padded * sizeof(T));
        summed = 0;
      }
    }
  }
  return kRead;
}

// ---- the linear kernel: K V = X (C'V) and K'U = C (X'U) ---------------------------------------------------------------

template <class T> size_t carve_linear(const LinearJob<T>& job, Row<T>& row, double*& sums) {
  sums = reinterpret_cast<double*>(job.scratch);
  return carve_row(job.scratch, rounded_up(job.k * sizeof(double), kAlign), job.rows.longest, false, row);
}

template <class T> size_t linear_scratch_bytes(const LinearJob<T>& job) {
  Row<T> row;
  double* sums;
  return carve_linear(job, row, sums);
}

template <class T> Status linear(const LinearJob<T>& job) {
  const bool right = job.verb == kMatvec || job.verb == kSandwich, left = job.verb == kRmatvec || job.verb == kSandwich;
  const SparseCenters<T>& c = job.centers;
  const size_t k = job.k;
  Row<T> row;
  double* sums;
  carve_linear(job, row, sums);
  for (size_t i = 0; i < job.rows.n_rows; ++i) {
    // the order of columns does not matter here, nor do duplicates
    if (read_row<T, Measure::none>(c, job.rows, i, row) != kRead) return kOutside;
    if (right) {
      for (size_t j = 0; j < k; ++j) sums[j] = 0;
      if (k == 1) {
        double sum = 0;
        for (size_t h = 0; h < row.count; ++h) sum += double(row.values[h]) * double(job.P[row.at[h]]);
        sums[0] = sum;
      } else {
        for (size_t h = 0; h < row.count; ++h) {
          const double x = double(row.values[h]);
          const T* p = job.P + size_t(row.at[h]) * k;
          for (size_t j = 0; j < k; ++j) sums[j] += x * double(p[j]);
        }
      }
      if (job.verb == kMatvec)
        for (size_t j = 0; j < k; ++j) job.out_rows[i * k + j] = T(sums[j]);
      if (job.verb == kSandwich && job.u)
        for (size_t j = 0; j < k; ++j) sums[j] *= double(job.u[i]);
    } else {
      for (size_t j = 0; j < k; ++j) sums[j] = double(job.u[i * k + j]);
    }
    if (left)
      for (size_t h = 0; h < row.count; ++h) {
        const Lone<T> lone = c.lone[row.at[h]];
        const bool shared = lone.to & kIsShared;
        const double x = double(row.values[h]) * (shared ? 1.0 : double(lone.value));
        double* to = shared ? job.G + size_t(lone.to & ~kIsShared) * k : job.out_centers + size_t(lone.to) * k;
        for (size_t j = 0; j < k; ++j) to[j] += x * sums[j];
      }
  }
  if (left)
    for (size_t place = 0; place < c.n_shared; ++place) {
      const double* g = job.G + place * k;
      for (size_t e = c.column_start[c.shared[place]]; e < c.column_start[c.shared[place] + 1]; ++e) {
        const double z = double(c.column_values[e]);
        double* to = job.out_centers + size_t(c.column_centers[e]) * k;
        for (size_t j = 0; j < k; ++j) to[j] += z * g[j];
      }
    }
  return kRead;
}

template <class T> void project(const SparseCenters<T>& c, const T* V, size_t k, double* sums, T* P) {
  for (size_t at = 0; at < c.n_columns; ++at) {
    for (size_t j = 0; j < k; ++j) sums[j] = 0;
    for (size_t e = c.column_start[at]; e < c.column_start[at + 1]; ++e) {
      const double z = double(c.column_values[e]);
      const T* v = V + size_t(c.column_centers[e]) * k;
      for (size_t j = 0; j < k; ++j) sums[j] += z * double(v[j]);
    }
    for (size_t j = 0; j < k; ++j) P[at * k + j] = T(sums[j]);
  }
}

template <class T>
constexpr SparseEngine<T> kSparseEngine = {scratch_bytes<T>, run<T>, linear_scratch_bytes<T>, linear<T>, project<T>};

}  // namespace

const SparseEngine<float>& sparse_f() { return kSparseEngine<float>; }
const SparseEngine<double>& sparse_d() { return kSparseEngine<double>; }

}  // namespace GYRFALCON_ISA
}  // namespace gyrfalcon
