"""Exact Shapley values beside shap.KernelExplainer, on the same model, rows and background.

    python benchmarks/explain.py            # 1,000 rows, 2,000 centers, 18 columns, 100 background rows
    python benchmarks/explain.py --peer     # and shap's KernelExplainer on a few rows (requires the package shap)

KernelExplainer samples subsets of columns, here without its selection of ten columns. Its error is measured against the
exact values for several numbers of subsets: it is as accurate only with all 2^18 of them.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from gyrfalcon import FalkonRegressor, shapley_values

ROWS, CENTERS, COLUMNS, BACKGROUND = 1000, 2000, 18, 100


def fitted(seed: int) -> tuple[FalkonRegressor, np.ndarray]:
    """Return a model of a function with interactions, and its rows."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((10_000, COLUMNS))
    y = np.sin(X[:, 0] * X[:, 1]) + X[:, 2] ** 2 + X[:, 3:].sum(axis=1) / 4 + 0.1 * rng.standard_normal(len(X))
    model = FalkonRegressor("gaussian", n_centers=CENTERS, dtype="float64", random_state=seed)
    return model.fit(X, y), X


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="store_true", help="also run shap.KernelExplainer")
    parser.add_argument("--peer-rows", type=int, default=3)
    parser.add_argument("--samples", type=int, nargs="+", default=[4000, 16000])
    arguments = parser.parse_args()
    model, X = fitted(0)
    rows, background = X[:ROWS], X[-BACKGROUND:]
    difference = model.predict(rows) - model.predict(background).mean()
    times = {}
    for name, given in (("100 background rows", background), ("no background", None)):
        began = time.perf_counter()
        why = shapley_values(model, rows, given)
        times[name] = time.perf_counter() - began
        expected = difference if given is not None else model.predict(rows) - why.base_values
        print(
            f"{ROWS} rows, M = {CENTERS}, d = {COLUMNS}, {name}: {times[name]:.2f} s; "
            f"sums differ from f(x) - base by at most {np.abs(why.values.sum(axis=1) - expected).max():.1e}"
        )
    if arguments.peer:
        compare(model, rows[: arguments.peer_rows], background, times["100 background rows"] / ROWS, arguments.samples)


def compare(model: FalkonRegressor, rows: np.ndarray, background: np.ndarray, own: float, samples: list[int]) -> None:
    """Print the time per row of KernelExplainer and its error."""
    import shap

    exact = shapley_values(model, rows, background).values
    explainer = shap.KernelExplainer(model.predict, background)
    for n in samples:
        began = time.perf_counter()
        found = explainer.shap_values(rows, nsamples=n, l1_reg=0, silent=True)
        seconds = (time.perf_counter() - began) / len(rows)
        error = np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2))
        print(
            f"shap.KernelExplainer, {n} subsets: {seconds:.2f} s a row, relative error {error:.1e}; "
            f"exact values take {own * 1000:.1f} ms a row: {seconds / own:.0f} times as fast"
        )


if __name__ == "__main__":
    main()
