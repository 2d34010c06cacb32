"""The signal-to-noise ratio of a problem, and which of NYTRO's rivals it favours.

"NYTRO: When Subsampling Meets Early Stopping" (Angles, Camoriano, Rudi, Rosasco 2016), sections 2 and 3.3. For a fixed
design with y = f(x) + noise, the paper takes the penalty lambda* = 1 / SNR. (Theorem 2, that the risk of kernel ridge
regression is at most sigma^2 d_eff / n, holds at 1 / (n SNR): the printed lambda* lacks the n.) Stopping after 1 /
(gamma lambda*) steps and about d~(lambda*) log(n / lambda*) centers cost little of that accuracy, and what they cost in
time decides between the four methods (Figure 1):

    d~ < c1 = n / |log(n SNR)|      subsampling is faster (NKRLS, NYTRO), otherwise all rows (KRLS, Early Stopping)
    d~ > c2 = SNR / |log(SNR)|      iterations are faster (NYTRO, Early Stopping), otherwise one solve (NKRLS, KRLS)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh

from .._utils.checks import integer, number, positive
from ..kernels import Kernel, KernelFunction, as_kernel
from ..operators import KernelOperator
from ..sources import Rows, as_rows
from .leverage import Method, RandomState, n_infinity, require_matrix

__all__ = ["NytroSuggestion", "d_tilde", "regime", "regime_curves", "signal_to_noise", "suggest_nytro"]

Regime = Literal["NYTRO", "NKRLS", "Early Stopping", "KRLS"]

_POSITIVE = positive()
_RULES = {
    "n": integer(3),
    "snr": _POSITIVE,
    "dimension": _POSITIVE,
    "kappa": _POSITIVE,
    "delta": number(lambda x: 0 < x < 1, "between 0 and 1, both excluded"),
}


def d_tilde(
    X: Rows | ArrayLike,
    kernel: Kernel | str | KernelFunction,
    penalty: float,
    *,
    method: Method = "exact",
    n_pilot: int | None = None,
    random_state: RandomState = None,
    n_jobs: int | None = None,
) -> float:
    """Compute the NYTRO paper's dimension, n max_i (K (K + penalty n I)^-1)_ii (equation 4).

    It is `n_infinity` among the rows, and at least the effective dimension. NYTRO needs about d~ log(n / penalty)
    centers; see `suggest_nytro`.

    Parameters
    ----------
    X, kernel, penalty, method, n_pilot, random_state, n_jobs
        As for `leverage_scores`.

    Returns
    -------
    float

    Examples
    --------
    >>> from gyrfalcon import d_tilde
    >>> from gyrfalcon.kernels import Gaussian
    >>> round(d_tilde([[0.0], [0.1], [0.2], [9.0]], Gaussian(1.0), penalty=1e-2), 2)
    3.85
    """
    return n_infinity(X, kernel, penalty, method=method, n_pilot=n_pilot, random_state=random_state, n_jobs=n_jobs)


def signal_to_noise(
    X: Rows | ArrayLike,
    mean: ArrayLike,
    kernel: Kernel | str | KernelFunction,
    noise_variance: float,
    *,
    n_jobs: int | None = None,
) -> float:
    """Compute NYTRO's signal-to-noise ratio, |f|^2 / sigma^2 for the function f of least norm with the given values.

    |f|^2 = mean' K^+ mean (equations 5 to 7). In practice the mean of y is not known: use the predictions of a fit for
    its own rows, and the variance of its errors on held-out rows. The n x n kernel matrix is factorised in float64.

    Parameters
    ----------
    X : array of shape (n, d), or a source
    mean : array of shape (n,)
        The expected value of y for each row, without the noise.
    kernel : Kernel, str or callable
        Parameters given as "scale" are computed from the rows.
    noise_variance : float
        sigma^2, positive.
    n_jobs : int or None
        Number of threads; None for one per core.

    Returns
    -------
    float

    Examples
    --------
    >>> from gyrfalcon import signal_to_noise
    >>> from gyrfalcon.kernels import Linear
    >>> round(signal_to_noise([[1.0], [2.0]], [3.0, 6.0], Linear(), noise_variance=0.5), 6)  # |f|^2 = 9
    18.0
    """
    _POSITIVE("noise_variance", noise_variance)
    rows = as_rows(X).astype(np.float64)
    n = rows.shape[0]
    values = np.asarray(mean, dtype=np.float64)
    if values.shape != (n,) or not np.isfinite(values).all():
        raise ValueError(
            f"mean must hold {n} finite numbers, one for each row of X, not an array of shape {values.shape}"
        )
    require_matrix(n, 2 * n, "use a sample of the rows")
    points = rows.take(np.arange(n))
    operator = KernelOperator(as_kernel(kernel).resolve(points), points, points, n_jobs=n_jobs, memory_budget=0)
    s, U = eigh(operator.centers_gram(), overwrite_a=True, check_finite=False)
    kept = s > n * np.finfo(np.float64).eps * max(float(s[-1]), 0.0)
    return float(np.sum(np.square(U[:, kept].T @ values) / s[kept]) / noise_variance)


def regime_curves(n: int, snr: ArrayLike) -> tuple[Any, Any]:
    """Return the curves c1 and c2 of Figure 1 of the NYTRO paper; infinite where their denominators are 0.

    Parameters
    ----------
    n : int
        Number of rows, at least 3.
    snr : float, or array of any shape
        Signal-to-noise ratios, positive.

    Returns
    -------
    c1 : float or array
        n / |log(n SNR)|: below it, subsampling is faster than all rows.
    c2 : float or array
        SNR / |log(SNR)|: above it, iterations are faster than a solve.

    Examples
    --------
    >>> from gyrfalcon.centers.regimes import regime_curves
    >>> c1, c2 = regime_curves(10_000, 100.0)
    >>> round(c1), round(c2)
    (724, 22)
    """
    _RULES["n"]("n", n)
    ratio = np.asarray(snr, dtype=np.float64)
    if not (np.isfinite(ratio) & (ratio > 0)).all():
        raise ValueError("snr must be positive and finite")
    with np.errstate(divide="ignore"):
        c1, c2 = n / np.abs(np.log(n * ratio)), ratio / np.abs(np.log(ratio))
    return (float(c1), float(c2)) if ratio.ndim == 0 else (c1, c2)


def regime(n: int, dimension: float, snr: float) -> Regime:
    """Return the fastest method at the accuracy of kernel ridge regression, by Figure 1 of the NYTRO paper.

    Parameters
    ----------
    n : int
        Number of rows, at least 3.
    dimension : float
        d~(1 / snr), see `gyrfalcon.d_tilde`.
    snr : float
        The signal-to-noise ratio, see `gyrfalcon.signal_to_noise`.

    Returns
    -------
    {"NYTRO", "NKRLS", "Early Stopping", "KRLS"}
        `NytroRegressor`, `NystromRegressor`, `ExactRegressor(method="early_stopping")` or `ExactRegressor`.

    Examples
    --------
    >>> from gyrfalcon import regime
    >>> regime(10_000, dimension=50, snr=0.1), regime(10_000, dimension=50, snr=10_000)
    ('NYTRO', 'NKRLS')
    """
    for name, value in {"n": n, "dimension": dimension, "snr": snr}.items():
        _RULES[name](name, value)
    c1, c2 = regime_curves(n, snr)
    if dimension < c1:
        return "NYTRO" if dimension > c2 else "NKRLS"
    return "Early Stopping" if dimension > c2 else "KRLS"


@dataclass(frozen=True)
class NytroSuggestion:
    """Parameters that NYTRO's theory suggests.

    Attributes
    ----------
    penalty : float
        The paper's lambda* = 1 / SNR: KRLS and NKRLS.
    proven_penalty : float
        1 / (n SNR), at which the inequality of Theorem 2 holds for every problem.
    n_iter : int
        1 / (gamma lambda*) steps of length gamma = 1 / kappa^2: Early Stopping and NYTRO.
    n_centers : int
        d~ log(n / lambda*), at most n: NKRLS and NYTRO.
    theorem_n_centers : int
        The number of centers of Theorem 4, (32 d~ / delta + 2) log(|K| n / (delta lambda*)), with the bound |K| <=
        kappa^2 n; often more than n, where it has no meaning.
    regime : {"NYTRO", "NKRLS", "Early Stopping", "KRLS"}
        The fastest method, see `regime`.
    """

    penalty: float
    proven_penalty: float
    n_iter: int
    n_centers: int
    theorem_n_centers: int
    regime: Regime


def suggest_nytro(
    n: int, snr: float, dimension: float | None = None, *, kappa: float = 1.0, delta: float = 0.05
) -> NytroSuggestion:
    """Return the penalty, or the number of steps, and the number of centers that NYTRO's theory suggests.

    Parameters
    ----------
    n : int
        Number of rows, at least 3.
    snr : float
        The signal-to-noise ratio, see `gyrfalcon.signal_to_noise`.
    dimension : float, optional
        d~(1 / snr), see `gyrfalcon.d_tilde`; its bound min(kappa^2 snr, n) by default.
    kappa : float
        Bound k(x, x) <= kappa^2.
    delta : float
        In (0, 1): with fewer centers the risk may exceed that of all rows by 4 delta times it (Theorem 4).

    Returns
    -------
    NytroSuggestion

    Examples
    --------
    >>> from gyrfalcon import suggest_nytro
    >>> found = suggest_nytro(10_000, snr=50.0, dimension=30.0)
    >>> found.penalty, found.n_iter, found.n_centers, found.regime
    (0.02, 50, 394, 'NYTRO')
    """
    dimension = min(kappa**2 * snr, n) if dimension is None else dimension
    for name, value in {"n": n, "snr": snr, "dimension": dimension, "kappa": kappa, "delta": delta}.items():
        _RULES[name](name, value)
    penalty = 1 / snr
    bound = (32 * dimension / delta + 2) * math.log(max(kappa**2 * n * n / (delta * penalty), math.e))
    return NytroSuggestion(
        penalty=penalty,
        proven_penalty=penalty / n,
        n_iter=max(1, math.ceil(kappa**2 * snr)),
        n_centers=min(n, max(1, math.ceil(dimension * math.log(max(n * snr, math.e))))),
        theorem_n_centers=math.ceil(bound),
        regime=regime(n, dimension, snr),
    )
