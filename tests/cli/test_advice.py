"""Advice about a search, beside the time that the report says it took."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gyrfalcon import AutoRegressor
from gyrfalcon.cli import _advice


def searched(seconds, budget=40.0, stage="search"):
    """A model whose search took so long."""
    model = AutoRegressor(budget)
    model.candidates_ = [{"stage": stage, "seconds": seconds / 4} for _ in range(4)]
    model.models_ = [SimpleNamespace(centers_=np.zeros((1000, 2)))]
    model.encoders_ = [SimpleNamespace(kinds_=np.array(["number", "number"]))]
    model.feature_importances_ = np.array([0.5, 0.5])
    model.n_features_in_ = 2
    return model


@pytest.mark.parametrize(
    ("seconds", "stage", "said", "not_said"),
    [
        (14.7, "search", "its share of the time budget, 14.7 of 40 s", "time budget ended"),
        (14.7, "all rows", "", "time"),
        (2.0, "search", "", "time"),
        (38.0, "all rows", "The time budget ended the search after 4 candidates: with more than 40", "share"),
    ],
)
def test_what_ended_the_search(seconds, stage, said, not_said):
    advice = " ".join(_advice.of_model(searched(seconds, stage=stage), 500))
    assert said in advice
    assert not_said not in advice


def test_one_row_is_no_plural():
    assert "only 1 row:" in next(_advice.of_model(searched(1.0), 1))
    assert "1 rows" not in next(_advice.of_model(searched(1.0), 1))
