# Products on devices, by PyTorch on the processor, and by Triton's interpreter where Triton can be installed.
export PYTHONPATH=build/torch
$pytest -n 2 -m devices $(grep -rl mark.devices tests --include="test_*.py")
$pytest -m slow tests/test_examples.py -k "devices or tensors"
