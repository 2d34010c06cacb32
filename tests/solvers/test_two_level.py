"""Conjugate gradient with a sample of the rows: the sample decides on the speed, and not on the solution."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon import FalkonClassifier, FalkonRegressor, KernelOperator
from gyrfalcon.centers import Given
from gyrfalcon.fitting import falkon as _falkon
from gyrfalcon.fitting import row_sample
from gyrfalcon.fitting.data import FitData
from gyrfalcon.fitting.subspace import CenterSettings
from gyrfalcon.kernels import Gaussian
from gyrfalcon.preconditioners import Preconditioner, Sampled
from gyrfalcon.solvers import RowSample, StateError, conjugate_gradient, two_level_cg
from gyrfalcon.solvers.two_level import FIRST_STEPS, STEPS
from gyrfalcon.sources import as_rows

KERNEL = Gaussian(1.0)


class Problem:
    """Some rows, and a sample of them."""

    def __init__(self, n=3000, M=60, s=600, penalty=1e-5, columns=2, weighted=False, dtype=np.float64, noise=0.3):
        rng = np.random.default_rng(0)
        self.X = rng.standard_normal((n, 3)).astype(dtype)
        self.Z, self.penalty, self.n, self.M = self.X[:M], penalty, n, M
        waves = [np.sin((j + 1) * self.X[:, 0]) + self.X[:, j % 3] for j in range(columns)]
        self.Y = (np.stack(waves, axis=1) + noise * rng.standard_normal((n, columns))).astype(dtype)
        self.weight = rng.uniform(0.0, 2.0, n).astype(dtype) if weighted else None
        drawn = np.sort(rng.choice(n, s, replace=False))
        own = np.ones(s) if self.weight is None else self.weight[drawn]
        few = KernelOperator(KERNEL, self.X[drawn], self.Z, memory_budget=0)
        self.sample = RowSample(few, self.Y[drawn], (own * n / s).astype(dtype))
        self.operator = KernelOperator(KERNEL, self.X, self.Z, memory_budget=0)

    def solve(self, factored=False, **options):
        center_weight = None if self.weight is None else self.weight[: self.M]
        gram = self.operator.centers_gram(np.float64)
        P = Preconditioner(gram, self.penalty, self.n, center_weight=center_weight, tile_dtype=self.X.dtype)
        if factored:
            gram = self.operator.centers_gram(np.float64)
            P = Sampled(self.sample.operator, self.sample.weight, gram, self.penalty, self.n)
        options = {"max_iter": 60, "tol": 1e-10, "enough": 0.0, "weight": self.weight, **options}
        return list(two_level_cg(self.operator, self.Y, self.sample, P, self.penalty, **options))

    def fitted(self):
        """Fitted values by ridge regression on orthonormal functions."""
        X, Z = self.X.astype(np.float64), self.Z.astype(np.float64)
        values, vectors = np.linalg.eigh(KERNEL(Z, Z))
        kept = values > 1e-13 * values[-1]
        F = KERNEL(X, Z) @ vectors[:, kept] / np.sqrt(values[kept])
        root = np.ones(self.n) if self.weight is None else np.sqrt(self.weight.astype(np.float64))
        ridge = np.sqrt(self.penalty * self.n) * np.eye(F.shape[1])
        left = np.vstack([root[:, None] * F, ridge])
        right = np.vstack([root[:, None] * self.Y, np.zeros((len(ridge), self.Y.shape[1]))])
        return F @ np.linalg.lstsq(left, right)[0]

    def values(self, coef):
        return self.operator.matmat(coef)


@pytest.mark.parametrize("factored", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("penalty", [1e-2, 1e-6])
def test_the_solution_is_the_dense_one(weighted, penalty, factored):
    problem = Problem(penalty=penalty, weighted=weighted)
    last = problem.solve(factored)[-1]
    assert last.converged
    assert_allclose(problem.values(last.coef()), problem.fitted(), rtol=0, atol=1e-7)


def test_float32():
    problem = Problem(dtype=np.float32)
    last = problem.solve(tol=1e-6)[-1]
    assert_allclose(problem.values(last.coef()), problem.fitted(), rtol=0, atol=2e-4)


def test_takes_fewer_passes_than_conjugate_gradient():
    problem = Problem(n=12_000, s=1200, columns=1)
    P = Preconditioner(problem.operator.centers_gram(np.float64), problem.penalty, problem.n)
    truth = problem.fitted()

    def off(iterate):
        return float(np.sqrt(np.mean((problem.values(iterate.coef()) - truth) ** 2)))

    two = problem.solve(max_iter=1)[-1]
    on_sample = round(10 * (two.passes - 2))  # beside the residual and a product
    assert two.passes == pytest.approx(2 + 0.1 * on_sample)
    assert 1 + FIRST_STEPS + 2 <= on_sample <= 1 + FIRST_STEPS + 2 * STEPS
    one = list(conjugate_gradient(problem.operator, problem.Y, P, problem.penalty, max_iter=5, tol=0))[-1]
    assert one.passes == 6
    assert off(two) < off(one) / 3


def test_estimates_the_error():
    problem = Problem()
    truth = problem.fitted()
    for iterate in problem.solve(max_iter=5):
        off = np.sqrt(np.mean((problem.values(iterate.coef()) - truth) ** 2, axis=0))
        assert (off < 3 * iterate.error).all()


def test_stops_when_predictions_are_settled():
    problem = Problem(n=12_000, s=2400)
    last = problem.solve(enough=1e-3)[-1]
    assert last.converged
    assert last.iteration <= 3
    assert last.residual > 1e-8
    converged, truth = problem.values(last.coef()), problem.fitted()
    noise = np.square(problem.Y - truth).mean(axis=0)
    assert (np.square(converged - truth).mean(axis=0) < 1e-3 * noise).all()


@pytest.mark.parametrize("noise", [0.3, 10.0, 30.0])
def test_stops_by_what_is_explained(noise):
    """Where y is nearly all noise, a thousandth of the objective is more than all that can be explained."""
    problem = Problem(n=12_000, s=2400, noise=noise)
    last, truth = problem.solve(enough=1e-3)[-1], problem.fitted()
    assert last.converged
    off = np.sqrt(np.mean((problem.values(last.coef()) - truth) ** 2, axis=0)) / truth.std(axis=0)
    assert (off < 0.05).all()
    assert last.relative_error < 0.05
    assert last.details["error"] == last.relative_error


def test_resumes_bit_for_bit():
    problem = Problem(dtype=np.float32)
    whole = problem.solve(max_iter=6)
    resumed = problem.solve(max_iter=6, resume=whole[2].state())
    assert resumed[0].iteration == 3
    assert_array_equal(resumed[-1].coef(), whole[-1].coef())
    assert [iterate.passes for iterate in resumed] == [iterate.passes for iterate in whole[2:]]
    with pytest.raises(StateError, match="beta"):
        problem.solve(resume={**whole[2].state(), "beta": np.zeros((3, 1))})


def test_a_residual_that_is_asked_for_is_that_of_the_coefficients():
    problem = Problem(weighted=True, columns=1)
    w, K = problem.weight[:, None], problem.operator.matmat(np.eye(problem.M))
    H = K.T @ (w * K) + problem.penalty * problem.n * KERNEL(problem.Z, problem.Z)
    P = Preconditioner(problem.operator.centers_gram(), problem.penalty, problem.n, center_weight=problem.weight[:60])
    b = K.T @ (w * problem.Y)
    for iterate in problem.solve(max_iter=6):
        residual = np.linalg.norm(P.apply_transpose(b - H @ iterate.coef())) / np.linalg.norm(P.apply_transpose(b))
        assert residual == pytest.approx(iterate.residual, rel=1e-3)


def test_the_pass_that_fills_the_samples_matrix_counts():
    problem = Problem()
    kept = KernelOperator(KERNEL, problem.sample.operator.rows, problem.Z)
    assert kept.keeps
    before = problem.solve(max_iter=2)
    problem.sample = RowSample(kept, problem.sample.y, problem.sample.weight)
    after = problem.solve(max_iter=2)
    for one, two in zip(before, after, strict=True):
        assert two.passes == pytest.approx(one.passes + 600 / 3000)
    problem.sample = RowSample(KernelOperator(KERNEL, kept.rows, problem.Z), problem.sample.y, problem.sample.weight)
    assert problem.solve(max_iter=2, resume=after[0].state())[-1].passes == after[-1].passes


def test_a_start_takes_the_place_of_the_sample():
    problem = Problem()
    solution = problem.solve()[-1].coef()
    first = problem.solve(start=solution, max_iter=1)[0]
    assert first.error.max() < 1e-8


def test_nothing_to_learn():
    problem = Problem()
    problem.Y[:] = 0
    problem.sample.y[:] = 0
    [only] = problem.solve()
    assert only.iteration == 0
    assert only.converged
    assert_array_equal(only.coef(), 0)


def test_a_problem_without_curvature_ends_with_what_there_is(monkeypatch):
    problem = Problem()
    monkeypatch.setattr("gyrfalcon.solvers.base.System.product", lambda system, p: -p)
    [only] = problem.solve()
    assert only.iteration == 0
    assert not only.converged


# ---- in the estimators -----------------------------------------------------------------------------------------------


def rows(n=2500, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3)).astype(dtype)
    return X, np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(n)


@pytest.fixture
def solvers(monkeypatch):
    """The names of the solvers that fits use, with samples also for few rows."""
    names: list[str] = []
    for name in ("two_level_cg", "conjugate_gradient"):
        solver = getattr(_falkon, name)

        def recorded(*args, name=name, solver=solver, **kwargs):
            names.append(name)
            return solver(*args, **kwargs)

        monkeypatch.setattr(_falkon, name, recorded)
    monkeypatch.setattr(row_sample, "_WORTH_SAMPLING", 50_000 * 16)
    return names


@pytest.mark.parametrize("how", ["plain", "weighted", "classes", "columns", "few rows", "warm"])
def test_asked_for(how, solvers):
    X, y = rows(200 if how == "few rows" else 2500)
    weight = np.random.default_rng(1).uniform(0.5, 2, len(X)) if how == "weighted" else None
    cls = FalkonClassifier if how == "classes" else FalkonRegressor
    y = np.digitize(y, [-0.5, 0.5]) if how == "classes" else y
    y = np.stack([y, 2 * y], axis=1) if how == "columns" else y
    options = {"n_centers": 50, "penalty": 1e-5, "random_state": 0, "tol": 1e-9, "max_iter": 60}
    expected = cls(KERNEL, preconditioner="falkon", **options).fit(X, y, sample_weight=weight)
    model = cls(KERNEL, preconditioner="sample", warm_start=how == "warm", **options).fit(X, y, sample_weight=weight)
    if how == "warm":
        model.fit(X, y)
    assert solvers[-1] == "two_level_cg"
    values = "decision_function" if how == "classes" else "predict"
    found, truth = (getattr(one, values)(X) for one in (model, expected))
    assert_allclose(found, truth, rtol=0, atol=1e-5)


def test_factors_of_the_sample_take_few_passes():
    """With 50 rows for each center the error falls by a factor of about 7 in each iteration."""
    problem = Problem(n=20_000, M=60, s=3_000, penalty=1e-9)
    factored = problem.solve(True, tol=1e-6)[-1]
    assert factored.converged
    assert factored.iteration <= 10
    stopped = problem.solve(True, tol=0.0, enough=1.25e-3)
    assert stopped[-1].converged
    assert stopped[-1].iteration <= 2
    off = problem.values(stopped[-1].coef()) - problem.fitted()
    assert np.sqrt(np.mean(np.square(off))) < 0.02


@pytest.mark.parametrize("weighted", [False, True])
def test_factors_where_rows_are_very_many(solvers, monkeypatch, weighted):
    made = []
    monkeypatch.setattr(_falkon, "Sampled", lambda *args, **kwargs: made.append(1) or Sampled(*args, **kwargs))
    X, y = rows(20_000, np.float32)
    weight = np.random.default_rng(1).uniform(0.5, 2, len(X)) if weighted else None
    options = {"n_centers": 50, "penalty": 1e-7, "random_state": 0}
    model = FalkonRegressor(KERNEL, **options).fit(X, y, weight)
    assert made == [1]
    assert set(solvers) == {"two_level_cg"}
    assert model.history_[-1]["passes"] < 5
    exact = FalkonRegressor(KERNEL, preconditioner="krill", max_iter=60, **options).fit(X, y, weight)
    assert np.std(model.predict(X) - exact.predict(X)) < 0.02 * np.std(y)
    FalkonRegressor(KERNEL, **{**options, "n_centers": 200}).fit(X, y, weight)
    assert made == [1]  # factors would take longer than passes


def test_automatic_where_rows_are_many(solvers):
    X, y = rows()
    FalkonRegressor(KERNEL, n_centers=50, penalty=1e-5, random_state=0).fit(X, y)
    assert solvers[-1] == "two_level_cg"
    FalkonRegressor(KERNEL, n_centers=200, penalty=1e-5, random_state=0).fit(X, y)  # 12 rows a center
    assert solvers[-1] == "conjugate_gradient"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_falkon, "sample_bytes", lambda space: 1 << 50)  # no room for the sample
        FalkonRegressor(KERNEL, n_centers=50, penalty=1e-5, random_state=0).fit(X, y)
    assert solvers[-1] == "conjugate_gradient"


def test_a_warm_start_takes_no_more_passes(solvers):
    X, y = rows(20_000, np.float32)
    model = FalkonRegressor(KERNEL, n_centers=100, penalty=1e-6, random_state=0, warm_start=True).fit(X, y)
    cold = model.history_[-1]["passes"]
    for _ in range(3):
        assert model.fit(X, y).history_[-1]["passes"] <= cold
    assert set(solvers) == {"two_level_cg"}


@pytest.mark.filterwarnings("error")
def test_rows_of_large_weight_are_drawn(solvers):
    """A few rows have most of the weight, and a uniform sample would miss most of them."""
    X, y = rows(8000)
    weight = np.random.default_rng(1).lognormal(0.0, 3.0, len(X))
    options = {"n_centers": 200, "penalty": 1e-6, "random_state": 0}
    found = FalkonRegressor(KERNEL, preconditioner="sample", **options).fit(X, y, sample_weight=weight)
    exact = FalkonRegressor(KERNEL, preconditioner="krill", max_iter=60, **options).fit(X, y, sample_weight=weight)
    assert solvers == ["two_level_cg", "conjugate_gradient"]
    a, b = found.predict(X), exact.predict(X)
    assert np.sqrt(np.average((a - b) ** 2, weights=weight)) < 0.05 * np.sqrt(np.cov(b, aweights=weight))


def test_rows_without_weight_are_not_drawn(solvers):
    X, y = rows()
    weight = np.zeros(len(X))
    weight[[3, 77, 2400]] = 1.0
    options = {"n_centers": 3, "penalty": 1e-3, "random_state": 0, "preconditioner": "sample"}
    model = FalkonRegressor(KERNEL, **options).fit(X, y, weight)
    expected = FalkonRegressor(KERNEL, **options).fit(X[weight > 0], y[weight > 0])
    assert_allclose(model.predict(X), expected.predict(X), atol=1e-2)
    assert solvers == ["two_level_cg"] * 2


@pytest.mark.parametrize(
    ("parameters", "few"),
    [
        ({}, True),
        ({"preconditioner": "sample"}, True),
        ({"preconditioner": "falkon"}, False),
        ({"preconditioner": "krill"}, False),
        ({"tol": 1e-6}, False),
        ({"n_centers": 200}, False),
        ({"centers": np.eye(3)}, False),
        ({"centers": Given(np.eye(3), sampled="uniform")}, True),
    ],
    ids=repr,
)
def test_few_passes_are_expected_of_samples_alone(parameters, few, solvers):
    asked = {"n_centers": 50, "centers": "uniform", "preconditioner": "auto", "tol": None, **parameters}
    centers = CenterSettings(KERNEL, asked.pop("n_centers"), asked.pop("centers"))
    settings = _falkon.FalkonSettings(centers, penalty=1e-3, max_iter=20, **asked)
    X, y = rows(20_000) if "centers" in parameters else rows()
    data = FitData(as_rows(X), y[:, None])
    assert _falkon._expects_few_passes(settings, data) == few
    uneven = np.full(len(X), 1e-9)
    uneven[:50] = 1.0
    # for which there is KRILL's preconditioner
    assert not _falkon._expects_few_passes(settings, replace(data, weight=uneven))


def test_wide_rows_are_worth_sampling_before_narrow_ones():
    for n, d, M, many in [(200_000, 18, 1_000, True), (20_000, 784, 800, True), (20_000, 18, 800, False)]:
        assert row_sample.sampling_pays(as_rows(np.broadcast_to(np.float32(0), (n, d))), M) == many
    assert not row_sample.sampling_pays(as_rows(scipy.sparse.csr_array((20_000, 10**6), dtype=np.float32)), 800)


@pytest.mark.filterwarnings("ignore:predictions are still off")
def test_goes_over_to_krill_where_the_sample_tells_little(solvers):
    """A smooth kernel of two features and a tiny penalty: steps on the sample come nowhere."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6000, 2))
    truth = np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1])
    y = truth + 0.1 * rng.standard_normal(len(X))
    options = {"n_centers": 200, "penalty": 1e-9, "random_state": 0}
    found, sketched = (
        FalkonRegressor(Gaussian(1.0), preconditioner=name, **options).fit(X, y) for name in ("auto", "krill")
    )
    assert solvers[:2] == ["two_level_cg", "conjugate_gradient"]
    assert found.history_[0]["iteration"] == 1
    assert found.n_iter_ <= 20
    off, best = (np.sqrt(np.mean((model.predict(X) - truth) ** 2)) for model in (found, sketched))
    assert off < 1.1 * best


@pytest.mark.parametrize("n", [2_500, 20_000])
def test_a_checkpoint_goes_on(tmp_path, solvers, n):
    X, y = rows(n, np.float32)
    options = {"n_centers": 50, "penalty": 1e-5, "random_state": 0, "tol": 0, "max_iter": 6}
    whole = FalkonRegressor(KERNEL, **options).fit(X, y)

    def stop(record):
        return record["iteration"] == 2

    kept = {"checkpoint": tmp_path / "kept"}
    FalkonRegressor(KERNEL, **options, callbacks=stop, **kept).fit(X, y)
    resumed = FalkonRegressor(KERNEL, **options, **kept).fit(X, y)
    assert_array_equal(resumed.dual_coef_, whole.dual_coef_)
    assert set(solvers) == {"two_level_cg"}


def test_files(tmp_path, solvers):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    import gyrfalcon

    X, y = rows(dtype=np.float32)
    parquet.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y}), tmp_path / "rows.parquet")
    data = gyrfalcon.open(tmp_path / "rows.parquet", target="y")
    options = {"n_centers": 50, "penalty": 1e-5, "random_state": 0}
    found = FalkonRegressor(KERNEL, **options).fit(data.X, data.y).predict(data.X)
    assert solvers[-1] == "two_level_cg"
    assert_allclose(found, FalkonRegressor(KERNEL, **options).fit(X, y).predict(X), rtol=0, atol=1e-4)
