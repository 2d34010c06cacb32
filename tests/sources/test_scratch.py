"""Rows of text are parsed once in a fit, into a file that is gone afterwards."""

from __future__ import annotations

import errno
import gc
import io
import os
import pickle
import shutil
import tempfile
from collections import Counter

import numpy as np
import pytest

import gyrfalcon
from gyrfalcon import (
    DPP,
    FalkonClassifier,
    FalkonRegressor,
    KernelKMeans,
    KernelPCA,
    LearnedMetric,
    NoveltyDetector,
    NystromRegressor,
)
from gyrfalcon.fitting import session as fit_sessions
from gyrfalcon.kernels import Gaussian
from gyrfalcon.sources import ArrayRows
from gyrfalcon.sources.csv_files import CsvReader
from gyrfalcon.sources.scratch import Scratch, ScratchRows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

N, D = 1000, 3
VALUES = np.random.default_rng(0).standard_normal((N, D))
Y = np.sin(VALUES[:, 0]) + VALUES[:, 1]


class Slow(ArrayRows):
    """Rows in memory that say that they are slow to read, and count how often they are."""

    slow_to_read = True

    def __init__(self, X):
        super().__init__(X)
        self.reads = 0

    def blocks(self, size):
        self.reads += 1
        yield from super().blocks(size)

    def take(self, indices):
        self.reads += len(indices) > 0
        return super().take(indices)


@pytest.fixture
def files(monkeypatch):
    """The temporary files that are made meanwhile."""
    made = []

    class Remembered(gyrfalcon.sources.scratch._TemporaryFile):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(gyrfalcon.sources.scratch, "_TemporaryFile", Remembered)
    return made


@pytest.fixture
def scratch():
    made = Scratch()
    yield made
    made.close()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "rows.csv"
    table = np.column_stack([VALUES, Y])
    np.savetxt(path, table, delimiter=",", header="a,b,c,y", comments="", fmt="%.17g")
    return path


# ---- the rows --------------------------------------------------------------------------------------------------------


def test_later_readings_are_of_the_file(scratch):
    slow = Slow(VALUES)
    rows = scratch.rows(slow)
    for size in (7, 1000, 64):
        np.testing.assert_array_equal(np.vstack(list(rows.blocks(size))), VALUES)
    np.testing.assert_array_equal(rows.take(np.array([5, 999, 0, 5])), VALUES[[5, 999, 0, 5]])
    np.testing.assert_array_equal(rows.subset(np.array([3, 8])).take(np.array([1])), VALUES[[8]])
    assert slow.reads == 1
    assert not rows.slow_to_read
    assert rows.fingerprint() == slow.fingerprint()


def test_rows_that_are_taken_first_are_a_whole_reading(scratch):
    slow = Slow(VALUES.astype(np.float32))
    rows = scratch.rows(slow)
    assert not rows.is_sparse
    assert slow.reads == 0
    np.testing.assert_array_equal(rows.take(np.array([-1, 2])), slow.X[[-1, 2]])
    np.testing.assert_array_equal(np.vstack(list(rows.blocks(10))), slow.X)
    assert slow.reads == 1
    assert rows.dtype == np.float32


def test_a_reading_that_is_abandoned_does_not_count(scratch):
    slow = Slow(VALUES)
    rows = scratch.rows(slow)
    reading = rows.blocks(10)
    next(reading)
    del reading
    gc.collect()
    np.testing.assert_array_equal(np.vstack(list(rows.blocks(100))), VALUES)
    np.testing.assert_array_equal(np.vstack(list(rows.blocks(100))), VALUES)
    assert slow.reads == 2


def test_two_readings_at_once(scratch):
    slow = Slow(VALUES)
    rows = scratch.rows(slow)
    for a, b in zip(rows.blocks(100), rows.blocks(100), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(rows.blocks(100), rows.blocks(100), strict=True):
        np.testing.assert_array_equal(a, b)
    assert slow.reads == 2


def test_a_reading_that_starts_late_leaves_the_file_alone(scratch):
    slow = Slow(VALUES)
    rows = scratch.rows(slow)
    late, never_read_to_its_end = rows.blocks(100), rows.blocks(100)
    np.testing.assert_array_equal(np.vstack(list(rows.blocks(64))), VALUES)
    next(never_read_to_its_end)
    np.testing.assert_array_equal(rows.take(np.array([999, 1])), VALUES[[999, 1]])
    np.testing.assert_array_equal(np.vstack(list(late)), VALUES)
    assert slow.reads == 1


def test_rows_that_are_quick_to_read_stay_as_they_are(scratch):
    rows = ArrayRows(VALUES)
    assert scratch.rows(rows) is rows


def test_a_full_disk_is_noticed_before(scratch, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**9, 10**9, 10**6))
    rows = Slow(VALUES)
    assert scratch.rows(rows) is rows


def test_a_disk_that_fills_up_meanwhile_does_no_harm():
    class Full(io.BytesIO):
        def write(self, data):
            if self.tell() > 5000:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)

    slow, file = Slow(VALUES), Full()
    rows = ScratchRows(slow, file)
    for _ in range(2):
        np.testing.assert_array_equal(np.vstack(list(rows.blocks(100))), VALUES)
    assert slow.reads == 2
    assert len(file.getvalue()) == 0


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path):
    rows = Slow(VALUES)
    assert Scratch(str(tmp_path / "missing")).rows(rows) is rows


def test_a_machine_without_a_folder_for_temporary_files_does_no_harm(monkeypatch):
    def none():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setenv("TMPDIR", "/missing")
    monkeypatch.setattr(tempfile, "gettempdir", none)
    rows = Slow(VALUES)
    assert Scratch().rows(rows) is rows


def test_another_process_reads_the_source(scratch):
    rows = scratch.rows(ArrayRowsOfText())
    assert isinstance(pickle.loads(pickle.dumps(rows)), ArrayRowsOfText)


class ArrayRowsOfText(Slow):
    def __init__(self):
        super().__init__(VALUES)


def test_the_environment_says_where(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir, **options: seen.append(dir) or io.BytesIO())
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    Scratch().rows(Slow(VALUES))
    Scratch("/").rows(Slow(VALUES))
    assert seen == [str(tmp_path), "/"]


# ---- fits ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def parsed(monkeypatch):
    """How often which columns of a file were parsed."""
    count = Counter()
    batches = CsvReader.batches

    def counted(self, columns, groups):
        count[tuple(columns)] += 1
        return batches(self, columns, groups)

    monkeypatch.setattr(CsvReader, "batches", counted)
    return count


FITS = {
    "regression": lambda X, y, **more: FalkonRegressor(n_centers=30, max_iter=5, random_state=0, **more).fit(X, y),
    "classes": lambda X, y: FalkonClassifier(n_centers=30, loss="logistic", random_state=0).fit(X, y > 0),
    "validation": lambda X, y: FalkonRegressor(
        n_centers=30, max_iter=5, centers="leverage", penalty=1e-4, early_stopping=True, random_state=0
    ).fit(X, y),
    "direct": lambda X, y: NystromRegressor(n_centers=30, random_state=0).fit(X, y),
    "components": lambda X, y: KernelPCA(n_centers=30, n_components=3, random_state=0).fit(X),
    "clusters": lambda X, y: KernelKMeans(3, n_centers=30, random_state=0).fit(X, sample_weight=1 + (y > 0)),
    "novelty": lambda X, y: NoveltyDetector(n_centers=30, random_state=0).fit(X),
}


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
def test_a_fit_parses_once_to_the_same_bits(fit, text, parsed, files, monkeypatch):
    data = gyrfalcon.open(text, target="y")
    y = data.y
    parsed.clear()
    model = fit(data.X, y)
    assert parsed == {("a", "b", "c"): 1}
    assert files
    assert all(file.closed for file in files)
    monkeypatch.setattr(Scratch, "rows", lambda self, rows: rows)
    again = fit(data.X, y)
    assert parsed["a", "b", "c"] > 3  # with the one above
    np.testing.assert_array_equal(model.dual_coef_, again.dual_coef_)


def test_samples_of_a_process_look_at_the_file(text, parsed, files):
    rows = gyrfalcon.open(text, target="y").X
    parsed.clear()
    process = DPP(Gaussian(1.0), expected_size=3, n_centers=20, random_state=0).fit(rows)
    samples = process.sample(20)
    assert parsed == {("a", "b", "c"): 1}
    assert not any(file.closed for file in files)
    again = DPP(Gaussian(1.0), expected_size=3, n_centers=20, random_state=0).fit(VALUES).sample(20)
    assert list(map(list, samples)) == list(map(list, again))
    assert len(pickle.loads(pickle.dumps(process)).sample()) <= len(VALUES)  # of the text, in another process
    del process
    gc.collect()
    assert all(file.closed for file in files)
    with pytest.raises(ValueError, match="at most"):
        DPP(Gaussian(1.0), size=10**6).fit(rows)
    gc.collect()
    assert all(file.closed for file in files)


def test_validation_rows_and_metrics_are_parsed_once(text, parsed):
    data = gyrfalcon.open(text, target="y")
    y = data.y
    parsed.clear()
    FalkonRegressor(n_centers=30, max_iter=5, random_state=0).fit(VALUES, Y, X_val=data.X, y_val=y)
    LearnedMetric(n_rounds=1, random_state=0).fit(data.X, y)
    assert parsed == {("a", "b", "c"): 2}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_nothing_is_left_when_a_fit_fails(error, text, files):
    data = gyrfalcon.open(text, target="y")

    def stop(record):
        raise error

    with pytest.raises(error):
        FITS["regression"](data.X, data.y, callbacks=stop)
    assert files
    assert all(file.closed for file in files)


def test_the_file_is_beside_the_checkpoint_and_a_fit_goes_on(text, tmp_path, monkeypatch):
    folders = []
    scratch = fit_sessions.Scratch
    monkeypatch.setattr(fit_sessions, "Scratch", lambda folder: folders.append(folder) or scratch(folder))
    data = gyrfalcon.open(text, target="y")
    settings = {"n_centers": 30, "tol": 0, "random_state": 0}
    whole = FalkonRegressor(max_iter=8, **settings).fit(data.X, data.y)
    folder = tmp_path / "state"
    for stop in (4, 8):
        model = FalkonRegressor(max_iter=stop, checkpoint=folder, **settings).fit(data.X, data.y)
    np.testing.assert_array_equal(model.dual_coef_, whole.dual_coef_)
    assert folders == [None, os.path.abspath(folder), os.path.abspath(folder)]


def test_a_wrong_number_in_the_text_is_still_named(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,y\n" + "1.0,2.0\n" * 50 + ",1.0\n")
    data = gyrfalcon.open(path, target="y")
    with pytest.raises(ValueError, match=r"column 'a' has no value in row 50 .*line 52"):
        FalkonRegressor(n_centers=5).fit(data.X, data.y)
