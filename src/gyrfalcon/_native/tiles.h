// The contract between the bindings (module.cpp) and the tile kernels (tiles.cpp).
//
// tiles.cpp is compiled once for each instruction set and hands out a table of plain functions. Nothing here allocates,
// throws or touches Python, and no standard-library template is used in tiles.cpp, so that code compiled for AVX can
// never be picked by the linker for a processor that lacks it.
#pragma once
#include <cstddef>

namespace gyrfalcon {

// What a profile is a function of, x' and z' being the scaled row and center:
enum Geometry : int {
  kDistance,  // q = -|x' - z'|^2 / 2 or, where squared differences are summed, q = -|x' - z'|^2 of a smaller scale
  kDot,       // x'.z'
  kAngle,     // q = -|x^ - z^|^2 between directions
  kManhattan  // q = -sum_j |x'_j - z'_j|
};

// A place in the table of profiles.h, which gives it a name.
enum class Profile : int {};
struct ProfileEntry {
  const char* name;
  Geometry geometry;
  bool identity;  // the kernel is the argument itself
};

constexpr size_t kBufferAlign = 64;  // what the bindings allocate begins at a multiple of this, and so does its padding

enum Verb : int { kFill, kMatvec, kRmatvec, kSandwich };

template <class T>
struct Job {
  // rows, as the user gave them: x' = (x - shift) * scale, done while packing
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
  const T* v;            // n_padded, zeros at the end
  const T* u;            // rmatvec: the left factor; sandwich: the row weights or null
  T* out_rows;           // fill: n_rows x n_centers; matvec: n_rows
  double* out_centers;   // rmatvec, sandwich: n_padded sums, added to
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
  // products with a block of K that was kept: n_rows x n_centers, contiguous
  void (*dense)(Verb verb, const T* block, size_t n_rows, size_t n_centers, const T* v, const T* u, T* out_rows,
                double* out_centers, T* sums);
};

// In the angle geometry there is one more feature, for the zero vector.
size_t constexpr depth_of(size_t n_features, Geometry geometry) { return n_features + (geometry == kAngle ? 1 : 0); }

namespace baseline { const Engine<float>& engine_f(); const Engine<double>& engine_d(); }
namespace avx2 { const Engine<float>& engine_f(); const Engine<double>& engine_d(); }
namespace avx512 { const Engine<float>& engine_f(); const Engine<double>& engine_d(); }

}  // namespace gyrfalcon
