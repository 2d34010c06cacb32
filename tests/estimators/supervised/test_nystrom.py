"""The Nyström solvers against dense solutions of their problem, in float64."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks
from variant_checks import parametrize_with_variant_checks

import gyrfalcon
from gyrfalcon import FalkonRegressor
from gyrfalcon.estimators import NystromRegressor
from gyrfalcon.kernels import Gaussian, Linear, Matern

pytestmark = [
    pytest.mark.filterwarnings("error"),
    pytest.mark.filterwarnings("ignore:predictions are still off"),  # of fits that are cut short on purpose
]

KERNEL = Gaussian(1.2)
COORDINATES = "rows that are repeated may be centers twice, and gradient descent has other coordinates then"


@parametrize_with_checks([NystromRegressor()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@parametrize_with_variant_checks(
    [
        NystromRegressor(penalties=[1e-3, 1e-1], choose_by="gcv"),
        NystromRegressor(solver="cg", max_iter=30),
        NystromRegressor(solver="gd", max_iter=100),
        NystromRegressor(solver="bcd", max_iter=30),
    ],
    expected_failed_checks=lambda estimator: (
        {f"check_sample_weight_equivalence_on_{kind}_data": COORDINATES for kind in ("dense", "sparse")}
        if estimator.solver == "gd"
        else {}
    ),
)
def test_scikit_learn_checks_of_variants(estimator, check):
    check(estimator)


def data(n=150, d=2, k=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(n)
    return X, y if k is None else np.stack([y * 10.0**j + j for j in range(k)], axis=1)


def dense(X, Z, y, penalty, w=None, kernel=KERNEL):
    """Predictions of X by the minimiser of the Nyström problem, as least squares in a basis of its functions."""
    n = len(X)
    w = np.ones(n) if w is None else w / w.mean()
    values, vectors = np.linalg.eigh(kernel(Z, Z))
    kept = values > 1e-13 * values.max()
    F = kernel(X, Z) @ vectors[:, kept] / np.sqrt(values[kept])
    root = np.sqrt(w)[:, None]
    stacked = np.vstack([root * F, np.sqrt(penalty * n) * np.eye(F.shape[1])])
    targets = np.concatenate([root * y.reshape(n, -1), np.zeros((F.shape[1], y.reshape(n, -1).shape[1]))])
    return (F @ np.linalg.lstsq(stacked, targets, rcond=None)[0]).reshape(y.shape)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("penalty", [1e-8, 1e-4, 1.0])
def test_direct_is_the_dense_solution(penalty, k, weighted):
    X, y = data(k=k)
    w = np.random.default_rng(2).integers(0, 4, size=150) if weighted else None
    model = plain(NystromRegressor, KERNEL, n_centers=30, penalty=penalty, random_state=0).fit(X, y, sample_weight=w)
    assert model.dual_coef_.shape == (30, *y.shape[1:])
    assert model.penalty_ == penalty
    assert_allclose(model.predict(X), dense(X, model.centers_, y, penalty, w), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("solver", "parameters"),
    [
        ("cg", {"max_iter": 200}),
        ("gd", {"max_iter": 600}),
        ("sgd", {"max_iter": 400, "batch_size": 75}),
        ("bcd", {"max_iter": 300, "block_size": 2}),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_iterations_come_to_the_dense_solution(solver, parameters, weighted):
    X, y = data(k=2)
    w = np.random.default_rng(2).integers(0, 3, size=150) if weighted else None
    kernel = Gaussian(0.7)
    # without preconditioner there are as many iterations as the condition number says: a small one is all to be had
    model = plain(NystromRegressor, kernel, n_centers=6, penalty=1e-2, solver=solver, random_state=0, **parameters)
    model.fit(X, y, sample_weight=w)
    expected = dense(X, model.centers_, y, 1e-2, w, kernel)
    away = np.linalg.norm(model.predict(X) - expected) / np.linalg.norm(expected)
    # mini-batches end in the neighbourhood that their noise makes
    assert away < {"cg": 1e-8, "bcd": 1e-7, "gd": 1e-2, "sgd": 0.15}[solver]


def test_gradient_descent_follows_the_textbook():
    X, y = data()
    model = plain(
        NystromRegressor, KERNEL, n_centers=10, solver="gd", penalty=1e-3, max_iter=7, step=0.1, random_state=0
    )
    model.fit(X, y)
    K, K_MM = KERNEL(X, model.centers_), KERNEL(model.centers_, model.centers_)
    alpha = np.zeros(10)
    for _ in range(7):
        alpha -= 0.1 * (K.T @ (K @ alpha - y) / 150 + 1e-3 * K_MM @ alpha)
    assert_allclose(model.dual_coef_, alpha, rtol=1e-9)


def test_falkon_needs_fewer_iterations():
    X, y = data(n=600)
    common = {"n_centers": 150, "penalty": 1e-3, "random_state": 0}
    direct = plain(NystromRegressor, KERNEL, **common).fit(X, y).predict(X)
    iterations = [
        plain(FalkonRegressor, KERNEL, max_iter=15, **common),
        *(plain(NystromRegressor, KERNEL, solver=solver, max_iter=15, **common) for solver in ("cg", "gd", "sgd")),
    ]
    falkon, *others = (np.abs(model.fit(X, y).predict(X) - direct).max() for model in iterations)
    assert falkon < 1e-5
    assert min(others) > 0.05


# ---- penalties -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choose_by", ["validation", "gcv", "loo"])
def test_penalties_give_what_each_alone_gives(choose_by):
    X, y = data(k=2)
    X_val, y_val = data(k=2, seed=1)
    w = np.random.default_rng(2).integers(0, 4, size=150)
    penalties = np.logspace(-7, 0, 5)
    model = plain(NystromRegressor, KERNEL, n_centers=30, penalties=penalties, choose_by=choose_by, random_state=0)
    model.fit(X, y, sample_weight=w, X_val=X_val, y_val=y_val)
    assert [record["penalty"] for record in model.history_] == list(penalties)
    for record in model.history_:
        alone = clone(model).set_params(penalties=None, penalty=record["penalty"])
        alone.fit(X, y, sample_weight=w, X_val=X_val, y_val=y_val)
        assert alone.penalty_ == record["penalty"]
        assert_allclose(record["validation_error"], alone.history_[0]["validation_error"], rtol=1e-6)
        assert_allclose(record["df"], alone.history_[0]["df"], rtol=1e-8)
    errors = [record[f"{choose_by}_error"] for record in model.history_]
    assert model.penalty_ == penalties[np.argmin(errors)]
    best = clone(model).set_params(penalties=None, penalty=model.penalty_).fit(X, y, sample_weight=w)
    assert_allclose(model.predict(X_val), best.predict(X_val), rtol=1e-6, atol=1e-8)
    assert_allclose(
        np.sqrt(np.mean((model.predict(X_val) - y_val) ** 2)),
        model.history_[int(np.argmin(errors))]["validation_error"],
        rtol=1e-8,
    )


def test_errors_of_the_path_are_what_they_say():
    X, y = data(n=40)
    Z, n, penalty = X[:12], 40, 1e-3
    model = plain(NystromRegressor, KERNEL, centers=Z, penalties=[penalty])
    H = dense(X, Z, np.eye(n), penalty)
    record = clone(model).fit(X, y).history_[0]
    assert_allclose(record["df"], np.trace(H), rtol=1e-6)
    gcv = clone(model).set_params(choose_by="gcv").fit(X, y).history_[0]["gcv_error"]
    assert_allclose(gcv, np.sqrt(np.mean((y - H @ y) ** 2)) / (1 - np.trace(H) / n), rtol=1e-6)
    left_out = []
    for i in range(n):
        # a row that repeats the fit's own prediction changes nothing: so move y_i there, by fixed-point iteration
        targets = y.copy()
        for _ in range(200):
            targets[i] = H[i] @ targets
        left_out.append(y[i] - targets[i])
    assert_allclose(record["loo_error"], np.sqrt(np.mean(np.square(left_out))), rtol=1e-5)


def test_what_chooses_by_default():
    X, y = data()
    model = plain(NystromRegressor, KERNEL, n_centers=20, penalties=[1e-5, 1e-3], random_state=0)
    assert "loo_error" in clone(model).fit(X, y).history_[0]
    given = clone(model).fit(X, y, X_val=X[:9], y_val=y[:9]).history_[0]
    assert "validation_error" in given
    assert "loo_error" not in given
    held_out = clone(model).set_params(choose_by="validation", n_centers=150).fit(X, y)
    assert len(held_out.centers_) == 135


def test_the_largest_of_penalties_that_are_equally_good():
    X, y = data(n=20)
    model = plain(NystromRegressor, KERNEL, n_centers=5, penalties=[1e-3, 1e-1, 1e-2], choose_by="validation")
    # zeros are predicted by every penalty
    model.fit(X, np.zeros(20), X_val=X, y_val=y)
    assert model.penalty_ == 1e-1


def test_many_penalties_do_not_make_more_passes():
    X, y = data()
    one = plain(NystromRegressor, KERNEL, n_centers=20, penalties=[1e-3], random_state=0).fit(X, y)
    many = plain(NystromRegressor, KERNEL, n_centers=20, penalties=np.logspace(-15, 0, 100), random_state=0).fit(X, y)
    assert many.history_[-1]["passes"] == one.history_[-1]["passes"] == 2
    df = [record["df"] for record in many.history_]
    assert df == sorted(df, reverse=True)
    assert df[-1] < 1 < 15 < df[0]


def test_validation_errors_in_pieces(monkeypatch):
    X, y = data(k=2)
    model = plain(NystromRegressor, KERNEL, n_centers=20, penalties=np.logspace(-6, 0, 7), random_state=0)
    whole = clone(model).fit(X, y, X_val=X[:50], y_val=y[:50])
    monkeypatch.setattr("gyrfalcon.fitting.penalties._PREDICTIONS", 250)
    pieces = clone(model).fit(X, y, X_val=X[:50], y_val=y[:50])
    for a, b in zip(whole.history_, pieces.history_, strict=True):
        assert_allclose(a["validation_error"], b["validation_error"], rtol=1e-12)


# ---- all of them -----------------------------------------------------------------------------------------------------

EACH = pytest.mark.parametrize(
    "model",
    [
        plain(NystromRegressor, KERNEL, n_centers=20, penalty=1e-4, random_state=0),
        plain(NystromRegressor, KERNEL, n_centers=20, penalties=[1e-4, 1e-2], random_state=0),
        plain(NystromRegressor, KERNEL, n_centers=20, penalty=1e-3, solver="gd", max_iter=30, random_state=0),
        plain(NystromRegressor, KERNEL, n_centers=20, penalty=1e-3, solver="cg", max_iter=4, random_state=0),
        plain(
            NystromRegressor,
            KERNEL,
            n_centers=20,
            penalty=1e-3,
            solver="sgd",
            max_iter=5,
            batch_size=40,
            random_state=0,
        ),
        plain(
            NystromRegressor,
            KERNEL,
            n_centers=20,
            penalty=1e-3,
            solver="bcd",
            max_iter=30,
            block_size=6,
            random_state=0,
        ),
    ],
    ids=["direct", "penalties", "gd", "cg", "sgd", "bcd"],
)


@EACH
def test_float32(model):
    X, y = data()
    model = clone(model).set_params(kernel=Matern(1.2, nu=1.5))  # of which float32 loses nothing
    single = clone(model).fit(X.astype(np.float32), y.astype(np.float32))
    assert single.centers_.dtype == np.float32
    assert_allclose(single.predict(X), clone(model).fit(X, y).predict(X), rtol=2e-4, atol=2e-4)


@EACH
def test_saved_and_loaded(model, tmp_path):
    X, y = data(k=2)
    model = clone(model).fit(X, y)
    model.save(tmp_path / "model.safetensors")
    loaded = gyrfalcon.load(tmp_path / "model.safetensors")
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.penalty_ == model.penalty_


@EACH
def test_seeds(model):
    X, y = data()
    assert_array_equal(clone(model).fit(X, y).dual_coef_, clone(model).fit(X, y).dual_coef_)


@EACH
@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_targets_of_any_size(model, size):
    X, y = data()
    expected = clone(model).fit(X, y).predict(X)
    assert_allclose(clone(model).fit(X, y * size).predict(X) / size, expected, rtol=1e-5, atol=1e-6)


@EACH
def test_more_centers_than_rows_and_one_row(model):
    X, y = data(n=12)
    fitted = clone(model).set_params(n_centers=100).fit(X, y)
    assert len(fitted.centers_) == 12
    assert np.isfinite(fitted.predict(X)).all()
    one = clone(model).set_params(max_iter=500).fit([[1.0]], [2.0])
    assert_allclose(one.predict([[1.0]]), 2.0, rtol=0.02)


@EACH
def test_duplicates_and_low_rank(model):
    X, y = data()
    X[20:] = X[:130] * 0 + X[np.arange(130) % 10]
    for kernel in (KERNEL, Linear()):
        fitted = clone(model).set_params(kernel=kernel, n_centers=60).fit(X, y)
        assert np.abs(fitted.predict(X)).max() < 10


@EACH
def test_not_finite(model):
    X, y = data()
    X[3, 1] = np.inf
    with pytest.raises(ValueError, match="Input X contains infinity"):
        clone(model).fit(X, y)


@EACH
def test_early_stopping(model):
    X, y = data()
    fitted = clone(model).set_params(early_stopping=True, n_iter_no_change=2).fit(X, y)
    iterates = model.solver != "direct"
    assert ("validation_error" in fitted.history_[0]) == iterates
    # what is solved directly does not stop early, and all rows are fitted
    assert len(clone(fitted).set_params(n_centers=150).fit(X, y).centers_) == (135 if iterates else 150)


@EACH
def test_history_and_callbacks(model):
    X, y = data()
    seen = []
    fitted = clone(model).set_params(callbacks=seen.append).fit(X, y)
    assert seen == fitted.history_
    assert fitted.n_iter_ == len(seen) == seen[-1]["iteration"]


def not_positive(A, B):
    return -np.exp(-np.square(A[:, None] - B[None]).sum(axis=2))


@EACH
def test_kernel_that_is_not_positive(model):
    X, y = data()
    model = clone(model).set_params(kernel=not_positive)
    if model.solver == "direct":
        with pytest.raises(ValueError, match="not positive"):
            model.fit(X, y)
    else:
        # K'K outweighs what the penalty takes away, so there is a solution nearby
        assert np.isfinite(model.fit(X, y).predict(X)).all()


@pytest.mark.parametrize("solver", ["gd", "sgd"])
def test_a_step_that_diverges(solver):
    X, y = data()
    model = plain(NystromRegressor, KERNEL, n_centers=20, solver=solver, step=1000.0, max_iter=50)
    with pytest.raises(FloatingPointError, match="diverges with step=1000"):
        model.fit(X, y)
    assert not hasattr(model, "dual_coef_")


def test_a_tolerance_that_is_not_met():
    X, y = data()
    model = plain(NystromRegressor, KERNEL, n_centers=20, solver="cg", tol=1e-12, max_iter=3)
    with pytest.warns(ConvergenceWarning, match=r"after 3 iterations.*: raise max_iter=3, .* FalkonRegressor"):
        model.fit(X, y)


def test_blocks_that_have_not_settled():
    X, y = data()
    model = plain(NystromRegressor, Gaussian(1.0), n_centers=50, penalty=1e-4, solver="bcd", block_size=7, max_iter=20)
    with pytest.warns(ConvergenceWarning, match=r"off by about .* after 20 iterations: raise max_iter=20, block_size,"):
        model.fit(X, y)


def test_too_little_memory():
    X, y = data()
    with pytest.raises(MemoryError, match=r"memory_budget='200kB' allows 200 kB: n_centers=\d+ would fit"):
        plain(NystromRegressor, n_centers=100, memory_budget="200kB").fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"solver": "lu"}, "solver='lu' must be one of 'direct', 'gd', 'cg', 'sgd', 'bcd'"),
        ({"penalties": []}, r"penalties=\[\] must be None or a list of at least one"),
        ({"penalties": [1e-3, -1e-3]}, "none negative"),
        ({"penalties": [[1e-3]]}, "list"),
        ({"penalties": [1e-3], "solver": "cg"}, 'penalties are for solver="direct"'),
        ({"choose_by": "bic"}, "choose_by='bic'"),
        ({"step": 0.0}, "step=0.0"),
        ({"block_size": 0}, "block_size=0 must be an integer of at least 1"),
        ({"batch_size": 0}, "batch_size=0 must be an integer of at least 1"),
        ({"n_centers": 0}, "n_centers=0"),
        ({"tol": -1.0}, "tol=-1.0"),
    ],
)
def test_parameters_that_make_no_sense(parameters, match):
    X, y = data()
    with pytest.raises(ValueError, match=match):
        plain(NystromRegressor, **parameters).fit(X, y)
