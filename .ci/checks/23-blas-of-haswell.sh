# The commonest BLAS kernels.
source .ci/numerical_tests
OPENBLAS_CORETYPE=Haswell $pytest $solvers $factors $newton
