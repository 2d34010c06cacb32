"""A process that is forked while other threads are at work: the child finds no lock taken, and BLAS as it was.

A fork copies memory, locks that are held included, and one thread alone, so nobody in the child is left to release
them. The scripts run in processes of their own, and a child that waits is ended by an alarm, which is not exit code 0.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")]

COMMON = """
import contextlib, os, signal, sys, threading, time, traceback, warnings
import numpy as np
from threadpoolctl import threadpool_info
from gyrfalcon import FalkonRegressor
from gyrfalcon._utils.threads import single_threaded_blas
from gyrfalcon.callbacks.progress import ProgressBar

warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on forks with threads, which is what this is about
signal.alarm(100)  # which a child does not inherit

rng = np.random.default_rng(0)
X = rng.standard_normal((200, 3))
y = np.sin(X[:, 0])


def fit(**options):
    return FalkonRegressor(n_centers=20, random_state=0, **options).fit(X, y)


def blas():
    return sorted((lib["filepath"], lib["num_threads"]) for lib in threadpool_info() if lib["user_api"] == "blas")


def forked(work):
    '''Exit code of `work` in a child.'''
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(15)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextlib.contextmanager
def elsewhere(work):
    '''Around what happens while another thread is within the context `work`.'''
    inside, leave = threading.Event(), threading.Event()

    def run():
        with work:
            inside.set()
            leave.wait()

    thread = threading.Thread(target=run)
    thread.start()
    inside.wait()
    yield
    leave.set()
    thread.join()


expected = fit().predict(X)
before = blas()


def check():
    assert blas() == before, (blas(), before)
    model = fit()
    np.testing.assert_array_equal(model.predict(X), expected)
    with single_threaded_blas():
        assert {threads for _, threads in blas()} == {1}
    assert blas() == before, (blas(), before)

"""


def run(script):
    """What a process prints that runs this and exits well; it and its children end in any case."""
    with subprocess.Popen(
        [sys.executable, "-c", COMMON + textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "2"},
    ) as process:
        try:
            output, errors = process.communicate(timeout=120)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output + errors[-4000:]
    return output


def test_fits_in_children_of_a_process_that_fits():
    codes = run("""
        over = threading.Event()

        def fits():
            while not over.is_set():
                fit(n_jobs=2)

        threads = [threading.Thread(target=fits) for _ in range(2)]
        for thread in threads:
            thread.start()
        codes = []
        for moment in rng.uniform(0, 0.05, 20):
            time.sleep(moment)
            codes.append(forked(check))
            if codes[-1]:
                break
        over.set()
        for thread in threads:
            thread.join()
        check()
        print(codes)
    """)
    assert codes == f"{[0] * 20}\n"


@pytest.mark.parametrize("n_holders", [1, 3])
def test_a_child_has_the_limits_that_blas_had(n_holders):
    codes = run(f"""
        with contextlib.ExitStack() as holders:
            for _ in range({n_holders}):
                holders.enter_context(elsewhere(single_threaded_blas()))
            assert {{threads for _, threads in blas()}} == {{1}}
            print(forked(check))
            print(forked(lambda: print(forked(check))))
            assert {{threads for _, threads in blas()}} == {{1}}
        check()
    """)
    assert codes == "0\n0\n0\n"


def test_a_fork_by_the_thread_that_holds_blas():
    codes = run("""
        def leave():
            holding.close()
            check()

        holding = contextlib.ExitStack()
        with holding:
            holding.enter_context(single_threaded_blas())
            print(forked(check), forked(leave))
            assert {threads for _, threads in blas()} == {1}
        check()
    """)
    assert codes == "0 0\n"


def test_a_bar_in_a_child_of_a_process_that_draws_one():
    codes = run("""
        from tqdm import tqdm

        lock = tqdm.get_lock()
        with elsewhere(lock):
            print(forked(lambda: fit(callbacks=[ProgressBar(file=sys.stdout)])))
    """)
    assert codes.endswith("\n0\n")
    assert "FalkonRegressor: 100%" in codes


def test_a_target_that_is_being_read_while_the_process_forks(tmp_path):
    pytest.importorskip("pyarrow")
    code = run(f"""
        import pandas, gyrfalcon
        path = {str(tmp_path / "rows.parquet")!r}
        pandas.DataFrame({{"a": y, "b": y, "w": y * y}}).to_parquet(path)
        opened = lambda: gyrfalcon.open(path, target="b", weight="w")

        class Slow:
            '''Columns that are there when they are waited for.'''
            def __init__(self, files):
                self.files = files
            def __enter__(self):
                self.reading = threading.Thread(target=lambda: (self.data.y, self.data.weight))
                self.data = opened()
                self.data._files = self
                self.asked, self.go = threading.Event(), threading.Event()
                self.reading.start()
                self.asked.wait()
            def values(self, names):
                self.asked.set()
                self.go.wait()
                return self.files.values(names)
            def __exit__(self, *error):
                self.go.set()
                self.reading.join()
                np.testing.assert_array_equal(self.data.y, y)

        def read():
            data = opened()
            np.testing.assert_array_equal(data.y, y)
            assert data.y is data.y
            np.testing.assert_array_equal(data.weight, y * y)
            assert data.weight is data.weight

        with Slow(opened()._files):
            print(forked(read))
    """)
    assert code == "0\n"
