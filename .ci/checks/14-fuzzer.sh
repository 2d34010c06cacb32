# A fixed share of the fuzzer's cases.
$pytest -m slow tests/fuzz
