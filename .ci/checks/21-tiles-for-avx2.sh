# Without AVX-512, the other tests have used these tiles already.
source .ci/numerical_tests
if grep -qs avx512f /proc/cpuinfo; then
  GYRFALCON_ISA=avx2 $pytest -m "not slow" $solvers $products
else
  echo "not run: this processor has no AVX-512"
fi
