// Strips of rows: the memory they take, and rows and centers packed as the tiles of tiles.cpp read them.
#pragma once
#include "columns.h"
#include "profiles.h"

namespace gyrfalcon {
namespace GYRFALCON_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int MR = 12;
#elif defined(__aarch64__)
constexpr int MR = 8;
#else
constexpr int MR = 6;
#endif
// Features of a panel that are used for all tiles of a strip before the next: half of a first cache of 32 kB.
constexpr size_t kFeatureBlock = (16 << 10) / (NV * kVectorBytes);
constexpr size_t kLongRow = 256;           // features from which a strip should have many rows
constexpr size_t kPackedFeatures = 128;    // features packed for all rows of a tile before the next, to stay in L1
constexpr size_t kStripBytes = 192 << 10;  // what a strip may take of L2
constexpr size_t kSumPanels = 64;          // panels summed in T before they go to double
static_assert(NV == 2, "loops over a panel are written out, and unrolled, for two vectors");
static_assert(MR % 2 == 0, "the second product sums even and odd rows of a tile separately");
static_assert(MR % kRightRows == 0, "products with several columns take whole groups of rows");
static_assert(MR <= 12, "loops over the rows of a tile are unrolled at most 12 times");
template <class T> constexpr bool kWholePanels = kPanel<T> * sizeof(T) % kVectorBytes == 0;
static_assert(kWholePanels<float> && kWholePanels<double>, "every panel begins at a whole vector");

// ---- packing --------------------------------------------------------------------------------------------------------

// In the angle geometry rows and centers are divided by their norms (a division, so that a multiple of an axis becomes
// exactly that axis), and the zero vector gets an axis of its own.

// Eight sums side by side, feature k in the (k mod 8)th; a single one would wait for each addition. Rows and centers
// are summed in the same order, so that a row equal to a center has exactly the same norm and direction.
constexpr size_t kParts = 8;
static_assert(kParts == 8, "sum_of is written out for eight parts");
GYRFALCON_INLINE double sum_of(const double (&parts)[kParts]) {
  return ((parts[0] + parts[4]) + (parts[2] + parts[6])) + ((parts[1] + parts[5]) + (parts[3] + parts[7]));
}

template <class T>
void pack_centers(const T* centers, size_t m, size_t d, const T* shift, const T* scale, Geometry geometry, T* panels,
                  T* half_norms, T* norms) {
  const size_t width = kPanel<T>, depth = depth_of(d, geometry);
  for (size_t j = 0; j < m; ++j) {
    const T* z = centers + j * d;
    T* out = panels + j / width * width * depth + j % width;
    double parts[kParts] = {};
    for (size_t k = 0; k < d; ++k) {
      const T value = (z[k] - shift[k]) * scale[k];
      out[k * width] = value;
      parts[k % kParts] += double(value) * double(value);
    }
    const double squares = sum_of(parts);
    const double norm = __builtin_sqrt(squares);
    norms[j] = T(norm);
    half_norms[j] = T(-0.5 * squares);
    if (geometry == kAngle) {
      for (size_t k = 0; k < d; ++k) out[k * width] = norm > 0 ? T(double(out[k * width]) / norm) : T(0);
      out[d * width] = norm > 0 ? T(0) : T(1);
    }
  }
}

// Working memory of a strip, carved from one scratch buffer.
template <class T> struct Strip {
  size_t rows;     // rows of a strip, a multiple of MR
  size_t depth;    // see depth_of
  size_t block;    // features of a block, a multiple of kParts
  T* packed;       // the rows: [feature block][tile][feature][MR], so that a tile reads one stream
  T* half_norms;   // -|x'|^2 / 2
  T* norms;        // |x'|
  T* left;         // the left factor of the second product: [row][column]
  T* tiles;        // kernel entries: [panel][tile][MR][panel width], of as many panels as `tiled_centers` says
  T* row_sums;     // the first product: a vector of partial sums for each row
  double* totals;  // ... and their sums: [row][column]
  T* sums;         // the second product: [panel][column][center]
};

GYRFALCON_INLINE size_t rounded_up(size_t x, size_t to) { return (x + to - 1) / to * to; }

// Centers whose entries a strip holds at once: all for the sandwich, whose second product reads them again.
template <class T> size_t tiled_centers(const Job<T>& job) {
  const size_t chunk = kChunkPanels * kPanel<T>;
  if (job.verb == kSandwich) return job.n_padded;
  return job.n_columns == 1 ? kPanel<T> : job.n_padded < chunk ? job.n_padded : chunk;
}

// Enough rows to use a panel for several tiles once it is fetched, few enough for the strip to stay in L2.
template <class T> size_t strip_rows(const Job<T>& job, size_t depth) {
  const size_t tiled = job.verb == kSandwich || job.n_columns > 1 ? tiled_centers(job) : 0;
  const size_t per_row = (depth + tiled) * sizeof(T);
  // centers, and columns, that do not fit in L2 beside the strip are read from L3 once for each strip
  const size_t least = depth > kLongRow || job.n_columns > kCachedColumns               ? 48
                       : (depth + job.n_columns - 1) * job.n_padded * sizeof(T) > kStripBytes ? 24
                                                                                        : 12;
  const size_t most = 96;
  size_t rows = kStripBytes / per_row;
  rows = rows < least ? least : rows > most ? most : rows;
  return rows < MR ? MR : rows / MR * MR;
}

template <class T> size_t carve(const Job<T>& job, Strip<T>& s) {
  const size_t k = job.n_columns;
  s.depth = job.block || job.half_block ? 0 : depth_of(job.n_features, job.geometry);
  s.rows = strip_rows(job, s.depth);
  const bool one_block = s.depth <= kFeatureBlock + kFeatureBlock / 2;
  const size_t blocks = one_block ? 1 : (s.depth + kFeatureBlock - 1) / kFeatureBlock;
  s.block = rounded_up((s.depth + blocks - 1) / blocks, kParts);
  size_t at = 0;
  auto take = [&](size_t bytes) {
    unsigned char* p = job.scratch + at;
    at += rounded_up(bytes, kAlign);
    return p;
  };
  s.packed = reinterpret_cast<T*>(take(s.rows * s.depth * sizeof(T)));
  s.half_norms = reinterpret_cast<T*>(take(s.rows * sizeof(T)));
  s.norms = reinterpret_cast<T*>(take(s.rows * sizeof(T)));
  s.left = reinterpret_cast<T*>(take(s.rows * k * sizeof(T)));
  s.totals = reinterpret_cast<double*>(take(s.rows * k * sizeof(double)));
  s.row_sums = reinterpret_cast<T*>(take(s.rows * kVectorBytes));
  s.sums = reinterpret_cast<T*>(take(job.n_padded * k * sizeof(T)));
  s.tiles = reinterpret_cast<T*>(take((k > 1 ? s.rows + 1 : s.rows) * tiled_centers(job) * sizeof(T)));
  return at;
}

template <class T> size_t scratch_bytes(const Job<T>& job) {
  Strip<T> s;
  return carve(job, s);
}

// Pack `count` features of a row from number `k` on, MR numbers apart, and add their squares.
template <class T>
GYRFALCON_INLINE void pack_features(const Job<T>& job, const T* x, size_t k, size_t count, T* out,
                                    double (&parts)[kParts]) {
  const size_t last = k + count;
  for (; k + kParts <= last; k += kParts, out += kParts * MR) {
    T values[kParts];
    for (size_t j = 0; j < kParts; ++j) values[j] = (x[k + j] - job.shift[k + j]) * job.scale[k + j];
    for (size_t j = 0; j < kParts; ++j) parts[j] += double(values[j]) * double(values[j]);
    for (size_t j = 0; j < kParts; ++j) out[j * MR] = values[j];
  }
  for (; k < last; ++k, out += MR) {
    const T value = (x[k] - job.shift[k]) * job.scale[k];
    parts[k % kParts] += double(value) * double(value);
    *out = value;
  }
}

template <class T>
__attribute__((noinline)) void pack_rows(const Job<T>& job, const Strip<T>& s, size_t start, size_t count) {
  static_assert(kPackedFeatures % kParts == 0, "feature k goes to part k mod 8");
  const size_t padded = rounded_up(count, MR), d = job.n_features;
  for (size_t first = 0; first < padded; first += MR) {
    const size_t known = count - first < MR ? count - first : MR;
    double parts[MR][kParts] = {};
    // A tile's lines are written by each of its rows, so a few of them at a time.
    for (size_t k0 = 0; k0 < s.depth; k0 += s.block) {
      const size_t length = s.depth - k0 < s.block ? s.depth - k0 : s.block;
      T* const tile = s.packed + k0 * padded + first * length;
      if (known < MR) memset(tile, 0, length * MR * sizeof(T));
      const size_t given = d - k0 < length ? d - k0 : length;
      for (size_t k = 0; k < given; k += kPackedFeatures) {
        const size_t some = given - k < kPackedFeatures ? given - k : kPackedFeatures;
        for (size_t r = 0; r < known; ++r)
          pack_features(job, job.rows + (start + first + r) * d, k0 + k, some, tile + k * MR + r, parts[r]);
      }
    }
    for (size_t r = 0; r < MR; ++r) {
      const double squares = sum_of(parts[r]);
      const double norm = __builtin_sqrt(squares);
      s.norms[first + r] = T(norm);
      s.half_norms[first + r] = T(-0.5 * squares);
      if (job.geometry == kAngle && r < known) {
        auto at = [&](size_t k) -> T& {
          const size_t k0 = k / s.block * s.block, length = s.depth - k0 < s.block ? s.depth - k0 : s.block;
          return s.packed[k0 * padded + first * length + (k - k0) * MR + r];
        };
        for (size_t k = 0; k < d; ++k) at(k) = norm > 0 ? T(double(at(k)) / norm) : T(0);
        at(d) = norm > 0 ? T(0) : T(1);
      }
    }
  }
}

}  // namespace
}  // namespace GYRFALCON_ISA
}  // namespace gyrfalcon
