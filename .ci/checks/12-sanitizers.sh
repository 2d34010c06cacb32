# The native core under the address and undefined-behaviour sanitizers.
bash tests/native/run_sanitizers.sh .venv/bin/python
