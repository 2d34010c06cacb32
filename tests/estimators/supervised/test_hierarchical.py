"""The hierarchical estimators: scikit-learn's checks, and the exact estimators where they agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

import gyrfalcon
from gyrfalcon import ExactClassifier, ExactRegressor, HierarchicalClassifier, HierarchicalRegressor
from gyrfalcon.callbacks import Callback
from gyrfalcon.fitting.calibration import fit_calibration
from gyrfalcon.kernels import Laplacian

KERNEL = Laplacian(1.5)
# A repeated row counts twice where a cell is split; `test_weights_count_rows` has a single leaf
REPEATED = "check_sample_weight_equivalence_on_dense_data"


def data(n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(n, 2))
    return X, np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.standard_normal(n)


@parametrize_with_checks(
    [
        HierarchicalRegressor(leaf_size=7, n_trees=2),
        HierarchicalRegressor(leaf_size=7, n_trees=1, penalties=[1e-3, 1e-1], uncertainty=True),
        HierarchicalClassifier(leaf_size=7, n_trees=2),
        HierarchicalClassifier(leaf_size=20, n_trees=1, penalties=[1e-3, 1e-1]),
    ],
    expected_failed_checks=lambda _: {REPEATED: "repeated rows are split among cells"},
)
def test_scikit_learn(estimator: object, check: object) -> None:
    check(estimator)  # type: ignore[operator]


def test_one_leaf_is_the_exact_fit() -> None:
    X, y = data(200)
    penalties = [1e-5, 1e-4, 1e-3]
    one = HierarchicalRegressor(KERNEL, penalties=penalties, leaf_size=200, n_trees=1, uncertainty=True).fit(X, y)
    exact = ExactRegressor(KERNEL, penalties=penalties, uncertainty=True).fit(X, y)
    assert one.penalty_ == exact.penalty_
    np.testing.assert_allclose(one.predict(X), exact.predict(X), atol=1e-10)
    np.testing.assert_allclose(one.history_[0]["loo_errors"], [record["loo_error"] for record in exact.history_])
    np.testing.assert_allclose(one.history_[0]["log_evidences"], [record["log_evidence"] for record in exact.history_])
    np.testing.assert_allclose(one.predict(X, return_std=True)[1], exact.predict(X, return_std=True)[1], atol=1e-7)
    assert one.noise_variance_ == pytest.approx(exact.noise_variance_)


def test_weights_count_rows() -> None:
    X, y = data(300)
    weight = np.random.default_rng(1).integers(0, 3, 300)
    model = HierarchicalRegressor(KERNEL, penalty=1e-3, leaf_size=400, n_trees=1, random_state=0)
    weighted = model.fit(X, y, sample_weight=weight).predict(X)
    repeated = model.fit(np.repeat(X, weight, axis=0), np.repeat(y, weight)).predict(X)
    np.testing.assert_allclose(weighted, repeated, atol=1e-8)


def test_float32_predicts_as_float64() -> None:
    X, y = data()
    wide = HierarchicalRegressor(KERNEL, penalty=1e-3, leaf_size=50, random_state=0).fit(X, y)
    narrow = HierarchicalRegressor(KERNEL, penalty=1e-3, leaf_size=50, random_state=0).fit(X.astype(np.float32), y)
    assert narrow.centers_.dtype == np.float32
    # rounded rows may cross a border, so that single predictions differ
    assert np.median(np.abs(narrow.predict(X.astype(np.float32)) - wide.predict(X))) < 1e-5


@pytest.mark.parametrize("X", [np.ones((90, 3)), np.c_[np.repeat([0.0, 1.0], 45), np.zeros(90)]], ids=["equal", "two"])
def test_duplicate_rows(X: np.ndarray) -> None:
    y = np.arange(90.0)
    model = HierarchicalRegressor(KERNEL, penalty=1e-2, leaf_size=10, random_state=0).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    assert max(np.diff(model.trees_[0].tree.starts)) <= 10


def test_a_row_far_away_is_predicted_by_the_offset() -> None:
    X, y = data()
    model = HierarchicalRegressor(KERNEL, penalty=1e-3, leaf_size=50, random_state=0).fit(X, y)
    assert model.predict([[1e6, -1e6]])[0] == pytest.approx(model.offset_)


def test_too_little_memory_names_sizes_that_fit() -> None:
    X, y = data()
    model = HierarchicalRegressor(KERNEL, penalty=1e-3, leaf_size=300, memory_budget="1MB")
    with pytest.raises(MemoryError, match=r"leaf_size=\d+ with rank=\d+ would fit") as error:
        model.fit(X, y)
    leaf_size = int(str(error.value).split("leaf_size=")[1].split()[0])
    model.set_params(leaf_size=leaf_size).fit(X, y)


def test_factors_go_to_a_file_where_memory_is_short() -> None:
    X, y = data(3000)
    model = HierarchicalRegressor(KERNEL, n_centers=0, penalty=1e-3, leaf_size=60, rank=60, n_trees=1, random_state=0)
    wide = model.fit(X, y).predict(X)
    narrow = model.set_params(memory_budget="3MB").fit(X, y)  # the factors alone take 3.3 MB
    np.testing.assert_array_equal(narrow.predict(X), wide)


def test_model_files(tmp_path: Path) -> None:
    X, y = data()
    for model in (
        HierarchicalRegressor(KERNEL, leaf_size=50, penalty=1e-3, uncertainty=True, random_state=0).fit(X, y),
        HierarchicalClassifier(KERNEL, leaf_size=50, penalty=1e-3, random_state=0).fit(X, np.digitize(y, [-0.5, 0.5])),
    ):
        model.save(tmp_path / "model.gyr")
        again = gyrfalcon.load(tmp_path / "model.gyr")
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_probabilities_are_as_good_as_those_of_the_exact_kernel() -> None:
    X, y = data(2000)
    labels = np.random.default_rng(2).random(2000) < 1 / (1 + np.exp(-2 * y))
    found = []
    for Model, options in ((ExactClassifier, {}), (HierarchicalClassifier, {"leaf_size": 200})):
        model = Model(KERNEL, penalties=[1e-3, 1e-2, 1e-1], random_state=0, **options).fit(X[:1500], labels[:1500])
        found.append(log_loss(labels[1500:], model.predict_proba(X[1500:])))
    assert found[1] < 1.05 * found[0]


def test_validation_rows_calibrate_by_their_predictions() -> None:
    X, y = data(2000)
    labels = np.digitize(y, [-0.3, 0.3])
    model = HierarchicalClassifier(KERNEL, penalty=1e-3, leaf_size=100, random_state=0)
    model.fit(X[:1500], labels[:1500], X_val=X[1500:], y_val=labels[1500:])
    again = fit_calibration(model.uncalibrated(X[1500:]), labels[1500:], 3, None)
    np.testing.assert_allclose(again.bias, model.calibration_.bias, atol=1e-6)


def test_progress_counts_leaves() -> None:
    class Watch(Callback):
        def __init__(self) -> None:
            self.seen: list[float] = []

        def on_progress(self, passes: float) -> None:
            self.seen.append(passes)

    X, y = data()
    watch = Watch()
    model = HierarchicalRegressor(KERNEL, penalty=1e-3, leaf_size=100, n_trees=2, callbacks=watch, random_state=0)
    model.fit(X, y)
    assert watch.seen == sorted(watch.seen)
    assert watch.seen[-1] == pytest.approx(2.0)
    assert len(watch.seen) == sum(tree.tree.n_leaves for tree in model.trees_)
