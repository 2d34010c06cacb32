"""Figures 1 and 2 and Table 2 of the NYTRO paper, with the paper's column beside ours.

    python benchmarks/papers/nytro.py [--data DIR] [--quick] [--full] [--runs N] [--only figure2 table2 regimes]
        [--set Ijcnn ...] [--plot]

Figure 2 is the time of model selection against the number of centers m on cpusmall: NKRLS (a direct solve) with 100
penalties, NYTRO with 500 iterations. Table 2 is time, test RMSE and chosen parameter of KOLS, KRLS, Early Stopping,
NKRLS and NYTRO on InsuranceCompany, Adult, Ijcnn and cpusmall (for which the paper has no row), and of FALKON
with NKRLS's centers and penalty, by its own preconditioner; how many passes it takes by that one, by KRILL's and by
the default. Figure 1 is a map of regimes: "regimes" says where the data sets are on it.

The paper does not say how features are scaled, and the kernel's width means nothing without it. Its numbers come out
with features in [-1, 1] (the range over training and test rows together), labels +-1, no intercept and steps of 1 /
the largest eigenvalue; docs/papers_nytro.md has what other choices give.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from _data import ROOT, Data, load, rmse, save_figure, table

from gyrfalcon import FalkonRegressor, d_tilde, signal_to_noise, suggest_nytro
from gyrfalcon.estimators import ExactRegressor, NystromRegressor, NytroRegressor
from gyrfalcon.kernels import Gaussian

PENALTIES = np.logspace(-15, 0, 100)
ITERATIONS = 500
PASSES = 20  # of FALKON
EQUAL = 0.001  # RMSEs within 0.1% count as equal: less than another draw of centers changes
EXACT_ROWS = 40_000  # rows from which methods with n x n products run with --full alone, and n x n factors never
REGIME_ROWS = 2_000  # rows by which a data set is placed in Figure 1
PARTS = ["figure2", "table2", "regimes"]
WINDOW = 10  # iterations over which the authors' code takes the decrease of the validation error
# `prepare` makes the features of the paper's width, and its functions are sums of kernels without a constant
PAPER: dict[str, Any] = {"scale": False, "fit_intercept": False}


@dataclass(frozen=True)
class Reported:
    """A cell of the paper's Table 2: seconds, RMSE and chosen parameter, with deviations over 5 repetitions."""

    seconds: float
    rmse: float
    parameter: str
    spread: float = 0.0


@dataclass(frozen=True)
class Experiment:
    """A row of the paper's Table 2, and how its data are made.

    `threshold` is the relative decrease of the validation error over `WINDOW` iterations at which iterations stop; the
    paper has no number, the authors' published code has one for each data set.
    """

    name: str
    file: str
    width: float
    m: int
    threshold: float
    dtype: Any
    paper: dict[str, Reported] = field(default_factory=dict)
    signs: bool = True  # features in [-1, 1], targets +-1; else features in [0, 1], targets as they are


EXPERIMENTS = [
    Experiment(
        "InsuranceCompany", "coil2000", 3.0, 2_000, 0.000051, np.float64,
        {
            "KOLS": Reported(1.04, 5.179, "-"),
            "KRLS": Reported(97.48, 0.4651, "3.27e-04", 0.0001),
            "Early Stopping": Reported(2.92, 0.4650, "494", 0.0002),
            "NKRLS": Reported(20.32, 0.4651, "5.14e-04", 0.0003),
            "NYTRO": Reported(5.49, 0.4651, "491", 0.0003),
        },
    ),
    Experiment(
        "Adult", "a9a", 6.6, 1_000, 0.0069, np.float32,
        {
            "KOLS": Reported(112, 1765, "-"),
            "KRLS": Reported(4360, 0.645, "4.04e-05", 0.001),
            "Early Stopping": Reported(5.52, 0.685, "39.2", 0.002),
            "NKRLS": Reported(5.95, 0.6462, "4.04e-05", 0.003),
            "NYTRO": Reported(0.85, 0.6873, "4.9", 0.003),
        },
    ),
    Experiment(
        "Ijcnn", "ijcnn1", 1.0, 5_000, 0.000835, np.float64,
        {
            "KOLS": Reported(271, 730.62, "-"),
            "KRLS": Reported(825.01, 0.615, "1.07e-08", 0.002),
            "Early Stopping": Reported(154.82, 0.457, "489", 0.001),
            "NKRLS": Reported(160.28, 0.469, "1.07e-07", 0.003),
            "NYTRO": Reported(80.9, 0.457, "328.7", 0.001),
        },
    ),
    Experiment("cpusmall", "cpusmall", 0.5, 2_000, 0.0001, np.float64, signs=False),
]  # fmt: skip


def prepare(folder: Path, experiment: Experiment, quick: bool) -> Data | None:
    """The data as the authors' code has them; without a split of its own the first 80% are to train on."""
    arrays = load(folder, experiment.file, experiment.dtype)
    if arrays is None:
        return None
    X, y = arrays["X"], arrays["y"]
    if "X_test" in arrays:
        X_test, y_test = arrays["X_test"], arrays["y_test"]
    else:
        n = round(0.8 * len(y))
        X, X_test, y, y_test = X[:n], X[n:], y[:n], y[n:]
    if hasattr(X, "toarray"):
        X, X_test = X.toarray(), X_test.toarray()
    low, high = np.minimum(X.min(axis=0), X_test.min(axis=0)), np.maximum(X.max(axis=0), X_test.max(axis=0))
    width = np.where(high > low, high - low, 1)
    X, X_test = (X - low) / width, (X_test - low) / width
    if experiment.signs:
        X, X_test = 2 * X - 1, 2 * X_test - 1
        y, y_test = np.where(y > 0, 1, -1).astype(X.dtype), np.where(y_test > 0, 1, -1).astype(X.dtype)
    if quick:
        X, y = X[:2_000], y[:2_000]
    return Data(X, y, X_test, y_test)


@dataclass
class Trial:
    """Training rows, and a fifth of them held out at random to choose a parameter by."""

    X: np.ndarray
    y: np.ndarray
    held: dict[str, np.ndarray]

    @classmethod
    def draw(cls, data: Data, seed: int) -> Trial:
        order = np.random.default_rng(seed).permutation(len(data.y))
        held, train = np.split(order, [round(0.2 * len(order))])
        return cls(data.X[train], data.y[train], {"X_val": data.X[held], "y_val": data.y[held]})

    def time(self, model: Any, select: bool = True) -> float:
        """Fit, with the held-out rows to choose by or without, and return the seconds."""
        start = time.perf_counter()
        model.fit(self.X, self.y, **(self.held if select else {}))
        return time.perf_counter() - start


# ---- Figure 2 --------------------------------------------------------------------------------------------------------


def one_cholesky(m: int) -> float:
    """Seconds of the m x m system that a method with one factorisation for each penalty solves again and again."""
    from scipy.linalg import cho_factor, cho_solve

    A = np.asfortranarray(np.random.default_rng(0).standard_normal((m, m)) / m + 2 * np.eye(m))
    start = time.perf_counter()
    cho_solve(cho_factor(A, lower=True, overwrite_a=True, check_finite=False), np.ones(m), check_finite=False)
    return time.perf_counter() - start


def figure2(data: Data, quick: bool, rounds: int) -> dict[str, list[float]]:
    """Time of model selection against m."""
    sizes = [100, 300, 600] if quick else [100, 500, 1_000, 2_000, 3_000, 4_000]
    iterations = 100 if quick else ITERATIONS
    found: dict[str, list[float]] = {"m": [float(m) for m in sizes]}
    rows = []
    for m in sizes:
        best = dict.fromkeys(["one", "NKRLS", "NYTRO", "Cholesky"], float("inf"))
        # the smallest take tenths of a second, and a noisy machine shows
        for seed in range(rounds * (3 if m <= 1_000 else 1)):
            trial = Trial.draw(data, seed)
            common: dict[str, Any] = {"kernel": Gaussian(0.5), "n_centers": m, "random_state": seed, **PAPER}
            seconds = {
                "one": trial.time(NystromRegressor(penalties=PENALTIES[60:61], choose_by="validation", **common)),
                "NKRLS": trial.time(NystromRegressor(penalties=PENALTIES, choose_by="validation", **common)),
                "NYTRO": trial.time(NytroRegressor(max_iter=iterations, early_stopping=False, step="auto", **common)),
                "Cholesky": one_cholesky(m),
            }
            best = {name: min(best[name], seconds[name]) for name in best}
        ratio = best["NKRLS"] / best["one"]
        repeated = best["one"] + 99 * best["Cholesky"]
        rows.append([f"{m:,}", best["one"], best["NKRLS"], ratio, "<= 1.3", ratio <= 1.3, repeated, best["NYTRO"]])
        for name, value in [
            ("one", best["one"]),
            ("NKRLS", best["NKRLS"]),
            ("repeated", repeated),
            ("NYTRO", best["NYTRO"]),
        ]:
            found.setdefault(name, []).append(value)
    header = [
        "m",
        "NKRLS, 1 penalty",
        "100 penalties",
        "ratio",
        "bar",
        "met",
        "1 + 99 Cholesky",
        f"NYTRO, {iterations}",
    ]
    table(f"Figure 2: seconds of model selection, cpusmall, n = {len(trial.y):,}, float64", header, rows)
    return found


def draw(found: dict[str, list[float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
    lines = [
        (
            "repeated",
            "NKRLS, a factorisation for each of 100 penalties\n(1 penalty + 99 Cholesky factorisations)",
            "#9fb6c8",
            "s--",
        ),
        ("NYTRO", f"NYTRO, {ITERATIONS} iterations", "#e07b39", "o-"),
        ("NKRLS", "NKRLS, one factorisation for 100 penalties", "#3b7fb5", "o-"),
        ("one", "NKRLS, 1 penalty", "#22303c", ":"),
    ]
    for name, label, colour, style in lines:
        ax.plot(found["m"], found[name], style, color=colour, label=label, markersize=4, linewidth=1.6)
    ax.set(xlabel="number of centers m", ylabel="seconds", ylim=(0, None), xlim=(0, None))
    ax.set_title("Time of model selection on cpusmall", loc="left", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="0.92")
    ax.legend(frameon=False, fontsize=9)
    save_figure(figure, "papers_nytro_figure2.png")


# ---- Table 2 ---------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """One fit: seconds, test RMSE and the parameter that was chosen."""

    seconds: float
    rmse: float
    parameter: float


class Methods:
    """The methods of Table 2 on one data set; each is called with a seed."""

    def __init__(self, experiment: Experiment, data: Data, m: int) -> None:
        self.experiment, self.data = experiment, data
        self.exact: dict[str, Any] = {"kernel": Gaussian(experiment.width), **PAPER}
        self.subspace: dict[str, Any] = {"n_centers": m, **self.exact}
        # the decrease of one iteration that makes the authors' decrease over a window
        self.stop: dict[str, Any] = {
            "step": "auto",
            "max_iter": ITERATIONS,
            "min_decrease": experiment.threshold / (WINDOW - 1),
        }
        self.penalties: dict[int, float] = {}  # that NKRLS chose, by seed
        self.targets: dict[int, float] = {}  # NKRLS's test RMSE, by seed

    def outcome(self, model: Any, seed: int, parameter: str | None, select: bool = True) -> Outcome:
        seconds = Trial.draw(self.data, seed).time(model, select)
        error = rmse(model.predict(self.data.X_test), self.data.y_test)
        return Outcome(seconds, error, float(getattr(model, parameter)) if parameter else float("nan"))

    def kols(self, seed: int) -> Outcome:
        return self.outcome(ExactRegressor(method="least_squares", **self.exact), seed, None, select=False)

    def krls(self, seed: int) -> Outcome:
        model = ExactRegressor(penalties=PENALTIES, choose_by="validation", **self.exact)
        return self.outcome(model, seed, "penalty_")

    def krls_at_nkrls_penalty(self, seed: int) -> Outcome:
        """One Cholesky factorisation, where an eigendecomposition would take too long."""
        model = ExactRegressor(penalty=self.penalties[seed], **self.exact)
        return self.outcome(model, seed, "penalty_", select=False)

    def early_stopping(self, seed: int) -> Outcome:
        return self.outcome(ExactRegressor(method="early_stopping", **self.stop, **self.exact), seed, "n_iter_")

    def nkrls(self, seed: int) -> Outcome:
        model = NystromRegressor(penalties=PENALTIES, choose_by="validation", random_state=seed, **self.subspace)
        found = self.outcome(model, seed, "penalty_")
        self.penalties[seed], self.targets[seed] = found.parameter, found.rmse
        return found

    def nytro(self, seed: int) -> Outcome:
        return self.outcome(NytroRegressor(random_state=seed, **self.stop, **self.subspace), seed, "n_iter_")

    def _falkon(self, seed: int, preconditioner: str) -> FalkonRegressor:
        return FalkonRegressor(
            penalty=self.penalties[seed],
            preconditioner=preconditioner,
            max_iter=PASSES - 3,  # beside the iterations: the right-hand side, a sketch, and a residual to go on from
            tol=0.0,
            random_state=seed,
            **self.subspace,
        )

    def falkon(self, seed: int) -> Outcome:
        return self.outcome(self._falkon(seed, "falkon"), seed, "n_iter_", select=False)

    def falkon_reaches(self, seed: int, preconditioner: str) -> list[float]:
        """The passes after which FALKON's test RMSE is NKRLS's with the same centers, and the condition number.

        That is the estimate after `PASSES` iterations: long after convergence it is made of rounding errors.
        """
        trial, model = Trial.draw(self.data, seed), self._falkon(seed, preconditioner)
        model.set_params(max_iter=5 * PASSES).fit(trial.X, trial.y, X_val=self.data.X_test, y_val=self.data.y_test)
        limit = (1 + EQUAL) * self.targets[seed]
        first = next((r["passes"] for r in model.history_ if r["validation_error"] <= limit), float("inf"))
        # a sample of the rows, which "auto" may take, has none
        return [first, model.history_[:PASSES][-1].get("condition_number", float("nan"))]


def table2(experiment: Experiment, data: Data, quick: bool, full: bool, runs: int) -> None:
    large = len(data.y) > 20_000
    methods = Methods(experiment, data, 300 if quick else experiment.m)
    few, many = 1, (1 if quick else 5 if full else runs)
    # NKRLS first: others take its penalty
    plan: list[tuple[str, Callable[[int], Outcome], int]] = [
        ("NKRLS", methods.nkrls, many),
        ("NYTRO", methods.nytro, many),
        ("FALKON", methods.falkon, many),
    ]
    if quick or full or len(data.y) < EXACT_ROWS:
        plan += [("Early Stopping", methods.early_stopping, few if large else many)]
    if not large:
        plan += [("KOLS", methods.kols, few), ("KRLS", methods.krls, few)]
    elif full and len(data.y) < EXACT_ROWS:
        plan += [("KRLS", methods.krls_at_nkrls_penalty, few)]
    found = {name: [run(seed) for seed in range(times)] for name, run, times in plan}
    rows = list(table_rows(experiment, found, quick))
    header = ["method", "runs", "seconds", "paper", "test RMSE", "paper", "as good", "parameter", "paper"]
    n, m = round(0.8 * len(data.y)), methods.subspace["n_centers"]
    title = (
        f"{experiment.name}: n = {n:,} + {len(data.y) - n:,} to choose by, m = {m:,}, Gaussian({experiment.width:g})"
    )
    table(f"Table 2, {title}, {np.dtype(experiment.dtype)}", header, rows)
    rows = []
    for preconditioner in ("auto", "falkon", "krill"):
        reached = [methods.falkon_reaches(seed, preconditioner) for seed in range(many)]
        worst, condition = np.fmax.reduce(reached)
        each = ", ".join(f"{first:.3g}" for first, _ in reached)
        rows.append([preconditioner, each, float(condition), f"<= {PASSES}", bool(worst <= PASSES)])
    header = [
        "preconditioner",
        "passes to NKRLS's test RMSE, each run",
        "largest condition number seen",
        "bar",
        "met",
    ]
    table(f"FALKON on {experiment.name}, within {100 * EQUAL:g}%", header, rows)


def table_rows(experiment: Experiment, found: dict[str, list[Outcome]], quick: bool) -> Iterator[list[Any]]:
    for name in ("KOLS", "KRLS", "Early Stopping", "NKRLS", "NYTRO", "FALKON"):
        paper, outcomes = experiment.paper.get(name), found.get(name)
        reported = [paper.seconds, f"{paper.rmse:g}", paper.parameter] if paper else ["", "", ""]
        if outcomes is None:
            yield [name, 0, "left out", reported[0], "", reported[1], "", "", reported[2]]
            continue
        errors = np.array([outcome.rmse for outcome in outcomes])
        text = f"{errors.mean():.4g}" + (f" ± {errors.std():.1g}" if len(errors) > 1 else "")
        parameter = float(np.median([outcome.parameter for outcome in outcomes]))
        chosen = "-" if np.isnan(parameter) else f"{parameter:.3g}" if parameter < 1 else f"{parameter:.0f}"
        compared = paper is not None and not quick
        good = bool(errors.mean() <= paper.rmse + paper.spread + errors.std()) if compared else ""
        seconds = float(np.mean([outcome.seconds for outcome in outcomes]))
        yield [name, len(outcomes), seconds, reported[0], text, reported[1], good, chosen, reported[2]]


def steps(experiment: Experiment, data: Data) -> None:
    """NYTRO's path on Adult by the step of the paper's text and by that of its code: which one made Table 2?"""
    at = [5, 10, 20, 39, 50, 100]
    rows = []
    for label, step in [("1 / max k(x, x): the text", None), ("1 / largest eigenvalue: the code", "auto")]:
        model = NytroRegressor(
            Gaussian(experiment.width), n_centers=experiment.m, early_stopping=False, step=step, max_iter=max(at),
            random_state=0, **PAPER,
        )  # fmt: skip
        trial = Trial.draw(data, 0)
        model.fit(trial.X, trial.y, X_val=data.X_test, y_val=data.y_test)
        rows.append([label, *(f"{model.history_[t - 1]['validation_error']:.4f}" for t in at)])
    table(f"NYTRO on {experiment.name}: test RMSE after t iterations", ["step", *(f"t = {t}" for t in at)], rows)


def regimes(experiment: Experiment, data: Data) -> list[Any]:
    """SNR, d~(1 / SNR), lambda*, t and m of the paper, and its method, for the KRLS fit of some of the rows.

    Predictions of that fit stand for the mean of y, and its squared errors on the test rows for the noise.
    """
    X, y = data.X[:REGIME_ROWS].astype(np.float64), data.y[:REGIME_ROWS].astype(np.float64)
    kernel = Gaussian(experiment.width)
    fit = ExactRegressor(kernel, penalties=PENALTIES, choose_by="loo", **PAPER).fit(X, y)
    noise = rmse(fit.predict(data.X_test.astype(np.float64)), data.y_test) ** 2
    snr = signal_to_noise(X, fit.predict(X), kernel, noise)
    dimension = d_tilde(X, kernel, 1 / snr)
    found = suggest_nytro(len(X), snr, dimension)
    numbers = [f"{snr:.3g}", f"{dimension:.0f}", f"{found.penalty:.1e}", found.n_iter, found.n_centers]
    return [experiment.name, len(X), *numbers, found.regime]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of .npz files")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for a look")
    parser.add_argument("--full", action="store_true", help="5 repetitions, and KRLS on Adult (some minutes, 6 GB)")
    parser.add_argument("--runs", type=int, default=3, help="draws of held-out rows and centers for Table 2")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--set", nargs="+", choices=[e.name for e in EXPERIMENTS], help="data sets of Table 2")
    parser.add_argument("--plot", action="store_true", help="draw the picture into docs/images")
    arguments = parser.parse_args()
    if "figure2" in arguments.only:
        data = prepare(arguments.data, EXPERIMENTS[-1], arguments.quick)
        if data is not None:
            found = figure2(data, arguments.quick, 3 if arguments.full else 1)
            if arguments.plot:
                draw(found)
    chosen = [experiment for experiment in EXPERIMENTS if not arguments.set or experiment.name in arguments.set]
    if "regimes" in arguments.only:
        prepared = [(experiment, prepare(arguments.data, experiment, arguments.quick)) for experiment in chosen]
        rows = [regimes(experiment, data) for experiment, data in prepared if data is not None]
        table("Figure 1's regimes", ["data", "n", "SNR", "d~", "lambda*", "t", "m", "method"], rows)
    if "table2" in arguments.only:
        for experiment in chosen:
            data = prepare(arguments.data, experiment, arguments.quick)
            if data is not None:
                table2(experiment, data, arguments.quick, arguments.full, arguments.runs)
                if experiment.name == "Adult" and not arguments.quick:
                    steps(experiment, data)


if __name__ == "__main__":
    main()
