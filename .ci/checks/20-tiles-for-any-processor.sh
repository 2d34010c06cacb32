source .ci/numerical_tests
GYRFALCON_ISA=baseline $pytest -m "not slow" $solvers $products
