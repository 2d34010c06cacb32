"""Blocks run on threads: results in order, nothing left behind when something goes wrong."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from gyrfalcon import KernelOperator
from gyrfalcon._utils.threads import _let_anyone_set_limits, effective_n_jobs, ordered_map, single_threaded_blas
from gyrfalcon.kernels import Gaussian

threads = pytest.mark.parametrize("n_threads", [1, 2, 5])


def workers():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("gyrfalcon")]


@threads
@pytest.mark.parametrize("count", [0, 1, 3, 100])
def test_results_come_in_order(n_threads, count):
    def slow_at_first(i):
        time.sleep(0.002 if i % 7 == 0 else 0)
        return i * i

    assert list(ordered_map(slow_at_first, range(count), n_threads)) == [i * i for i in range(count)]
    assert workers() == []


@threads
def test_only_a_few_items_are_under_way(n_threads):
    """A source is not read far ahead of what is done with it."""
    taken = []

    def items():
        for i in range(100):
            taken.append(i)
            yield i

    results = ordered_map(lambda i: i, items(), n_threads)
    assert next(results) == 0
    assert len(taken) <= 2 * n_threads + 1
    results.close()
    assert workers() == []


@threads
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_in_a_block_stops_the_others(n_threads, error):
    done = []

    def block(i):
        if i == 3:
            raise error("block 3")
        time.sleep(0.001)
        done.append(i)
        return i

    seen = []
    with pytest.raises(error, match="block 3"):
        seen.extend(ordered_map(block, range(1000), n_threads))
    assert workers() == []
    assert len(done) < 50
    assert seen == list(range(len(seen)))[:3]


def test_blocks_that_are_done_are_let_go():
    """Results wait for those before them; the rows they were made of do not."""

    class Block:
        pass

    alive, first = weakref.WeakSet(), threading.Event()

    def items():
        for number in range(4):
            block = Block()
            block.number = number
            alive.add(block)
            yield block
            del block
            if number == 2:
                time.sleep(0.2)  # for the helper to do the others
                gc.collect()
                assert 1 not in {one.number for one in alive}  # the caller still holds the last one
                first.set()

    def wait(block):
        if block.number == 0:
            first.wait(10)

    assert list(ordered_map(wait, items(), 3)) == [None] * 4
    assert first.is_set()


def test_a_thread_that_cannot_be_started_is_the_error_that_is_seen(monkeypatch):
    closed = []

    def items():
        try:
            yield from range(10)
        finally:
            closed.append(True)

    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start"):
        list(ordered_map(abs, items(), 3))
    assert closed == [True]


@threads
def test_an_error_of_the_source(n_threads):
    def items():
        yield from range(5)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(ordered_map(lambda i: i, items(), n_threads))
    assert workers() == []


@threads
def test_an_error_of_the_consumer(n_threads):
    def consume():
        for _ in ordered_map(lambda i: i, range(1000), n_threads):
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        consume()
    assert workers() == []


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("backend", ["native", "reference"])
def test_a_weight_that_raises(n_jobs, error, backend):
    X = np.random.default_rng(0).standard_normal((2000, 3))
    operator = KernelOperator(Gaussian(1.0), X, X[:10], n_jobs=n_jobs, backend=backend, memory_budget=0)

    def weight(at, T):
        if at.start >= 960:
            raise error("in a block")
        return T

    before = blas_threads()
    with pytest.raises(error, match="in a block"):
        operator.sandwich(np.ones(10), weight)
    assert workers() == []
    assert blas_threads() == before
    assert operator.passes == 0
    K = Gaussian(1.0)(X, X[:10])
    np.testing.assert_allclose(operator.sandwich(np.ones(10)), K.T @ K.sum(axis=1), rtol=1e-12)


# ---- BLAS -----------------------------------------------------------------------------------------------------------


def blas_threads():
    return [library["num_threads"] for library in ThreadpoolController().info() if library["user_api"] == "blas"]


@pytest.fixture
def several_threads_of_blas():
    limits = threadpool_limits(2, user_api="blas")
    _let_anyone_set_limits()
    assert set(blas_threads()) == {2}
    yield
    limits.restore_original_limits()
    _let_anyone_set_limits()


@pytest.mark.usefixtures("several_threads_of_blas")
def test_blas_is_held_and_let_go():
    before = blas_threads()
    with single_threaded_blas():
        assert set(blas_threads()) == {1}
        with single_threaded_blas():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert blas_threads() == before
    with pytest.raises(RuntimeError), single_threaded_blas():
        raise RuntimeError
    assert blas_threads() == before


@pytest.mark.usefixtures("several_threads_of_blas")
def test_blas_is_let_go_by_threads_that_overlap():
    """The first to begin is the first to end: it takes the limit from no other, and none is left behind."""
    before = blas_threads()
    seen = []
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    def first():
        with single_threaded_blas():
            first_in.set()
            second_in.wait(5)
        first_out.set()

    def second():
        first_in.wait(5)
        with single_threaded_blas():
            second_in.set()
            first_out.wait(5)
            seen.extend(blas_threads())

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(first), pool.submit(second)]
        for future in futures:
            future.result(10)
    assert set(seen) == {1}
    assert blas_threads() == before
    with threadpool_limits(limits=1, user_api="blas"):  # and others can still set theirs
        assert set(blas_threads()) == {1}
    assert blas_threads() == before


@pytest.mark.usefixtures("several_threads_of_blas")
def test_operators_at_once_do_not_disturb_each_other():
    X = np.random.default_rng(0).standard_normal((3000, 4))
    V = np.random.default_rng(1).standard_normal((50, 3))
    expected = KernelOperator(Gaussian(1.0), X, X[:50], n_jobs=1).sandwich(V).tobytes()
    shared = KernelOperator(Gaussian(1.0), X, X[:50], n_jobs=2, memory_budget=0)
    before = blas_threads()

    def run(i):
        own = KernelOperator(Gaussian(1.0), X, X[:50], n_jobs=2, memory_budget="1GB" if i % 2 else 0)
        return own.sandwich(V).tobytes() == expected and shared.sandwich(V).tobytes() == expected

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(12)))
    assert blas_threads() == before
    assert workers() == []


# ---- how many -------------------------------------------------------------------------------------------------------


def test_number_of_threads(monkeypatch):
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert effective_n_jobs(None) == cores
    assert effective_n_jobs(3) == 3
    assert effective_n_jobs(np.int64(3)) == 3
    assert effective_n_jobs(-1) == cores
    assert effective_n_jobs(-cores - 5) == 1
    for value, expected in (("1", 1), ("1000", cores), ("0", 1), ("many", cores), ("4,2", cores)):
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert effective_n_jobs(None) == expected
        assert effective_n_jobs(7) == 7


@pytest.mark.parametrize(
    ("value", "error"), [(0, ValueError), (2.0, TypeError), ("2", TypeError), (True, TypeError), ([], TypeError)]
)
def test_wrong_number_of_threads(value, error):
    with pytest.raises(error, match=r"n_jobs="):
        effective_n_jobs(value)


# ---- Ctrl-C ---------------------------------------------------------------------------------------------------------

ENDLESS = textwrap.dedent("""
    import sys, threading, time
    import numpy as np
    from gyrfalcon import KernelOperator
    from gyrfalcon.kernels import Gaussian

    class Endless:
        shape, dtype = (10**12, 4), np.dtype(np.float32)
        given = 0

        def blocks(self, size):
            block = np.random.default_rng(0).standard_normal((size, 4), dtype=np.float32)
            while True:
                self.given += 1
                if self.given == 12:
                    print("running", flush=True)
                yield block

        def take(self, indices):
            return Z[indices]

    Z = np.random.default_rng(1).standard_normal((2000, 4), dtype=np.float32)
    columns, n_jobs = map(int, sys.argv[1:])
    operator = KernelOperator(Gaussian(1.0), Endless(), Z, n_jobs=n_jobs, backend="native", memory_budget=0)
    try:
        operator.sandwich(np.ones((2000, columns)))
    except KeyboardInterrupt:
        print("stopped", [thread.name for thread in threading.enumerate()], operator.passes, flush=True)
""")


@pytest.mark.parametrize("case", ["1 1", "3 2"])
@pytest.mark.slow
def test_ctrl_c_stops_a_long_pass(case):
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, *case.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "running\n", process.stderr.read()
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)  # the pass itself has no end
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert output == "stopped ['MainThread'] 0\n"


def test_an_interrupt_while_a_thread_starts_leaves_no_thread(monkeypatch):
    """A signal may come when a thread runs already and `start` has not returned."""
    start = threading.Thread.start

    def interrupted(thread):
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(ordered_map(lambda x: x, range(20), 2))
    monkeypatch.undo()
    deadline = time.monotonic() + 20
    while any(thread.name == "gyrfalcon" for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [thread for thread in threading.enumerate() if thread.name == "gyrfalcon"]
