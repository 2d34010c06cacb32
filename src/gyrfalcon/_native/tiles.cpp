// The fused tile kernels: a strip of rows against all centers, kernel entries computed in registers and used at once.
//
// For a strip of a few rows (packed, centered and scaled on the way in) and each panel of centers, a register tile of
// MR rows x NR centers is accumulated, turned into kernel entries by a profile, multiplied into the first product, and,
// for the sandwich, left in a strip buffer that the second product reads back from L2 as soon as the strip is complete.
// Sums are in T within a few hundred terms and in double beyond, so that rounding errors do not grow with n.
#include "stored.h"
#include "strips.h"

namespace gyrfalcon {
namespace GYRFALCON_ISA {
namespace {

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

// Add the terms of `count` features for the first N vectors of a panel.
template <class T, Form kForm, int N>
GYRFALCON_INLINE void accumulate(vec_t<T> (&acc)[MR][N], const T* rows, const T* panel, size_t count) {
#pragma GCC unroll 4
  for (size_t k = 0; k < count; ++k) {
    vec_t<T> z[N];
#pragma GCC unroll 2
    for (int j = 0; j < N; ++j) z[j] = load<T>(panel + j * kWidth<T>);
#pragma GCC unroll 12
    for (int r = 0; r < MR; ++r) {
      const vec_t<T> x = splat<T>(rows[r]);
#pragma GCC unroll 2
      for (int j = 0; j < N; ++j) {
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

// Compute the arguments of the profile for the first N vectors of one panel and all tiles of the strip, in `tiles`.
template <class T, Form kForm, int N>
__attribute__((noinline)) void vector_arguments(const Job<T>& job, const Strip<T>& s, size_t p, size_t count_tiles,
                                                T* tiles) {
  constexpr size_t W = kWidth<T>, NR = kPanel<T>;
  const T* panel = job.panels + p * NR * s.depth;
  for (size_t k0 = 0; k0 < s.depth; k0 += s.block) {
    const size_t length = s.depth - k0 < s.block ? s.depth - k0 : s.block;
    // Long panels are read from L3: the next block is prefetched during this one, a share of it with each tile.
    const T* const next = panel + (k0 + length) * NR;
    const size_t share = s.depth > s.block ? (length * NR + count_tiles - 1) / count_tiles : 0;
    for (size_t t = 0; t < count_tiles; ++t) {
      for (size_t i = 0; i < share; i += 64 / sizeof(T)) __builtin_prefetch(next + t * share + i, 0, 2);
      vec_t<T> acc[MR][N];
      T* tile = tiles + t * MR * NR;
      if (k0 == 0) {
#pragma GCC unroll 12
        for (int r = 0; r < MR; ++r)
#pragma GCC unroll 2
          for (int j = 0; j < N; ++j)
            acc[r][j] = kForm == Form::expanded
                            ? load<T>(job.half_norms + p * NR + j * W) + splat<T>(s.half_norms[t * MR + r])
                            : vec_t<T>{};
      } else {
#pragma GCC unroll 12
        for (int r = 0; r < MR; ++r)
#pragma GCC unroll 2
          for (int j = 0; j < N; ++j) acc[r][j] = load<T>(tile + r * NR + j * W);
      }
      accumulate<T, kForm, N>(acc, s.packed + (k0 * count_tiles + t * length) * MR, panel + k0 * NR, length);
#pragma GCC unroll 12
      for (int r = 0; r < MR; ++r)
#pragma GCC unroll 2
        for (int j = 0; j < N; ++j) store<T>(tile + r * NR + j * W, acc[r][j]);
    }
  }
}

// ... for a whole panel. Where its second vector has no center, that costs nothing: the arguments there are 0.
template <class T, Form kForm>
GYRFALCON_INLINE void arguments(const Job<T>& job, const Strip<T>& s, size_t p, size_t count_tiles, T* tiles) {
  constexpr size_t W = kWidth<T>, NR = kPanel<T>;
  if (job.n_centers - p * NR > W) return vector_arguments<T, kForm, NV>(job, s, p, count_tiles, tiles);
  for (size_t i = 0; i < count_tiles * MR; ++i) store<T>(tiles + i * NR + W, vec_t<T>{});
  vector_arguments<T, kForm, 1>(job, s, p, count_tiles, tiles);
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
      for (size_t i = 0; i < count; ++i) {
        const double total = s.totals[i] + (job.added ? double(job.added[start + i]) : 0.0);
        s.left[i] = T(job.u ? total * double(job.u[start + i]) : total);
      }
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
        const T* const added = job.added ? job.added + (start + i) * k : nullptr;
        for (size_t c = 0; c < k; ++c)
          s.left[i * k + c] = T((s.totals[i * k + c] + (added ? double(added[c]) : 0.0)) * weight);
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
  const vec_t<T> unit = splat<T>(T(kUnit<Stored>));
  run_columns(job, [&](const Strip<T>&, size_t start, size_t count, size_t first, size_t last, T* tiles) {
    const size_t padded = rounded_up(count, MR), m = job.n_centers;
    for (size_t i = 0; i < padded; ++i)
      for (size_t p = first; p < last; ++p) {
        T* const entry = tiles + (p - first) * panel_stride<T>(padded) + i * NR;
        const size_t known = i >= count ? 0 : m - p * NR < NR ? m - p * NR : NR;
        if (known < NR) memset(entry, 0, NR * sizeof(T));
        if (known == NR) {
          const Stored* const from = block + (start + i) * m + p * NR;
          store<T>(entry, entries_at<T>(from) * unit);
          store<T>(entry + W, entries_at<T>(from + W) * unit);
        } else {
          for (size_t j = 0; j < known; ++j) entry[j] = entry_at<T>(block + (start + i) * m + p * NR + j) * T(kUnit<Stored>);
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
#if defined(__AVX2__)
  if constexpr (sizeof(T) == sizeof(float)) {
    if (job.half_block) return run_kept_columns(job, reinterpret_cast<const Fixed16*>(job.half_block));
  }
#endif
  if (job.block) {
    run_kept_columns(job, job.block);
  } else {
    Runs<T, Profiles>::of[int(job.profile)](job);
  }
}

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
