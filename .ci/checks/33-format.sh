.venv/bin/ruff format --check .
