# The examples, and the code on the pages.
$pytest -m slow tests/test_examples.py
