"""How a user says how much memory may be used."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyrfalcon._utils import memory as _memory
from gyrfalcon._utils.memory import available_memory, format_bytes, parse_memory, require


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (0, 0),
        (12, 12),
        (1e9, 10**9),
        (1.9, 1),
        (10**30, 10**30),
        (np.int32(7), 7),
        (np.int64(2**40), 2**40),
        (np.float32(1024), 1024),
        ("0", 0),
        ("123", 123),
        ("123B", 123),
        ("4GB", 4 * 10**9),
        ("4G", 4 * 10**9),
        ("4gb", 4 * 10**9),
        (" 4 GB ", 4 * 10**9),
        ("1.5MB", 1_500_000),
        ("1.MB", 1_000_000),
        ("512MiB", 512 * 2**20),
        ("2KiB", 2048),
        ("2kB", 2000),
        ("1TB", 10**12),
        ("1TiB", 2**40),
    ],
)
def test_budgets(budget, expected):
    assert parse_memory(budget) == expected


@pytest.mark.parametrize(
    ("budget", "error"),
    [
        (-1, ValueError),
        (-0.5, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        ("", ValueError),
        ("GB", ValueError),
        ("-4GB", ValueError),
        ("4 parsecs", ValueError),
        ("4GBB", ValueError),
        ("1e9", ValueError),
        ("1.2.3GB", ValueError),
        ("Auto", ValueError),
        ("9" * 400 + "GB", ValueError),
        (None, TypeError),
        (True, TypeError),
        ([1], TypeError),
        (1j, TypeError),
    ],
)
def test_wrong_budgets_are_named_with_a_remedy(budget, error):
    with pytest.raises(error, match=r'^memory_budget=.* must be "auto", a number of bytes, or a string such as "4GB"'):
        parse_memory(budget)


def test_auto_is_half_of_what_is_available(monkeypatch):
    monkeypatch.setattr(_memory, "available_memory", lambda: 1001)
    assert parse_memory("auto") == 500


def test_available_memory_is_that_of_this_machine():
    assert 2**20 < available_memory() < 2**50


def test_available_memory_is_limited_by_the_control_group(monkeypatch):
    files = {
        "/proc/meminfo": "MemTotal: 16000 kB\nMemAvailable:   8000 kB\n",
        "/sys/fs/cgroup/memory.max": "5000000\n",
        "/sys/fs/cgroup/memory.current": "1000000\n",
    }

    def read_text(path, *args, **kwargs):
        if str(path) not in files:
            raise OSError(path)
        return files[str(path)]

    monkeypatch.setattr(Path, "read_text", read_text)
    assert available_memory() == 4_000_000
    files["/sys/fs/cgroup/memory.stat"] = "anon 500000\ninactive_file 300000\n"  # a group's cache can be had back
    assert available_memory() == 4_300_000
    del files["/sys/fs/cgroup/memory.stat"]
    files["/sys/fs/cgroup/memory.current"] = "6000000\n"
    assert available_memory() == 0
    files["/sys/fs/cgroup/memory.max"] = "max\n"
    assert available_memory() == 8000 * 1024
    files.clear()
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert available_memory() == 2_048_000  # half of what the machine has, where it does not say what is free
    files["/proc/meminfo"] = "MemAvailable: plenty kB\n"
    assert available_memory() == 2_048_000


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="limits of a process are enforced on Linux")
@pytest.mark.parametrize(("limit", "counts"), [("RLIMIT_AS", "VmSize"), ("RLIMIT_DATA", "VmData")])
@pytest.mark.slow
def test_available_memory_is_limited_by_the_limits_of_the_process(limit, counts):
    """In a process that really has the limit: half of what is said to be there can be had, and twice of it cannot."""
    script = textwrap.dedent(
        f"""
        import resource
        from pathlib import Path
        import numpy as np
        from gyrfalcon import FalkonRegressor
        from gyrfalcon._utils.memory import available_memory, parse_memory

        def used():
            return next(int(line.split()[1]) * 1024 for line in Path("/proc/self/status").read_text().splitlines()
                        if line.startswith("{counts}:"))

        room = 192 * 2**20
        before = available_memory()
        hard = resource.getrlimit(resource.{limit})[1]
        resource.setrlimit(resource.{limit}, (used() + room, hard))
        left = available_memory()
        assert left <= min(room, before), (left, before)
        assert left >= min(room - 16 * 2**20, before // 2), (left, before)  # what was allocated meanwhile
        assert abs(parse_memory("auto") - left // 2) < 2**23
        np.ones(parse_memory("auto") // 8)
        try:
            np.empty(2 * room, dtype=np.int8)
        except MemoryError:
            pass
        else:
            raise AssertionError("the limit does not hold")

        # 20,000 x 2,000 numbers take 320 MB, which would be kept if the machine's memory were all that is asked
        X = np.random.default_rng(0).standard_normal((20_000, 2))
        model = FalkonRegressor(n_centers=2_000, max_iter=1, n_jobs=1, random_state=0).fit(X, X[:, 0])
        assert np.isfinite(model.dual_coef_).all()

        resource.setrlimit(resource.{limit}, (max(used() // 2, 1), hard))
        assert available_memory() == 0
        """
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (1_600_000_000, "1.6 GB"), (5 * 10**12, "5 TB")],
)
def test_bytes_for_people(count, text):
    assert format_bytes(count) == text


@given(st.integers(0, 10**15))
def test_bytes_for_people_are_about_right(count):
    number, unit = format_bytes(count).split()
    size = {"bytes": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[unit]
    assert float(number) * size == pytest.approx(count, rel=0.006)


def test_require_takes_a_limit_that_is_known_and_a_remedy_of_the_limit():
    require("auto", 100, "this takes 100 bytes", "take less", limit=100)
    with pytest.raises(MemoryError, match="this takes 101 bytes, and 100 bytes are available: 10 rows would fit"):
        require("auto", 101, "this takes 101 bytes", lambda limit: f"{limit // 10} rows would fit", limit=100)
    with pytest.raises(MemoryError, match="memory_budget='1kB' allows 1 kB: 1000 would fit"):
        require("1kB", 2000, "this", lambda limit: f"{limit} would fit")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="limits of a process are enforced on Linux")
@pytest.mark.parametrize("room", [20, 60])
def test_a_fit_without_room_for_blas_raises_and_does_not_hang(room):
    """OpenBLAS ends the process or waits forever if its workspace is refused, so a fit looks before."""
    script = textwrap.dedent(
        f"""
        import resource
        from pathlib import Path
        import numpy as np
        from gyrfalcon import FalkonRegressor

        X = np.random.default_rng(0).standard_normal((5_000, 5))
        model = FalkonRegressor(n_centers=500, random_state=0, memory_budget="1GB")
        used = next(int(line.split()[1]) * 1024 for line in Path("/proc/self/status").read_text().splitlines()
                    if line.startswith("VmSize:"))
        resource.setrlimit(resource.RLIMIT_AS, (used + {room} * 2**20, resource.getrlimit(resource.RLIMIT_AS)[1]))
        try:
            model.fit(X, X[:, 0])
        except MemoryError as error:
            print(error)
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "of workspace for" in done.stdout
    assert "raise the limits, or set OMP_NUM_THREADS" in done.stdout
