# Tests that need many processes or a type checker; the fuzzer's and the examples' have checks of their own.
$pytest -m slow $(grep -rl mark.slow tests --include="test_*.py" | grep -v -e fuzz -e test_examples)
