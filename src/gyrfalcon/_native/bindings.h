// Instruction sets, buffers, array types and checks, shared by the bindings of dense and of sparse rows.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "shapley.h"
#include "signs.h"
#include "sparse.h"
#include "tiles.h"

namespace nb = nanobind;

namespace gyrfalcon {

struct Set {
  const char* name;
  const Engine<float>& (*f)();
  const Engine<double>& (*d)();
  const SparseEngine<float>& (*sparse_f)();
  const SparseEngine<double>& (*sparse_d)();
  void (*signs_f)(const SignJob<float>&);
  void (*signs_d)(const SignJob<double>&);
  void (*shapley)(const ShapleyJob&);
};

inline std::vector<Set> available_sets() {
  std::vector<Set> sets;
#if defined(GYRFALCON_AVX512)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    sets.push_back({"avx512", avx512::engine_f, avx512::engine_d, avx512::sparse_f, avx512::sparse_d, avx512::sign_sums,
                    avx512::sign_sums, avx512::shapley_sums});
#endif
#if defined(GYRFALCON_X86)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    sets.push_back({"avx2", avx2::engine_f, avx2::engine_d, avx2::sparse_f, avx2::sparse_d, avx2::sign_sums,
                    avx2::sign_sums, avx2::shapley_sums});
#endif
  sets.push_back({"baseline", baseline::engine_f, baseline::engine_d, baseline::sparse_f, baseline::sparse_d,
                  baseline::sign_sums, baseline::sign_sums, baseline::shapley_sums});
  return sets;
}

inline const Set& find_set(const std::string& name) {
  static const std::vector<Set> sets = available_sets();
  if (name.empty()) return sets.front();
  for (const Set& set : sets)
    if (name == set.name) return set;
  throw std::invalid_argument("instruction set '" + name + "' is not available on this processor");
}

template <class T> const Engine<T>& engine_of(const Set& set);
template <> inline const Engine<float>& engine_of<float>(const Set& set) { return set.f(); }
template <> inline const Engine<double>& engine_of<double>(const Set& set) { return set.d(); }
template <class T> const SparseEngine<T>& sparse_engine_of(const Set& set);
template <> inline const SparseEngine<float>& sparse_engine_of<float>(const Set& set) { return set.sparse_f(); }
template <> inline const SparseEngine<double>& sparse_engine_of<double>(const Set& set) { return set.sparse_d(); }

inline void sign_sums(const Set& set, const SignJob<float>& job) { set.signs_f(job); }
inline void sign_sums(const Set& set, const SignJob<double>& job) { set.signs_d(job); }

// Aligned memory, with a check for overflow of its size.
template <class T> class Buffer {
 public:
  explicit Buffer(size_t count, bool zero = false) {
    if (count > (SIZE_MAX / 2) / sizeof(T)) throw std::length_error("buffer size overflows");
    void* memory = nullptr;
    if (posix_memalign(&memory, kBufferAlign, count * sizeof(T) + kBufferAlign) != 0) throw std::bad_alloc();
    data_ = static_cast<T*>(memory);
    if (zero)
      for (size_t i = 0; i < count; ++i) data_[i] = T{};
  }
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T* get() const { return data_; }

 private:
  T* data_;
};

template <class T> using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T> using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using OutMatrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T> using OutCube = nb::ndarray<T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
template <class T> using Cube = nb::ndarray<const T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
template <class T> using OutVector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

inline const ProfileEntry& entry_of(Profile profile) { return baseline::engine_f().profiles[int(profile)]; }

inline void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

inline size_t product(size_t a, size_t b) {
  size_t result;
  if (__builtin_mul_overflow(a, b, &result)) throw std::length_error("the size of the packed centers overflows");
  return result;
}

void bind_sparse(nb::module_& m);    // sparse_module.cpp
void bind_trees(nb::module_& m);     // trees_module.cpp
void bind_boosting(nb::module_& m);  // boosting_module.cpp

}  // namespace gyrfalcon
