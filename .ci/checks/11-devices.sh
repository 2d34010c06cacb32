# Products on devices, by PyTorch on the processor, and by Triton's interpreter where Triton can be installed.
.venv/bin/pip install -q --target build/torch torch==2.13.0
.venv/bin/pip install -q --no-deps --target build/torch triton==3.9.0 || echo "no Triton: its tests are skipped"
export PYTHONPATH=build/torch
$pytest -m devices $(grep -rl mark.devices tests --include="test_*.py")
$pytest -m slow tests/test_examples.py -k "devices or tensors"
