"""What every test may rely on."""

from __future__ import annotations

import os

import pytest

# Triton reads this when it is imported, by whoever does that first, and when kernels are made and run. Its functions
# are interpreted or compiled from then on, so that single tests cannot decide it
os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_configure(config):
    """Give each process of pytest-xdist, which inherits the environment, its share of the cores.

    Threads of BLAS that wait for a core do so by spinning. Tests that are about these threads set their own number.
    """
    processes = config.getoption("numprocesses", None)
    if processes:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(max(1, cores // processes)))


@pytest.fixture(autouse=True)
def environment_of_its_own():
    """Clusters set the number of threads for the process that makes them, and again whenever a worker starts anew."""
    before = os.environ.copy()
    yield
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture
def one_thread():
    """PyTorch with one thread: products are small, and threads of several tests wait for each other."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
