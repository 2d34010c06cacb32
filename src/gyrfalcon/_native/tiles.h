// The contract between the bindings (module.cpp) and the tile kernels (tiles.cpp).
//
// tiles.cpp is compiled once for each instruction set and hands out a table of plain functions. Nothing here allocates,
// throws or touches Python, and no standard-library template is used in tiles.cpp, so that code compiled for AVX can
// never be picked by the linker for a processor that lacks it.
#pragma once
#include <cstddef>

namespace gyrfalcon {

// Profiles of q = -|x' - z'|^2 / 2 (distance), of x'.z' (dot), or of q = -|x^ - z^|^2 between directions (angle).
enum Profile : int {
  kGaussian = 0,     // 2^q
  kLaplacian = 1,    // 2^-a, a = sqrt(-q); also Matern 1/2
  kMatern32 = 2,     // (1 + a ln 2) 2^-a
  kMatern52 = 3,     // (1 + a ln 2 + (a ln 2)^2 / 3) 2^-a
  kRational = 4,     // (1 - q)^-param0
  kLinear = 5,       // x'.z'
  kPolynomial = 6,   // (param0 x'.z' + param1)^degree
  kSigmoid = 7,      // tanh(param0 x'.z' + param1)
  kArcCosine0 = 8,   // 1 - theta / pi
  kArcCosine1 = 9,   // |x||z| (sin theta + (pi - theta) cos theta) / pi
  kProfiles = 10
};

enum Verb : int { kFill = 0, kMatvec = 1, kRmatvec = 2, kSandwich = 3 };

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
  int profile, degree;
  double param0, param1;
  bool difference;       // accumulate (x - z)^2 feature by feature instead of expanding the square
  bool angle;            // rows are brought to unit length, with one more feature for the zero vector
  // the product
  int verb;
  const T* v;            // n_padded, zeros at the end
  const T* u;            // rmatvec: the left factor; sandwich: the row weights or null
  T* out_rows;           // fill: n_rows x n_centers; matvec: n_rows
  double* out_centers;   // rmatvec, sandwich: n_padded sums, added to
  unsigned char* scratch;
};

template <class T>
struct Engine {
  size_t panel_width;
  size_t (*scratch_bytes)(const Job<T>&);
  void (*pack)(const T* centers, size_t m, size_t d, const T* shift, const T* scale, bool angle, T* panels,
               T* half_norms, T* norms);
  void (*run)(const Job<T>&);
  // products with a block of K that was kept: n_rows x n_centers, contiguous
  void (*dense)(int verb, const T* block, size_t n_rows, size_t n_centers, const T* v, const T* u, T* out_rows,
                double* out_centers, T* sums);
};

size_t constexpr depth_of(size_t n_features, bool angle) { return n_features + (angle ? 1 : 0); }

namespace baseline { const Engine<float>& engine_f(); const Engine<double>& engine_d(); }
namespace avx2 { const Engine<float>& engine_f(); const Engine<double>& engine_d(); }
namespace avx512 { const Engine<float>& engine_f(); const Engine<double>& engine_d(); }

}  // namespace gyrfalcon
