"""The adapter of benchmarks/tabarena_system.py, with a small stand-in for TabArena's base class."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
LIMITS = {"num_cpus": 1, "num_gpus": 0, "memory_limit": 4.0, "time_limit": 120.0}


class Metadata:
    def __init__(self, group_on=None, time_on=None):
        self.target_name, self.group_on, self.time_on = "y", group_on, time_on


class ExternalSystemModel:
    """What TabArena's class of this name does: it keeps the limits, and passes everything to `_fit_system`."""

    def __init__(self, *, problem_type, validation_metadata, fit_kwargs=None):
        self.problem_type, self.validation_metadata = problem_type, validation_metadata
        self.limits = fit_kwargs or dict.fromkeys(LIMITS)

    def fit(self, X, y, X_val=None, y_val=None):
        return self._fit_system(
            X.copy(),
            y,
            target_name="y",
            problem_type=self.problem_type,
            eval_metric=None,
            validation_metadata=self.validation_metadata,
            random_state=3,
            **self.limits,
        )

    def predict(self, X):
        return self._predict(X)

    def predict_proba(self, X):
        return self._predict_proba(X)


class Once:
    """A callback that ends the search after its first candidate."""

    def on_iteration(self, record):
        return True


@pytest.fixture
def system(monkeypatch):
    names = ["tabarena", "tabarena.benchmark", "tabarena.benchmark.exec_models"]
    for name in [*names, f"{names[-1]}.external"]:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules[f"{names[-1]}.external"].ExternalSystemModel = ExternalSystemModel
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delitem(sys.modules, "tabarena_system", raising=False)
    yield importlib.import_module("tabarena_system")
    sys.modules.pop("tabarena_system", None)


def table(n=90):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.choice(["u", "v"], n), "day": rng.permutation(n)})
    X.index = rng.permutation(1000)[:n]
    return X, pd.Series(X["a"] + (X["b"] == "u"), index=X.index)


def made(system, problem_type, **fields):
    return system.GyrfalconSystem(
        problem_type=problem_type,
        validation_metadata=Metadata(**fields),
        fit_kwargs=LIMITS,
        parameters={"families": ("kernel",), "callbacks": [Once()]},
    )


def test_regression(system):
    X, y = table()
    fitted = made(system, "regression").fit(X, y)
    out = fitted.predict(X)
    assert out.index.equals(X.index)
    assert np.corrcoef(out, y)[0, 1] > 0.8
    assert fitted.model.time_budget == pytest.approx(100.0)  # so that a fit that takes a fifth longer keeps the limit
    assert fitted.model.n_jobs == 1
    assert fitted.model.memory_budget == 3_200_000_000
    assert fitted.model.random_state == 3


def test_classes_keep_their_labels(system):
    X, y = table()
    labels = pd.Series(np.where(y > 0.5, "high", "low"), index=X.index)
    out = made(system, "binary").fit(X, labels).predict_proba(X)
    assert list(out.columns) == ["high", "low"]
    assert out.index.equals(X.index)
    np.testing.assert_allclose(out.sum(axis=1), 1.0)


def test_rows_are_held_out_as_the_task_says(system):
    X, y = table()
    later, target, how = system.split_by(X, y, None, "day")
    assert later["day"].is_monotonic_increasing
    assert target.index.equals(later.index)
    assert type(how["cv"]).__name__ == "TimeSeriesSplit"
    _, _, how = system.split_by(X, y, ["b", "not there"], None)
    assert (pd.Series(how["groups"]).groupby(X["b"].to_numpy()).nunique() == 1).all()
    assert len(set(how["groups"])) == 2
    assert system.split_by(X, y, None, None)[2] == {}


def test_no_limits(system):
    X, y = table()
    one = system.GyrfalconSystem(
        problem_type="regression",
        validation_metadata=Metadata(group_on="b"),
        parameters={"families": ("kernel",), "callbacks": [Once()]},
    )
    fitted = one.fit(X, y).model
    assert fitted.time_budget == 600
    assert fitted.n_jobs is None
    assert fitted.memory_budget == "auto"
