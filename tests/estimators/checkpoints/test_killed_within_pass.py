"""A fit that is killed within a pass over the rows goes on within that pass, and ends with the same bits."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gyrfalcon import Checkpoint, CheckpointError, FalkonClassifier, FalkonRegressor, KernelOperator
from gyrfalcon.kernels import Gaussian
from gyrfalcon.operators.interrupted import name_of
from gyrfalcon.sources import Rows
from gyrfalcon.storage.checkpoints import sums

N, D = 40_000, 3
PENALTY = 1e-6


class StopError(Exception):
    pass


class Source(Rows):
    """Rows that are read in blocks; `read` counts them."""

    shape, dtype, exact = (N, D), np.dtype(np.float64), True

    def __init__(self):
        self.X = np.random.default_rng(0).standard_normal((N, D))
        self.read = 0

    def blocks(self, size):
        for start in range(0, N, size):
            self.read += 1
            yield self.X[start : start + size]

    def take(self, indices):
        return self.X[indices]

    def fingerprint(self):
        return "the same rows"


def target():
    X = Source().X
    return np.sin(X[:, 0]) + X[:, 1] * X[:, 2]


def model_of(kind, folder, **options):
    common = {"n_centers": 50, "penalty": PENALTY, "scale": False, "memory_budget": 0, "random_state": 0, **options}
    if folder is not None:
        common["checkpoint"] = Checkpoint(folder, every=0)
    return kind(Gaussian(1.0), **common)


class Blocks:
    """How many blocks were multiplied, and after how many of them the fit fails."""

    def __init__(self):
        self.done, self.last = 0, None

    def fail_after(self, last):
        self.done, self.last = 0, last


@pytest.fixture
def blocks(monkeypatch):
    """Count the blocks that products are made of, and write the sums after every block."""
    count, real = Blocks(), KernelOperator._check_block

    def check(self, at, rows):
        if self.shape[0] == N:
            if count.done == count.last:
                raise StopError
            count.done += 1
        real(self, at, rows)

    monkeypatch.setattr(KernelOperator, "_check_block", check)
    monkeypatch.setattr(sums, "_SHARE", np.inf)
    return count


FITS = {
    "falkon": (FalkonRegressor, {"preconditioner": "falkon", "max_iter": 3}, target),
    "krill": (FalkonRegressor, {"preconditioner": "krill", "max_iter": 2}, target),
    "sample": (FalkonRegressor, {"preconditioner": "sample", "max_iter": 3, "tol": 1e-12}, target),
    "two columns": (FalkonRegressor, {"max_iter": 2}, lambda: np.stack([target(), target() ** 2], axis=1)),
    "classes": (FalkonClassifier, {"max_iter": 2}, lambda: np.digitize(target(), [-0.5, 0.5])),
    "logistic": (FalkonClassifier, {"max_iter": 2, "loss": "logistic"}, lambda: target() > 0),
}

BEGIN_AGAIN = {"krill", "logistic"}  # its sketch of all rows, and a step of Newton's method


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", FITS)
def test_a_fit_that_fails_within_a_pass_goes_on_there(name, blocks, tmp_path):
    kind, options, make = FITS[name]
    y = make()
    whole = model_of(kind, None, n_jobs=1, **options).fit(Source(), y)
    needed = blocks.done
    model = model_of(kind, tmp_path / "fit", n_jobs=1, **options)
    for last in (needed - 30, 10):
        blocks.fail_after(last)
        with pytest.raises(StopError):
            model.fit(Source(), y)
    blocks.fail_after(None)
    model.fit(Source(), y)
    np.testing.assert_array_equal(model.dual_coef_, whole.dual_coef_)
    assert [r["passes"] for r in model.history_] == [r["passes"] for r in whole.history_]
    if name not in BEGIN_AGAIN:
        assert blocks.done == 20
    assert not (tmp_path / "fit" / "sums.safetensors").exists()  # the state of the end comes after them


def test_sums_of_another_fit_are_ignored_and_damaged_ones_refused(blocks, tmp_path):
    y, folder = target(), tmp_path / "fit"
    options = {"preconditioner": "falkon", "max_iter": 2, "tol": 1.0}
    blocks.fail_after(12)
    with pytest.raises(StopError):
        model_of(FalkonRegressor, folder, **options).fit(Source(), y)
    blocks.fail_after(None)
    left = (folder / "sums.safetensors").read_bytes()
    (folder / "sums.safetensors").write_bytes(left[:-5] + b"12345")
    with pytest.raises(CheckpointError, match=r"sums\.safetensors.*Delete this file"):
        model_of(FalkonRegressor, folder, **options).fit(Source(), y)
    other = tmp_path / "other"
    other.mkdir()
    (other / "sums.safetensors").write_bytes(left)
    model = model_of(FalkonRegressor, other, **{**options, "penalty": 1e-3}).fit(Source(), y)
    plain = model_of(FalkonRegressor, None, **{**options, "penalty": 1e-3}).fit(Source(), y)
    np.testing.assert_array_equal(model.dual_coef_, plain.dual_coef_)


def test_names_differ_with_verbs_shapes_and_bits():
    ones = np.ones((4, 2))
    other = ones.copy()
    other[3, 1] = np.nextafter(1, 2)
    parts = [[ones], [other], [ones.reshape(2, 4)], [ones, ones], [ones.astype(np.float32)], [ones, None]]
    names = [name_of("sandwich", part) for part in parts]
    assert len({*names[:5], name_of("rmatmat", [ones])}) == 6
    assert names[5] == names[0]
    assert name_of("rmatmat", [ones[:, ::-1]]) == name_of("rmatmat", [ones])  # whatever its layout in memory


def test_a_few_hundred_passes_keep_a_few_sums(tmp_path):
    kept = sums.KeptSums(str(tmp_path), {}, every=1e9)
    for number in range(200):
        kept.add(str(number), 5, np.full((3, 1), float(number)), is_last=True)
    assert kept.found("0") is None
    rows, total = kept.found("199")
    assert rows == 5
    np.testing.assert_array_equal(total, np.full((3, 1), 199.0))
    assert not list(tmp_path.iterdir())


KILLED = """
import os, signal, sys
import numpy as np
sys.path.insert(0, sys.argv[3])
from test_killed_within_pass import FITS, Source, model_of, sums

class Killed(Source):
    def blocks(self, size):
        for block in super().blocks(size):
            if self.read == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)
            yield block

kind, options, make = FITS["falkon"]
sums._SHARE = np.inf
model = model_of(kind, sys.argv[1], **options).fit(Killed(), make())
print(model.dual_coef_.tobytes().hex())
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_process_killed_within_passes_ends_with_the_same_bits(tmp_path):
    kind, options, make = FITS["falkon"]
    whole = model_of(kind, None, **options).fit(Source(), make())
    here = str(Path(__file__).parent)

    def run(last):
        command = [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path / "fit"), str(last), here]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    for last in (20, 50, 45):
        assert run(last).returncode == -signal.SIGKILL
    done = run(0)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == whole.dual_coef_.tobytes().hex()
