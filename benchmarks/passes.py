"""How many passes a fit needs: python benchmarks/passes.py [--data DIR] [--only songs susy falkon real]

A fit as it is by default beside eight and more iterations of conjugate gradient with FALKON's preconditioner, the same
centers, kernel and penalty, in turns in one process, best of several. What counts is the time in which the test error
comes within 0.2% of the converged solution's.

  songs    463,715 x 90 rows, M = 10,000, as MillionSongs has
  susy     5,000,000 x 18 rows, M = 10,000, as SUSY has
  falkon   200,000 x 18 isotropic rows, M = 2,000, penalty 1e-7, beside scikit-learn's Nystroem + Ridge, whose centers
           all use
  real     protein_raw, kin40k, california_housing, flights_3m and MNIST of DIR

Memory is touched before the clock starts; K is not kept unless a row says so.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _common import table, touch_memory
from sklearn.exceptions import ConvergenceWarning

from gyrfalcon import FalkonClassifier, FalkonRegressor
from gyrfalcon.centers import Given
from gyrfalcon.kernels import Gaussian, Kernel

WITHIN = 1.002
Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def songs(quick: bool) -> tuple[Data, Kernel, int, float]:
    """Correlated features, of which few matter, and much noise."""
    n, M = (46_000, 1_000) if quick else (463_715, 10_000)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n + 20_000, 90), dtype=np.float32) * np.linspace(1.5, 0.2, 90, dtype=np.float32)
    f = np.sin(X[:, 0]) + np.cos(X[:, 1] * X[:, 2] / 2) + 0.5 * np.tanh(X[:, 3] + X[:, 4])
    y = f + 0.8 * rng.standard_normal(len(f), dtype=np.float32)
    return (X[:n], y[:n], X[n:], y[n:]), Gaussian(6.0), M, 1e-6


def susy(quick: bool) -> tuple[Data, Kernel, int, float]:
    """Two classes that overlap, as +1 and -1."""
    n, M = (500_000, 1_000) if quick else (5_000_000, 10_000)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n + 20_000, 18), dtype=np.float32)
    f = np.sign(np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] - 0.3 * X[:, 3] ** 2 + 0.3)
    y = np.where(rng.uniform(size=len(f)) < 0.85, f, -f).astype(np.float32)
    return (X[:n], y[:n], X[n:], y[n:]), Gaussian(4.0), M, 1e-6


def falkon(quick: bool) -> tuple[Data, Kernel, int, float]:
    """Isotropic features, a smooth function with little noise."""
    n, M = (50_000, 1_000) if quick else (200_000, 2_000)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n + 20_000, 18), dtype=np.float32)
    f = np.sin(X[:, 0] + X[:, 1]) + X[:, 2] * X[:, 3] / 2 + np.cos(X[:, 4:8].sum(axis=1) / 2)
    y = (f + 0.1 * rng.standard_normal(len(f), dtype=np.float32)).astype(np.float32)
    return (X[:n], y[:n], X[n:], y[n:]), Gaussian(float(np.sqrt(18))), M, 1e-7


def error(model: Any, T: np.ndarray, t: np.ndarray) -> float:
    if isinstance(model, FalkonClassifier):
        return float(np.mean(model.predict(T) != t))
    return float(np.sqrt(np.mean(np.square(model.predict(T) - t, dtype=np.float64))))


def compare(
    title: str,
    data: Data,
    make: Callable[..., Any],
    iterations: tuple[int, ...],
    longest: int,
    rounds: int,
    peer: tuple[str, Callable[[], Any]] | None = None,
    **more: dict[str, Any],
) -> None:
    """Print seconds and errors: of the default, of so many iterations, of settings in `more`, of a long fit, of a peer.

    A peer takes turns with the others, and there is a column for how many times as fast as it they are.
    """
    X, y, T, t = data
    settings: dict[str, dict[str, Any]] = {
        f"{number} iterations": {"preconditioner": "falkon", "max_iter": number, "tol": 0} for number in iterations
    }
    settings |= {"default": {}, **more}
    fits: dict[str, Callable[[], Any]] = {name: partial(make, **given) for name, given in settings.items()}
    if peer is not None:
        fits[peer[0]] = peer[1]
    best = dict.fromkeys(fits, float("inf"))
    models: dict[str, Any] = {}
    for _ in range(rounds):
        for name, made in fits.items():
            model = made()
            began = time.perf_counter()
            models[name] = model.fit(X, y)
            best[name] = min(best[name], time.perf_counter() - began)
    long = {} if longest == 0 else {"preconditioner": "sample", "max_iter": longest, "tol": 1e-6}
    converged = error(make(**long).fit(X, y), T, t)
    first = best[next(iter(fits))]
    rows = []
    for name, model in models.items():
        found = error(model, T, t)
        passes = float(model.history_[-1]["passes"]) if name in settings else ""
        row = [name, best[name], best[name] / first, passes, f"{found:.5f}", found <= WITHIN * converged]
        rows.append(row if peer is None else [*row, best[peer[0]] / best[name]])
    header = ["", "seconds", f"of {iterations[0]} iterations", "passes", "test error", "within 0.2%"]
    header += [] if peer is None else ["times faster"]
    table(f"{title} (converged: {converged:.5f})", header, rows)


def synthetic(name: str, quick: bool, rounds: int) -> None:
    data, kernel, M, penalty = {"songs": songs, "susy": susy, "falkon": falkon}[name](quick)

    (n, d), more, peer = data[0].shape, {}, None
    centers: Any = "uniform"
    if name == "falkon":
        more = {"default, auto": {"memory_budget": "auto"}, "default, 8GB": {"memory_budget": "8GB"}}
        peer = ("Nystroem + Ridge", lambda: nystroem(M, penalty * n, kernel))
        drawn = np.random.RandomState(0).permutation(n)[:M]  # as Nystroem draws them
        centers = Given(data[0][np.sort(drawn)], sampled="uniform")
    elif name == "songs":
        more = {"default, memory_budget=auto": {"memory_budget": "auto"}}

    def make(**parameters: Any) -> FalkonRegressor:
        common = {"n_centers": M, "centers": centers, "penalty": penalty, "scale": False, "random_state": 0}
        # Ridge's intercept is another one, so that the peer's problem is the same without
        return FalkonRegressor(kernel, **{**common, "fit_intercept": peer is None, "memory_budget": 0, **parameters})

    touch_memory(6)
    iterations = (10, 20) if name == "falkon" else (8,)
    longest = 12 if quick or n < 10**6 else 4
    compare(f"{name}: n = {n:,}, d = {d}, M = {M:,}", data, make, iterations, longest, rounds, peer, **more)


def nystroem(M: int, alpha: float, kernel: Any) -> Any:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    features = Nystroem(gamma=0.5 / kernel.length_scale**2, n_components=M, random_state=0)
    return make_pipeline(features, Ridge(alpha=alpha, solver="cholesky", fit_intercept=False))


def real(folder: Path, rounds: int) -> None:
    sizes = {"protein_raw": 1_500, "kin40k": 1_500, "california_housing": 800, "flights_3m": 5_000, "mnist": 2_000}
    for name, M in sizes.items():
        path = folder / f"{name}.npz"
        if not path.exists():
            print(f"{path} is missing: {name} is left out; give the folder with --data DIR")
            continue
        data = split(np.load(path), classes=name == "mnist")
        cls = FalkonClassifier if name == "mnist" else FalkonRegressor
        n, d = data[0].shape

        def make(cls: Any = cls, M: int = M, d: int = d, **parameters: Any) -> Any:
            # the length scale is in deviations of the features
            common = {"n_centers": M, "penalty": 1e-6, "scale": True, "random_state": 0, "memory_budget": 0}
            return cls(Gaussian(float(np.sqrt(d / 2))), **{**common, **parameters})

        more = {"sample": {"preconditioner": "sample"}, "default, memory_budget=auto": {"memory_budget": "auto"}}
        compare(f"{name}: n = {n:,}, d = {d}, M = {M:,}", data, make, (8, 20), 20, rounds, **more)


def split(arrays: Any, classes: bool) -> Data:
    """Training and test rows, as given or a random fifth; y standardised, where it is numbers."""
    X, y = np.asarray(arrays["X"], dtype=np.float32), np.asarray(arrays["y"])
    if "X_test" in arrays.files:
        T, t = np.asarray(arrays["X_test"], dtype=np.float32), np.asarray(arrays["y_test"])
    else:
        order = np.random.default_rng(0).permutation(len(y))
        cut = len(y) // 5
        T, t, X, y = X[order[:cut]], y[order[:cut]], X[order[cut:]], y[order[cut:]]
    if not classes:
        mean, deviation = y.mean(dtype=np.float64), y.std(dtype=np.float64)
        y, t = ((part - mean) / deviation for part in (y, t))
    return X, y.astype(y.dtype if classes else np.float32), T, t


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    sections = ["songs", "susy", "falkon", "real"]
    parser.add_argument("--only", nargs="*", default=sections, choices=sections)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows and centers")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in options.only:
        if name == "real":
            real(options.data, options.rounds)
        else:
            synthetic(name, options.quick, options.rounds)


if __name__ == "__main__":
    main()
