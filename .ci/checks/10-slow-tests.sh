# Tests that need many processes or a type checker; the fuzzer's and the examples' have checks of their own. Most wait for
# processes that start or are killed.
$pytest -n 3 -m slow $(grep -rl mark.slow tests --include="test_*.py" | grep -v -e fuzz -e test_examples)
