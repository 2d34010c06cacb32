"""Deviations, intervals, samples and the evidence of the regressors that keep a posterior."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from variant_checks import parametrize_with_variant_checks

import gyrfalcon
from gyrfalcon import ExactRegressor, FalkonRegressor, NystromRegressor
from gyrfalcon.fitting.conformal import Conformity
from gyrfalcon.kernels import Gaussian
from gyrfalcon.solvers import Posterior
from gyrfalcon.sources import ArrayRows, as_rows

pytestmark = [
    pytest.mark.filterwarnings("error"),
    pytest.mark.filterwarnings("ignore:rounding in float32"),  # which some ask for where it is not enough
]

ALL = [ExactRegressor, FalkonRegressor, NystromRegressor]
ON_CENTERS = [FalkonRegressor, NystromRegressor]
KERNEL, LENGTH, PENALTY = Gaussian(0.9), 0.9, 1e-3


@parametrize_with_variant_checks(
    [
        NystromRegressor(uncertainty=True, penalties=[1e-3, 1e-1], choose_by="evidence"),
        FalkonRegressor(uncertainty=True),
        ExactRegressor(uncertainty=True),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def data(n=120, seed=0, k=None):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(n)
    return X, y if k is None else np.stack([y * 10.0**j for j in range(k)], axis=1)


def certain(Estimator, kernel=KERNEL, **parameters):
    few = {} if Estimator is ExactRegressor else {"n_centers": 40}
    common = {"penalty": PENALTY, "uncertainty": True, "random_state": 0}
    return plain(Estimator, kernel, **few | common | parameters)


@pytest.mark.parametrize("Estimator", ALL)
def test_with_every_row_as_a_center_it_is_a_gaussian_process(Estimator):
    X, y = data()
    new, mu = np.random.default_rng(1).uniform(-4, 4, size=(50, 2)), PENALTY * len(X)
    model = certain(Estimator, n_centers=len(X)).fit(X, y)
    mean, std = model.predict(new, return_std=True)
    (tau2,) = np.square(model.posterior_.prior_deviation)
    process = GaussianProcessRegressor(RBF(LENGTH), alpha=mu, optimizer=None).fit(X, y)
    expected_mean, expected_std = process.predict(new, return_std=True)
    assert_allclose(mean, expected_mean, atol=1e-6)
    assert_allclose(std / np.sqrt(tau2), expected_std, atol=1e-6)
    scaled = GaussianProcessRegressor(tau2 * RBF(LENGTH), alpha=mu * tau2, optimizer=None).fit(X, y)
    assert_allclose(model.noise_variance_, mu * tau2)
    # tau^2 is where the evidence is largest
    evidence = scaled.log_marginal_likelihood(scaled.kernel_.theta)
    if Estimator is not FalkonRegressor:
        assert_allclose(model.history_[-1]["log_evidence"], evidence, rtol=1e-6)
    others = [_with_amplitude(X, y, tau2 * times, mu) for times in (0.99, 1.01)]
    assert evidence > max(others)
    drawn = model.sample_y(new[:5], n_samples=20_000, random_state=0)
    covariance = scaled.predict(new[:5], return_cov=True)[1]
    assert_allclose(np.cov(drawn), covariance, atol=5 * tau2 / np.sqrt(20_000))
    assert_allclose(drawn.mean(axis=1), mean[:5], atol=5 * std[:5].max() / np.sqrt(20_000))


def _with_amplitude(X, y, tau2, mu):
    process = GaussianProcessRegressor(tau2 * RBF(LENGTH), alpha=mu * tau2, optimizer=None).fit(X, y)
    return process.log_marginal_likelihood(process.kernel_.theta)


def test_the_three_estimators_agree_with_few_centers():
    X, y = data(k=2)
    new = np.random.default_rng(1).uniform(-4, 4, size=(30, 2))
    falkon, nystrom = (certain(Estimator).fit(X, y) for Estimator in ON_CENTERS)
    for a, b in zip(falkon.predict(new, return_std=True), nystrom.predict(new, return_std=True), strict=True):
        assert a.shape == (30, 2)
        assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert_allclose(falkon.predict_interval(new), nystrom.predict_interval(new), rtol=1e-4, atol=1e-4)
    # the second output is ten times the first, in all there is
    assert_allclose(nystrom.noise_variance_[1], 100 * nystrom.noise_variance_[0])
    assert_allclose(nystrom.predict_interval(new)[:, :, 1], 10 * nystrom.predict_interval(new)[:, :, 0], rtol=1e-6)
    assert nystrom.sample_y(new, 3).shape == (30, 2, 3)


@pytest.mark.parametrize("Estimator", ALL)
def test_units_of_y_offsets_and_scales(Estimator):
    X, y = data()
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), y - y.mean()
    model = certain(Estimator, fit_intercept=True).fit(X, y)
    moved = certain(Estimator, scale=True, fit_intercept=True).fit(1e3 * X + 7, 1e6 * y + 5e6)
    new = X[:20] + 0.1
    (mean, std), ends = model.predict(new, return_std=True), model.predict_interval(new)
    moved_mean, moved_std = moved.predict(1e3 * new + 7, return_std=True)
    assert std.shape == (20,)
    assert_allclose((moved_mean - 5e6) / 1e6, mean, atol=1e-6)
    assert_allclose(moved_std / 1e6, std, rtol=1e-6)
    assert_allclose((moved.predict_interval(1e3 * new + 7) - 5e6) / 1e6, ends, atol=1e-5)
    assert_allclose(moved.noise_variance_ / 1e12, model.noise_variance_, rtol=1e-6)


@pytest.mark.parametrize("Estimator", ALL)
def test_weights(Estimator):
    """Rows of weight 0 are no rows, and only ratios matter."""
    X, y = data()
    w = np.random.default_rng(2).integers(0, 3, size=len(X)).astype(float)
    centers = {} if Estimator is ExactRegressor else {"centers": X[w > 0][:40]}
    all_rows = certain(Estimator, **centers).fit(X, y, sample_weight=w)
    kept = certain(Estimator, **centers).fit(X[w > 0], y[w > 0], sample_weight=7 * w[w > 0])
    assert_allclose(all_rows.noise_variance_, kept.noise_variance_, rtol=1e-6)
    for a, b in zip(all_rows.predict(X, return_std=True), kept.predict(X, return_std=True), strict=True):
        assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert_allclose(all_rows.predict_interval(X), kept.predict_interval(X), rtol=1e-5, atol=1e-6)


def test_float32_rows_have_the_deviations_of_float64_rows():
    X, y = data(n=1500)
    X = X.astype(np.float32)
    for Estimator in ON_CENTERS:
        model = certain(Estimator, n_centers=200, penalty=1e-6, dtype="float32").fit(X, y)
        # the same centers, which are float32 in one of the two
        other = certain(Estimator, centers=model.centers_.astype(np.float64), penalty=1e-6).fit(X.astype(np.float64), y)
        mean, narrow = model.predict(X[:100], return_std=True)
        assert mean.dtype == np.float32
        assert_allclose(narrow, other.predict(X[:100], return_std=True)[1], rtol=1e-6)


def test_sources_sparse_rows_and_dask():
    X, y = data()
    dense = certain(FalkonRegressor).fit(X, y)
    expected = dense.predict(X, return_std=True)[1]
    streamed = certain(FalkonRegressor).fit(as_rows(X), y)
    assert_array_equal(streamed.predict(as_rows(X), return_std=True)[1], expected)
    sparse = certain(FalkonRegressor).fit(scipy.sparse.csr_array(X), y)
    assert_allclose(sparse.predict(X, return_std=True)[1], expected, rtol=1e-6)
    assert_allclose(sparse.sample_y(scipy.sparse.csr_array(X[:5])), dense.sample_y(X[:5]), rtol=1e-4, atol=1e-4)
    da = pytest.importorskip("dask.array")
    lazy = da.from_array(X, chunks=(50, 2))
    _, std = dense.predict(lazy, return_std=True)
    assert isinstance(std, da.Array)
    assert_allclose(std.compute(), expected, rtol=1e-9)
    assert_allclose(dense.predict_interval(lazy), dense.predict_interval(X))


def test_files_and_pickles_have_it_all(tmp_path):
    X, y = data(k=2)
    for Estimator in ALL:
        model = certain(Estimator).fit(X, y)
        model.save(tmp_path / "model.gyr")
        for other in (gyrfalcon.load(tmp_path / "model.gyr"), pickle.loads(pickle.dumps(model))):
            assert_array_equal(other.predict(X, return_std=True)[1], model.predict(X, return_std=True)[1])
            assert_array_equal(other.predict_interval(X), model.predict_interval(X))
            assert_array_equal(other.sample_y(X[:5]), model.sample_y(X[:5]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: delattr(model, "spread_"), "it has only"),
        (lambda model: setattr(model, "posterior_", 3.0), "something else"),
        (lambda model: setattr(model, "spread_", np.zeros((3, 1))), "spread_"),
        (lambda model: setattr(model, "noise_variance_", np.zeros(3)), "1 outputs"),
        (lambda model: setattr(model, "conformity_", Conformity.of(np.ones((9, 2)))), "1 outputs"),
        (
            lambda model: setattr(model, "posterior_", Posterior(np.ones((3, 3)), np.ones(1), np.ones(1))),
            "40 centers",
        ),
    ],
)
def test_files_with_another_posterior_are_refused(tmp_path, change, words):
    model = certain(NystromRegressor).fit(*data())
    change(model)
    model.save(tmp_path / "model.gyr")
    with pytest.raises(gyrfalcon.ModelFileError, match=words):
        gyrfalcon.load(tmp_path / "model.gyr")


def test_model_files_are_small_unless_it_is_asked_for(tmp_path):
    X, y = data()
    for uncertainty in (False, True):
        certain(NystromRegressor, uncertainty=uncertainty).fit(X, y).save(tmp_path / f"{uncertainty}.gyr")
    sizes = [(tmp_path / f"{uncertainty}.gyr").stat().st_size for uncertainty in (False, True)]
    assert sizes[1] - sizes[0] > 8 * 30 * 40 > sizes[0]


@pytest.mark.parametrize("Estimator", ALL)
def test_it_must_be_asked_for_at_fit(Estimator):
    X, y = data()
    model = certain(Estimator).fit(X, y)
    model.set_params(uncertainty=False).fit(X, y)
    assert not {"posterior_", "spread_", "conformity_", "noise_variance_"} & set(vars(model))
    for ask in (
        lambda: model.predict(X, return_std=True),
        lambda: model.predict_interval(X),
        lambda: model.sample_y(X),
    ):
        with pytest.raises(ValueError, match="uncertainty=True"):
            ask()


def test_what_cannot_have_it():
    X, y = data()
    with pytest.raises(ValueError, match=r"loss='huber'.*quantile"):
        FalkonRegressor(loss="huber", uncertainty=True).fit(X, y)
    with pytest.raises(ValueError, match="solver='cg'"):
        NystromRegressor(solver="cg", uncertainty=True).fit(X, y)
    with pytest.raises(ValueError, match="method='pcg'"):
        ExactRegressor(method="pcg", uncertainty=True).fit(X, y)
    with pytest.raises(ValueError, match="choose_by='evidence'"):
        ExactRegressor(method="pcg", penalties=[1.0, 2.0], choose_by="evidence").fit(X, y)
    for Estimator in ALL:
        with pytest.raises(ValueError, match=r"positive penalty, not penalty=0\.0.*auto"):
            Estimator(penalty=0.0, uncertainty=True).fit(X, y)
    with pytest.raises(ValueError, match=r"not penalties=\[0, 1\.0\]"):
        NystromRegressor(penalties=[0, 1.0], uncertainty=True).fit(X, y)
    with pytest.raises(ValueError, match="uncertainty='yes'"):
        NystromRegressor(uncertainty="yes").fit(X, y)
    with pytest.raises(MemoryError, match="draw at fewer rows"):
        certain(NystromRegressor, memory_budget="3MB").fit(X, y).sample_y(np.zeros((500, 2)))


@pytest.mark.parametrize("Estimator", [NystromRegressor, ExactRegressor])
def test_evidence_chooses_the_penalty(Estimator):
    X, y = data(k=2)
    penalties = np.logspace(-8, 0, 9)
    model = certain(Estimator, penalties=penalties, choose_by="evidence", uncertainty=False).fit(X, y)
    evidence = [record["log_evidence"] for record in model.history_]
    assert model.penalty_ == penalties[np.argmax(evidence)]
    assert 0 < np.argmax(evidence) < 8
    assert len({record["passes"] for record in model.history_}) == 1  # no pass for it


def test_the_noise_is_found():
    X, y = data(n=2000)
    many = {"n_centers": 200, "penalties": np.logspace(-7, -2, 11)}
    model = certain(NystromRegressor, choose_by="evidence", **many).fit(X, y)
    assert_allclose(np.sqrt(model.noise_variance_), 0.1, rtol=0.1)


@pytest.mark.parametrize("Estimator", ALL)
def test_intervals_cover_and_are_wide_where_y_is_noisy(Estimator):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(3000, 1))
    noise = np.where(X[:, 0] > 0, 0.5, 0.1)
    y = np.sin(2 * X[:, 0]) + noise * rng.standard_t(3, size=3000)
    n = 1000
    few = {} if Estimator is ExactRegressor else {"n_centers": 100}
    model = Estimator(Gaussian(0.5), uncertainty=True, random_state=0, **few).fit(X[:n], y[:n])
    for coverage in (0.5, 0.9, 0.99):
        low, high = model.predict_interval(X[n:], coverage).T
        inside = np.mean((low <= y[n:]) & (y[n:] <= high))
        # three deviations of the share among 1,000 rows that judge and 2,000 that are judged
        assert abs(inside - coverage) < 3 * np.sqrt(coverage * (1 - coverage) * (1 / n + 1 / 2000)) + 0.002
    low, high = model.predict_interval(X[n:]).T
    right = X[n:, 0] > 0.3
    assert np.mean((high - low)[right]) > 2.5 * np.mean((high - low)[X[n:, 0] < -0.3])


def without_noise(n=2000):
    X = np.random.default_rng(0).uniform(-2, 2, size=(2 * n, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1]
    return (X[:n], y[:n]), (X[n:], y[n:])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stops", [False, True])
def test_intervals_are_those_of_the_model_that_predicts(stops, dtype):
    """Where y has no noise, or conjugate gradient is stopped, most of the error is the solver's."""
    rows, (X, y) = without_noise()
    model = FalkonRegressor(
        Gaussian(1.0), n_centers=100, dtype=dtype, uncertainty=True, random_state=0, callbacks=lambda record: stops,
        preconditioner="falkon",
    )  # fmt: skip
    low, high = model.fit(*rows).predict_interval(X).T
    # four deviations of the share among 1,900 rows that judge and 2,000 that are judged
    assert abs(np.mean((low <= y) & (y <= high)) - 0.9) < 4 * np.sqrt(0.09 * (1 / 1900 + 1 / 2000))
    if dtype == "float64":  # the penalty of float32 is far larger than so little noise, and counts as noise
        mean, std = model.predict(X, return_std=True)
        assert_allclose(np.mean(std**2) + model.noise_variance_, np.mean((y - mean) ** 2), rtol=0.2)


def test_intervals_of_a_settled_solution_are_those_of_the_direct_one():
    X, y = data(n=500)
    settled = certain(FalkonRegressor, max_iter=100).fit(X, y)
    direct = certain(NystromRegressor).fit(X, y)
    assert_allclose(settled.predict_interval(X), direct.predict_interval(X), rtol=1e-6, atol=1e-6)
    assert_allclose(settled.noise_variance_, direct.noise_variance_, rtol=1e-6)


@pytest.mark.parametrize("penalty", [1e-3, 1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_deviations_are_as_large_as_errors_with_few_centers(penalty, noise):
    """Whatever the penalty: what the centers miss counts once, not once as noise and again as part of f."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(3000, 3))
    f = np.sin(2 * X[:, 0]) + np.cos(X[:, 1] + X[:, 2])
    y = f + noise * rng.standard_normal(3000)
    model = certain(NystromRegressor, kernel=Gaussian(1.0), penalty=penalty).fit(X[:1500], y[:1500])
    mean, std = model.predict(X[1500:], return_std=True)
    foreseen = np.sqrt(np.mean(std**2) + model.noise_variance_)
    assert_allclose(foreseen, np.sqrt(np.mean((y[1500:] - mean) ** 2)), rtol=0.15)


@pytest.mark.parametrize("coverage", [0, 1, 0.0, 1.0, -0.5, np.nan, "much", True])
def test_wrong_coverage(coverage):
    model = certain(NystromRegressor).fit(*data())
    with pytest.raises(ValueError, match=r"coverage=.* between 0 and 1"):
        model.predict_interval(np.zeros((1, 2)), coverage)


def test_too_few_rows_for_a_coverage():
    X, y = data(n=8)
    model = certain(NystromRegressor).fit(X, y)
    with pytest.raises(ValueError, match="at least 9 held-out rows, and there are 8"):
        model.predict_interval(X, 0.9)
    assert np.isfinite(model.predict_interval(X, 0.8)).all()


@pytest.mark.parametrize("Estimator", ALL)
def test_one_row(Estimator):
    model = certain(Estimator).fit(np.zeros((1, 2)), np.ones(1))
    mean, std = model.predict(np.array([[0.0, 0.0], [50.0, 0.0]]), return_std=True)
    tau = model.posterior_.prior_deviation[0]
    assert_allclose(std, tau * np.sqrt([PENALTY / (1 + PENALTY), 1.0]), rtol=1e-6)
    assert_allclose(mean, [1 / (1 + PENALTY), 0.0], atol=1e-6)


@pytest.mark.parametrize("Estimator", ALL)
def test_intervals_of_one_and_two_rows(Estimator):
    """Without a row the mean of y is another: two far rows are each as far from it as from the other row."""
    X, y = np.array([[0.0], [100.0]]), np.array([3.0, 5.0])
    model = Estimator(Gaussian(1.0), penalty=1e-3, scale=False, uncertainty=True, random_state=0)
    low, high = model.fit(X, y).predict_interval([[50.0]], coverage=0.5).T
    assert_allclose([low[0], high[0]], [4.0 - 2.0, 4.0 + 2.0], rtol=1e-2)
    model.fit(X[:1], y[:1])
    with pytest.raises(ValueError, match=r"infinite intervals.* give more rows"):
        model.predict_interval(X[:1], coverage=0.4)


@pytest.mark.parametrize("Estimator", ALL)
@pytest.mark.parametrize("case", ["constant y", "constant kernel", "duplicate rows", "constant rows"])
def test_degenerate_data(Estimator, case):
    X, y = data()
    kernel = KERNEL
    if case == "constant y":
        y = np.full(len(y), 3.0)
    elif case == "constant kernel":
        kernel = lambda A, B: np.ones((len(A), len(B)))  # noqa: E731
    elif case == "duplicate rows":
        X = np.repeat(X[:6], 20, axis=0)
    else:
        X = np.ones_like(X)
    model = certain(Estimator, kernel=kernel, fit_intercept=True).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    ends = model.predict_interval(X)
    assert np.isfinite(ends).all()
    assert (ends[:, 0] <= mean + 1e-9).all()
    assert (mean - 1e-9 <= ends[:, 1]).all()
    if case == "constant y":
        assert_array_equal(std, 0.0)
        assert_array_equal(model.noise_variance_, 0.0)
        assert_array_equal(model.sample_y(X[:3], 2), 3.0)
    else:
        # about as much as twenty or all rows leave open of a mean
        count = 20 if case == "duplicate rows" else len(X)
        assert_allclose(std, np.full(len(X), np.sqrt(model.noise_variance_ / count)), rtol=0.1)
        assert np.mean((ends[:, 0] <= y) & (y <= ends[:, 1])) >= 0.85
        assert np.isfinite(model.sample_y(X, 2)).all()


def test_a_fit_that_goes_on_from_a_checkpoint_finds_the_same(tmp_path):
    X, y = data()
    whole = certain(FalkonRegressor).fit(X, y)
    kept = certain(FalkonRegressor, checkpoint=tmp_path / "state")
    first = kept.fit(X, y).predict_interval(X)
    again = kept.fit(X, y).predict_interval(X)  # all is over but the posterior, which no checkpoint holds
    assert_array_equal(first, whole.predict_interval(X))
    assert_array_equal(again, first)


@pytest.mark.parametrize("Estimator", ON_CENTERS)
def test_rows_are_read_once_less_where_the_diagonal_of_the_kernel_is_constant(Estimator):
    X, y = data(n=150)
    w = np.random.default_rng(2).uniform(0.5, 2.0, size=len(y))

    class Counted(ArrayRows):
        reads = 0

        def blocks(self, size):
            type(self).reads += 1
            return super().blocks(size)

    class Unknown(Gaussian):
        def constant_diag(self):
            return None

    reads, found = [], []
    for kernel in (KERNEL, Unknown(LENGTH)):
        Counted.reads = 0
        model = certain(Estimator, kernel, dtype="float64").fit(Counted(X), y, sample_weight=w)
        reads.append(Counted.reads)
        found.append(model.predict(X[:20], return_std=True)[1])
    assert reads[0] == reads[1] - 1
    assert_allclose(found[0], found[1], rtol=1e-6)
