"""Figure 1 of the FALKON paper: test error against iterations for eight ways of solving the same Nyström problem.

    python benchmarks/papers/falkon_figure1.py [--data DIR] [--quick] [--plot]

The paper has HIGGS, 11 million rows, which is not at hand: here it is kin40k (36,000 rows, little noise, so that the
small directions matter) and protein_raw (45,730 rows, noisy). All methods have the same centers and kernel. Those that
solve problem (8) have the same penalty; NYTRO has none. One iteration is one pass over the rows for all, an epoch for
the stochastic ones; one of block coordinate descent (BCD) is a sweep over ten blocks of coefficients, two passes.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from _data import Data, load, options, rmse, save_figure, split, standardise, table

from gyrfalcon import FalkonRegressor
from gyrfalcon.estimators import NystromRegressor, NytroRegressor
from gyrfalcon.kernels import Gaussian

SETS = {"kin40k": (3.0, 1e-7), "protein_raw": (1.0, 1e-6)}  # width and penalty: plausible, not tuned
COLOURS = {"Nyström": "#3b7fb5", "NYTRO": "#5a9e54", "FALKON": "#e07b39"}
LINES = {"GD": "-", "CG": "--", "SGD": ":", "BCD": "-."}


def methods(kernel: Gaussian, centers: np.ndarray, penalty: float, iterations: int) -> dict[str, Any]:
    shared: dict[str, Any] = {"kernel": kernel, "centers": centers, "random_state": 0}
    found: dict[str, Any] = {"FALKON": FalkonRegressor(penalty=penalty, max_iter=iterations, tol=0.0, **shared)}
    found["Nyström BCD"] = NystromRegressor(solver="bcd", penalty=penalty, max_iter=iterations, tol=0.0, **shared)
    for name in ("GD", "CG", "SGD"):
        solver = name.lower()
        found[f"Nyström {name}"] = NystromRegressor(
            solver=solver, penalty=penalty, max_iter=iterations, tol=0.0, **shared
        )
        found[f"NYTRO {name}"] = NytroRegressor(solver=solver, max_iter=iterations, early_stopping=False, **shared)
    return found


def run(name: str, data: Data, M: int, iterations: int) -> dict[str, list[float]]:
    width, penalty = SETS[name]
    rng = np.random.default_rng(0)
    centers = data.X[rng.choice(len(data.X), M, replace=False)]
    curves = {}
    for method, model in methods(Gaussian(width), centers, penalty, iterations).items():
        model.fit(data.X, data.y, X_val=data.X_test, y_val=data.y_test)
        curves[method] = [record["validation_error"] for record in model.history_]
    exact = NystromRegressor(Gaussian(width), centers=centers, penalty=penalty).fit(data.X, data.y)
    best = rmse(exact.predict(data.X_test), data.y_test)
    curves["direct solve"] = [best]
    at = [t for t in (1, 2, 5, 10, 20, 50, 100) if t <= iterations]
    rows = []
    for method, errors in curves.items():
        reached = np.flatnonzero(np.asarray(errors) <= 1.01 * best)
        after = [errors[min(t, len(errors)) - 1] if len(errors) > 1 else best for t in at]
        first = "-" if len(errors) == 1 else int(reached[0]) + 1 if len(reached) else f"> {iterations}"
        rows.append([method, *(f"{error:.4f}" for error in after), first])
    header = ["method", *(f"t = {t}" for t in at), "first t within 1% of the direct solve"]
    table(
        f"{name}: test RMSE after t iterations or epochs; n = {len(data.X):,}, M = {M:,}, Gaussian({width}), "
        f"lambda = {penalty:g}",
        header,
        rows,
    )
    return curves


def draw(found: dict[str, dict[str, list[float]]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(5.3 * len(found), 4.3), layout="constrained", squeeze=False)
    for ax, (name, curves) in zip(axes[0], found.items(), strict=True):
        for method, errors in curves.items():
            if method == "direct solve":
                ax.axhline(errors[0], color="0.6", linewidth=0.8, zorder=0)
                ax.annotate("direct solve", (1, errors[0]), xytext=(0, 3), textcoords="offset points", fontsize=9)
                continue
            family, _, kind = method.partition(" ")
            ax.plot(
                np.arange(1, len(errors) + 1),
                errors,
                LINES.get(kind, "-"),
                color=COLOURS[family],
                linewidth=2.4 if family == "FALKON" else 1.6,
                label=method,
            )
        top = max(curves[method][0] for method in curves)
        ax.set(xscale="log", xlabel="iterations (epochs for SGD)", title=name, ylim=(None, min(1.05, 1.02 * top)))
        ax.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("test RMSE (y standardised)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=8, frameon=False, fontsize=9, columnspacing=1.2)
    save_figure(figure, "papers_falkon_figure1.png")


def main() -> None:
    given = options(__doc__ or "")
    M, iterations = (500, 30) if given.quick else (1_000, 100)
    warnings.filterwarnings("ignore", category=UserWarning)
    found = {}
    for name in SETS:
        arrays = load(given.data, name)
        if arrays is not None:
            data = standardise(split(arrays, n_rows=8_000 if given.quick else None), targets=True)
            found[name] = run(name, data, M, iterations)
    if given.plot and found:
        draw(found)


if __name__ == "__main__":
    main()
