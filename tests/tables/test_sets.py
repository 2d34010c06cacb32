"""Sets of classes of AutoClassifier: how often they contain the right class, and what they are made of."""

from __future__ import annotations

import numpy as np
import pytest

import gyrfalcon
from gyrfalcon import AutoClassifier
from tables.short_search import Brief


def data(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return rng.standard_normal((n, 2)) + 1.5 * np.eye(3)[y][:, :2], np.array(["a", "b", "c"])[y]


def test_sets_contain_the_right_class_as_often_as_asked(tmp_path):
    (X, y), (T, u) = data(600, 0), data(3000, 1)
    model = AutoClassifier(time_budget=30, families=("kernel",), callbacks=Brief(), random_state=0).fit(X, y)
    codes = np.searchsorted(model.classes_, u)
    sizes = []
    for coverage in (0.8, 0.95):
        sets = model.predict_set(T, coverage)
        assert sets.shape == (3000, 3)
        assert sets.dtype == bool
        # 600 held-out rows and 3,000 test rows: a standard deviation of 0.018 at 0.8
        assert abs(sets[np.arange(3000), codes].mean() - coverage) < 0.07
        sizes.append(sets.sum(axis=1).mean())
    assert sizes[0] < sizes[1]
    model.save(tmp_path / "model.gyr")
    again = gyrfalcon.load(tmp_path / "model.gyr")
    assert np.array_equal(again.predict_set(T[:50]), model.predict_set(T[:50]))
    with pytest.raises(ValueError, match="coverage=1"):
        model.predict_set(T, coverage=1)
    with pytest.raises(ValueError, match="needs at least"):
        model.predict_set(T, coverage=0.9999)
