"""Figure 1 of the FALKON paper: test error against passes over the rows, for ways of solving the same Nyström problem.

    python benchmarks/papers/falkon_figure1.py [--data DIR] [--quick] [--plot]

The paper has HIGGS, 11 million rows, which is not at hand: here it is kin40k (36,000 rows, little noise, so that the
small directions matter) and protein_raw (45,730 rows, noisy). All methods have the same centers, drawn uniformly, and
the same kernel, in float64, without an intercept. Those that solve problem (8) have the same penalty; NYTRO has none.

FALKON is there with four preconditioners: the paper's (Algorithm 1, Definition 3); the package's "falkon", whose A may
have a larger ridge than lambda; a sample of the rows; and KRILL's, made of a sketch of all rows. The basic FALKON of
equations (11) and (12), gradient descent with the paper's preconditioner, is there as well.
Everything that reads the rows counts as a pass: the right-hand side, KRILL's sketch, a sample's part of the rows, the
ten passes that find a step's length. An epoch of the stochastic methods is one; a sweep of block coordinate descent
(BCD) over ten blocks of coefficients is two.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from _data import Data, load, options, rmse, save_figure, split, standardise, table

from gyrfalcon import FalkonRegressor
from gyrfalcon.centers import Given
from gyrfalcon.estimators import NystromRegressor, NytroRegressor
from gyrfalcon.kernels import Gaussian

SETS = {"kin40k": (3.0, 1e-7), "protein_raw": (1.0, 1e-6)}  # width and penalty: plausible, not tuned
ALGORITHM_1 = "FALKON, Algorithm 1"
PRECONDITIONERS = {
    ALGORITHM_1: "paper",
    "FALKON, falkon": "falkon",
    "FALKON, sample": "sample",
    "FALKON, krill": "krill",
}
COLOURS = {"Nyström": "#3b7fb5", "NYTRO": "#5a9e54"}
FALKONS = {"1": "#8c2d04", "falkon": "#d94801", "sample": "#ae017e", "krill": "#f2a541", "GD": "#8c6d5a"}
LINES = {"GD": "-", "CG": "--", "SGD": ":", "BCD": "-.", "1": "-", "falkon": "--", "sample": ":", "krill": "-."}
Curve = list[tuple[float, float]]  # passes and test RMSE after each iteration


def estimators(kernel: Gaussian, centers: np.ndarray, penalty: float, iterations: int) -> dict[str, Any]:
    # all that a default could change
    shared: dict[str, Any] = {
        "kernel": kernel,
        "centers": Given(centers, sampled="uniform"),
        "max_iter": iterations,
        "scale": False,
        "fit_intercept": False,
        "random_state": 0,
    }
    problem: dict[str, Any] = {**shared, "penalty": penalty, "tol": 0.0}
    found: dict[str, Any] = {
        name: FalkonRegressor(preconditioner=preconditioner, **problem)
        for name, preconditioner in PRECONDITIONERS.items()
    }
    found["FALKON, GD"] = FalkonRegressor(solver="gd", preconditioner="paper", **problem)
    # an iteration of it is some on the sample as well, and few are needed
    found["FALKON, sample"].set_params(max_iter=min(iterations, 20))
    for name in ("BCD", "CG", "SGD", "GD"):
        found[f"Nyström {name}"] = NystromRegressor(solver=name.lower(), **problem)
    for name in ("CG", "SGD", "GD"):
        found[f"NYTRO {name}"] = NytroRegressor(solver=name.lower(), early_stopping=False, **shared)
    return found


def curves_of(data: Data, M: int, width: float, penalty: float, iterations: int) -> Iterator[tuple[str, Curve]]:
    """Each method's curve, and the error of a direct solve last."""
    rng = np.random.default_rng(0)
    centers = data.X[rng.choice(len(data.X), M, replace=False)]
    kernel = Gaussian(width)
    for method, model in estimators(kernel, centers, penalty, iterations).items():
        model.fit(data.X, data.y, X_val=data.X_test, y_val=data.y_test)
        yield method, [(record["passes"], record["validation_error"]) for record in model.history_]
    exact = NystromRegressor(kernel, centers=centers, penalty=penalty, scale=False, fit_intercept=False)
    error = rmse(exact.fit(data.X, data.y).predict(data.X_test), data.y_test)
    yield "direct solve", [(float("nan"), error)]


def reaches(curve: Curve, error: float) -> tuple[int, float] | None:
    """The first iteration whose error is at most 1.01 times `error`, and the passes until then."""
    found = ((iteration, passes) for iteration, (passes, value) in enumerate(curve, start=1) if value <= 1.01 * error)
    return next(found, None)


def run(name: str, data: Data, M: int, iterations: int) -> dict[str, Curve]:
    width, penalty = SETS[name]
    curves = dict(curves_of(data, M, width, penalty, iterations))
    best = curves["direct solve"][0][1]
    at = [t for t in (2, 5, 10, 20, 50, 100) if t <= iterations]
    rows: list[list[Any]] = []
    for method, curve in curves.items():
        if method == "direct solve":
            rows.append([method, *[""] * (len(at) - 1), f"{best:.4f}", "", ""])
            continue
        after = [next((error for passes, error in reversed(curve) if passes <= t), None) for t in at]
        cells = ["-" if error is None else f"{error:.4f}" for error in after]
        reached = reaches(curve, best)
        first = [f"> {len(curve)}", f"> {curve[-1][0]:.0f}"] if reached is None else [reached[0], f"{reached[1]:.3g}"]
        rows.append([method, *cells, *first])
    header = ["method", *(f"{t} passes" for t in at), "iterations to within 1% of the direct solve", "passes"]
    table(
        f"{name}: test RMSE after some passes; n = {len(data.X):,}, M = {M:,}, Gaussian({width}), lambda = {penalty:g}",
        header,
        rows,
    )
    return curves


def draw(found: dict[str, dict[str, Curve]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(5.3 * len(found), 4.6), layout="constrained", squeeze=False)
    for ax, (name, curves) in zip(axes[0], found.items(), strict=True):
        for method, curve in curves.items():
            if method == "direct solve":
                ax.axhline(curve[0][1], color="0.6", linewidth=0.8, zorder=0)
                ax.annotate(method, (1, curve[0][1]), xytext=(0, 3), textcoords="offset points", fontsize=9)
                continue
            family, kind = method.replace(",", "").split()[0], method.split()[-1]
            colour, width = (FALKONS[kind], 2.2) if family == "FALKON" else (COLOURS[family], 1.4)
            ax.plot(*zip(*curve, strict=True), LINES[kind], color=colour, linewidth=width, label=method)
        top = max(curve[0][1] for curve in curves.values())
        ax.set(xscale="log", xlim=(0.9, 130), xlabel="passes over the rows", title=name)
        ax.set(ylim=(None, min(1.05, 1.02 * top)))
        ax.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("test RMSE (y standardised)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False, fontsize=9, columnspacing=1.2)
    save_figure(figure, "papers_falkon_figure1.png")


def main() -> None:
    given = options(__doc__ or "")
    M, iterations = (500, 30) if given.quick else (1_000, 100)
    warnings.filterwarnings("ignore", category=UserWarning)
    found = {}
    for name in SETS:
        arrays = load(given.data, name, np.float64)
        if arrays is not None:
            data = standardise(split(arrays, n_rows=8_000 if given.quick else None), targets=True)
            found[name] = run(name, data, M, iterations)
    if given.plot and found:
        draw(found)


if __name__ == "__main__":
    main()
