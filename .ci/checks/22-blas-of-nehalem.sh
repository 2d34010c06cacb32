# The oldest BLAS kernels.
source .ci/numerical_tests
OPENBLAS_CORETYPE=Nehalem $pytest $solvers $factors $newton
