"""Theorems 1 to 5 and Corollary 1 of the NYTRO paper, with risks that are computed and not estimated.

    python benchmarks/papers/nytro_theorems.py [--quick]

In the paper's fixed design, y = f(x) + noise with known f and a noise of variance sigma^2, predictions of every method
are linear in y: those of KOLS, KRLS, Early Stopping, NKRLS and NYTRO for the training rows are S y. Their expected
excess risk is therefore known: (|S f - f|^2 + sigma^2 |S|^2) / n, with the sum of squares of S. The estimators of the
package compute S: they are fitted to the columns of the identity matrix as targets. Rows occur twice, so that the rank
of K is n / 2; E_M, the mean over centers, is one over draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from _data import options, table

from gyrfalcon import d_tilde, effective_dimension, signal_to_noise
from gyrfalcon.estimators import ExactRegressor, NystromRegressor, NytroRegressor
from gyrfalcon.kernels import Laplacian

KERNEL = Laplacian(2.0)  # k(x, x) = 1, so that the paper's step gamma is 1
DELTA = 0.5  # of Theorem 4
PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # tried for Theorem 4, which asks for many centers
STEPS = (2, 3, 5, 10, 30, 100, 300)
PLAIN: dict[str, Any] = {"scale": False, "fit_intercept": False, "dtype": "float64", "random_state": 0}


@dataclass(frozen=True)
class Design:
    """Rows, the values of f at them, and the variance of the noise."""

    X: np.ndarray
    f: np.ndarray
    noise: float

    @classmethod
    def make(cls, n: int, noise: float) -> Design:
        rng = np.random.default_rng(0)
        X = np.repeat(rng.standard_normal((n // 2, 2)), 2, axis=0)
        return cls(X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1], noise)

    @property
    def n(self) -> int:
        return len(self.f)

    def risk(self, model: Any) -> float:
        """The expected excess risk of an estimator."""
        S = model.fit(self.X, np.eye(self.n)).predict(self.X)
        return float((np.square(S @ self.f - self.f).sum() + self.noise * np.square(S).sum()) / self.n)

    def mean_risk(self, make: Any, m: int, draws: int) -> float:
        """The mean of the risk of `make(centers)` over draws of m rows as centers."""
        rng = np.random.default_rng(0)
        drawn = [self.X[rng.choice(self.n, m, replace=False)] for _ in range(draws)]
        return float(np.mean([self.risk(make(centers)) for centers in drawn]))


def krls(penalty: float) -> ExactRegressor:
    return ExactRegressor(KERNEL, penalty=penalty, **PLAIN)


def early_stopping(steps: int) -> ExactRegressor:
    return ExactRegressor(KERNEL, method="early_stopping", early_stopping=False, step=1.0, max_iter=steps, **PLAIN)


def nkrls(centers: np.ndarray, penalty: float) -> NystromRegressor:
    return NystromRegressor(KERNEL, centers=centers, penalty=penalty, **PLAIN)


def nytro(centers: np.ndarray, steps: int) -> NytroRegressor:
    return NytroRegressor(KERNEL, centers=centers, early_stopping=False, step=1.0, max_iter=steps, **PLAIN)


def bound(steps: int) -> float:
    """c_t of Theorems 3 and 5."""
    return 4 * (1 + 1 / (steps - 1)) ** 2


def centers_of_theorem_4(design: Design, penalty: float, delta: float = DELTA) -> float:
    """The number of centers from which Theorem 4 holds."""
    squares = np.square(design.X[:, None] - design.X).sum(axis=2)
    norm = np.linalg.norm(np.exp(-np.sqrt(squares) / KERNEL.length_scale), 2)
    dimension = d_tilde(design.X, KERNEL, penalty)
    return float((32 * dimension / delta + 2) * np.log(norm * design.n / (delta * penalty)))


def first_two(design: Design) -> list[list[str]]:
    """Rows for Theorems 1 and 2: KOLS has the risk of its rank, and KRLS one below that of its dimension."""
    n, noise = design.n, design.noise
    kols = design.risk(ExactRegressor(KERNEL, method="least_squares", **PLAIN))
    rows = [["1", "KOLS", f"= {noise * (n // 2) / n:.5f}", f"{kols:.5f}", ""]]
    snr = signal_to_noise(design.X, design.f, KERNEL, noise)
    for name, penalty in (("1 / SNR, as printed", 1 / snr), ("1 / (n SNR)", 1 / (n * snr))):
        limit = noise * effective_dimension(design.X, KERNEL, penalty, method="exact") / n
        risk = design.risk(krls(penalty))
        rows.append(["2", f"KRLS, lambda = {name}", f"<= {limit:.5f}", f"{risk:.5f}", _held(risk <= limit)])
    return rows


def fourth(design: Design, draws: int) -> list[str]:
    """A row for Theorem 4 at the smallest penalty, of some, for which its number of centers is below n."""
    penalty, m = next((p, m) for p in PENALTIES if (m := int(np.ceil(centers_of_theorem_4(design, p)))) < design.n)
    limit = (1 + 4 * DELTA) * design.risk(krls(penalty))
    risk = design.mean_risk(lambda centers: nkrls(centers, penalty), m, draws)
    return ["4", f"NKRLS, lambda = {penalty:g}, m = {m}", f"<= {limit:.5f}", f"{risk:.5f}", _held(risk <= limit)]


def ratios(design: Design, steps: int, m: int, draws: int) -> dict[str, float]:
    """Risks divided by those that Theorems 3 to 5 and Corollary 1 compare them with, for lambda = 1 / (gamma t)."""
    penalty = 1 / steps
    full = design.risk(krls(penalty))
    few = design.mean_risk(lambda centers: nkrls(centers, penalty), m, draws)
    both = design.mean_risk(lambda centers: nytro(centers, steps), m, draws)
    return {"3": design.risk(early_stopping(steps)) / full, "4": few / full, "5": both / few, "1'": both / full}


def _held(condition: bool) -> str:
    return "holds" if condition else "does not hold"


def main() -> None:
    given = options(__doc__ or "")
    n, draws = (100, 3) if given.quick else (400, 10)
    design, m = Design.make(n, 0.25), n // 10
    header = ["theorem", "risk of", "bound", "measured", ""]
    rows = [*first_two(design), fourth(design, draws)]
    table(f"Theorems 1, 2 and 4, n = {n}, rank {n // 2}, sigma^2 = {design.noise}", header, rows)
    rows = []
    for steps in STEPS:
        found = ratios(design, steps, m, draws)
        limit = bound(steps)
        held = found["3"] <= limit and found["5"] <= limit and found["1'"] <= limit * (1 + 4 * DELTA)
        numbers = [f"{found[name]:.2f}" for name in ("3", "5", "1'", "4")]
        asked = f"{centers_of_theorem_4(design, 1 / steps):,.0f}"
        rows.append([f"{steps}", f"{limit:.2f}", *numbers, asked, _held(held)])
    names = ["Early Stopping / KRLS (3)", "NYTRO / NKRLS (5)", "NYTRO / KRLS (Corollary 1)", "NKRLS / KRLS (4)"]
    header = ["steps t", "c_t", *names, "m that Theorem 4 asks for", "3, 5, Corollary 1"]
    table(f"Ratios of risks, m = {m} centers, lambda = 1 / t, {draws} draws of centers", header, rows)


if __name__ == "__main__":
    main()
