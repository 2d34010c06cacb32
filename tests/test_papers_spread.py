"""Numbers of the papers' scripts over several seeds, beside those that were recorded.

Each number is a mean over four draws of data, centers or features. It may differ from the recorded mean by what another
four draws would change, and not by more: a changed default of an estimator, which would change a table of the papers'
pages, changes it too. `test_defaults_would_show` checks that it would.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from gyrfalcon.kernels import Gaussian

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SEEDS = range(4)
METHODS = {  # of comparison.py: mean and deviation of the test RMSE
    "FALKON": (0.5744, 0.12),
    "basic FALKON": (1.674, 0.092),
    "Nyström": (0.4174, 0.048),
    "BCD Nyström": (0.4174, 0.048),
    "NYTRO": (0.457, 0.0098),
    "Rand. Feat.": (0.4234, 0.092),
    "BCD R. F.": (0.4234, 0.092),
    "R. F., SGD": (0.5094, 0.029),
    "R. F., averaged SGD": (0.7523, 0.068),
    "Prec. KRR, random features": (0.2691, 0.022),
    "Prec. KRR, Nyström": (0.2281, 8.9e-05),
    "D&C": (0.6275, 0.0074),
    "EigenPro": (0.3634, 0.0093),
    "Hierarchical": (0.2295, 0.0063),
    "ADMM R. F.": (0.4284, 0.046),
    "preconditioned SVRG": (0.4232, 0.092),
    "doubly stochastic": (0.9628, 0.15),
    "sketches": (0.6713, 0.048),
    "Sparse Kernels": (0.2499, 0.048),
    "Ensemble": (0.3254, 0.028),
}
NUMBERS = {  # of the other scripts: mean and deviation
    "nytro: NKRLS": (0.4082, 0.013),
    "nytro: NYTRO": (0.467, 0.0065),
    "nytro: NKRLS, log10 of the penalty": (-4.47, 0.15),
    "falkon_figure1: passes, FALKON, Algorithm 1": (15.75, 0.96),
    "falkon_figure1: passes, FALKON, falkon": (12.25, 3),
    "falkon_figure1: passes, FALKON, sample": (21.69, 0.94),
    "falkon_figure1: passes, FALKON, krill": (8.5, 1),
    "falkon_table1: FALKON": (0.825, 0.049),
    "svm: squared hinge, %": (2.1, 0.26),
    "svm: hinge, %": (2.15, 0.19),
    "falkon2: mnist, %": (2.75, 0.19),
    "unsupervised_centers: left": (0.1678, 0.0039),
    "unsupervised_centers: agreement": (0.7488, 0.023),
    "svm: near the margin, %": (1.85, 0.36),
    "falkon_theorems: condition": (238.8, 60),
    "nytro_penalties: validation RMSE": (0.4281, 0.05),
    "nytro_theorems: NYTRO / KRLS": (1.088, 0.091),
    "published: FALKON": (0.5753, 0.085),
    "bbkb: regret": (0.2722, 0.19),
    "dpp_vfx: rows": (9.675, 0.24),
}


@pytest.fixture
def script(monkeypatch):
    """Import a script of benchmarks/papers by its name."""
    for folder in ("benchmarks", "benchmarks/papers"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    return importlib.import_module


def smooth(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Three features of deviations 0.5 to 2, and a y whose mean is 2."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3)) * [0.5, 1.0, 2.0]
    return X, 2 + np.sin(3 * X[:, 0]) * X[:, 1] + 0.2 * X[:, 2] + 0.1 * rng.standard_normal(n)


def digits(seed: int, pixels: float) -> tuple[np.ndarray, ...]:
    """1,000 digits to train on and 500 to test on, with pixels from 0 to `pixels`."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))[:1_500]
    X, y = pixels * X[order] / 16, y[order]
    return X[:1_000], y[:1_000], X[1_000:], y[1_000:]


def method_error(script: Callable[[str], ModuleType], method: str, seed: int, **changed: Any) -> float:
    """The test RMSE of a method of comparison.py with the settings of protein_raw."""
    comparison = script("comparison")
    X, y = smooth(900)
    model = comparison.make(method, "protein_raw", 100).set_params(random_state=seed, **changed)
    model.fit(X[:600], y[:600])
    return comparison.rmse(model.predict(X[600:]), y[600:])


def nkrls(script: Callable[[str], ModuleType], seed: int) -> tuple[float, float, float]:
    """NKRLS's and NYTRO's test RMSE and the logarithm of NKRLS's penalty, on the Wisconsin tumours."""
    nytro = script("nytro")
    X, y = load_breast_cancer(return_X_y=True)
    X = 2 * (X - X.min(axis=0)) / np.ptp(X, axis=0) - 1
    y = np.where(y == 1, 1.0, -1.0)
    data = nytro.Data(X[:400], y[:400], X[400:], y[400:])
    methods = nytro.Methods(nytro.Experiment("tumours", "", 3.0, 100, 0.0069, np.float64), data, 100)
    direct = methods.nkrls(seed)
    return direct.rmse, methods.nytro(seed).rmse, np.log10(direct.parameter)


def reached(script: Callable[[str], ModuleType], seed: int) -> dict[str, float]:
    """The passes of Figure 1's preconditioners to within 1% of the direct solve."""
    figure1 = script("falkon_figure1")
    X, y = smooth(1_200)
    order = np.random.default_rng(seed).permutation(1_200)  # the script draws the same centers by position
    X, y = X[order], y[order]
    data = figure1.Data(X[:800], y[:800], X[800:], y[800:])
    curves = dict(figure1.curves_of(data, 100, 1.0, 1e-4, 40))
    found = {name: figure1.reaches(curves[name], curves["direct solve"][0][1]) for name in figure1.PRECONDITIONERS}
    return {name: np.inf if at is None else at[1] for name, at in found.items()}


def table1_error(script: Callable[[str], ModuleType], seed: int) -> float:
    """FALKON's test RMSE in Table 1's problem."""
    table1 = script("falkon_table1")
    X, y = table1.problem(1_500)
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:1_000], order[1_000:]
    model = table1.make("falkon", 1_000).set_params(random_state=seed).fit(X[train], y[train])
    return float(np.sqrt(np.mean(np.square(model.predict(X[test]) - y[test]))))


def wrong(model: Any, seed: int, pixels: float) -> float:
    """The percentage of wrong digits."""
    X, y, X_test, y_test = digits(seed, pixels)
    return 100 * (1 - model.set_params(random_state=seed).fit(X, y).score(X_test, y_test))


def theorem_numbers(script: Callable[[str], ModuleType], seed: int) -> tuple[float, float]:
    """The condition number of FALKON's system, and NYTRO's risk relative to KRLS's, for a draw of centers."""
    theorems, risks = script("falkon_theorems"), script("nytro_theorems")
    X, _ = smooth(600)
    centers = X[np.random.default_rng(seed).choice(600, 50, replace=False)]
    condition = theorems.Dense.of(Gaussian(1.0), X, theorems.Selection(centers)).condition_number(1e-4)
    design = risks.Design.make(80, 0.25)
    few = design.X[np.random.default_rng(seed).choice(80, 20, replace=False)]
    return condition, design.risk(risks.nytro(few, 30)) / design.risk(risks.krls(1 / 30))


def validation_error(script: Callable[[str], ModuleType], seed: int) -> float:
    """The validation error at the penalty that it chooses."""
    penalties = script("nytro_penalties")
    X, y = smooth(900)
    held, _, _ = penalties.path(penalties.Data(X[:600], y[:600], X[600:], y[600:]), 100, 1.0, seed)
    return float(held.min())


def published_error(script: Callable[[str], ModuleType], seed: int) -> float:
    """The test RMSE of FALKON with the settings of a published row."""
    published = script("published")
    X, y = smooth(900)
    row = published.Row("MillionSongs", "", "FALKON", Gaussian(1.0), 1e-6, 100, {}, "")
    model = published.model_of(row, 100, classes=False, seed=seed).fit(X[:600], y[:600])
    return float(np.sqrt(np.mean(np.square(model.predict(X[600:]) - y[600:]))))


def regret(script: Callable[[str], ModuleType], seed: int) -> float:
    """The regret of BBKB relative to uniform play, after 100 plays."""
    bbkb = script("bbkb")
    X, y = smooth(200)
    order = np.random.default_rng(seed).permutation(200)  # noise is drawn as arms are played
    X, values = ((X - X.mean(axis=0)) / X.std(axis=0))[order], ((y - y.min()) / np.ptp(y))[order]
    bandit = bbkb.BBKB(bbkb.KERNEL, noise=bbkb.NOISE, exploration=0.1, random_state=seed).fit(X)
    return float(bbkb.play(bandit, values, 100, [100])[0][0])


def measured(script: Callable[[str], ModuleType], seed: int) -> dict[str, float]:
    """All numbers of `NUMBERS` for one seed."""
    direct, nytro, penalty = nkrls(script, seed)
    svm, falkon2, unsupervised = script("svm"), script("falkon2"), script("unsupervised_centers")
    X, y, *_ = digits(seed, 2.0)
    (left, _, agreement), _ = unsupervised.measure(X[:300], y[:300], 60, seed)
    X, y, X_test, y_test = digits(seed, 5.0)
    near = svm.NearMargin(1e-5, n_centers=200).fit(X, y)
    condition, ratio = theorem_numbers(script, seed)
    return {
        "nytro: NKRLS": direct,
        "nytro: NYTRO": nytro,
        "nytro: NKRLS, log10 of the penalty": penalty,
        **{f"falkon_figure1: passes, {name}": passes for name, passes in reached(script, seed).items()},
        "falkon_table1: FALKON": table1_error(script, seed),
        "svm: squared hinge, %": wrong(svm.falkon(1e-5, n_centers=200), seed, 5.0),
        "svm: hinge, %": wrong(svm.falkon(1e-5, loss="hinge", n_centers=200), seed, 5.0),
        "falkon2: mnist, %": wrong(falkon2.falkon("mnist", 100), seed, 4.0),
        "unsupervised_centers: left": left,
        "unsupervised_centers: agreement": agreement,
        "svm: near the margin, %": 100 * (1 - near.score(X_test, y_test)),
        "falkon_theorems: condition": condition,
        "nytro_penalties: validation RMSE": validation_error(script, seed),
        "nytro_theorems: NYTRO / KRLS": ratio,
        "published: FALKON": published_error(script, seed),
        "bbkb: regret": regret(script, seed),
        "dpp_vfx: rows": script("dpp_vfx").ours(X[:200], expected_size=10)[2],
    }


def allowed(mean: float, deviation: float) -> float:
    """Three deviations of the difference of two means over `SEEDS`, or 0.5% where draws hardly differ."""
    return max(3 * float(np.sqrt(2 / len(SEEDS))) * deviation, 0.005 * abs(mean))


@pytest.mark.parametrize("method", METHODS)
def test_methods(script, method):
    """The test RMSE of every method of the comparison."""
    mean, deviation = METHODS[method]
    assert np.mean([method_error(script, method, seed) for seed in SEEDS]) == pytest.approx(
        mean, abs=allowed(mean, deviation)
    )


def test_every_method_is_recorded(script):
    assert set(METHODS) == set(script("comparison").METHODS)


def test_every_script_has_a_number():
    """A changed default cannot change a table silently: each script has a number here."""
    scripts = {path.stem for path in (ROOT / "benchmarks" / "papers").glob("[a-z]*.py")} - {"comparison"}
    assert {name.split(":")[0] for name in NUMBERS} == scripts


def test_numbers(script):
    """Numbers of the other scripts; all that are off are shown together."""
    found = [measured(script, seed) for seed in SEEDS]
    assert set(found[0]) == set(NUMBERS)
    means = {name: float(np.mean([each[name] for each in found])) for name in NUMBERS}
    off = {
        name: (means[name], NUMBERS[name])
        for name, (mean, deviation) in NUMBERS.items()
        if not abs(means[name] - mean) <= allowed(mean, deviation)
    }
    assert not off


@pytest.mark.parametrize(
    ("method", "changed"),
    [
        ("FALKON", {"preconditioner": "krill", "max_iter": 3}),
        ("NYTRO", {"fit_intercept": True}),
        ("NYTRO", {"scale": True}),
        ("D&C", {"fit_intercept": True}),
        ("D&C", {"n_partitions": 8}),
        ("EigenPro", {"max_iter": 2}),
        ("Prec. KRR, Nyström", {"fit_intercept": True}),
    ],
)
def test_defaults_would_show(script, method, changed):
    """What a changed default would do is outside of what is allowed."""
    mean, deviation = METHODS[method]
    other = np.mean([method_error(script, method, seed, **changed) for seed in SEEDS])
    assert abs(other - mean) > allowed(mean, deviation)
