#!/usr/bin/env bash
# Build the native core under the address and undefined-behaviour sanitizers and run exercise.py on it.
#
#   tests/native/run_sanitizers.sh [PYTHON]
#
# PYTHON needs numpy and nanobind; cmake and ninja come from beside it or from the PATH.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$here/../.." && pwd)
python=$(command -v "${1:-python3}")
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")
export PATH="$(dirname "$python"):$PATH"
compiler=${CXX:-c++}

if [ "$(uname)" != Linux ]; then
  echo "the sanitizers are run on Linux only: LD_PRELOAD is how they get into Python" >&2
  exit 0
fi

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
generator=()
if command -v ninja >/dev/null; then generator=(-G Ninja); fi
# tiles that this processor cannot run need not be built
avx512=OFF
if grep -q avx512vl /proc/cpuinfo; then avx512=ON; fi
cmake -S "$source" -B "$build" "${generator[@]}" -DPython_EXECUTABLE="$python" -DCMAKE_BUILD_TYPE=None \
  -DGYRFALCON_SANITIZE=ON -DGYRFALCON_AVX512=$avx512 >"$build/cmake.log" || { cat "$build/cmake.log"; exit 1; }
cmake --build "$build" --parallel >"$build/build.log" || { cat "$build/build.log"; exit 1; }
for object in $(find "$build" -name 'tiles.cpp.o' -o -name '*module.cpp.o' -o -name 'sparse.cpp.o' -o -name 'signs.cpp.o'); do
  grep -q __asan_report "$object" || { echo "$object was built without the sanitizers" >&2; exit 1; }
done

# Python was not built with the sanitizers, so their runtime has to be there before it; libstdc++ too, whose exceptions it
# wraps. NumPy's own leaks are not ours to find.
LD_PRELOAD="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libstdc++.so)" \
  ASAN_OPTIONS=detect_leaks=0:strict_string_checks=1:halt_on_error=1 \
  UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
  "$python" "$here/exercise.py" "$build"
