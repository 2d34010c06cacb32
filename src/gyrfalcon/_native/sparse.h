// The contract between the bindings of sparse rows (sparse_module.cpp) and their tiles (sparse.cpp).
//
// As in tiles.h: sparse.cpp is compiled once for each instruction set, and nothing here allocates, throws or touches
// Python. Only columns that occur in some center matter for x.z, so these are numbered 0, 1, ... in their order and
// everything else uses these numbers; the other columns of a row contribute to |x|^2 alone.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tiles.h"

namespace gyrfalcon {

// Result of reading rows. Columns must increase within a row where |x|^2 or a difference is needed.
enum Status : int {
  kRead,
  kOutside,  // a column index is not below n_features
  kUnsorted
};

// How the size of a row is measured: none, sum_j x_j^2, sum_j |x_j|.
enum class Measure { none, squares, sizes };

static constexpr Measure measure_of(Geometry geometry) {
  switch (geometry) {
    case kDistance:
    case kDot:
    case kAngle: return Measure::squares;
    case kManhattan: return Measure::sizes;
  }
  __builtin_unreachable();
}

constexpr size_t kPadded = 16;  // n_padded is a multiple of this
constexpr uint32_t kIsShared = 0x80000000u;  // a flag, so that centers and columns are fewer than this
constexpr uint32_t kNoColumn = 0xffffffffu, kNoDenseRow = 0xffffffffu;
static_assert(kNoColumn >= kIsShared && kNoDenseRow >= kIsShared, "these are not the number of any column or row");

// Where a column's part of X'U is added: to the only center with that column, times its value there, or to a sum of the
// column.
template <class T> struct Lone {
  uint32_t to;  // the center; or the number among the shared columns, with kIsShared
  T value;
};

template <class T>
struct SparseCenters {
  size_t n_features, n_centers, n_padded;
  // one bit for each column that occurs; ranks: the number of bits before each word of 64; columns: by number
  const uint64_t* bits;
  const uint32_t* ranks;
  const uint64_t* columns;
  size_t n_columns;
  // by center, columns increasing
  const size_t* center_start;
  const uint32_t* center_columns;
  const T* center_values;
  // by column; a column that many centers have is stored as a dense row, zeros included
  const size_t* column_start;
  const uint32_t* column_centers;
  const T* column_values;
  const uint32_t* dense_of;  // its dense row, or kNoDenseRow
  const T* dense_rows;
  // columns of a single center, and the shared ones, which are numbered again
  const Lone<T>* lone;
  const uint32_t* shared;
  size_t n_shared;
  // one for each padded center
  const double* sizes;          // |z'|^2 / 2; manhattan: sum_j |z'_j|
  const double* inverse_norms;  // 1 / |z|, 0 for the zero vector (angle)
  const T* norms;               // |z| (angle)
  // squared factor of each column; manhattan: the factor itself. One for all (step 0) or one for each (step 1).
  const double* scale;
  size_t scale_step;
  Profile profile;
  Geometry geometry;  // the profile's
  int degree;
  double param0, param1;
};

// CSR; indptr was checked by the bindings, indices are checked as they are read.
template <class T>
struct SparseRows {
  const T* data;
  const void* indices;  // int32 or, if wide, int64
  const void* indptr;
  bool wide;
  size_t n_rows, longest;
};

template <class T>
struct SparseJob {
  SparseCenters<T> centers;
  SparseRows<T> rows;
  Verb verb;
  const T* v;           // n_padded, zeros at the end
  const T* u;           // rmatvec: the left factor; sandwich: the row weights or null
  T* out_rows;          // fill: n_rows x n_centers; matvec: n_rows
  double* out_centers;  // rmatvec, sandwich: n_padded sums, added to
  unsigned char* scratch;
};

// Products of the linear kernel, which never compute K: with P = C'V in the numbered columns and G = X'U in the shared
// ones, k numbers each. Columns of a single center, nearly all in wide data, are added to that center directly.
template <class T>
struct LinearJob {
  SparseCenters<T> centers;
  SparseRows<T> rows;
  Verb verb;      // matvec, rmatvec, sandwich
  size_t k;
  const T* P;     // n_columns x k
  const T* u;     // rmatvec: n_rows x k; sandwich: the row weights or null
  T* out_rows;    // matvec: n_rows x k
  double* G;      // rmatvec, sandwich: n_shared x k, zero before; working memory
  double* out_centers;  // ... n_centers x k, added to
  unsigned char* scratch;
};

template <class T>
struct SparseEngine {
  size_t (*scratch_bytes)(const SparseJob<T>&);
  Status (*run)(const SparseJob<T>&);
  size_t (*linear_scratch_bytes)(const LinearJob<T>&);
  Status (*linear)(const LinearJob<T>&);
  void (*project)(const SparseCenters<T>&, const T* V, size_t k, double* sums, T* P);  // P = C'V
};

namespace baseline { const SparseEngine<float>& sparse_f(); const SparseEngine<double>& sparse_d(); }
namespace avx2 { const SparseEngine<float>& sparse_f(); const SparseEngine<double>& sparse_d(); }
namespace avx512 { const SparseEngine<float>& sparse_f(); const SparseEngine<double>& sparse_d(); }

}  // namespace gyrfalcon
