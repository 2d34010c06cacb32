"""Theorems 1, 2 and 4 of the FALKON paper, measured: condition numbers, rates, and what leverage scores save.

    python benchmarks/papers/falkon_theorems.py [--data DIR] [--quick] [--plot]

Condition numbers are exact: dense float64 linear algebra, written down here again and independent of the package: with
D K_MM D = Q S Q' and F = K D Q S^(-1/2), B'HB has the eigenvalues of (S/M + lambda)^(-1/2) (F'F/n + lambda)
(S/M + lambda)^(-1/2). Beside it stands what the package does: the condition number of its own preconditioner, whose A
has a ridge that may be larger than lambda, and the one that conjugate gradient estimates on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from _data import Data, load, options, save_figure, split, standardise, table

from gyrfalcon import KernelOperator, centers_needed, n_infinity
from gyrfalcon.centers import Selection, as_centers
from gyrfalcon.centers.leverage import effective_dimension, leverage_scores
from gyrfalcon.kernels import Gaussian, Kernel
from gyrfalcon.preconditioners import Preconditioner
from gyrfalcon.solvers import conjugate_gradient

BOUND, DELTA, KAPPA = 17.0, 0.1, 1.0
BLUE, ORANGE, GREEN, GREY = "#3b7fb5", "#e07b39", "#5a9e54", "0.45"


@dataclass
class Dense:
    """The Nyström problem of some centers in coordinates where |f|^2 is |a|^2: f = K R a."""

    operator: KernelOperator
    R: np.ndarray
    S: np.ndarray
    G: np.ndarray  # F'F / n
    n_draws: int

    @classmethod
    def of(cls, kernel: Kernel, X: np.ndarray, selection: Selection) -> Dense:
        operator = KernelOperator(kernel, X, selection.points)
        D = np.ones(len(selection.points)) if selection.D is None else selection.D
        S, Q = np.linalg.eigh(D[:, None] * operator.centers_gram() * D)
        keep = S / S[-1] > 1e-12
        R = D[:, None] * Q[:, keep] / np.sqrt(S[keep])
        G = np.zeros((keep.sum(), keep.sum()))
        for _, K in operator.blocks():
            F = K @ R
            G += F.T @ F
        return cls(operator, R, S[keep], G / len(X), selection.n_draws or len(selection.points))

    def condition_number(self, penalty: float) -> float:
        """Of the paper's B'HB."""
        scale = 1 / np.sqrt(self.S / self.n_draws + penalty)
        eigenvalues = np.linalg.eigvalsh(scale[:, None] * (self.G + penalty * np.eye(len(self.S))) * scale)
        return float(eigenvalues[-1] / eigenvalues[0])

    def solution(self, y: np.ndarray, penalty: float) -> np.ndarray:
        """The Nyström estimator's coefficients."""
        b = self.R.T @ self.operator.rmatmat(y) / len(y)
        return self.R @ np.linalg.solve(self.G + penalty * np.eye(len(self.S)), b)

    def condition_number_with(self, B: np.ndarray, penalty: float) -> float:
        """Of B'HB for another B, of shape (M, r)."""
        # H / n = R^-T (G + lambda) R^-1, and R^-1 = R'K_MM since R'K_MM R = I
        C = self.R.T @ self.operator.centers_gram() @ B
        eigenvalues = np.linalg.eigvalsh(C.T @ (self.G + penalty * np.eye(len(self.S))) @ C)
        return float(eigenvalues[-1] / eigenvalues[0])


def nu(condition: float) -> float:
    """Theorem 1's rate."""
    return float(np.log(1 + 2 / (np.sqrt(max(condition, 1 + 1e-12)) - 1)))


def conditions(data: Data, quick: bool) -> tuple[dict[float, list[float]], list[int]]:
    """Condition numbers against M."""
    kernel, n = Gaussian(3.0), len(data.X)
    counts = [50, 100, 200, 400] if quick else [50, 100, 200, 400, 800, 1600]
    penalties = [1e-1, 1e-2, 1e-3, 1e-4, 1e-6]
    found: dict[float, list[float]] = {penalty: [] for penalty in penalties}
    rows = []
    for M in counts:
        selection = as_centers("uniform").select(data.X, M, kernel=kernel, penalty=0.0, random_state=1)
        dense = Dense.of(kernel, data.X, selection)
        for penalty in penalties:
            exact = dense.condition_number(penalty)
            found[penalty].append(exact)
            B = Preconditioner(dense.operator.centers_gram(), penalty, n)
            ours = dense.condition_number_with(B.apply(np.eye(B.rank)), penalty)
            *_, last = conjugate_gradient(dense.operator, data.y, B, penalty, max_iter=20, tol=1e-12)
            small = exact if exact < 1e6 else f"{exact:.0e}"
            ratio = B.ridge / penalty
            rows.append([f"{penalty:g}", M, small, exact < BOUND, ratio, ours, last.condition_number])
    rows.sort(key=lambda row: (-float(row[0]), row[1]))
    table(
        f"condition number of B'HB: kin40k, n = {n:,}, Gaussian(3), uniform centers",
        ["lambda", "M", "the paper's B", "< 17", "ridge / lambda", "our B", "as CG estimates it in 20 iterations"],
        rows,
    )
    rows = []
    for penalty in penalties[:-1]:  # the scores of the last take longer than all else here, and its bounds exceed 10^6
        N = effective_dimension(data.X, kernel, penalty, random_state=0)
        N_inf = n_infinity(data.X, kernel, penalty, method="bless", random_state=0)
        theorem_2 = centers_needed(penalty, theorem=2, kappa=KAPPA, delta=DELTA)
        theorem_4 = centers_needed(penalty, theorem=4, n_infinity=N_inf, kappa=KAPPA, delta=DELTA)
        # the first M from which on it stays below
        first = next((M for i, M in enumerate(counts) if all(v < BOUND for v in found[penalty][i:])), None)
        measured = f"<= {first:,}" if first else f"> {counts[-1]:,}"
        rows.append([f"{penalty:g}", f"{N:.0f}", f"{N_inf:.0f}", f"{theorem_2:,}", f"{theorem_4:,}", measured])
    table(
        "centers needed for a condition number below 17 (delta = 0.1)",
        ["lambda", "effective dimension", "N_infinity", "Theorem 2 asks for", "Theorem 4 asks for", "measured"],
        rows,
    )
    return found, counts


def rates(data: Data, quick: bool) -> dict[str, tuple[list[float], float]]:
    """Distance to the Nyström estimator, on test rows, against iterations."""
    kernel, n = Gaussian(3.0), len(data.X)
    M = 400 if quick else 1_000
    v = float(np.sqrt(np.mean(np.square(data.y))))
    curves, rows = {}, []
    selection = as_centers("uniform").select(data.X, M, kernel=kernel, penalty=0.0, random_state=1)
    dense = Dense.of(kernel, data.X, selection)
    at_test = dense.operator.on(data.X_test)
    for penalty in (1e-1, 1e-2, 1e-3, 1e-4, 1e-6):
        goal = at_test.matmat(dense.solution(data.y, penalty))
        B = Preconditioner(dense.operator.centers_gram(), penalty, n)
        distances = [
            float(np.sqrt(np.mean(np.square(at_test.matmat(iterate.coef()) - goal))))
            for iterate in conjugate_gradient(dense.operator, data.y, B, penalty, max_iter=15, tol=0.0)
        ]
        condition = dense.condition_number(penalty)
        curves[f"{penalty:g}"] = (distances, condition)
        promise = [
            4 * v * np.exp(-nu(condition) * t) * np.sqrt(1 + 9 * KAPPA**2 / (penalty * n) * np.log(n / DELTA))
            for t in range(1, 16)
        ]
        last = max(2, next((t for t, x in enumerate(distances) if x < 1e-9), 15))
        measured = -np.polyfit(np.arange(1, last + 1), np.log(np.maximum(distances[:last], 1e-300)), 1)[0]
        kept = all(d <= max(p, 1e-12) for d, p in zip(distances, promise, strict=False))  # but for rounding
        shown = [f"{distances[t - 1]:.1e}" for t in (1, 5, 10, 15)]
        rows.append([f"{penalty:g}", condition, nu(condition), float(measured), bool(measured >= 0.5), kept, *shown])
    table(
        f"distance to the Nyström estimator (root mean square over test rows), M = {M:,}",
        [
            "lambda",
            "condition",
            "nu of Theorem 1",
            "measured rate",
            ">= 1/2",
            "below the bound",
            "t = 1",
            "5",
            "10",
            "15",
        ],
        rows,
    )
    return curves


def clusters(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One large flat cloud and eight rare clusters far away, each with its own function; which rows are rare."""
    label = np.where(rng.random(n) < 0.01, rng.integers(1, 9, n), 0)
    offset = 12.0 * np.vstack([np.zeros(3), *(np.eye(3) * sign for sign in (1, -1)), np.eye(3)[:2] * 2])[label]
    X = offset + rng.standard_normal((n, 3)) * np.where(label == 0, 0.5, 1.0)[:, None]
    y = np.sin(X[:, 0] + label) + np.cos(X[:, 1]) + 0.05 * rng.standard_normal(n)
    return X, y, label > 0


def rare(quick: bool) -> dict[str, dict[str, list[float]]]:
    """Uniform and leverage-score centers where a few rare clusters matter."""
    rng = np.random.default_rng(0)
    n = 4_000 if quick else 10_000
    X, y, _ = clusters(n, rng)
    X_test, y_test, is_rare = clusters(10_000, rng)
    kernel, penalty = Gaussian(1.5), 1e-6
    counts = [50, 100, 200, 400] if quick else [50, 100, 200, 400, 800]
    seeds = 2 if quick else 3
    N = effective_dimension(X, kernel, penalty, random_state=0)
    scores = leverage_scores(X, kernel, penalty, method="bless", random_state=0)
    found: dict[str, dict[str, list[float]]] = {}
    for name in ("uniform", "leverage"):
        found[name] = {"condition": [], "rare": [], "all": []}
        for M in counts:
            values = []
            for seed in range(seeds):
                selection = as_centers(name).select(X, M, kernel=kernel, penalty=penalty, random_state=seed)
                dense = Dense.of(kernel, X, selection)
                errors = np.square(dense.operator.on(X_test).matmat(dense.solution(y, penalty)) - y_test)
                rare_error, error = np.sqrt(errors[is_rare].mean()), np.sqrt(errors.mean())
                values.append((dense.condition_number(penalty), rare_error, error))
            for key, value in zip(found[name], np.median(values, axis=0), strict=True):
                found[name][key].append(float(value))
    rows = [
        [M]
        + [found[name]["condition"][i] for name in found]
        + [f"{found[name][key][i]:.4f}" for key in ("rare", "all") for name in found]
        for i, M in enumerate(counts)
    ]
    header = ["M", "condition, uniform", "leverage", "RMSE in rare clusters, uniform", "leverage"]
    header += ["RMSE of all, uniform", "leverage"]
    table(
        f"eight rare clusters (1% of {n:,} rows), Gaussian(1.5), lambda = {penalty:g}, median of {seeds} draws; "
        f"effective dimension {N:.0f}, N_infinity {n * scores.max():.0f}",
        header,
        rows,
    )
    found["M"] = {"M": [float(M) for M in counts]}
    return found


def draw(
    condition: dict[float, list[float]], counts: list[int], curves: dict[str, tuple[list[float], float]], rare: Any
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shades = [plt.get_cmap("viridis")(x) for x in np.linspace(0, 0.85, 5)]
    figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    (top_left, top_right), (bottom_left, bottom_right) = axes
    for (penalty, values), shade in zip(condition.items(), shades, strict=True):
        top_left.plot(counts, values, "o-", color=shade, markersize=4)
        end = (counts[-1], values[-1])
        below = {0.1: -8, 0.01: 0}.get(penalty, -3)  # the ends of the lowest curves are close to each other
        top_left.annotate(f"$\\lambda$ = {penalty:g}", end, xytext=(6, below), textcoords="offset points", fontsize=9)
    top_left.set(xlim=(counts[0] / 1.2, counts[-1] * 2.4), title="Condition number of B'HB (exact)")
    for (name, (distances, _)), shade in zip(curves.items(), shades, strict=True):
        t = np.arange(1, len(distances) + 1)
        top_right.plot(t, distances, "o-", color=shade, label=f"$\\lambda$ = {name}", markersize=4)
    t = np.arange(1, 16)
    top_right.plot(t, np.exp(-t / 2), "--", color="k", label="$e^{-t/2}$")
    top_right.set(yscale="log", ylim=(1e-12, 3), xlabel="iterations t", title="Distance to the Nyström estimator")
    top_right.legend(frameon=False, fontsize=9)
    M = rare["M"]["M"]
    for name, colour, marker in (("uniform", BLUE, "o"), ("leverage", ORANGE, "s")):
        label = f"{name} centers"
        bottom_left.plot(M, rare[name]["condition"], f"{marker}-", color=colour, label=label, markersize=5)
        bottom_right.plot(M, rare[name]["rare"], f"{marker}-", color=colour, label=label, markersize=5)
    bottom_left.set_title("Eight rare clusters: condition number of B'HB")
    bottom_right.set(title="Eight rare clusters: error in them (RMSE)", ylim=(0, None))
    for ax, ticks in ((top_left, counts), (bottom_left, M), (bottom_right, M)):
        ax.set(xscale="log", yscale="linear" if ax is bottom_right else "log", xlabel="centers M")
        ax.set_xticks(ticks, labels=[f"{m:g}" for m in ticks])
        ax.minorticks_off()
    for ax in (top_left, bottom_left):
        ax.axhline(BOUND, color="k", linestyle="--", linewidth=0.8)
        ax.annotate("17", (counts[0], BOUND), xytext=(-4, 3), textcoords="offset points", fontsize=9)
    for ax in (bottom_left, bottom_right):
        ax.legend(frameon=False, fontsize=10)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    save_figure(figure, "papers_falkon_theorems.png")


def main() -> None:
    given = options(__doc__ or "")
    arrays = load(given.data, "kin40k", np.float64)
    results: tuple[Any, ...] = ()
    if arrays is not None:
        data = standardise(split(arrays, n_rows=4_000 if given.quick else 10_000), targets=True)
        results = (*conditions(data, given.quick), rates(data, given.quick))
    found = rare(given.quick)
    if given.plot and results:
        draw(*results, found)


if __name__ == "__main__":
    main()
