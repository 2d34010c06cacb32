"""Hierarchical fits to files that are larger than the memory budget: the bits of a fit in memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import gyrfalcon
from gyrfalcon import HierarchicalClassifier, HierarchicalRegressor
from gyrfalcon.fitting import tree_rows
from gyrfalcon.kernels import Laplacian
from gyrfalcon.sources import Rows

BUDGET = 4_000_000


def data(n: int = 5_000, d: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, d))  # 1.6 MB
    return X, np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.standard_normal(n)


def stored(folder: Path, X: np.ndarray) -> Rows:
    np.save(folder / "X.npy", X)
    rows: Rows = gyrfalcon.open(folder / "X.npy")
    return rows


@pytest.fixture
def files_made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The shapes of the files that rows were written to."""
    made: list[tuple[int, int]] = []

    class Counted(tree_rows.RowsFile):
        def __init__(self, shape: tuple[int, int], dtype: Any = np.float64) -> None:
            made.append(shape)
            super().__init__(shape, dtype)

    monkeypatch.setattr(tree_rows, "RowsFile", Counted)
    return made


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"uncertainty": True, "n_trees": 1},
        {"penalties": [1e-5, 1e-3], "dtype": "float32", "split": "random"},
    ],
    ids=["plain", "uncertain", "penalties"],
)
def test_the_bits_of_a_fit_in_memory(
    tmp_path: Path, files_made: list[tuple[int, int]], parameters: dict[str, Any]
) -> None:
    X, y = data()
    model = HierarchicalRegressor(Laplacian(5.0), penalty=1e-4, n_centers=0, leaf_size=60, n_trees=2, random_state=0)
    model.set_params(**parameters)
    wanted = model.fit(X, y).predict(X[:300])
    assert not files_made
    model.set_params(memory_budget=BUDGET // 2).fit(stored(tmp_path, X), y)
    assert files_made == [X.shape]
    assert isinstance(model.centers_.base, np.memmap)
    assert_array_equal(model.predict(X[:300]), wanted)
    model.save(tmp_path / "model.gyr")
    assert_array_equal(gyrfalcon.load(tmp_path / "model.gyr").predict(X[:300]), wanted)


def test_with_a_global_part_and_a_kernel_that_follows_the_rows(
    tmp_path: Path, files_made: list[tuple[int, int]]
) -> None:
    X, y = data()
    model = HierarchicalClassifier("laplacian", n_centers=50, penalty=1e-4, leaf_size=60, n_trees=1, random_state=0)
    weight = np.random.default_rng(1).uniform(0.5, 2, len(y))
    wanted = model.fit(X, y > 0, weight).predict_proba(X[:300])
    model.set_params(memory_budget=BUDGET).fit(stored(tmp_path, X), y > 0, weight)
    assert files_made == [X.shape]
    # conjugate gradient stops at 1e-3, and sums in blocks of another size differ in their last bits
    np.testing.assert_allclose(model.predict_proba(X[:300]), wanted, atol=1e-6)


def test_a_fit_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    X, y = data()
    rows = stored(tmp_path, X)
    model = HierarchicalRegressor(
        Laplacian(5.0), penalty=1e-4, leaf_size=60, n_trees=3, memory_budget=BUDGET, n_centers=0, random_state=0
    )
    wanted = model.fit(rows, y).predict(X[:300])

    def interrupt(record: dict[str, Any]) -> bool:
        if record["iteration"] == 2:
            raise KeyboardInterrupt
        return False

    checkpoint = gyrfalcon.Checkpoint(tmp_path / "checkpoint", every=0)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(checkpoint=checkpoint, callbacks=interrupt).fit(rows, y)
    trees = []
    model.set_params(callbacks=lambda record: trees.append(record["iteration"])).fit(rows, y)
    assert trees[-1] == 3
    assert len(trees) < 3
    assert_array_equal(model.predict(X[:300]), wanted)


def test_too_little_memory_names_sizes_that_fit(tmp_path: Path) -> None:
    X, y = data()
    model = HierarchicalRegressor(Laplacian(5.0), penalty=1e-4, leaf_size=1_000, memory_budget=BUDGET)
    with pytest.raises(MemoryError, match=r"leaf_size=\d+ with rank=\d+ would fit") as error:
        model.fit(stored(tmp_path, X), y)
    sizes = str(error.value).split("leaf_size=")[1]
    model.set_params(leaf_size=int(sizes.split()[0]), rank=int(sizes.split("rank=")[1].split()[0]))
    model.fit(stored(tmp_path, X), y)


def test_nan_names_the_row(tmp_path: Path) -> None:
    X, y = data()
    X[4_321, 7] = np.nan
    model = HierarchicalRegressor(Laplacian(5.0), penalty=1e-4, leaf_size=60, n_centers=0, memory_budget=BUDGET)
    with pytest.raises(ValueError, match="4321"):
        model.fit(stored(tmp_path, X), y)


def test_files_are_gone_after_a_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data()
    rows = stored(tmp_path, X)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    model = HierarchicalRegressor(Laplacian(5.0), penalty=1e-4, leaf_size=60, memory_budget=BUDGET, random_state=0)
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else None
    model.fit(rows, y)
    assert not list((tmp_path / "scratch").iterdir())
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) <= before + 1  # the rows of the model
