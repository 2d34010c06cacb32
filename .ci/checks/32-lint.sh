.venv/bin/ruff check .
