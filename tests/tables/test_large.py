"""The automatic estimators beyond `EXACT_ROWS` rows; tables are small here, and count as large."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from short_search import Brief

import gyrfalcon
from gyrfalcon import AutoClassifier, AutoRegressor
from gyrfalcon._utils.compute import Compute
from gyrfalcon.fitting.row_sample import expected_passes
from gyrfalcon.sources import as_rows
from gyrfalcon.tables import _auto, finding, large
from gyrfalcon.tables.budget import affordable_trees, most_centers
from gyrfalcon.tables.search import LAPLACIAN_1, MATERN, Kind, OutOfTimeError, Search

BOTH = pytest.mark.parametrize("make", [AutoRegressor, AutoClassifier])
NEVER = 1e9  # seconds


@pytest.fixture(autouse=True)
def everything_is_large(request, monkeypatch):
    """Search two candidates, whatever the clock says, and let FALKON with 40 centers alone be affordable."""
    if request.node.get_closest_marker("slow"):  # a large table
        return

    def run(search):
        with suppress(OutOfTimeError):  # of a callback
            metrics = [np.ones(search.views[0].X.shape[1])]
            for family in (LAPLACIAN_1, MATERN):
                search._try(Kind(0, family, search.targets[0]), 0, metrics, 1.0, np.array([0.1]))

    for module in (_auto, finding, large):
        monkeypatch.setattr(module, "EXACT_ROWS", 100)
    monkeypatch.setattr(Search, "run", run)
    monkeypatch.setattr(large, "_MOST_MEMBERS", 5)
    monkeypatch.setattr(large, "falkon_seconds", lambda *given: None)
    affordable(monkeypatch, centers=40)


def affordable(monkeypatch, *, centers, every_row=False, trees=None):
    seconds = 0.0 if every_row else NEVER
    monkeypatch.setattr(large, "large_exact_seconds", lambda *given: lambda columns: seconds)
    monkeypatch.setattr(large, "most_centers", lambda *given: centers)
    monkeypatch.setattr(large, "affordable_trees", lambda *given: trees)


def table(make, n=400):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 2))
    y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(n)
    return X, y if make is AutoRegressor else np.digitize(y, [0.0, 0.6])


def values(model, X):
    return model.predict(X) if isinstance(model, AutoRegressor) else model.predict_proba(X)


def last_stages(model):
    return [record["stage"] for record in model.candidates_ if record["stage"] != "search"]


@BOTH
def test_more_fits_until_the_error_no_longer_falls(make, monkeypatch):
    monkeypatch.setattr(large, "_FALL", 1.0)  # no error falls by as much
    X, y = table(make)
    model = make(600, families=("kernel",), random_state=0).fit(X, y)
    fits = last_stages(model)
    wanted = {(record["kernel"], record["stage"]) for record in model.candidates_[-len(fits) :]}
    assert len(fits) >= len(wanted) + 1
    assert set(fits) == {"all rows, few centers"}
    assert model.score(X, y) > 0.8


@BOTH
def test_larger_models_while_there_is_time(make, monkeypatch):
    """Later fits of the same candidate have more centers."""
    sizes = iter([20, 20, 20, *range(40, 2000, 40)])
    affordable(monkeypatch, centers=None)
    monkeypatch.setattr(large, "most_centers", lambda estimate, seconds, n, compute: min(n, next(sizes)))
    monkeypatch.setattr(large, "_FALL", -1.0)  # as if every fit lowered the error
    X, y = table(make)
    model = make(600, families=("kernel",), random_state=0).fit(X, y)
    assert len(last_stages(model)) == 5
    assert max(len(one.centers_) for one in model.models_) > 40


def test_every_row_a_center_where_there_is_time(monkeypatch):
    affordable(monkeypatch, centers=40, every_row=True)
    X, y = table(AutoRegressor)
    model = AutoRegressor(600, families=("kernel",), random_state=0).fit(X, y)
    assert set(last_stages(model)) == {"all rows"}
    assert {type(one).__name__ for one in model.models_} == {"ExactRegressor"}
    assert {len(one.centers_) for one in model.models_} == {320}  # a fifth is held out
    searched = [record["penalty"] for record in model.candidates_ if record["stage"] == "search"]
    assert all(one.penalty_ > 0 for one in model.models_)
    assert searched


def test_classes_have_fits_of_both_losses(monkeypatch):
    X, y = table(AutoClassifier)
    model = AutoClassifier(600, families=("kernel",), random_state=0).fit(X, y)
    assert {type(one.loss_).__name__ for one in model.models_} <= {"Softmax", "Squared"}
    kernels = [record["kernel"] for record in model.candidates_ if record["stage"] != "search"]
    assert len(kernels) >= 3
    assert model.score(X, y) > 0.8


@BOTH
def test_trees_of_the_best_candidate(make, monkeypatch):
    """They are fitted if there is no time for an exact fit, and their importances are those of their global part."""
    affordable(monkeypatch, centers=5, trees=(2, 100))
    X, y = table(make)
    model = make(600, families=("kernel",), random_state=0).fit(X, y)
    trees = [one for one in model.models_ if type(one).__name__.startswith("Hierarchical")]
    assert trees
    assert {(one.leaf_size_, len(one.trees_)) for one in trees} == {(100, 2)}
    assert "all rows" in last_stages(model)
    assert model.score(X, y) > 0.8
    assert model.feature_importances_.argmax() == 0


@BOTH
@pytest.mark.parametrize("way", [{}, {"every_row": True}, {"trees": (2, 100)}])
def test_files_of_models(make, way, monkeypatch, tmp_path):
    affordable(monkeypatch, centers=5, **way)
    X, y = table(make)
    model = make(600, families=("kernel",), random_state=0).fit(X, y)
    model.save(tmp_path / "model.gyr")
    np.testing.assert_array_equal(values(gyrfalcon.load(tmp_path / "model.gyr"), X), values(model, X))


@BOTH
def test_a_stopped_fit_goes_on_with_the_same_bits(make, monkeypatch, tmp_path):
    affordable(monkeypatch, centers=40, trees=(2, 100))
    X, y = table(make)

    def stop(record):
        if record["stage"] != "search":
            raise RuntimeError("stopped")

    whole = make(600, families=("kernel",), random_state=0).fit(X, y)
    with pytest.raises(RuntimeError, match="stopped"):
        make(600, families=("kernel",), random_state=0, checkpoint=tmp_path / "c", callbacks=stop).fit(X, y)
    resumed = make(600, families=("kernel",), random_state=0, checkpoint=tmp_path / "c").fit(X, y)
    np.testing.assert_array_equal(values(resumed, X), values(whole, X))
    assert last_stages(resumed) == last_stages(whole)


@BOTH
def test_ctrl_c_keeps_what_is_fitted(make):
    X, y = table(make)

    def interrupt(record):
        if record["stage"] != "search":
            raise KeyboardInterrupt

    model = make(600, families=("kernel",), random_state=0, callbacks=interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert len(model.models_) == 1
    assert model.score(X, y) > 0.5


@BOTH
def test_a_callback_ends_the_fits(make):
    X, y = table(make)
    model = make(600, families=("kernel",), random_state=0, callbacks=Brief(2)).fit(X, y)
    assert last_stages(model) == ["all rows, few centers"]


@BOTH
def test_rows_from_files(make, tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    X, y = table(make)
    X = pd.DataFrame(X, columns=["a", "b"])
    X.assign(y=y).to_parquet(tmp_path / "rows.parquet")
    model = make(600, families=("kernel",), random_state=0).fit(gyrfalcon.open(tmp_path / "rows.parquet", target="y"))
    np.testing.assert_array_equal(
        values(model, X), values(make(600, families=("kernel",), random_state=0).fit(X, y), X)
    )


def test_a_splitter_that_leaves_no_row_to_judge():
    from sklearn.model_selection import TimeSeriesSplit

    X, y = table(AutoRegressor)
    model = AutoRegressor(600, families=("kernel",), random_state=0, cv=TimeSeriesSplit(3)).fit(X, y)
    assert model.score(X, y) > 0.5


# ---- sizes -----------------------------------------------------------------------------------------------------------


def test_the_least_penalty_falls_with_the_rows(monkeypatch):
    monkeypatch.setattr(finding, "EXACT_ROWS", 60_000)
    least = [finding.least_ridge(n) / n for n in (60_000, 120_000, 10_000_000)]
    assert least[0] == pytest.approx(2.5e-6)
    assert least[1] == pytest.approx(least[0] / 2)
    assert least[2] < 2e-8
    assert finding.least_ridge(1_000) == 0.004


def test_samples_grow_with_the_time(monkeypatch):
    monkeypatch.setattr(finding, "EXACT_ROWS", 60_000)
    assert finding.sample_growth(60_000, 3_600) == 1
    assert finding.sample_growth(60_001, 30) == 1
    assert 2 < finding.sample_growth(10**6, 300) <= finding.sample_growth(10**6, 3_600)


def test_the_most_centers_that_time_allows():
    compute = Compute(1, "20GB")
    found = most_centers(lambda M: 1e-3 * M, 7.5, 10**6, compute)
    assert found == 7_500
    assert most_centers(lambda M: 0.0, 1.0, 800, compute) == 800
    assert most_centers(lambda M: 1.0, 0.5, 10**6, compute) is None
    assert most_centers(lambda M: 0.0, 1.0, 10**6, Compute(1, "1GB")) < 10_000


def test_trees_that_time_allows():
    compute = Compute(1, "1GB")
    assert affordable_trees(10**5, 0.0, compute) is None
    assert affordable_trees(10**5, 1e9, compute) == (4, 4_096)


def test_few_passes_where_a_sample_preconditions():
    rows = as_rows(np.zeros((100_000, 10), dtype=np.float32))
    assert 4 < expected_passes(rows, 2_000) < 10
    assert expected_passes(rows, 10_000) == 21


# ---- a large table ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@BOTH
def test_a_large_table(make, tmp_path):
    """All of it for once: a real search, real estimates, a model file and the report's advice; no bound on the time."""
    from gyrfalcon.cli._advice import of_model

    X, y = table(make, 82_000)
    model = make(4, families=("kernel",), random_state=0).fit(X, y)
    assert {"search", *last_stages(model)} <= {"search", "larger sample", "all rows", "all rows, few centers"}
    assert any(record["stage"].startswith("all rows") for record in model.candidates_)
    assert model.score(X[:2_000], y[:2_000]) > (0.9 if make is AutoRegressor else 0.8)
    model.save(tmp_path / "model.gyr")
    np.testing.assert_array_equal(values(gyrfalcon.load(tmp_path / "model.gyr"), X[:50]), values(model, X[:50]))
    assert all(isinstance(line, str) for line in of_model(model, len(X)))
