// The bindings: shapes are checked here, before any pointer is passed to the tile kernels. The GIL is released while a
// block runs.
#include "bindings.h"

using namespace gyrfalcon;

namespace {

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const Set& set : available_sets()) names.emplace_back(set.name);
  return names;
}

// A job with several columns: their layout, which is that of the panels, is made and undone here.
template <class T> class Columns {
 public:
  Columns(const Engine<T>& engine, Job<T>& job) : engine_(engine), job_(job) {}

  Columns& right(const Matrix<T>& v) {
    require(v.shape(0) == job_.n_centers, "v must have one row for each center");
    set_columns(v.shape(1));
    const size_t k = job_.n_columns, chunk = gyrfalcon::kChunkPanels * engine_.panel_width;
    v_ = std::make_unique<Buffer<T>>(product(job_.n_padded, k), true);
    for (size_t first = 0; first < job_.n_centers; first += chunk) {
      const size_t length = job_.n_padded - first < chunk ? job_.n_padded - first : chunk;
      const size_t known = job_.n_centers - first < chunk ? job_.n_centers - first : chunk;
      T* const to = v_->get() + first * k;
      // a cache line of centers at a time: columns are a power of two apart, and push each other out of the cache
      constexpr size_t line = kBufferAlign / sizeof(T);
      for (size_t j0 = 0; j0 < known; j0 += line) {
        const size_t j1 = known - j0 < line ? known : j0 + line;
        for (size_t c = 0; c < k; ++c)
          for (size_t j = j0; j < j1; ++j) to[c * length + j] = v.data()[(first + j) * k + c];
      }
    }
    job_.v = v_->get();
    return *this;
  }

  Columns& left(const Matrix<T>& u) {
    require(u.shape(0) == job_.n_rows, "u must have one row for each row");
    set_columns(u.shape(1));
    job_.u = u.data();
    return *this;
  }

  Columns& weight(const nb::object& weight) {
    if (weight.is_none()) return *this;
    weight_ = nb::cast<Vector<T>>(weight, false);
    require(weight_.shape(0) == job_.n_rows, "weight must have one number for each row");
    job_.u = weight_.data();
    return *this;
  }

  Columns& added(const nb::object& added) {
    if (added.is_none()) return *this;
    added_ = nb::cast<Matrix<T>>(added, false);
    require(added_.shape(0) == job_.n_rows && added_.shape(1) == job_.n_columns, "added must be rows x columns");
    job_.added = added_.data();
    return *this;
  }

  void run_rows(OutMatrix<T>& out) {
    require(out.shape(0) == job_.n_rows && out.shape(1) == job_.n_columns, "out must be rows x columns");
    job_.out_rows = out.data();
    start();
  }

  void run_centers(OutMatrix<double>& out) {
    const size_t k = job_.n_columns, width = engine_.panel_width;
    require(out.shape(0) == job_.n_centers && out.shape(1) == k, "out must be centers x columns");
    Buffer<double> sums(product(job_.n_padded, k), true);
    job_.out_centers = sums.get();
    start();
    for (size_t j = 0; j < job_.n_centers; ++j)
      for (size_t c = 0; c < k; ++c) out.data()[j * k + c] = sums.get()[(j / width * k + c) * width + j % width];
  }

 private:
  void set_columns(size_t k) {
    require(k > 1, "there must be at least two columns: one is a vector");
    job_.n_columns = k;
  }

  void start() {
    if (job_.n_rows == 0) return;
    Buffer<unsigned char> scratch(engine_.scratch_bytes(job_));
    job_.scratch = scratch.get();
    nb::gil_scoped_release unlocked;
    engine_.run(job_);
  }

  const Engine<T>& engine_;
  Job<T>& job_;
  std::unique_ptr<Buffer<T>> v_;
  Vector<T> weight_;
  Matrix<T> added_;
};

template <class T> class Centers {
 public:
  Centers(Matrix<T> centers, Vector<T> shift, Vector<T> scale, Profile profile, double param0, double param1,
          int degree, bool difference, const std::string& set)
      : engine_(engine_of<T>(find_set(set))),
        m_(centers.shape(0)),
        d_(centers.shape(1)),
        padded_((m_ + engine_.panel_width - 1) / engine_.panel_width * engine_.panel_width),
        panels_(product(padded_, gyrfalcon::depth_of(d_, entry_of(profile).geometry)), true),
        half_norms_(padded_, true),
        norms_(padded_, true),
        shift_(d_),
        scale_(d_) {
    require(m_ > 0 && d_ > 0, "centers must have at least one row and one column");
    require(shift.shape(0) == d_ && scale.shape(0) == d_, "shift and scale must have one number for each feature");
    require(degree >= 0 && degree < 1024, "degree must lie between 0 and 1023");
    for (size_t k = 0; k < d_; ++k) {
      shift_.get()[k] = shift.data()[k];
      scale_.get()[k] = scale.data()[k];
    }
    job_ = Job<T>{};
    job_.n_features = d_;
    job_.shift = shift_.get();
    job_.scale = scale_.get();
    job_.panels = panels_.get();
    job_.half_norms = half_norms_.get();
    job_.norms = norms_.get();
    job_.n_centers = m_;
    job_.n_padded = padded_;
    job_.n_columns = 1;
    job_.profile = profile;
    job_.geometry = entry_of(profile).geometry;
    job_.degree = degree;
    job_.param0 = param0;
    job_.param1 = param1;
    job_.difference = difference;
    nb::gil_scoped_release unlocked;
    engine_.pack(centers.data(), m_, d_, shift_.get(), scale_.get(), job_.geometry, panels_.get(),
                 half_norms_.get(), norms_.get());
  }

  void fill(Matrix<T> rows, OutMatrix<T> out) const {
    Job<T> job = start(rows, gyrfalcon::kFill);
    require(out.shape(0) == job.n_rows && out.shape(1) == m_, "out must be rows x centers");
    job.out_rows = out.data();
    finish(job);
  }

  void matvec(Matrix<T> rows, Vector<T> v, OutVector<T> out) const {
    Job<T> job = start(rows, gyrfalcon::kMatvec);
    require(out.shape(0) == job.n_rows, "out must have one number for each row");
    Buffer<T> padded(padded_, true);
    job.v = pad(v, padded);
    job.out_rows = out.data();
    finish(job);
  }

  void rmatvec(Matrix<T> rows, Vector<T> u, OutVector<double> out) const {
    Job<T> job = start(rows, gyrfalcon::kRmatvec);
    require(u.shape(0) == job.n_rows, "u must have one number for each row");
    job.u = u.data();
    finish_sum(job, out);
  }

  void sandwich(Matrix<T> rows, Vector<T> v, nb::object weight, OutVector<double> out, nb::object added) const {
    Job<T> job = start(rows, gyrfalcon::kSandwich);
    Buffer<T> padded(padded_, true);
    job.v = pad(v, padded);
    Vector<T> w;
    if (!weight.is_none()) {
      w = nb::cast<Vector<T>>(weight, false);
      require(w.shape(0) == job.n_rows, "weight must have one number for each row");
      job.u = w.data();
    }
    Vector<T> a;
    if (!added.is_none()) {
      a = nb::cast<Vector<T>>(added, false);
      require(a.shape(0) == job.n_rows, "added must have one number for each row");
      job.added = a.data();
    }
    finish_sum(job, out);
  }

  // The same with several columns.
  void matmat(Matrix<T> rows, Matrix<T> v, OutMatrix<T> out) const {
    Job<T> job = start(rows, gyrfalcon::kMatvec);
    Columns<T>(engine_, job).right(v).run_rows(out);
  }

  void rmatmat(Matrix<T> rows, Matrix<T> u, OutMatrix<double> out) const {
    Job<T> job = start(rows, gyrfalcon::kRmatvec);
    Columns<T>(engine_, job).left(u).run_centers(out);
  }

  void sandwich_columns(Matrix<T> rows, Matrix<T> v, nb::object weight, OutMatrix<double> out, nb::object added) const {
    Job<T> job = start(rows, gyrfalcon::kSandwich);
    Columns<T>(engine_, job).right(v).weight(weight).added(added).run_centers(out);
  }

 private:
  Job<T> start(const Matrix<T>& rows, Verb verb) const {
    require(rows.shape(1) == d_, "rows and centers must have the same number of features");
    Job<T> job = job_;
    job.rows = rows.data();
    job.n_rows = rows.shape(0);
    job.verb = verb;
    return job;
  }

  const T* pad(const Vector<T>& v, Buffer<T>& padded) const {
    require(v.shape(0) == m_, "v must have one number for each center");
    for (size_t j = 0; j < m_; ++j) padded.get()[j] = v.data()[j];
    return padded.get();
  }

  void finish(Job<T>& job) const {
    if (job.n_rows == 0) return;
    Buffer<unsigned char> scratch(engine_.scratch_bytes(job));
    job.scratch = scratch.get();
    nb::gil_scoped_release unlocked;
    engine_.run(job);
  }

  void finish_sum(Job<T>& job, OutVector<double>& out) const {
    require(out.shape(0) == m_, "out must have one number for each center");
    Buffer<double> sums(padded_, true);
    job.out_centers = sums.get();
    finish(job);
    for (size_t j = 0; j < m_; ++j) out.data()[j] = sums.get()[j];
  }

  const Engine<T>& engine_;
  size_t m_, d_, padded_;
  Buffer<T> panels_, half_norms_, norms_, shift_, scale_;
  Job<T> job_;
};

template <class T>
void dense(const std::string& set, Verb verb, Matrix<T> block, nb::object v, nb::object u, nb::object out,
           nb::object added) {
  const Engine<T>& engine = engine_of<T>(find_set(set));
  const size_t n = block.shape(0), m = block.shape(1);
  require(verb != gyrfalcon::kFill, "verb must not be fill: the block is already computed");
  Vector<T> right, left;
  if (verb != gyrfalcon::kRmatvec) {
    right = nb::cast<Vector<T>>(v, false);
    require(right.shape(0) == m, "v must have one number for each center");
  }
  if (verb == gyrfalcon::kRmatvec || (verb == gyrfalcon::kSandwich && !u.is_none())) {
    left = nb::cast<Vector<T>>(u, false);
    require(left.shape(0) == n, "u must have one number for each row");
  }
  Vector<T> extra;
  if (!added.is_none()) {
    require(verb == gyrfalcon::kSandwich, "added is for the sandwich alone");
    extra = nb::cast<Vector<T>>(added, false);
    require(extra.shape(0) == n, "added must have one number for each row");
  }
  OutVector<T> out_rows;
  OutVector<double> out_centers;
  if (verb == gyrfalcon::kMatvec) {
    out_rows = nb::cast<OutVector<T>>(out, false);
    require(out_rows.shape(0) == n, "out must have one number for each row");
  } else {
    out_centers = nb::cast<OutVector<double>>(out, false);
    require(out_centers.shape(0) == m, "out must have one number for each center");
    for (size_t j = 0; j < m; ++j) out_centers.data()[j] = 0;
  }
  if (n == 0) return;
  Buffer<T> sums(m);
  const T* left_data = left.is_valid() ? left.data() : nullptr;
  const T* right_data = right.is_valid() ? right.data() : nullptr;
  const T* extra_data = extra.is_valid() ? extra.data() : nullptr;
  T* rows_data = out_rows.is_valid() ? out_rows.data() : nullptr;
  double* centers_data = out_centers.is_valid() ? out_centers.data() : nullptr;
  nb::gil_scoped_release unlocked;
  engine.dense(verb, block.data(), n, m, right_data, left_data, extra_data, rows_data, centers_data,
               sums.get());
}

// Products of several columns with a stored block.
template <class T> Job<T> stored_shape(const Engine<T>& engine, Verb verb, size_t n_rows, size_t n_centers) {
  require(n_centers > 0, "a block must have at least one center");
  Job<T> job{};
  job.n_rows = n_rows;
  job.n_centers = n_centers;
  job.n_padded = (job.n_centers + engine.panel_width - 1) / engine.panel_width * engine.panel_width;
  job.verb = verb;
  return job;
}

template <class T> Job<T> stored(const Engine<T>& engine, Verb verb, const Matrix<T>& block) {
  Job<T> job = stored_shape(engine, verb, block.shape(0), block.shape(1));
  job.block = block.data();
  return job;
}

template <class T> void dense_matmat(const std::string& set, Matrix<T> block, Matrix<T> v, OutMatrix<T> out) {
  const Engine<T>& engine = engine_of<T>(find_set(set));
  Job<T> job = stored(engine, gyrfalcon::kMatvec, block);
  Columns<T>(engine, job).right(v).run_rows(out);
}

template <class T> void dense_rmatmat(const std::string& set, Matrix<T> block, Matrix<T> u, OutMatrix<double> out) {
  const Engine<T>& engine = engine_of<T>(find_set(set));
  Job<T> job = stored(engine, gyrfalcon::kRmatvec, block);
  Columns<T>(engine, job).left(u).run_centers(out);
}

template <class T>
void dense_sandwich(const std::string& set, Matrix<T> block, Matrix<T> v, nb::object weight, OutMatrix<double> out,
                    nb::object added) {
  const Engine<T>& engine = engine_of<T>(find_set(set));
  Job<T> job = stored(engine, gyrfalcon::kSandwich, block);
  Columns<T>(engine, job).right(v).weight(weight).added(added).run_centers(out);
}

// Entries in 16 bits, whose meaning fixed16.h alone knows.
const Engine<float>& halving(const std::string& set) {
  const Engine<float>& engine = engine_of<float>(find_set(set));
  require(engine.narrow != nullptr, "this instruction set cannot convert entries of 16 bits");
  return engine;
}

void narrow(const std::string& set, Matrix<float> block, OutMatrix<uint16_t> out) {
  const Engine<float>& engine = halving(set);
  require(out.shape(0) == block.shape(0) && out.shape(1) == block.shape(1), "out must have the shape of the block");
  nb::gil_scoped_release unlocked;
  engine.narrow(block.data(), block.size(), out.data());
}

void half_sandwich(const std::string& set, Matrix<uint16_t> block, Matrix<float> v, nb::object weight,
                   OutMatrix<double> out) {
  const Engine<float>& engine = halving(set);
  Job<float> job = stored_shape(engine, gyrfalcon::kSandwich, block.shape(0), block.shape(1));
  job.half_block = block.data();
  if (v.shape(1) != 1) return Columns<float>(engine, job).right(v).weight(weight).run_centers(out);
  require(v.shape(0) == job.n_centers, "v must have one row for each center");
  require(out.shape(0) == job.n_centers && out.shape(1) == 1, "out must be centers x columns");
  Vector<float> w;
  if (!weight.is_none()) {
    w = nb::cast<Vector<float>>(weight, false);
    require(w.shape(0) == job.n_rows, "weight must have one number for each row");
  }
  for (size_t j = 0; j < job.n_centers; ++j) out.data()[j] = 0;
  if (job.n_rows == 0) return;
  Buffer<float> sums(job.n_centers);
  const float* const w_data = w.is_valid() ? w.data() : nullptr;
  nb::gil_scoped_release unlocked;
  engine.half_sandwich(block.data(), job.n_rows, job.n_centers, v.data(), w_data, out.data(), sums.get());
}

template <class T>
void signed_sums(const std::string& set, Matrix<T> block, Matrix<T> rows, Matrix<T> centers, Matrix<T> coef,
                 OutCube<T> out) {
  const Set& found = find_set(set);
  SignJob<T> job{};
  job.block = block.data();
  job.rows = rows.data();
  job.centers = centers.data();
  job.coef = coef.data();
  job.n_rows = block.shape(0);
  job.n_centers = block.shape(1);
  job.n_features = rows.shape(1);
  job.n_columns = coef.shape(0);
  job.out = out.data();
  require(rows.shape(0) == job.n_rows, "rows must be as many as those of the block");
  require(centers.shape(0) == job.n_features && centers.shape(1) == job.n_centers, "centers must be features x centers");
  require(coef.shape(1) == job.n_centers, "coef must be columns x centers");
  require(out.shape(0) == job.n_rows && out.shape(1) == job.n_features && out.shape(2) == job.n_columns,
          "out must be rows x features x columns");
  Buffer<T> scratch(product(kSignRows, job.n_centers));
  job.scratch = scratch.get();
  nb::gil_scoped_release unlocked;
  sign_sums(found, job);
}

void shapley_sums(const std::string& set, Cube<double> z, Cube<double> b, Vector<double> nodes, Vector<double> weights,
                  OutCube<double> out) {
  const Set& found = find_set(set);
  ShapleyJob job{};
  job.z = z.data();
  job.b = b.data();
  job.nodes = nodes.data();
  job.weights = weights.data();
  job.n_rows = z.shape(0);
  job.n_background = b.shape(0);
  job.n_groups = z.shape(1);
  job.n_centers = z.shape(2);
  job.n_nodes = nodes.shape(0);
  job.out = out.data();
  require(b.shape(1) == job.n_groups && b.shape(2) == job.n_centers, "b must have the groups and centers of z");
  require(job.n_nodes > 0 && weights.shape(0) == job.n_nodes, "there must be as many weights as nodes, and at least one");
  require(out.shape(0) == job.n_rows && out.shape(1) == job.n_groups && out.shape(2) == job.n_centers,
          "out must have the shape of z");
  Buffer<double> scratch(product(product(kShapleyBuffers, kShapleyLanes), job.n_groups));
  job.scratch = scratch.get();
  nb::gil_scoped_release unlocked;
  found.shapley(job);
}

template <class T> void bind(nb::module_& m, const char* name) {
  nb::class_<Centers<T>>(m, name)
      .def(nb::init<Matrix<T>, Vector<T>, Vector<T>, Profile, double, double, int, bool, const std::string&>(),
           nb::arg("centers"), nb::arg("shift"), nb::arg("scale"), nb::arg("profile").noconvert(),
           nb::arg("param0"), nb::arg("param1"), nb::arg("degree"), nb::arg("difference"),
           nb::arg("instruction_set") = "")
      .def("fill", &Centers<T>::fill, nb::arg("rows").noconvert(), nb::arg("out").noconvert())
      .def("matvec", &Centers<T>::matvec, nb::arg("rows").noconvert(), nb::arg("v").noconvert(),
           nb::arg("out").noconvert())
      .def("rmatvec", &Centers<T>::rmatvec, nb::arg("rows").noconvert(), nb::arg("u").noconvert(),
           nb::arg("out").noconvert())
      .def("sandwich", &Centers<T>::sandwich, nb::arg("rows").noconvert(), nb::arg("v").noconvert(),
           nb::arg("weight").none(), nb::arg("out").noconvert(), nb::arg("added") = nb::none())
      .def("matmat", &Centers<T>::matmat, nb::arg("rows").noconvert(), nb::arg("v").noconvert(),
           nb::arg("out").noconvert())
      .def("rmatmat", &Centers<T>::rmatmat, nb::arg("rows").noconvert(), nb::arg("u").noconvert(),
           nb::arg("out").noconvert())
      .def("sandwich_columns", &Centers<T>::sandwich_columns, nb::arg("rows").noconvert(), nb::arg("v").noconvert(),
           nb::arg("weight").none(), nb::arg("out").noconvert(), nb::arg("added") = nb::none());
  m.def("signed_sums", &signed_sums<T>, nb::arg("instruction_set"), nb::arg("block").noconvert(),
        nb::arg("rows").noconvert(), nb::arg("centers").noconvert(), nb::arg("coef").noconvert(),
        nb::arg("out").noconvert());
  m.def("dense_matmat", &dense_matmat<T>, nb::arg("instruction_set"), nb::arg("block").noconvert(),
        nb::arg("v").noconvert(), nb::arg("out").noconvert());
  m.def("dense_rmatmat", &dense_rmatmat<T>, nb::arg("instruction_set"), nb::arg("block").noconvert(),
        nb::arg("u").noconvert(), nb::arg("out").noconvert());
  m.def("dense_sandwich", &dense_sandwich<T>, nb::arg("instruction_set"), nb::arg("block").noconvert(),
        nb::arg("v").noconvert(), nb::arg("weight").none(), nb::arg("out").noconvert(),
        nb::arg("added") = nb::none());
  m.def("dense", &dense<T>, nb::arg("instruction_set"), nb::arg("verb").noconvert(), nb::arg("block").noconvert(),
        nb::arg("v").none(), nb::arg("u").none(), nb::arg("out"), nb::arg("added") = nb::none());
}

// out[i] = upper half of sum_j words[i][j] multipliers[j] mod 2^64, or 1 where that is 0: see sources/rereading.py.
void hash_rows(const Matrix<uint32_t>& words, const Vector<uint64_t>& multipliers, const OutVector<uint32_t>& out) {
  const size_t n = words.shape(0), width = words.shape(1);
  require(multipliers.shape(0) == width, "there must be a multiplier for each word of a row");
  require(out.shape(0) == n, "out must have one number for each row");
  const uint32_t* row = words.data();
  const uint64_t* const by = multipliers.data();
  uint32_t* const to = out.data();
  nb::gil_scoped_release release;
  for (size_t i = 0; i < n; ++i, row += width) {
    uint64_t sum = 0;
    for (size_t j = 0; j < width; ++j) sum += row[j] * by[j];
    const uint32_t hash = uint32_t(sum >> 32);
    to[i] = hash != 0 ? hash : 1;
  }
}

const char* geometry(Profile profile) {
  switch (entry_of(profile).geometry) {
    case kDistance: return "distance";
    case kDot: return "dot";
    case kAngle: return "angle";
    case kManhattan: return "manhattan";
  }
  __builtin_unreachable();
}

// Python gets profiles and verbs from these enums alone, so that it cannot ask for one that does not exist.
void bind_enums(nb::module_& m) {
  nb::enum_<Verb>(m, "Verb", "A product with K.")
      .value("fill", kFill)
      .value("matvec", kMatvec)
      .value("rmatvec", kRmatvec)
      .value("sandwich", kSandwich);
  nb::enum_<Profile> profiles(m, "Profile", "Kernels that tiles can compute.");
  for (int i = 0; i < baseline::engine_f().n_profiles; ++i)
    profiles.value(baseline::engine_f().profiles[i].name, Profile(i));
  m.def("geometry", &geometry, nb::arg("profile").noconvert(), "Return what a profile is a function of.");
}

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "Fused kernel products on tiles: the native core of Gyrfalcon.";
  m.def("instruction_sets", &instruction_sets, "Return the instruction sets of this processor, best first.");
  bind_enums(m);
  m.def("shapley_sums", &shapley_sums, nb::arg("instruction_set"), nb::arg("z").noconvert(), nb::arg("b").noconvert(),
        nb::arg("nodes").noconvert(), nb::arg("weights").noconvert(), nb::arg("out").noconvert());
  bind<float>(m, "CentersF32");
  bind<double>(m, "CentersF64");
  m.def("narrow", &narrow, nb::arg("instruction_set"), nb::arg("block").noconvert(), nb::arg("out").noconvert());
  m.def("half_sandwich", &half_sandwich, nb::arg("instruction_set"), nb::arg("block").noconvert(),
        nb::arg("v").noconvert(), nb::arg("weight").none(), nb::arg("out").noconvert());
  m.def("hash_rows", &hash_rows, nb::arg("words").noconvert(), nb::arg("multipliers").noconvert(),
        nb::arg("out").noconvert(), "Hash the rows of a matrix of words.");
  bind_sparse(m);
  bind_trees(m);
  bind_boosting(m);
}
