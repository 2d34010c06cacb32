"""Hard problems against a dense solve in float64: how many fits are off, and how many of these say so.

    python benchmarks/ill_conditioned.py [--part kinds grid large many drawn] [--estimator falkon] [--max-iter 20]
                                         [--only WORD] [--count N] [--list]

  kinds   32 kinds of data (R2 from 1e-3 to 0.9, heavy tails, outliers, weights, duplicates, offsets, clusters, low
          rank) x kernels x float32 and float64 x preconditioners chosen automatically and by a sample of the rows
  grid    240 float32 fits: two kernels, length scales from 1/100 to 100 times the data's, penalties from 1e-5 to
          1e-12, duplicate rows, an offset of the features, sample weights over twelve orders of magnitude
  large   some of the kinds with as many rows and centers as the default needs to sample rows for its preconditioner
  many    the kinds with 800 rows for each center, where the sample's normal equations are factored
  drawn   float32 rows with settings drawn at random: nine kernels, four kinds of rows, 1 to 10 features, 10 to 1,200
          centers, 400 to 6,000 rows, penalties from 1e-2 to 1e-10, an offset of 1,000 for every fourth, little or much
          noise; each with dtype="auto" and with dtype="float32"

`--estimator` is falkon, nystrom, exact (with at most 1,200 rows) or logistic: logistic regression on centers, compared
with Newton's method on orthonormal functions in float64.

The dense solve sees the numbers that the fit sees, in float64, and has the same centers. A fit is off if the root mean
square difference of its predictions from the dense solve's, on the rows and on new ones, is more than 5% of the
standard deviation of the dense solve's fitted values. Fits that are refused with an error are counted apart.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gyrfalcon import ExactRegressor, FalkonClassifier, FalkonRegressor, NystromRegressor
from gyrfalcon.kernels import ArcCosine, Gaussian, Kernel, Laplacian, Linear, Matern, Polynomial, RationalQuadratic

OFF = 0.05
Array = np.ndarray[Any, Any]
Random = np.random.Generator


@dataclass(frozen=True)
class Problem:
    """Rows, targets and weights; new rows, and the kernel and penalty of a fit."""

    X: Array
    y: Array
    weight: Array | None
    new: Array
    kernel: Kernel
    penalty: float


# ---- kinds of data ---------------------------------------------------------------------------------------------------


def smooth(X: Array) -> Array:
    """Return a function of the first features, with deviation near 1 where they are standard normal."""
    wide = [X[:, j % X.shape[1]] for j in range(3)]
    return np.sin(2 * wide[0]) + wide[1] * wide[2]


def with_noise(f: Array, r2: float, noise: Array) -> Array:
    """Add noise to f, of the size at which f explains `r2` of the variance, where the noise has one."""
    return f + np.std(f) * np.sqrt(1 / r2 - 1) * noise


def normal(rng: Random, n: int, d: int = 6) -> Array:
    return rng.standard_normal((n, d))


def explained(r2: float) -> Callable[[Random, int], tuple[Array, Array, Array | None]]:
    def make(rng: Random, n: int) -> tuple[Array, Array, None]:
        X = normal(rng, n)
        return X, with_noise(smooth(X), r2, rng.standard_normal(n)), None

    return make


def noisy(draw: Callable[[Random, int], Array]) -> Callable[[Random, int], tuple[Array, Array, Array | None]]:
    def make(rng: Random, n: int) -> tuple[Array, Array, None]:
        X = normal(rng, n)
        return X, smooth(X) + draw(rng, n), None

    return make


def rows(
    draw: Callable[[Random, int], Array], f: Callable[[Array], Array] = smooth
) -> Callable[[Random, int], tuple[Array, Array, Array | None]]:
    def make(rng: Random, n: int) -> tuple[Array, Array, None]:
        X = draw(rng, n)
        return X, f(X) + 0.3 * rng.standard_normal(n), None

    return make


def weighted(draw: Callable[[Random, int], Array]) -> Callable[[Random, int], tuple[Array, Array, Array | None]]:
    def make(rng: Random, n: int) -> tuple[Array, Array, Array]:
        X = normal(rng, n)
        return X, smooth(X) + 0.5 * rng.standard_normal(n), draw(rng, n)

    return make


def moved(x: float, y: float) -> Callable[[Random, int], tuple[Array, Array, Array | None]]:
    def make(rng: Random, n: int) -> tuple[Array, Array, None]:
        X = normal(rng, n)
        return X + x, smooth(X) + 0.3 * rng.standard_normal(n) + y, None

    return make


def clusters(count: int, width: float, apart: float) -> Callable[[Random, int], Array]:
    def draw(rng: Random, n: int) -> Array:
        middle = apart * rng.standard_normal((count, 6))
        return middle[rng.integers(count, size=n)] + width * normal(rng, n)

    return draw


def low_rank(rank: int, rest: float) -> Callable[[Random, int], Array]:
    def draw(rng: Random, n: int) -> Array:
        return normal(rng, n, rank) @ rng.standard_normal((rank, 12)) + rest * normal(rng, n, 12)

    return draw


def one_outlier(in_x: float, in_y: float) -> Callable[[Random, int], tuple[Array, Array, Array | None]]:
    def make(rng: Random, n: int) -> tuple[Array, Array, None]:
        X = normal(rng, n)
        y = smooth(X) + 0.3 * rng.standard_normal(n)
        X[n // 2] += in_x
        y[n // 2] += in_y
        return X, y, None

    return make


def rare_class(rng: Random, n: int) -> tuple[Array, Array, None]:
    X = normal(rng, n)
    return X, np.where(smooth(X) + 0.3 * rng.standard_normal(n) > 3, 1.0, -1.0), None


KINDS: dict[str, Callable[[Random, int], tuple[Array, Array, Array | None]]] = {
    **{f"R2 {r2}": explained(r2) for r2 in (1e-3, 1e-2, 0.1, 0.5, 0.9)},
    "y student 2.1": noisy(lambda rng, n: rng.standard_t(2.1, n)),
    "y cauchy": noisy(lambda rng, n: np.clip(rng.standard_cauchy(n), -1e4, 1e4)),
    "y lognormal": noisy(lambda rng, n: rng.lognormal(0.0, 2.0, n)),
    "y outlier 1e3": one_outlier(0.0, 1e3),
    "y outlier 1e6": one_outlier(0.0, 1e6),
    "X outlier 1e3": one_outlier(1e3, 10.0),
    "X student 1.5": rows(lambda rng, n: rng.standard_t(1.5, (n, 6)), lambda X: smooth(np.arcsinh(X))),
    "X lognormal": rows(lambda rng, n: rng.lognormal(0.0, 1.5, (n, 6)), lambda X: smooth(np.log(X))),
    "weights lognormal": weighted(lambda rng, n: rng.lognormal(0.0, 3.0, n)),
    "weights over 1e12": weighted(lambda rng, n: 10.0 ** rng.uniform(-6, 6, n)),
    "weights rare": weighted(lambda rng, n: np.where(rng.uniform(size=n) < 0.01, 1000.0, 1.0)),
    "weights half zero": weighted(lambda rng, n: rng.integers(0, 2, n).astype(float)),
    "duplicates 10": rows(lambda rng, n: normal(rng, n // 10)[rng.integers(n // 10, size=n)]),
    "duplicates 200 rows": rows(lambda rng, n: normal(rng, 200)[rng.integers(200, size=n)]),
    "offset X 1e3": moved(1e3, 0.0),
    "offset X 1e6": moved(1e6, 0.0),
    "offset y 1e5": moved(0.0, 1e5),
    "offset y 1e8": moved(0.0, 1e8),
    "clusters tight": rows(clusters(10, 0.01, 3.0)),
    "clusters wide": rows(clusters(10, 1.0, 10.0)),
    "clusters two far": rows(clusters(2, 1.0, 100.0)),
    "low rank 2": rows(low_rank(2, 0.0)),
    "low rank 2 nearly": rows(low_rank(2, 1e-4)),
    "low rank 5": rows(low_rank(5, 1e-2)),
    "one feature": rows(lambda rng, n: normal(rng, n, 1), lambda X: 2 * X[:, 0]),
    "whole numbers": rows(lambda rng, n: rng.integers(0, 3, (n, 6)).astype(float)),
    "rare class": rare_class,
}

# kernel by the rows' typical distance, and a penalty
FITS: dict[str, tuple[Callable[[float], Kernel], float]] = {
    "gaussian": (lambda r: Gaussian(0.5 * r), 1e-6),
    "gaussian smooth": (lambda r: Gaussian(5.0 * r), 1e-7),
    "gaussian smoother": (lambda r: Gaussian(20.0 * r), 1e-6),
    "laplacian": (lambda r: Laplacian(2.0 * r), 1e-6),
    "matern": (lambda r: Matern(r, nu=1.5), 1e-7),
    "product": (lambda r: Gaussian(r) * Linear(), 1e-6),
    "arc-cosine": (lambda r: ArcCosine(), 1e-6),
    "polynomial": (lambda r: Polynomial(degree=2), 1e-6),
}


def kinds(n: int, M: int) -> Iterator[tuple[str, Problem, dict[str, Any]]]:
    """All kinds with all kernels and precisions, and both ways to a preconditioner."""
    for (kind, make), (fit, (kernel, penalty)) in itertools.product(KINDS.items(), FITS.items()):
        for dtype in (np.float32, np.float64):
            X, y, weight = make(np.random.default_rng(0), n + 500)
            X, at = X.astype(dtype), None if weight is None else weight[:n]
            near = X[:200].astype(np.float64)
            typical = float(np.median(np.linalg.norm(near - near[::-1], axis=1)))
            problem = Problem(X[:n], y[:n], at, X[n:], kernel(typical), penalty)
            for preconditioner in ("auto", "sample"):
                name = f"{kind}, {fit}, {np.dtype(dtype).name}, {preconditioner}"
                yield name, problem, {"n_centers": M, "preconditioner": preconditioner}


def large() -> Iterator[tuple[str, Problem, dict[str, Any]]]:
    """Those kinds in which features that do not matter make 20, so that the default samples rows."""
    n, M, d = 30_000, 1_000, 20
    for (kind, make), fit in itertools.product(KINDS.items(), ("gaussian smooth", "laplacian", "product")):
        rng = np.random.default_rng(0)
        X, y, weight = make(rng, n + 500)
        X = np.hstack([X, np.std(X) * rng.standard_normal((n + 500, d - X.shape[1]))]).astype(np.float32)
        near = X[:200].astype(np.float64)
        typical = float(np.median(np.linalg.norm(near - near[::-1], axis=1)))
        kernel, penalty = FITS[fit]
        at = None if weight is None else weight[:n]
        yield f"{kind}, {fit}, large", Problem(X[:n], y[:n], at, X[n:], kernel(typical), penalty), {"n_centers": M}


def many() -> Iterator[tuple[str, Problem, dict[str, Any]]]:
    """Those of `kinds` that sample rows, with so many of them that factors take less time than steps on the sample."""
    for name, problem, parameters in kinds(40_000, 50):
        if parameters["preconditioner"] == "sample":
            yield f"{name}, many", problem, parameters


def grid() -> Iterator[tuple[str, Problem, dict[str, Any]]]:
    """Length scales, penalties, duplicates, offsets and weights, in float32."""
    n, M = 2000, 200
    for Kernel_, factor, penalty, duplicates, offset, uneven in itertools.product(
        (Gaussian, Laplacian),
        (1e-2, 1e-1, 1.0, 10.0, 100.0),
        (1e-5, 1e-8, 1e-12),
        (False, True),
        (0.0, 1e6),
        (False, True),
    ):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, 4))
        if duplicates:
            X = X[rng.integers(n // 10, size=n)]
        X32 = (X + offset).astype(np.float32)
        X = X32.astype(np.float64) - offset
        y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)
        weight = 10.0 ** rng.uniform(-6, 6, n) if uneven else None
        name = f"grid {Kernel_.__name__} {factor} {penalty} duplicates={duplicates} offset={offset:g} weights={uneven}"
        yield name, Problem(X32, y, weight, X32[:10], Kernel_(2 * factor), penalty), {"n_centers": M}


KERNELS: dict[str, Callable[[float], Kernel]] = {
    "gaussian short": lambda r: Gaussian(0.25 * r),
    "gaussian": lambda r: Gaussian(0.7 * r),
    "gaussian long": lambda r: Gaussian(3.0 * r),
    "laplacian": lambda r: Laplacian(r),
    "matern": lambda r: Matern(r, nu=1.5),
    "matern 5/2": lambda r: Matern(2.0 * r, nu=2.5),
    "product": lambda r: Gaussian(r) * Linear(),
    "polynomial": lambda r: Polynomial(degree=3),
    "rational": lambda r: RationalQuadratic(r),
}
ROWS: dict[str, Callable[[Random, int, int], Array]] = {
    "normal": normal,
    "uniform": lambda rng, n, d: rng.uniform(-2, 2, (n, d)),
    "student 3": lambda rng, n, d: rng.standard_t(3, (n, d)),
    "clusters": lambda rng, n, d: (
        3 * rng.standard_normal((8, d))[rng.integers(8, size=n)] + 0.1 * rng.standard_normal((n, d))
    ),
}


def drawn(count: int) -> Iterator[tuple[str, Problem, dict[str, Any]]]:
    """Draw settings at random, for float32 rows."""
    for seed in range(count):
        rng = np.random.default_rng(10_000 + seed)
        fit, kind = (list(names)[rng.integers(len(names))] for names in (KERNELS, ROWS))
        d = int(rng.choice([1, 2, 2, 3, 4, 6, 10]))
        M, n = int(rng.choice([10, 20, 40, 80, 150, 300, 600, 1200])), int(rng.choice([400, 3000, 6000]))
        penalty = float(rng.choice([1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10]))
        offset, noise = float(rng.choice([0, 0, 0, 1000])), float(rng.choice([0.01, 0.1, 0.1, 1.0]))
        rng = np.random.default_rng(seed)
        X32 = (ROWS[kind](rng, n + 500, d) + offset).astype(np.float32)
        X = X32.astype(np.float64) - offset
        y = smooth(X) + noise * rng.standard_normal(n + 500)
        typical = float(np.median(np.linalg.norm(X[:200] - X[199::-1], axis=1)))
        problem = Problem(X32[:n], y[:n], None, X32[n:], KERNELS[fit](typical), penalty)
        name = f"{seed}: {fit}, {kind}, d={d}, M={M}, n={n}, {penalty:g}, offset {offset:g}, noise {noise:g}"
        for dtype in ("auto", "float32"):
            yield f"{name}, dtype={dtype}", problem, {"n_centers": min(n, M), "dtype": dtype}


PARTS: dict[str, Callable[[int], Iterator[tuple[str, Problem, dict[str, Any]]]]] = {
    "kinds": lambda count: kinds(8_000, 300),
    "grid": lambda count: grid(),
    "large": lambda count: large(),
    "many": lambda count: many(),
    "drawn": drawn,
}

# ---- the oracle ------------------------------------------------------------------------------------------------------


def dense(problem: Problem, kernel: Kernel, Z: Array, y: Array) -> tuple[Array, Array]:
    """Return fitted values and predictions of ridge regression on orthonormal functions, in float64.

    Normal equations would lose half of the digits, and eigenvectors of K_MM those of centers with small k(z, z): with a
    product of kernels that are 10^4 times as large at some centers, predictions were off by 0.07 without the scaling.
    """
    X, weight = problem.X.astype(np.float64), problem.weight
    K = kernel(Z, Z)
    scale = np.sqrt(np.maximum(np.diag(K), np.finfo(np.float64).tiny))
    values, vectors = np.linalg.eigh(K / scale[:, None] / scale)
    kept = values > 3e-16 * len(Z) * values[-1]  # 1e-14 moves some predictions by 0.1
    R = vectors[:, kept] / np.sqrt(values[kept]) / scale[:, None]
    F = kernel(X, Z) @ R
    root = np.ones(len(X)) if weight is None else np.sqrt(weight / weight.mean())
    ridge = np.sqrt(problem.penalty * len(X)) * np.eye(F.shape[1])
    A, b = np.vstack([root[:, None] * F, ridge]), np.append(root * y, np.zeros(F.shape[1]))
    Q, upper = np.linalg.qr(A)
    beta = np.linalg.lstsq(upper, Q.T @ b, rcond=1e-15)[0]
    return F @ beta, kernel(problem.new.astype(np.float64), Z) @ (R @ beta)


def logistic(problem: Problem, kernel: Kernel, Z: Array, y: Array) -> tuple[Array, Array]:
    """Return decision values of logistic regression for the rows and new ones, by Newton's method in float64."""
    X = problem.X.astype(np.float64)
    K = kernel(Z, Z)
    scale = np.sqrt(np.maximum(np.diag(K), np.finfo(np.float64).tiny))
    values, vectors = np.linalg.eigh(K / scale[:, None] / scale)
    kept = values > 3e-16 * len(Z) * values[-1]
    R = vectors[:, kept] / np.sqrt(values[kept]) / scale[:, None]
    F, n = kernel(X, Z) @ R, len(X)
    beta = np.zeros(F.shape[1])

    def objective(beta: Array) -> float:
        return float(np.logaddexp(0, -y * (F @ beta)).mean() + problem.penalty / 2 * beta @ beta)

    for _ in range(200):
        p = 1 / (1 + np.exp(np.clip(y * (F @ beta), -700, 700)))
        gradient = -F.T @ (p * y) / n + problem.penalty * beta
        H = F.T @ ((p * (1 - p))[:, None] * F) / n + problem.penalty * np.eye(len(beta))
        step, length = np.linalg.solve(H, gradient), 1.0
        while objective(beta - length * step) > objective(beta) - 1e-4 * length * gradient @ step and length > 1e-8:
            length /= 2
        beta = beta - length * step
        if gradient @ step < 1e-16:
            break
    return F @ beta, kernel(problem.new.astype(np.float64), Z) @ (R @ beta)


def distance(problem: Problem, estimator: str = "falkon", **options: Any) -> tuple[float, bool, Any]:
    """Return how far a fit is from the dense solve, whether it warned, and the model."""
    if estimator == "logistic":
        # the default stops where the log-loss hardly changes, which is not what this is about
        options |= {"loss": "logistic", "tol": 1e-8, "max_iter": 100}
        model: Any = FalkonClassifier(problem.kernel, **options)
    elif estimator == "exact":
        kept = {name: options[name] for name in ("dtype",) if name in options}
        model = ExactRegressor(problem.kernel, **kept)
        problem = replace(problem, X=problem.X[:1200], y=problem.y[:1200])
    elif estimator == "nystrom":
        model = NystromRegressor(problem.kernel, **{**options, "max_iter": 500})
    else:
        model = FalkonRegressor(problem.kernel, **options)
    model.set_params(penalty=problem.penalty, scale=False, random_state=0)
    weight = np.ones(len(problem.X)) if problem.weight is None else problem.weight
    classes = estimator == "logistic"
    mean = 0.0 if classes else np.average(problem.y, weights=weight)
    y = np.where(problem.y > np.median(problem.y), 1.0, -1.0) if classes else problem.y
    if classes:
        model.set_params(fit_intercept=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(problem.X, y, sample_weight=problem.weight)
        predict = model.decision_function if classes else model.predict
        found, new = predict(problem.X), predict(problem.new)
    solve, Z = logistic if classes else dense, model.centers_.astype(np.float64)
    fitted, expected = solve(problem, model.kernel_, Z, y - mean)
    signal = np.sqrt(np.cov(fitted, aweights=weight))
    off = np.sqrt(np.average(np.square(found - mean - fitted), weights=weight)) / signal
    if problem.weight is None:  # where rows hardly count, new ones may be far from all that do
        off = max(off, np.sqrt(np.mean(np.square(new - mean - expected))) / signal)
    return float(off), len(caught) > 0, model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=["kinds", "grid"])
    parser.add_argument("--estimator", choices=["falkon", "nystrom", "exact", "logistic"], default="falkon")
    parser.add_argument("--max-iter", type=int, default=20)
    parser.add_argument("--count", type=int, default=300, help="settings of the part drawn")
    parser.add_argument("--only", default="", help="fits whose name has this word")
    parser.add_argument("--list", action="store_true", help="show every fit that is off")
    options = parser.parse_args()
    for part in options.part:
        counts: dict[str, Counter[str]] = {}
        passes = 0.0
        for name, problem, parameters in PARTS[part](options.count):
            if options.only not in name:
                continue
            count = counts.setdefault(parameters.get("dtype", ""), Counter())
            given = {**parameters, "max_iter": options.max_iter}
            try:
                off, warned, model = distance(problem, options.estimator, **given)
            except ValueError as error:
                count["refused"] += 1
                if options.list:
                    print(f"{'refused':20} {'':8} {name}; {error}")
                continue
            last = (getattr(model, "history_", None) or [{}])[-1]
            passes += last.get("passes", 1)
            kind = "right" if off <= OFF else "off, with a warning" if warned else "off, without a word"
            count[kind] += 1
            count["right, with a warning"] += off <= OFF and warned
            count["below 1e-3, with a warning"] += off < 1e-3 and warned
            count["in float64"] += model.centers_.dtype == np.float64
            if options.list and (off > OFF or warned):
                end = f"{last.get('iteration', 1)} iterations, residual {last.get('residual', 0.0):.1e}"
                print(f"{kind:20} {off:8.1e} {name}; {end}")
        for dtype, count in counts.items():
            print(part, options.estimator, dtype, {name: count[name] for name in sorted(count)})
        print(f"{passes:.0f} passes")


if __name__ == "__main__":
    main()
