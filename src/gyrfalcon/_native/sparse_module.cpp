// The bindings of sparse rows. Lengths and indptr are checked here, column indices by the tiles as they read them,
// always before memory outside an array could be accessed. The GIL is released while a block runs.
#include "bindings.h"

using namespace gyrfalcon;

namespace {

// Columns that at least one center in this many has are stored as dense rows, which are that much faster to add.
constexpr size_t kDenseShare = 8;

template <class I> using Index = nb::ndarray<const I, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Check that indptr is not negative, does not decrease and ends within the data; return the length of the longest row.
template <class I> size_t longest_row(const I* indptr, size_t n_rows, size_t stored) {
  require(indptr[0] >= 0, "indptr must not be negative");
  uint64_t longest = 0;
  for (size_t i = 0; i < n_rows; ++i) {
    require(indptr[i + 1] >= indptr[i], "indptr must not decrease");
    const uint64_t length = uint64_t(indptr[i + 1]) - uint64_t(indptr[i]);
    if (length > longest) longest = length;
  }
  require(uint64_t(indptr[n_rows]) <= stored, "indptr points beyond the end of the data");
  return size_t(longest);
}

// The arrays of a CSR matrix, held for as long as they are used.
template <class T> struct Csr {
  Vector<T> data;
  Index<int32_t> narrow_indices, narrow_indptr;
  Index<int64_t> wide_indices, wide_indptr;
  gyrfalcon::SparseRows<T> rows;

  Csr(Vector<T> numbers, nb::object indices, nb::object indptr) : data(numbers), rows{} {
    rows.wide = nb::isinstance<Index<int64_t>>(indices);
    if (rows.wide) {
      hold(indices, indptr, wide_indices, wide_indptr);
    } else {
      hold(indices, indptr, narrow_indices, narrow_indptr);
    }
    rows.data = data.data();
  }

 private:
  template <class I> void hold(nb::object& indices, nb::object& indptr, Index<I>& columns, Index<I>& starts) {
    columns = nb::cast<Index<I>>(indices, false);
    starts = nb::cast<Index<I>>(indptr, false);
    require(columns.shape(0) == data.shape(0), "indices must be as many as the data");
    require(starts.shape(0) > 0, "indptr must have at least one number");
    rows.n_rows = starts.shape(0) - 1;
    rows.longest = longest_row(starts.data(), rows.n_rows, data.shape(0));
    rows.indices = columns.data();
    rows.indptr = starts.data();
  }
};

template <class T> int64_t column_of(const gyrfalcon::SparseRows<T>& rows, size_t k) {
  return rows.wide ? static_cast<const int64_t*>(rows.indices)[k] : static_cast<const int32_t*>(rows.indices)[k];
}
template <class T> size_t start_of(const gyrfalcon::SparseRows<T>& rows, size_t i) {
  return size_t(rows.wide ? static_cast<const int64_t*>(rows.indptr)[i] : static_cast<const int32_t*>(rows.indptr)[i]);
}

// Whether a verb was completed. Rows with unsorted or repeated columns are not: the caller sorts them and tries again.
bool completed(Status status) {
  switch (status) {
    case kRead: return true;
    case kUnsorted: return false;
    case kOutside: throw std::invalid_argument("a column index is outside the features");
  }
  __builtin_unreachable();
}

template <class T> class Sparse {
 public:
  Sparse(Vector<T> data, nb::object indices, nb::object indptr, size_t n_features, Vector<double> scale,
         Profile profile, double param0, double param1, int degree, const std::string& set)
      : engine_(sparse_engine_of<T>(find_set(set))) {
    const Csr<T> given(data, indices, indptr);
    const auto& rows = given.rows;
    require(rows.n_rows > 0 && n_features > 0, "centers must have at least one row and one column");
    require(rows.n_rows < kIsShared && n_features < (uint64_t(1) << 48), "centers are too many or too wide");
    require(scale.shape(0) == 1 || scale.shape(0) == n_features, "scale must be one number, or one for each feature");
    require(degree >= 0 && degree < 1024, "degree must lie between 0 and 1023");
    centers_ = SparseCenters<T>{};
    centers_.n_features = n_features;
    centers_.n_centers = rows.n_rows;
    centers_.n_padded = (rows.n_rows + kPadded - 1) / kPadded * kPadded;
    centers_.geometry = entry_of(profile).geometry;
    centers_.profile = profile;
    centers_.param0 = param0;
    centers_.param1 = param1;
    centers_.degree = degree;
    nb::gil_scoped_release unlocked;
    scale_ = std::make_unique<Buffer<double>>(scale.shape(0));
    for (size_t k = 0; k < scale.shape(0); ++k)
      scale_->get()[k] = in_sizes() ? scale.data()[k] : scale.data()[k] * scale.data()[k];
    centers_.scale = scale_->get();
    centers_.scale_step = scale.shape(0) == 1 ? 0 : 1;
    number_columns(rows);
    keep_by_center(rows);
    keep_by_column();
    keep_lone_columns();
    keep_dense_rows();
    measure();
  }

  bool fill(Vector<T> data, nb::object indices, nb::object indptr, size_t width, OutMatrix<T> out) const {
    const Csr<T> rows(data, indices, indptr);
    SparseJob<T> job = start(rows, width, kFill);
    require(out.shape(0) == rows.rows.n_rows && out.shape(1) == centers_.n_centers, "out must be rows x centers");
    job.out_rows = out.data();
    return finish(job);
  }

  bool matvec(Vector<T> data, nb::object indices, nb::object indptr, size_t width, Vector<T> v,
              OutVector<T> out) const {
    const Csr<T> rows(data, indices, indptr);
    SparseJob<T> job = start(rows, width, kMatvec);
    require(out.shape(0) == rows.rows.n_rows, "out must have one number for each row");
    Buffer<T> padded(centers_.n_padded, true);
    job.v = pad(v, padded);
    job.out_rows = out.data();
    return finish(job);
  }

  bool rmatvec(Vector<T> data, nb::object indices, nb::object indptr, size_t width, Vector<T> u,
               OutVector<double> out) const {
    const Csr<T> rows(data, indices, indptr);
    SparseJob<T> job = start(rows, width, kRmatvec);
    require(u.shape(0) == rows.rows.n_rows, "u must have one number for each row");
    job.u = u.data();
    return finish_sum(job, out);
  }

  bool sandwich(Vector<T> data, nb::object indices, nb::object indptr, size_t width, Vector<T> v, nb::object weight,
                OutVector<double> out) const {
    const Csr<T> rows(data, indices, indptr);
    SparseJob<T> job = start(rows, width, kSandwich);
    Buffer<T> padded(centers_.n_padded, true);
    job.v = pad(v, padded);
    const Vector<T> w = weights(weight, rows.rows.n_rows);
    job.u = w.is_valid() ? w.data() : nullptr;
    return finish_sum(job, out);
  }

  // P = C'V in the columns that occur
  void project(Matrix<T> V, OutMatrix<T> P) const {
    require(V.shape(0) == centers_.n_centers, "V must have one row for each center");
    require(P.shape(0) == centers_.n_columns && P.shape(1) == V.shape(1), "P must be columns x columns of V");
    Buffer<double> sums(V.shape(1));
    nb::gil_scoped_release unlocked;
    engine_.project(centers_, V.data(), V.shape(1), sums.get(), P.data());
  }

  // X P with the rows X and the P of `project`
  void linear_matmat(Vector<T> data, nb::object indices, nb::object indptr, size_t width, Matrix<T> P,
                     OutMatrix<T> out) const {
    const Csr<T> rows(data, indices, indptr);
    LinearJob<T> job = start_linear(rows, width, kMatvec, P.shape(1));
    require(P.shape(0) == centers_.n_columns, "P must have one row for each column that occurs");
    require(out.shape(0) == rows.rows.n_rows && out.shape(1) == job.k, "out must be rows x columns of P");
    job.P = P.data();
    job.out_rows = out.data();
    finish_linear(job);
  }

  // C (X'U)
  void linear_rmatmat(Vector<T> data, nb::object indices, nb::object indptr, size_t width, Matrix<T> U,
                      OutMatrix<double> out) const {
    const Csr<T> rows(data, indices, indptr);
    LinearJob<T> job = start_linear(rows, width, kRmatvec, U.shape(1));
    require(U.shape(0) == rows.rows.n_rows, "U must have one row for each row");
    job.u = U.data();
    finish_lift(job, out);
  }

  // C (X' W X P)
  void linear_sandwich(Vector<T> data, nb::object indices, nb::object indptr, size_t width, Matrix<T> P,
                       nb::object weight, OutMatrix<double> out) const {
    const Csr<T> rows(data, indices, indptr);
    LinearJob<T> job = start_linear(rows, width, kSandwich, P.shape(1));
    require(P.shape(0) == centers_.n_columns, "P must have one row for each column that occurs");
    job.P = P.data();
    const Vector<T> w = weights(weight, rows.rows.n_rows);
    job.u = w.is_valid() ? w.data() : nullptr;
    finish_lift(job, out);
  }

  size_t n_columns() const { return centers_.n_columns; }

 private:
  bool in_sizes() const { return measure_of(centers_.geometry) == Measure::sizes; }

  void number_columns(const gyrfalcon::SparseRows<T>& rows) {
    const size_t words = centers_.n_features / 64 + 1;
    bits_ = std::make_unique<Buffer<uint64_t>>(words, true);
    ranks_ = std::make_unique<Buffer<uint32_t>>(words);
    for (size_t i = 0; i < rows.n_rows; ++i) {
      int64_t previous = -1;
      for (size_t k = start_of(rows, i); k < start_of(rows, i + 1); ++k) {
        const int64_t column = column_of(rows, k);
        require(column >= 0 && uint64_t(column) < centers_.n_features, "a column index is outside the features");
        require(column > previous, "columns of the centers must increase within a row");
        previous = column;
        bits_->get()[column >> 6] |= uint64_t(1) << (column & 63);
      }
    }
    uint64_t count = 0;
    for (size_t w = 0; w < words; ++w) {
      ranks_->get()[w] = uint32_t(count);
      count += uint64_t(__builtin_popcountll(bits_->get()[w]));
      require(count < kIsShared, "centers have too many columns");
    }
    columns_ = std::make_unique<Buffer<uint64_t>>(count);
    size_t at = 0;
    for (size_t w = 0; w < words; ++w)
      for (uint64_t rest = bits_->get()[w]; rest; rest &= rest - 1)
        columns_->get()[at++] = w * 64 + uint64_t(__builtin_ctzll(rest));
    centers_.n_columns = count;
    centers_.bits = bits_->get();
    centers_.ranks = ranks_->get();
    centers_.columns = columns_->get();
  }

  void keep_by_center(const gyrfalcon::SparseRows<T>& rows) {
    const size_t first = start_of(rows, 0), stored = start_of(rows, rows.n_rows) - first;
    center_start_ = std::make_unique<Buffer<size_t>>(rows.n_rows + 1);
    center_columns_ = std::make_unique<Buffer<uint32_t>>(stored);
    center_values_ = std::make_unique<Buffer<T>>(stored);
    for (size_t i = 0; i <= rows.n_rows; ++i) center_start_->get()[i] = start_of(rows, i) - first;
    for (size_t k = 0; k < stored; ++k) {
      const uint64_t column = uint64_t(column_of(rows, first + k)), before = (uint64_t(1) << (column & 63)) - 1;
      center_columns_->get()[k] = centers_.ranks[column >> 6] +
                                  uint32_t(__builtin_popcountll(centers_.bits[column >> 6] & before));
      center_values_->get()[k] = rows.data[first + k];
    }
    centers_.center_start = center_start_->get();
    centers_.center_columns = center_columns_->get();
    centers_.center_values = center_values_->get();
  }

  void keep_by_column() {
    const size_t stored = centers_.center_start[centers_.n_centers], p = centers_.n_columns;
    column_start_ = std::make_unique<Buffer<size_t>>(p + 2, true);
    column_centers_ = std::make_unique<Buffer<uint32_t>>(stored);
    column_values_ = std::make_unique<Buffer<T>>(stored);
    size_t* start = column_start_->get();
    for (size_t k = 0; k < stored; ++k) ++start[centers_.center_columns[k] + 2];
    for (size_t at = 0; at < p; ++at) start[at + 2] += start[at + 1];
    for (size_t i = 0; i < centers_.n_centers; ++i)  // start[at + 1] moves from the beginning of the column to its end
      for (size_t k = centers_.center_start[i]; k < centers_.center_start[i + 1]; ++k) {
        const size_t to = start[centers_.center_columns[k] + 1]++;
        column_centers_->get()[to] = uint32_t(i);
        column_values_->get()[to] = centers_.center_values[k];
      }
    centers_.column_start = start;
    centers_.column_centers = column_centers_->get();
    centers_.column_values = column_values_->get();
  }

  void keep_lone_columns() {
    const size_t p = centers_.n_columns;
    lone_ = std::make_unique<Buffer<Lone<T>>>(p);
    shared_ = std::make_unique<Buffer<uint32_t>>(p);
    for (size_t at = 0; at < p; ++at) {
      const size_t first = centers_.column_start[at];
      if (centers_.column_start[at + 1] - first == 1) {
        lone_->get()[at] = {centers_.column_centers[first], centers_.column_values[first]};
      } else {
        lone_->get()[at] = {uint32_t(centers_.n_shared) | kIsShared, T(0)};
        shared_->get()[centers_.n_shared++] = uint32_t(at);
      }
    }
    centers_.lone = lone_->get();
    centers_.shared = shared_->get();
  }

  void keep_dense_rows() {
    const size_t p = centers_.n_columns, padded = centers_.n_padded;
    dense_of_ = std::make_unique<Buffer<uint32_t>>(p);
    size_t count = 0;
    const bool is_linear = entry_of(centers_.profile).identity;  // computes K too rarely to be worth the memory
    for (size_t at = 0; at < p; ++at) {
      const size_t occurs = centers_.column_start[at + 1] - centers_.column_start[at];
      dense_of_->get()[at] = !is_linear && occurs * kDenseShare >= padded ? uint32_t(count++) : kNoDenseRow;
    }
    dense_rows_ = std::make_unique<Buffer<T>>(product(count, padded), true);
    for (size_t at = 0; at < p; ++at) {
      if (dense_of_->get()[at] == kNoDenseRow) continue;
      T* row = dense_rows_->get() + size_t(dense_of_->get()[at]) * padded;
      for (size_t k = centers_.column_start[at]; k < centers_.column_start[at + 1]; ++k)
        row[centers_.column_centers[k]] = centers_.column_values[k];
    }
    centers_.dense_of = dense_of_->get();
    centers_.dense_rows = dense_rows_->get();
  }

  void measure() {
    sizes_ = std::make_unique<Buffer<double>>(centers_.n_padded, true);
    inverse_norms_ = std::make_unique<Buffer<double>>(centers_.n_padded, true);
    norms_ = std::make_unique<Buffer<T>>(centers_.n_padded, true);
    for (size_t i = 0; i < centers_.n_centers; ++i) {
      double squares = 0, sizes = 0;
      for (size_t k = centers_.center_start[i]; k < centers_.center_start[i + 1]; ++k) {
        const double z = double(centers_.center_values[k]);
        const double scale = centers_.scale[centers_.columns[centers_.center_columns[k]] * centers_.scale_step];
        squares += z * scale * z;
        sizes += scale * __builtin_fabs(z);
      }
      const double size = in_sizes() ? sizes : 0.5 * squares;
      require(centers_.geometry == kDot || size <= 0.85e308, "a center is too large: its squared length overflows");
      sizes_->get()[i] = size;
      inverse_norms_->get()[i] = squares > 0 ? 1 / __builtin_sqrt(squares) : 0.0;
      norms_->get()[i] = T(__builtin_sqrt(squares));
    }
    centers_.sizes = sizes_->get();
    centers_.inverse_norms = inverse_norms_->get();
    centers_.norms = norms_->get();
  }

  SparseJob<T> start(const Csr<T>& rows, size_t width, Verb verb) const {
    require(width == centers_.n_features, "rows and centers must have the same number of features");
    SparseJob<T> job{};
    job.centers = centers_;
    job.rows = rows.rows;
    job.verb = verb;
    return job;
  }

  LinearJob<T> start_linear(const Csr<T>& rows, size_t width, Verb verb, size_t k) const {
    require(width == centers_.n_features, "rows and centers must have the same number of features");
    require(k > 0, "there must be at least one column");
    LinearJob<T> job{};
    job.centers = centers_;
    job.rows = rows.rows;
    job.verb = verb;
    job.k = k;
    return job;
  }

  const T* pad(const Vector<T>& v, Buffer<T>& padded) const {
    require(v.shape(0) == centers_.n_centers, "v must have one number for each center");
    for (size_t j = 0; j < centers_.n_centers; ++j) padded.get()[j] = v.data()[j];
    return padded.get();
  }

  static Vector<T> weights(nb::object& weight, size_t n_rows) {
    Vector<T> w;
    if (!weight.is_none()) {
      w = nb::cast<Vector<T>>(weight, false);
      require(w.shape(0) == n_rows, "weight must have one number for each row");
    }
    return w;
  }

  bool finish(SparseJob<T>& job) const {
    Buffer<unsigned char> scratch(engine_.scratch_bytes(job));
    job.scratch = scratch.get();
    Status status;
    {
      nb::gil_scoped_release unlocked;
      status = engine_.run(job);
    }
    return completed(status);
  }

  bool finish_sum(SparseJob<T>& job, OutVector<double>& out) const {
    require(out.shape(0) == centers_.n_centers, "out must have one number for each center");
    Buffer<double> sums(centers_.n_padded, true);
    job.out_centers = sums.get();
    const bool was_completed = finish(job);
    for (size_t j = 0; j < centers_.n_centers; ++j) out.data()[j] = sums.get()[j];
    return was_completed;
  }

  void finish_linear(LinearJob<T>& job) const {
    Buffer<unsigned char> scratch(engine_.linear_scratch_bytes(job));
    job.scratch = scratch.get();
    Status status;
    {
      nb::gil_scoped_release unlocked;
      status = engine_.linear(job);
    }
    completed(status);
  }

  void finish_lift(LinearJob<T>& job, OutMatrix<double>& out) const {
    require(out.shape(0) == centers_.n_centers && out.shape(1) == job.k, "out must be centers x columns");
    Buffer<unsigned char> scratch(engine_.linear_scratch_bytes(job));
    job.scratch = scratch.get();
    job.out_centers = out.data();
    for (size_t j = 0; j < centers_.n_centers * job.k; ++j) job.out_centers[j] = 0;
    Status status;
    {
      nb::gil_scoped_release unlocked;
      Buffer<double> G(product(centers_.n_shared, job.k), true);
      job.G = G.get();
      status = engine_.linear(job);
    }
    completed(status);
  }

  const SparseEngine<T>& engine_;
  SparseCenters<T> centers_;
  std::unique_ptr<Buffer<uint64_t>> bits_, columns_;
  std::unique_ptr<Buffer<uint32_t>> ranks_, center_columns_, column_centers_, dense_of_, shared_;
  std::unique_ptr<Buffer<Lone<T>>> lone_;
  std::unique_ptr<Buffer<size_t>> center_start_, column_start_;
  std::unique_ptr<Buffer<T>> center_values_, column_values_, dense_rows_, norms_;
  std::unique_ptr<Buffer<double>> sizes_, inverse_norms_, scale_;
};

// Find the indices whose bit is set; bit k is the bit k mod 8 of byte k / 8.
template <class I> void marked(Vector<uint8_t> bits, Index<I> indices, OutVector<bool> out) {
  require(out.shape(0) == indices.shape(0), "out must be as many as the indices");
  require(bits.shape(0) > 0, "there must be at least one byte of bits");
  const uint64_t width = uint64_t(bits.shape(0)) * 8;
  const uint8_t* table = bits.data();
  const I* columns = indices.data();
  bool* result = out.data();
  bool inside = true;
  {
    nb::gil_scoped_release unlocked;
    for (size_t k = 0; k < indices.shape(0); ++k) {
      const uint64_t column = uint64_t(int64_t(columns[k])), at = column < width ? column : 0;
      inside &= column < width;
      result[k] = (table[at >> 3] >> (at & 7)) & 1;
    }
  }
  require(inside, "a column index is outside the features");
}

template <class T> void bind(nb::module_& m, const char* name) {
  using S = Sparse<T>;
#define GYRFALCON_ROWS \
  nb::arg("data").noconvert(), nb::arg("indices"), nb::arg("indptr"), nb::arg("n_features")
  nb::class_<S>(m, name)
      .def(nb::init<Vector<T>, nb::object, nb::object, size_t, Vector<double>, Profile, double, double, int,
                    const std::string&>(),
           GYRFALCON_ROWS, nb::arg("scale").noconvert(), nb::arg("profile").noconvert(), nb::arg("param0"),
           nb::arg("param1"), nb::arg("degree"), nb::arg("instruction_set") = "")
      .def_prop_ro("n_columns", &S::n_columns)
      .def("fill", &S::fill, GYRFALCON_ROWS, nb::arg("out").noconvert())
      .def("matvec", &S::matvec, GYRFALCON_ROWS, nb::arg("v").noconvert(), nb::arg("out").noconvert())
      .def("rmatvec", &S::rmatvec, GYRFALCON_ROWS, nb::arg("u").noconvert(), nb::arg("out").noconvert())
      .def("sandwich", &S::sandwich, GYRFALCON_ROWS, nb::arg("v").noconvert(), nb::arg("weight").none(),
           nb::arg("out").noconvert())
      .def("project", &S::project, nb::arg("V").noconvert(), nb::arg("P").noconvert())
      .def("linear_matmat", &S::linear_matmat, GYRFALCON_ROWS, nb::arg("P").noconvert(), nb::arg("out").noconvert())
      .def("linear_rmatmat", &S::linear_rmatmat, GYRFALCON_ROWS, nb::arg("U").noconvert(), nb::arg("out").noconvert())
      .def("linear_sandwich", &S::linear_sandwich, GYRFALCON_ROWS, nb::arg("P").noconvert(), nb::arg("weight").none(),
           nb::arg("out").noconvert());
#undef GYRFALCON_ROWS
}

}  // namespace

void gyrfalcon::bind_sparse(nb::module_& m) {
  bind<float>(m, "SparseF32");
  bind<double>(m, "SparseF64");
  m.def("marked", &marked<int32_t>, nb::arg("bits").noconvert(), nb::arg("indices").noconvert(),
        nb::arg("out").noconvert());
  m.def("marked", &marked<int64_t>, nb::arg("bits").noconvert(), nb::arg("indices").noconvert(),
        nb::arg("out").noconvert());
}
