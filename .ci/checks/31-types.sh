.venv/bin/mypy
