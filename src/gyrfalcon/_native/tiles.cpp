// The fused tile kernels: a strip of rows against all centers, kernel entries computed in registers and used at once.
//
// For a strip of a few rows (packed, centered and scaled on the way in) and each panel of centers, a register tile of
// MR rows x NR centers is accumulated, turned into kernel entries by a profile, multiplied into the first product, and,
// for the sandwich, left in a strip buffer that the second product reads back from L2 as soon as the strip is complete.
// Sums are in T within a few hundred terms and in double beyond, so that rounding errors do not grow with n.
#include "columns.h"
#include "half.h"
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
constexpr size_t kFeatureBlock = 256;      // features a panel keeps in L1
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
  const size_t least = depth > kFeatureBlock || job.n_columns > kCachedColumns          ? 48
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

template <class T>
__attribute__((noinline)) void pack_rows(const Job<T>& job, const Strip<T>& s, size_t start, size_t count) {
  const size_t padded = rounded_up(count, MR), d = job.n_features;
  for (size_t i = 0; i < padded; ++i) {
    const T* x = job.rows + (start + i) * d;
    auto at = [&](size_t k) -> T& {
      const size_t k0 = k / s.block * s.block, length = s.depth - k0 < s.block ? s.depth - k0 : s.block;
      return s.packed[k0 * padded + (i / MR * length + (k - k0)) * MR + i % MR];
    };
    if (i >= count) {
      for (size_t k = 0; k < s.depth; ++k) at(k) = T(0);
      s.half_norms[i] = s.norms[i] = T(0);
      continue;
    }
    double parts[kParts] = {};
    for (size_t k0 = 0; k0 < d; k0 += s.block) {
      const size_t k1 = d - k0 < s.block ? d : k0 + s.block;
      T* out = &at(k0);
      size_t k = k0;
      for (; k + kParts <= k1; k += kParts, out += kParts * MR) {
        T values[kParts];
        for (size_t j = 0; j < kParts; ++j) values[j] = (x[k + j] - job.shift[k + j]) * job.scale[k + j];
        for (size_t j = 0; j < kParts; ++j) parts[j] += double(values[j]) * double(values[j]);
        for (size_t j = 0; j < kParts; ++j) out[j * MR] = values[j];
      }
      for (; k < k1; ++k, out += MR) {
        const T value = (x[k] - job.shift[k]) * job.scale[k];
        parts[k % kParts] += double(value) * double(value);
        *out = value;
      }
    }
    const double squares = sum_of(parts);
    const double norm = __builtin_sqrt(squares);
    s.norms[i] = T(norm);
    s.half_norms[i] = T(-0.5 * squares);
    if (job.geometry == kAngle) {
      for (size_t k = 0; k < d; ++k) at(k) = norm > 0 ? T(double(at(k)) / norm) : T(0);
      at(d) = norm > 0 ? T(0) : T(1);
    }
  }
}

// ---- the tile ---------------------------------------------------------------------------------------------------------

// How the argument of the profile is accumulated.
enum class Form {
  dot,       // x'.z'
  expanded,  // x'.z' - |x'|^2 / 2 - |z'|^2 / 2
  squares,   // -|x' - z'|^2
  sizes      // -sum_j |x'_j - z'_j|
};

constexpr Form form_of(Geometry geometry, bool difference) {
  switch (geometry) {
    case kDistance: return difference ? Form::squares : Form::expanded;
    case kDot: return Form::dot;
    case kAngle: return Form::squares;
    case kManhattan: return Form::sizes;
  }
  __builtin_unreachable();
}

// Add the terms of `count` features.
template <class T, Form kForm>
GYRFALCON_INLINE void accumulate(vec_t<T> (&acc)[MR][NV], const T* rows, const T* panel, size_t count) {
#pragma GCC unroll 4
  for (size_t k = 0; k < count; ++k) {
    vec_t<T> z[NV];
#pragma GCC unroll 2
    for (int j = 0; j < NV; ++j) z[j] = load<T>(panel + j * kWidth<T>);
#pragma GCC unroll 12
    for (int r = 0; r < MR; ++r) {
      const vec_t<T> x = splat<T>(rows[r]);
#pragma GCC unroll 2
      for (int j = 0; j < NV; ++j) {
        if constexpr (kForm == Form::squares) {
          const vec_t<T> t = x - z[j];
          acc[r][j] -= t * t;
        } else if constexpr (kForm == Form::sizes) {
          acc[r][j] += minus_size<T>(x - z[j]);
        } else {
          static_assert(kForm == Form::dot || kForm == Form::expanded);
          acc[r][j] += x * z[j];
        }
      }
    }
    rows += MR;
    panel += kPanel<T>;
  }
}

// Compute the arguments of the profile for one panel and all tiles of the strip, in `tiles`.
template <class T, Form kForm>
GYRFALCON_INLINE void arguments(const Job<T>& job, const Strip<T>& s, size_t p, size_t count_tiles, T* tiles) {
  constexpr size_t W = kWidth<T>, NR = kPanel<T>;
  const T* panel = job.panels + p * NR * s.depth;
  for (size_t k0 = 0; k0 < s.depth; k0 += s.block) {
    const size_t length = s.depth - k0 < s.block ? s.depth - k0 : s.block;
    // Long panels are read from L3: the next block is prefetched during this one, a share of it with each tile.
    const T* const next = panel + (k0 + length) * NR;
    const size_t share = s.depth > s.block ? (length * NR + count_tiles - 1) / count_tiles : 0;
    for (size_t t = 0; t < count_tiles; ++t) {
      for (size_t i = 0; i < share; i += 64 / sizeof(T)) __builtin_prefetch(next + t * share + i, 0, 2);
      vec_t<T> acc[MR][NV];
      T* tile = tiles + t * MR * NR;
      if (k0 == 0) {
#pragma GCC unroll 12
        for (int r = 0; r < MR; ++r)
#pragma GCC unroll 2
          for (int j = 0; j < NV; ++j)
            acc[r][j] = kForm == Form::expanded
                            ? load<T>(job.half_norms + p * NR + j * W) + splat<T>(s.half_norms[t * MR + r])
                            : vec_t<T>{};
      } else {
#pragma GCC unroll 12
        for (int r = 0; r < MR; ++r)
#pragma GCC unroll 2
          for (int j = 0; j < NV; ++j) acc[r][j] = load<T>(tile + r * NR + j * W);
      }
      accumulate<T, kForm>(acc, s.packed + (k0 * count_tiles + t * length) * MR, panel + k0 * NR, length);
#pragma GCC unroll 12
      for (int r = 0; r < MR; ++r)
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) store<T>(tile + r * NR + j * W, acc[r][j]);
    }
  }
}

template <class T, class P, Form kForm, Verb kVerb> void run_strips(const Job<T>& job) {
  constexpr bool kRight = kVerb == kMatvec || kVerb == kSandwich;
  constexpr bool kLeft = kVerb == kRmatvec || kVerb == kSandwich;
  constexpr size_t W = kWidth<T>, NR = kPanel<T>;
  const Parameters<T> parameters(job.param0, job.param1, job.degree);
  const size_t panels = job.n_padded / NR;
  Strip<T> s;
  carve(job, s);
  if (kLeft) memset(s.sums, 0, job.n_padded * sizeof(T));
  size_t summed = 0;

  for (size_t start = 0; start < job.n_rows; start += s.rows) {
    const size_t count = job.n_rows - start < s.rows ? job.n_rows - start : s.rows;
    const size_t padded = rounded_up(count, MR);
    pack_rows(job, s, start, count);
    for (size_t i = 0; i < padded; ++i) s.left[i] = kVerb == kRmatvec && i < count ? job.u[start + i] : T(0);
    if (kRight) {
      memset(s.row_sums, 0, padded * kVectorBytes);
      for (size_t i = 0; i < padded; ++i) s.totals[i] = 0;
    }

    for (size_t p = 0; p < panels; ++p) {
      T* tiles = s.tiles + (kVerb == kSandwich ? p * NR * padded : 0);
      arguments<T, kForm>(job, s, p, padded / MR, tiles);

      // A second loop over the rows, which are still in L1, keeps the profile's constants in registers.
      const vec_t<T> v0 = kRight ? load<T>(job.v + p * NR) : vec_t<T>{};
      const vec_t<T> v1 = kRight ? load<T>(job.v + p * NR + W) : vec_t<T>{};
      vec_t<T> sum0 = kVerb == kRmatvec ? load<T>(s.sums + p * NR) : vec_t<T>{};
      vec_t<T> sum1 = kVerb == kRmatvec ? load<T>(s.sums + p * NR + W) : vec_t<T>{};
      const size_t column = p * NR, columns = job.n_centers - column < NR ? job.n_centers - column : NR;
      for (size_t i = 0; i < padded; ++i) {
        T* entry = tiles + i * NR;
        const vec_t<T> k0 = P::template of<T>(load<T>(entry), parameters, {job.norms + column, s.norms[i]});
        const vec_t<T> k1 = P::template of<T>(load<T>(entry + W), parameters, {job.norms + column + W, s.norms[i]});
        if constexpr (kRight) {
          T* total = s.row_sums + i * W;
          store<T>(total, load<T>(total) + k0 * v0 + k1 * v1);
        }
        if constexpr (kVerb == kSandwich) {
          store<T>(entry, k0);
          store<T>(entry + W, k1);
        }
        if constexpr (kVerb == kRmatvec) {
          const vec_t<T> u = splat<T>(s.left[i]);
          sum0 += k0 * u;
          sum1 += k1 * u;
        }
        if constexpr (kVerb == kFill) {
          if (i >= count) break;
          T* out = job.out_rows + (start + i) * job.n_centers + column;
          if (columns == NR) {
            store_loose<T>(out, k0);
            store_loose<T>(out + W, k1);
          } else {
            store<T>(entry, k0);
            store<T>(entry + W, k1);
            memcpy(out, entry, columns * sizeof(T));
          }
        }
      }
      if constexpr (kVerb == kRmatvec) {
        store<T>(s.sums + p * NR, sum0);
        store<T>(s.sums + p * NR + W, sum1);
      }

      if (kRight && ((p + 1) % kSumPanels == 0 || p + 1 == panels)) {
        for (size_t i = 0; i < padded; ++i) {
          s.totals[i] += sum<T>(load<T>(s.row_sums + i * W));
          store<T>(s.row_sums + i * W, vec_t<T>{});
        }
      }
    }

    if constexpr (kVerb == kMatvec) {
      for (size_t i = 0; i < count; ++i) job.out_rows[start + i] = T(s.totals[i]);
    }
    if constexpr (kVerb == kSandwich) {
      for (size_t i = 0; i < count; ++i) s.left[i] = T(job.u ? s.totals[i] * double(job.u[start + i]) : s.totals[i]);
      // The second product, while the strip is still in L2; even and odd rows are summed separately, for more
      // independent additions.
      const T* entries = s.tiles;
      for (size_t p = 0; p < panels; ++p) {
        vec_t<T> even0 = load<T>(s.sums + p * NR), even1 = load<T>(s.sums + p * NR + W), odd0 = {}, odd1 = {};
        for (size_t i = 0; i < padded; i += 2, entries += 2 * NR) {
          const vec_t<T> u0 = splat<T>(s.left[i]), u1 = splat<T>(s.left[i + 1]);
          even0 += u0 * load<T>(entries);
          even1 += u0 * load<T>(entries + W);
          odd0 += u1 * load<T>(entries + NR);
          odd1 += u1 * load<T>(entries + NR + W);
        }
        store<T>(s.sums + p * NR, even0 + odd0);
        store<T>(s.sums + p * NR + W, even1 + odd1);
      }
    }
    if (kLeft) {
      summed += count;
      if (summed >= kSumRows || start + count == job.n_rows) {
        for (size_t j = 0; j < job.n_padded; ++j) job.out_centers[j] += double(s.sums[j]);
        memset(s.sums, 0, job.n_padded * sizeof(T));
        summed = 0;
      }
    }
  }
}

template <class T, class P, Form kForm> void run_verb(const Job<T>& job) {
  switch (job.verb) {
    case kFill: return run_strips<T, P, kForm, kFill>(job);
    case kMatvec: return run_strips<T, P, kForm, kMatvec>(job);
    case kRmatvec: return run_strips<T, P, kForm, kRmatvec>(job);
    case kSandwich: return run_strips<T, P, kForm, kSandwich>(job);
  }
}

// ---- several columns -------------------------------------------------------------------------------------------------

// The products of job.verb with several columns; `make(strip, start, count, first, last, tiles)` gives the entries of
// `count` rows for the panels from `first` to `last`.
template <class T, class Make> void run_columns(const Job<T>& job, Make make) {
  constexpr size_t NR = kPanel<T>;
  const size_t panels = job.n_padded / NR, k = job.n_columns;
  const bool right = job.verb != kRmatvec, left = job.verb != kMatvec;
  Strip<T> s;
  carve(job, s);
  if (left) memset(s.sums, 0, job.n_padded * k * sizeof(T));
  size_t summed = 0;

  for (size_t start = 0; start < job.n_rows; start += s.rows) {
    const size_t count = job.n_rows - start < s.rows ? job.n_rows - start : s.rows;
    const size_t padded = rounded_up(count, MR);
    if (right) memset(s.totals, 0, padded * k * sizeof(double));
    memset(s.left, 0, padded * k * sizeof(T));
    if (!right) memcpy(s.left, job.u + start * k, count * k * sizeof(T));
    for (size_t first = 0; first < panels; first += kChunkPanels) {
      const size_t last = panels - first < kChunkPanels ? panels : first + kChunkPanels;
      T* tiles = s.tiles + (job.verb == kSandwich ? first * panel_stride<T>(padded) : 0);
      make(s, start, count, first, last, tiles);
      if (right) right_columns<T>(tiles, last - first, padded, job.v + first * NR * k, s.totals, k);
      if (job.verb == kRmatvec) left_columns<T>(tiles, last - first, padded, s.left, k, s.sums + first * NR * k);
    }
    if (job.verb == kMatvec) {
      for (size_t i = 0; i < count * k; ++i) job.out_rows[start * k + i] = T(s.totals[i]);
      continue;
    }
    if (job.verb == kSandwich) {
      for (size_t i = 0; i < count; ++i) {
        const double weight = job.u ? double(job.u[start + i]) : 1.0;
        for (size_t c = 0; c < k; ++c) s.left[i * k + c] = T(s.totals[i * k + c] * weight);
      }
      left_columns<T>(s.tiles, panels, padded, s.left, k, s.sums);
    }
    summed += count;
    if (summed >= kSumRows || start + count == job.n_rows) {
      for (size_t j = 0; j < job.n_padded * k; ++j) job.out_centers[j] += double(s.sums[j]);
      memset(s.sums, 0, job.n_padded * k * sizeof(T));
      summed = 0;
    }
  }
}

template <class T, class P, Form kForm> void run_made_columns(const Job<T>& job) {
  constexpr size_t W = kWidth<T>, NR = kPanel<T>;
  const Parameters<T> parameters(job.param0, job.param1, job.degree);
  run_columns(job, [&](const Strip<T>& s, size_t start, size_t count, size_t first, size_t last, T* tiles) {
    const size_t padded = rounded_up(count, MR);
    if (first == 0) pack_rows(job, s, start, count);
    for (size_t p = first; p < last; ++p, tiles += panel_stride<T>(padded)) {
      arguments<T, kForm>(job, s, p, padded / MR, tiles);
      const T* const norms = job.norms + p * NR;
      for (size_t i = 0; i < padded; ++i) {
        T* entry = tiles + i * NR;
        store<T>(entry, P::template of<T>(load<T>(entry), parameters, {norms, s.norms[i]}));
        store<T>(entry + W, P::template of<T>(load<T>(entry + W), parameters, {norms + W, s.norms[i]}));
      }
    }
  });
}

// The same with a stored block of K, copied to where its entries would have been made.
template <class T, class Stored> void run_kept_columns(const Job<T>& job, const Stored* block) {
  constexpr size_t W = kWidth<T>, NR = kPanel<T>;
  run_columns(job, [&](const Strip<T>&, size_t start, size_t count, size_t first, size_t last, T* tiles) {
    const size_t padded = rounded_up(count, MR), m = job.n_centers;
    for (size_t i = 0; i < padded; ++i)
      for (size_t p = first; p < last; ++p) {
        T* const entry = tiles + (p - first) * panel_stride<T>(padded) + i * NR;
        const size_t known = i >= count ? 0 : m - p * NR < NR ? m - p * NR : NR;
        if (known < NR) memset(entry, 0, NR * sizeof(T));
        if (known == NR) {
          const Stored* const from = block + (start + i) * m + p * NR;
          store<T>(entry, entries_at<T>(from));
          store<T>(entry + W, entries_at<T>(from + W));
        } else {
          for (size_t j = 0; j < known; ++j) entry[j] = entry_at<T>(block + (start + i) * m + p * NR + j);
        }
      }
  });
}

template <class T, class P, Form kForm> void run_form(const Job<T>& job) {
  if (job.n_columns == 1) {
    run_verb<T, P, kForm>(job);
  } else {
    run_made_columns<T, P, kForm>(job);
  }
}

template <class T, class P> void run_profile(const Job<T>& job) {
  constexpr Form fast = form_of(P::geometry, false), careful = form_of(P::geometry, true);
  if constexpr (fast == careful) {
    run_form<T, P, fast>(job);
  } else if (job.difference) {
    run_form<T, P, careful>(job);
  } else {
    run_form<T, P, fast>(job);
  }
}

template <class T, class Table> struct Runs;
template <class T, class... P> struct Runs<T, Table<P...>> {
  static constexpr void (*of[])(const Job<T>&) = {run_profile<T, P>...};
};

template <class T> void run(const Job<T>& job) {
#if defined(__F16C__)
  if constexpr (sizeof(T) == sizeof(float)) {
    if (job.half_block) return run_kept_columns(job, reinterpret_cast<const Float16*>(job.half_block));
  }
#endif
  if (job.block) {
    run_kept_columns(job, job.block);
  } else {
    Runs<T, Profiles>::of[int(job.profile)](job);
  }
}

// ---- products with a stored block of K: four rows are read once and used twice ----------------------------------------

template <class T, class Stored>
void dense(Verb verb, const Stored* block, size_t n, size_t m, const T* v, const T* u, T* out_rows, double* out_centers,
           T* sums) {
  constexpr size_t W = kWidth<T>;
  constexpr size_t G = 4;
  const bool right = verb == kMatvec || verb == kSandwich, left = verb != kMatvec;
  const size_t whole = m / W * W;
  if (left) memset(sums, 0, m * sizeof(T));
  size_t summed = 0;
  for (size_t i = 0; i < n; i += G) {
    const size_t count = n - i < G ? n - i : G;
    const Stored* row[G];
    for (size_t r = 0; r < G; ++r) row[r] = block + (i + (r < count ? r : 0)) * m;
    T weight[G];
    if (right) {
      double total[G] = {};
      for (size_t j0 = 0; j0 < whole; j0 += 64 * W) {
        const size_t j1 = j0 + 64 * W < whole ? j0 + 64 * W : whole;
        vec_t<T> part[G] = {};
        for (size_t j = j0; j < j1; j += W) {
          vec_t<T> x = load_loose<T>(v + j);
#pragma GCC unroll 4
          for (size_t r = 0; r < G; ++r) part[r] += x * entries_at<T>(row[r] + j);
        }
        for (size_t r = 0; r < G; ++r) total[r] += sum<T>(part[r]);
      }
      for (size_t r = 0; r < G; ++r) {
        for (size_t j = whole; j < m; ++j) total[r] += double(v[j]) * double(entry_at<T>(row[r] + j));
        weight[r] = T(verb == kSandwich && u && r < count ? total[r] * double(u[i + r]) : total[r]);
      }
      if (verb == kMatvec) {
        for (size_t r = 0; r < count; ++r) out_rows[i + r] = weight[r];
        continue;
      }
    } else {
      for (size_t r = 0; r < count; ++r) weight[r] = u[i + r];
    }
    vec_t<T> w[G];
    for (size_t r = 0; r < G; ++r) {
      if (r >= count) weight[r] = T(0);
      w[r] = splat<T>(weight[r]);
    }
    for (size_t j = 0; j < whole; j += W) {
      vec_t<T> x = load_loose<T>(sums + j);
#pragma GCC unroll 4
      for (size_t r = 0; r < G; ++r) x += w[r] * entries_at<T>(row[r] + j);
      store_loose<T>(sums + j, x);
    }
    for (size_t j = whole; j < m; ++j)
      for (size_t r = 0; r < count; ++r) sums[j] += weight[r] * entry_at<T>(row[r] + j);
    summed += G;
    if (summed >= kSumRows || i + G >= n) {
      for (size_t j = 0; j < m; ++j) out_centers[j] += double(sums[j]);
      memset(sums, 0, m * sizeof(T));
      summed = 0;
    }
  }
}

// ---- half precision --------------------------------------------------------------------------------------------------

#if defined(__F16C__)
void narrow(const float* entries, size_t count, uint16_t* out) {
  constexpr size_t W = kWidth<float>;
  size_t i = 0;
  for (; i + W <= count; i += W) store_half(out + i, load_loose<float>(entries + i));
  for (; i < count; ++i) out[i] = _cvtss_sh(entries[i], _MM_FROUND_TO_NEAREST_INT);
}

void half_sandwich(const uint16_t* block, size_t n, size_t m, const float* v, const float* u, double* out_centers,
                   float* sums) {
  dense<float>(kSandwich, reinterpret_cast<const Float16*>(block), n, m, v, u, nullptr, out_centers, sums);
}
#else
constexpr void (*narrow)(const float*, size_t, uint16_t*) = nullptr;
constexpr void (*half_sandwich)(const uint16_t*, size_t, size_t, const float*, const float*, double*, float*) = nullptr;
#endif

constexpr Engine<float> kEngineF = {Profiles::entries,   Profiles::size, kPanel<float>,       scratch_bytes<float>,
                                    pack_centers<float>, run<float>,     dense<float, float>, narrow,
                                    half_sandwich};
constexpr Engine<double> kEngineD = {Profiles::entries,    Profiles::size, kPanel<double>,        scratch_bytes<double>,
                                     pack_centers<double>, run<double>,    dense<double, double>, nullptr,
                                     nullptr};

}  // namespace

const Engine<float>& engine_f() { return kEngineF; }
const Engine<double>& engine_d() { return kEngineD; }

}  // namespace GYRFALCON_ISA
}  // namespace gyrfalcon
