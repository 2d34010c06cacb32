"""The papers' scripts in benchmarks/ compute what the papers define, whatever the defaults of the estimators become.

Each has one test, on data that is made or comes with scikit-learn: a number of the script beside the same number by
dense linear algebra in float64, or beside what the paper promises.
"""

from __future__ import annotations

import importlib
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from gyrfalcon.kernels import Gaussian

ROOT = Path(__file__).parents[1]


@pytest.fixture
def script(monkeypatch):
    """Import a script of benchmarks/papers or benchmarks by its name."""
    for folder in ("benchmarks", "benchmarks/papers"):
        monkeypatch.syspath_prepend(str(ROOT / folder))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


def nystrom(X: np.ndarray, y: np.ndarray, C: np.ndarray, X_new: np.ndarray, width: float, penalty: float) -> np.ndarray:
    """Predictions of (K'K + lambda n K_MM) alpha = K'y: no scaling, no intercept, K_MM's null space left out."""
    values, vectors = np.linalg.eigh(gaussian(C, C, width))
    keep = values > 1e-13 * values[-1]
    R = vectors[:, keep] / np.sqrt(values[keep])
    F = gaussian(X, C, width) @ R
    beta = np.linalg.solve(F.T @ F + penalty * len(X) * np.eye(F.shape[1]), F.T @ y)
    return gaussian(X_new, C, width) @ R @ beta


def definition_3(K_MM: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """T and A of the FALKON paper, as in its Algorithm 1."""
    M = len(K_MM)
    T = np.linalg.cholesky(K_MM + np.finfo(float).eps * M * np.eye(M)).T
    return T, np.linalg.cholesky(T @ T.T / M + penalty * np.eye(M)).T


def algorithm_1(
    X: np.ndarray, y: np.ndarray, C: np.ndarray, width: float, penalty: float, t: int
) -> Iterator[np.ndarray]:
    """The coefficients after each iteration of the FALKON paper's Algorithm 1, line by line."""
    K = gaussian(X, C, width)
    T, A = definition_3(gaussian(C, C, width), penalty)

    def BHB(u: np.ndarray) -> np.ndarray:
        v = np.linalg.solve(A, u)
        return np.linalg.solve(A.T, np.linalg.solve(T.T, K.T @ (K @ np.linalg.solve(T, v))) / len(X) + penalty * v)

    r = np.linalg.solve(A.T, np.linalg.solve(T.T, K.T @ y / len(X)))
    p, beta, rr = r, np.zeros(len(C)), r @ r
    for _ in range(t):
        Ap = BHB(p)
        a = rr / (p @ Ap)
        beta, r = beta + a * p, r - a * Ap
        rr, before = r @ r, rr
        p = r + rr / before * p
        yield np.linalg.solve(T, np.linalg.solve(A, beta))


def gaussian(A: np.ndarray, B: np.ndarray, width: float) -> np.ndarray:
    squares = np.square(A).sum(axis=1)[:, None] + np.square(B).sum(axis=1) - 2 * A @ B.T
    return np.exp(-np.maximum(squares, 0) / (2 * width**2))


def smooth(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three features of deviations 0.3 to 3 and means that are not 0, and a y whose mean is 2."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) * [0.3, 1.0, 3.0] + [1.0, 0.0, -2.0]
    return X, 2 + np.sin(3 * X[:, 0]) * X[:, 1] + 0.2 * X[:, 2] + 0.1 * rng.standard_normal(n)


def test_nytro(script):
    """NKRLS, FALKON and Early Stopping of Table 2, on the Wisconsin tumours with features in [-1, 1]."""
    nytro = script("nytro")
    X, y = load_breast_cancer(return_X_y=True)
    X = 2 * (X - X.min(axis=0)) / np.ptp(X, axis=0) - 1
    y = np.where(y == 1, 1.0, -1.0)
    data = nytro.Data(X[:400], y[:400], X[400:], y[400:])
    experiment = nytro.Experiment("tumours", "", 3.0, 100, 0.0069, np.float64)
    methods, trial = nytro.Methods(experiment, data, 100), nytro.Trial.draw(data, 0)
    assert nytro.PENALTIES[0] <= methods.nkrls(0).parameter <= nytro.PENALTIES[-1]
    falkon = methods._falkon(0, "falkon").fit(trial.X, trial.y)
    expected = nystrom(trial.X, trial.y, falkon.centers_, data.X_test, 3.0, methods.penalties[0])
    error = nytro.rmse(expected, data.y_test)
    assert methods.targets[0] == pytest.approx(error, rel=1e-6)
    assert methods.falkon(0).rmse == pytest.approx(error, rel=nytro.EQUAL)

    found = methods.early_stopping(0)
    K = gaussian(trial.X, trial.X, 3.0)
    coef, step = np.zeros(len(K)), 1 / np.linalg.eigvalsh(K)[-1]
    for _ in range(int(found.parameter)):
        coef += step * (trial.y - K @ coef)
    # the largest eigenvalue is estimated there, within some percent
    expected = nytro.rmse(gaussian(data.X_test, trial.X, 3.0) @ coef, data.y_test)
    assert found.rmse == pytest.approx(expected, rel=0.02)


def test_nytro_penalties(script):
    """Every column of the path is the dense solution with its penalty."""
    penalties = script("nytro_penalties")
    X, y = smooth(300)
    C, given = X[:40], np.array([1e-6, 1e-3])
    coef = penalties.coefficients(X[:200], y[:200], C, 1.5, given)
    for column, penalty in zip(coef.T, given, strict=True):
        expected = nystrom(X[:200], y[:200], C, X[200:], 1.5, penalty)
        np.testing.assert_allclose(gaussian(X[200:], C, 1.5) @ column, expected, atol=1e-6)
        error, wrong = penalties.errors(X[200:], y[200:], C, 1.5, column[:, None])
        assert error[0] == pytest.approx(np.sqrt(np.mean(np.square(expected - y[200:]))), rel=1e-5)
        assert wrong[0] == np.mean((expected > 0) != (y[200:] > 0))


def test_nytro_theorems(script):
    """S is that of dense formulas, and every theorem holds but the second as it is printed."""
    theorems = script("nytro_theorems")
    design = theorems.Design.make(60, 0.25)
    K = np.exp(-np.sqrt(np.square(design.X[:, None] - design.X).sum(axis=2)) / theorems.KERNEL.length_scale)
    n, f = design.n, design.f

    def risk(S):
        return np.mean((S @ f - f) ** 2) + design.noise * np.sum(S**2) / n

    steps = np.eye(n) - np.linalg.matrix_power(np.eye(n) - K / n, 30)
    assert design.risk(theorems.early_stopping(30)) == pytest.approx(risk(steps), rel=1e-6)
    values, vectors = np.linalg.eigh(K[::6, ::6])
    A = K[:, ::6] @ (vectors / np.sqrt(values))
    ridge = A @ np.linalg.solve(A.T @ A + 0.1 * n * np.eye(10), A.T)
    assert design.risk(theorems.nkrls(design.X[::6], 0.1)) == pytest.approx(risk(ridge), rel=1e-5)
    left = np.linalg.matrix_power(np.eye(10) - A.T @ A / n, 30)
    descent = A @ np.linalg.solve(A.T @ A, (np.eye(10) - left) @ A.T)
    assert design.risk(theorems.nytro(design.X[::6], 30)) == pytest.approx(risk(descent), rel=1e-4)

    kols, printed, proven = theorems.first_two(design)
    assert float(kols[3]) == pytest.approx(design.noise / 2, rel=1e-3)
    assert (printed[4], proven[4]) == ("does not hold", "holds")
    assert theorems.fourth(design, 2)[4] == "holds"
    found = theorems.ratios(design, 10, 6, 2)
    assert max(found["3"], found["5"]) <= theorems.bound(10) == pytest.approx(4 * (10 / 9) ** 2)
    assert found["1'"] == pytest.approx(found["4"] * found["5"])


def test_nytro_regimes(script):
    """SNR and d~ by their formulas, in dense matrices."""
    nytro = script("nytro")
    X, y = smooth(400)
    X, y = X / 3, y - 2
    data = nytro.Data(X[:300], y[:300], X[300:], y[300:])
    row = nytro.regimes(nytro.Experiment("smooth", "", 0.7, 100, 0.0069, np.float64), data)
    kernel = nytro.Gaussian(0.7)
    penalty = nytro.ExactRegressor(kernel, penalties=nytro.PENALTIES, **nytro.PAPER).fit(data.X, data.y).penalty_
    K = gaussian(data.X, data.X, 0.7)
    coef = np.linalg.solve(K + penalty * 300 * np.eye(300), data.y)
    noise = np.mean((gaussian(data.X_test, data.X, 0.7) @ coef - data.y_test) ** 2)
    snr = coef @ K @ coef / noise
    leverage = np.linalg.solve(K + 300 / snr * np.eye(300), K).diagonal()
    assert row[1] == 300
    assert float(row[2]) == pytest.approx(snr, rel=0.01)  # printed with three digits
    assert int(row[3]) == pytest.approx(300 * leverage.max(), abs=1)
    assert float(row[4]) == pytest.approx(1 / snr, rel=0.05)  # printed with two digits


def test_falkon_figure1(script):
    """Every FALKON ends at the direct solve; the paper's B is the one of its Definition 3; passes are all counted."""
    figure1 = script("falkon_figure1")
    X, y = smooth(1_500)
    data = figure1.Data(X[:1_000], y[:1_000], X[1_000:], y[1_000:])
    M, width, penalty = 60, 1.5, 1e-4
    curves = dict(figure1.curves_of(data, M, width, penalty, 30))
    centers = data.X[np.random.default_rng(0).choice(1_000, M, replace=False)]
    best = figure1.rmse(nystrom(data.X, data.y, centers, data.X_test, width, penalty), data.y_test)
    assert curves["direct solve"][0][1] == pytest.approx(best, rel=1e-5)
    for name in figure1.PRECONDITIONERS:
        assert curves[name][-1][1] == pytest.approx(best, rel=1e-3), name
    assert {name.split()[0] for name in curves} == {"FALKON,", "Nyström", "NYTRO", "direct"}
    first = {name: curve[0][0] for name, curve in curves.items()}
    assert first["FALKON, Algorithm 1"] == first["FALKON, falkon"] == 2
    assert first["FALKON, krill"] == 3  # the sketch, too
    assert first["Nyström BCD"] == 2
    assert first["FALKON, GD"] == 11  # ten for the step, and the right-hand side
    assert curves["FALKON, GD"][0][1] > curves["FALKON, GD"][-1][1] > best
    assert first["FALKON, sample"] > 2  # and parts of passes on the sample

    # later iterates of a smooth kernel's nearly singular matrix depend on rounding
    expected = algorithm_1(data.X, data.y, centers, width, penalty, 8)
    errors = [figure1.rmse(gaussian(data.X_test, centers, width) @ alpha, data.y_test) for alpha in expected]
    np.testing.assert_allclose([error for _, error in curves[figure1.ALGORITHM_1][:8]], errors, rtol=1e-5)


def test_falkon_table1(script):
    """Methods that solve the same problem have the same error, and FALKON the same preconditioner at every size."""
    table1 = script("falkon_table1")
    assert {table1.make("falkon", n).preconditioner for n in (500, 256_000)} == {"falkon"}
    X, y = table1.problem(600)
    X, y = 2 * X.astype(np.float64) + 1, y + 3.0
    found = {name: table1.make(name, 400).fit(X[:400], y[:400]) for name in ("exact", "nystrom", "falkon")}
    penalty = 1 / np.sqrt(400)
    for name, model in found.items():
        C = X[:400] if name == "exact" else model.centers_
        expected = nystrom(X[:400], y[:400], C, X[400:], table1.WIDTH, penalty)
        np.testing.assert_allclose(model.predict(X[400:]), expected, atol=1e-3)
    steps = round(0.5 * np.log(400) + 5)
    assert found["falkon"].history_[-1]["passes"] == steps + 1


def test_falkon_theorems(script):
    """The condition number that the script computes is that of B'HB for the paper's B, made apart from it."""
    theorems = script("falkon_theorems")
    X, _ = smooth(500)
    kernel = Gaussian(2.0)
    dense = theorems.Dense.of(kernel, X, theorems.Selection(X[:40]))
    T, A = definition_3(gaussian(X[:40], X[:40], 2.0), 1e-4)
    B = np.linalg.inv(A @ T) / np.sqrt(len(X))
    K = gaussian(X, X[:40], 2.0)
    H = K.T @ K + 1e-4 * len(X) * gaussian(X[:40], X[:40], 2.0)
    values = np.linalg.eigvalsh(B.T @ H @ B)
    assert dense.condition_number(1e-4) == pytest.approx(values[-1] / values[0], rel=1e-3)
    assert dense.condition_number_with(B, 1e-4) == pytest.approx(values[-1] / values[0], rel=1e-3)
    assert theorems.nu(17) == pytest.approx(np.log(1 + 2 / (np.sqrt(17) - 1)))


@pytest.mark.parametrize("name", ["mnist", "california_housing", "flights_3m"])
def test_falkon2(script, name):
    """FALKON solves the published problem: pixels, or features, as they are given."""
    falkon2 = script("falkon2")
    X, y = smooth(800)
    if name == "mnist":
        X, y = load_digits(return_X_y=True)
        X, y = X[:800] / 16, y[:800]
    _, width, penalty, iterations = falkon2.RUNS[name]
    model = falkon2.falkon(name, 60)
    assert (model.max_iter, model.tol, model.preconditioner) == (iterations, 0.0, "falkon")
    model.set_params(max_iter=100).fit(X[:600], y[:600])  # to the solution: 60 centers make poor preconditioners
    targets = np.where(y[:600, None] == np.arange(10), 1.0, -1.0) if name == "mnist" else y[:600]
    expected = nystrom(X[:600], targets, model.centers_, X[600:], width, penalty)
    found = model.decision_function(X[600:]) if name == "mnist" else model.predict(X[600:])
    assert np.sqrt(np.mean(np.square(found - expected))) < 1e-3 * expected.std()


def test_svm(script):
    """The machines of both sides have the same kernel, and errors of about the same number of rows."""
    svm = script("svm")
    X, y = load_digits(return_X_y=True)
    X, y = 5 * X / 16, y  # as far apart as pixels of MNIST
    ours, theirs = svm.falkon(1e-5, n_centers=300), svm.peer(10.0)
    assert theirs.gamma == 1 / (2 * ours.kernel.length_scale**2)
    assert (ours.loss, ours.tol, ours.preconditioner) == ("squared_hinge", svm.TOL, "falkon")
    wrong = [np.sum(model.fit(X[:1200], y[:1200]).predict(X[1200:]) != y[1200:]) for model in (ours, theirs)]
    assert wrong[0] <= wrong[1] + 12  # two standard deviations of the number of errors
    near = svm.NearMargin(1e-5, n_centers=200).fit(X[:1200], y[:1200])
    assert near.model.centers_.shape == (200, 64)
    assert np.sum(near.model.predict(X[1200:]) != y[1200:]) <= wrong[1] + 12


@pytest.mark.parametrize("method", ["FALKON", "NKRLS", "NYTRO"])
def test_published(script, method):
    """The methods of the papers' tables solve their problem: prepared features as they are, no intercept."""
    published = script("published")
    X, y = smooth(800)
    row = published.Row("MillionSongs", "", method, Gaussian(1.5), 1e-4, 60, {}, "", iterations=100)
    model = published.model_of(row, 60, classes=False, seed=0)
    model.fit(X[:600], y[:600], **({"X_val": X[600:], "y_val": y[600:]} if method == "NYTRO" else {}))
    expected = nystrom(X[:600], y[:600], model.centers_, X[600:], 1.5, 1e-4)
    tolerance = 1e-3
    if method == "NYTRO":
        values, vectors = np.linalg.eigh(gaussian(model.centers_, model.centers_, 1.5))
        R = vectors / np.sqrt(values)
        F, beta = gaussian(X[:600], model.centers_, 1.5) @ R, np.zeros(60)
        for _ in range(model.n_iter_):
            beta -= F.T @ (F @ beta - y[:600]) / np.linalg.norm(F, 2) ** 2
        expected = gaussian(X[600:], model.centers_, 1.5) @ R @ beta
        tolerance = 0.02  # the largest eigenvalue is estimated, within some percent
    assert np.sqrt(np.mean(np.square(model.predict(X[600:]) - expected))) < tolerance * y.std()


def test_comparison(script):
    """The methods solve one problem where they should, and FALKON's two losses and linear kernel are as stated."""
    comparison = script("comparison")
    X, y = smooth(600)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    found = {name: comparison.make(name, "protein_raw", 60) for name in comparison.METHODS}
    ridge = found["Nyström"].fit(X[:400], y[:400])
    expected = nystrom(X[:400], y[:400], ridge.centers_, X[400:], 1.0, 1e-6)
    np.testing.assert_allclose(ridge.predict(X[400:]), expected, atol=1e-4)
    exact = nystrom(X[:400], y[:400], X[:400], X[400:], 1.0, 1e-6)
    prediction = found["Prec. KRR, Nyström"].fit(X[:400], y[:400]).predict(X[400:])
    assert np.sqrt(np.mean(np.square(prediction - exact))) < 0.05 * y.std()
    # "passes" of FALKON: 20 iterations and the right-hand side, with the paper's preconditioner
    falkon = found["FALKON"].fit(X[:400], y[:400])
    assert (falkon.preconditioner, falkon.history_[-1]["passes"]) == ("paper", 21)
    losses = {name: model.set_params(penalty=1e-3) for name, model in comparison.classifiers(60).items()}
    scores = [model.fit(X[:400], y[:400] > 0).score(X[400:], y[400:] > 0) for model in losses.values()]
    assert min(scores) > 0.8
    line = comparison.linear(60, 1e-6).fit(X[:400], y[:400]).predict(X[400:])
    A = np.column_stack([X[:400] / 31.4, np.ones(400)])
    w = np.linalg.solve(A.T @ A + 1e-6 * 400 * np.eye(4), A.T @ y[:400])
    np.testing.assert_allclose(line, np.column_stack([X[400:] / 31.4, np.ones(200)]) @ w, atol=2e-3)


def test_bbkb(script):
    """Both bandits regret less than half of what uniform play does, and BBKB asks for batches."""
    bbkb = script("bbkb")
    X, y = smooth(200)
    X, values = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.min()) / np.ptp(y)
    for cls in (bbkb.BBKB, bbkb.BKB):
        bandit = cls(bbkb.KERNEL, noise=bbkb.NOISE, exploration=0.1, random_state=0).fit(X)
        (ratio,), _, batches, m = bbkb.play(bandit, values, 80, [80])
        assert ratio < 0.5
        assert m < 80
        assert batches < 60 if cls is bbkb.BBKB else batches == 80


def test_dpp_vfx(script):
    """Samples have the size that was asked for: in expectation, where the deviation is below the root of it."""
    dpp_vfx = script("dpp_vfx")
    X = load_digits().data[:600] / 16
    assert dpp_vfx.ours(X, size=10)[2] == 10
    assert abs(dpp_vfx.ours(X, expected_size=10)[2] - 10) < 4 * np.sqrt(10 / dpp_vfx.NEXT)


def test_unsupervised_centers(script):
    """With every row a center kernel PCA is exact: what 50 components leave is in the centred matrix' eigenvalues."""
    unsupervised = script("unsupervised_centers")
    X, y = load_digits(return_X_y=True)
    X, y = 2 * X[:300] / 16, y[:300]
    (left, cost, agreement), _ = unsupervised.measure(X, y, 300, 0)
    K = gaussian(X, X, 7.0)
    centred = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    values = np.linalg.eigvalsh(centred)[::-1]
    assert left == pytest.approx(1 - values[:50].sum() / values.sum(), rel=1e-3)
    assert 0 < cost < values.sum() / 300  # less than that of one cluster
    assert agreement > 0.5


def test_losses(script):
    """The logistic fit is that of a dense solve, on features as they are; the intercept is the log-odds."""
    losses = script("losses")
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:, :10] / X[:, :10].max(axis=0)  # deviations from 0.08 to 0.25
    _, ours, best = losses.beside_dense(X, y, 0.5, 50, 1e-4)
    assert ours == pytest.approx(best, abs=1e-6)
    model = losses.classifier(0.5, 1e-4, loss="logistic", n_centers=50).fit(X, y)
    assert float(np.ravel(model.offset_)[0]) == pytest.approx(np.log(np.mean(y) / np.mean(1 - y)), rel=1e-3)
    assert model.scale_ is None


def test_hard_negatives(script, monkeypatch, capsys):
    """Nearly all negatives are easy: few are kept, and at equal size they are worth more than random ones."""
    monkeypatch.setattr(sys, "argv", ["hard_negatives.py", "12"])
    runpy.run_path(str(ROOT / "examples" / "hard_negatives.py"), run_name="__main__")
    printed = capsys.readouterr().out
    (hard, seen) = map(int, re.search(r"(\d+) of (\d+) negatives were hard", printed).groups())
    assert 0 < hard < 0.05 * seen, printed
    used = [int(number) for number in re.findall(r"(\d+) negatives a class", printed)]
    assert abs(used[0] - used[1]) <= 2
    bootstrap, drawn, _ = map(float, re.findall(r"precision ([\d.]+)", printed))
    assert bootstrap > max(drawn - 0.005, 0.8), printed  # 0.005: what another draw of the random ones changes


def test_every_script_has_a_test():
    scripts = {path.stem for path in (ROOT / "benchmarks" / "papers").glob("[a-z]*.py")}
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert scripts <= tested
