"""Fits with trees that are interrupted go on from their checkpoint, bit for bit, and refuse one of another fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from gyrfalcon import Checkpoint, CheckpointError, HierarchicalClassifier, HierarchicalRegressor
from gyrfalcon.callbacks import Record

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, size=(400, 2))
Y = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.1 * RNG.standard_normal(400)
LABELS = np.digitize(Y, [-0.3, 0.3])
MODEL = HierarchicalRegressor("laplacian", leaf_size=60, penalty=1e-3, n_trees=3, random_state=0)


class InterruptError(Exception):
    pass


def stop_after_two(record: Record) -> None:
    if record["iteration"] == 2:
        raise InterruptError


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (MODEL, (X, Y)),
        (clone(MODEL).set_params(penalty="auto", dtype="float32"), (X, np.stack([Y, Y**2], axis=1))),
        (clone(MODEL).set_params(penalties=[1e-4, 1e-2], uncertainty=True), (X, Y, np.linspace(0, 2, 400))),
        (clone(MODEL).set_params(penalties=[1e-4, 1e-2], choose_by="validation"), (X, Y)),
        (HierarchicalClassifier("laplacian", leaf_size=60, penalty=1e-3, n_trees=3, random_state=0), (X, LABELS)),
    ],
    ids=["plain", "auto", "uncertainty", "validation", "classes"],
)
def test_goes_on_with_the_same_bits(model: HierarchicalRegressor, data: tuple[np.ndarray, ...], tmp_path: Path) -> None:
    whole = clone(model).fit(*data)
    checkpoint = Checkpoint(tmp_path / "state", every=0)
    with pytest.raises(InterruptError):
        clone(model).set_params(checkpoint=checkpoint, callbacks=stop_after_two).fit(*data)
    seen: list[int] = []
    again = clone(model).set_params(checkpoint=checkpoint, callbacks=lambda record: seen.append(record["iteration"]))
    again.fit(*data)
    assert seen == [2, 3]  # the second tree was not kept before the callback failed
    for one, other in zip(again.trees_, whole.trees_, strict=True):
        np.testing.assert_array_equal(one.coef, other.coef, strict=True)
        np.testing.assert_array_equal(one.pivot_coef, other.pivot_coef, strict=True)
    np.testing.assert_array_equal(again.predict(X), whole.predict(X), strict=True)
    assert [record["iteration"] for record in again.history_] == [1, 2, 3]


def test_a_finished_fit_is_only_read(tmp_path: Path) -> None:
    model = clone(MODEL).set_params(checkpoint=tmp_path / "state")
    first = model.fit(X, Y).predict(X)
    model.set_params(callbacks=stop_after_two)
    np.testing.assert_array_equal(model.fit(X, Y).predict(X), first)


@pytest.mark.parametrize("change", [{"leaf_size": 50}, {"n_trees": 4}, {"penalty": 1e-2}, {"random_state": 1}])
def test_another_fit_is_refused(change: dict[str, float], tmp_path: Path) -> None:
    model = clone(MODEL).set_params(checkpoint=tmp_path / "state").fit(X, Y)
    with pytest.raises(CheckpointError, match=next(iter(change))):
        model.set_params(**change).fit(X, Y)
    with pytest.raises(CheckpointError, match="y was"):
        clone(MODEL).set_params(checkpoint=tmp_path / "state").fit(X, Y + 1)
