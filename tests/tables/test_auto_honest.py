"""What AutoRegressor and AutoClassifier say of their own errors, and what they take."""

from __future__ import annotations

from itertools import chain, repeat

import numpy as np
import pytest
from short_search import Brief

from gyrfalcon import AutoClassifier, AutoRegressor
from gyrfalcon.tables import learning


def waves(n=600, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    return X, np.sin(3 * X[:, 0]) + X[:, -1] ** 2 + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("make", [AutoRegressor, AutoClassifier])
def test_folds_are_judged_by_models_of_the_same_size(make, monkeypatch):
    """A machine that becomes faster or slower between the fits changes nothing about them."""
    fitted = []

    def plain(model):
        fitted.append((len(model.centers_), model.n_iter_))
        return model.set_params(callbacks=None)

    numbers = chain([100, 50, 25, 120, 60, 30], repeat(80))
    monkeypatch.setattr(learning, "EXACT_ROWS", 0)
    monkeypatch.setattr(learning, "affordable_centers", lambda *arguments: next(numbers))
    monkeypatch.setattr(learning, "plain", plain)
    X, y = waves()
    model = make(600, random_state=0, callbacks=Brief(1)).fit(X, y if make is AutoRegressor else y > 0)
    assert len(fitted) == 6 * len(model.models_)  # five folds and all rows
    assert len({number for number, _ in fitted}) == len(model.models_)
    most = max(iterations for _, iterations in fitted[:1])
    assert all(iterations <= most for _, iterations in fitted[1:6])
