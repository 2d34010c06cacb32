// The contract between the bindings (module.cpp) and the tile kernels (tiles.cpp).
//
// tiles.cpp is compiled once for each instruction set and exports a table of plain functions. Nothing here allocates,
// throws or touches Python. Functions in this header are static, and tiles.cpp uses no standard-library template, so
// that the linker can never choose code compiled for AVX for a processor without it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace gyrfalcon {

// What a profile is a function of, with x' and z' the scaled row and center:
enum Geometry : int {
  kDistance,  // q = -|x' - z'|^2 / 2 or, where squared differences are summed, q = -|x' - z'|^2 of a smaller scale
  kDot,       // x'.z'
  kAngle,     // q = -|x^ - z^|^2 between directions
  kManhattan  // q = -sum_j |x'_j - z'_j|
};

// Index into the table of profiles.h, which also names it. Python gets its values from that table alone.
enum class Profile : int {};
struct ProfileEntry {
  const char* name;
  Geometry geometry;
  bool identity;  // the kernel is the argument itself
};

constexpr size_t kBufferAlign = 64;  // alignment of all buffers that the bindings allocate
constexpr size_t kChunkPanels = 32;  // panels of centers that several columns are multiplied with at once

enum Verb : int { kFill, kMatvec, kRmatvec, kSandwich };

template <class T>
struct Job {
  // a block of K, n_rows x n_centers, that is only multiplied with several columns; null if it has to be made
  const T* block;
  const uint16_t* half_block;  // the same in 16 bits
  // rows as given by the user; x' = (x - shift) * scale is computed while packing
  const T* rows;
  size_t n_rows, n_features;
  const T* shift;
  const T* scale;
  // centers, packed in panels
  const T* panels;       // [panel][feature][panel width]
  const T* half_norms;   // -|z'|^2 / 2, one per padded center (expanded form)
  const T* norms;        // |z|, one per padded center (angle geometry)
  size_t n_centers, n_padded;
  Profile profile;
  Geometry geometry;     // the profile's
  int degree;
  double param0, param1;
  bool difference;       // distance: sum (x - z)^2 feature by feature instead of expanding the square
  // the product
  Verb verb;
  size_t n_columns;      // of v, of u in rmatvec, and of the product
  const T* v;            // [chunk of kChunkPanels panels][column][center], zeros for padded centers
  const T* u;            // rmatvec: the left factor, n_rows x n_columns; sandwich: the row weights or null
  const T* added;        // sandwich: what is added to K V before the weights, n_rows x n_columns, or null
  T* out_rows;           // fill: n_rows x n_centers; matvec: n_rows x n_columns
  double* out_centers;   // rmatvec, sandwich: [panel][column][center] sums, added to
  unsigned char* scratch;
};

template <class T>
struct Engine {
  const ProfileEntry* profiles;
  int n_profiles;
  size_t panel_width;
  size_t (*scratch_bytes)(const Job<T>&);
  void (*pack)(const T* centers, size_t m, size_t d, const T* shift, const T* scale, Geometry geometry,
               T* panels, T* half_norms, T* norms);
  void (*run)(const Job<T>&);
  // products of one column with a stored block of K: n_rows x n_centers, contiguous
  void (*dense)(Verb verb, const T* block, size_t n_rows, size_t n_centers, const T* v, const T* u, const T* added,
                T* out_rows, double* out_centers, T* sums);
  // 16 bits, float only; null where the instruction set cannot convert them
  void (*narrow)(const T* entries, size_t count, uint16_t* out);
  void (*half_sandwich)(const uint16_t* block, size_t n_rows, size_t n_centers, const T* v, const T* u,
                        double* out_centers, T* sums);
};

// Features of a packed row; the angle geometry has an additional one, for the zero vector.
static constexpr size_t depth_of(size_t n_features, Geometry geometry) {
  return n_features + (geometry == kAngle ? 1 : 0);
}

namespace baseline { const Engine<float>& engine_f(); const Engine<double>& engine_d(); }
namespace avx2 { const Engine<float>& engine_f(); const Engine<double>& engine_d(); }
namespace avx512 { const Engine<float>& engine_f(); const Engine<double>& engine_d(); }

}  // namespace gyrfalcon
