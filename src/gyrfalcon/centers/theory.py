"""What the theorems of the FALKON paper say about penalty, centers and iterations, in numbers for a data size.

Theorem 3 assumes nothing but that the best function lies in the kernel's space. Theorem 5 is for what more may be
known: the capacity condition N(lambda) <= Q^2 lambda^-gamma, how fast the effective dimension grows, and the source
condition r, how smooth the function is for the kernel. With gamma = 1 and r = 1/2 its penalty and rate are Theorem 3's.

The numbers of centers in the theorems hold with probability 1 - delta for every distribution, and their constants are
those of a proof: 75 sqrt(n) log(48 n / delta) is more than n up to n of some millions. So `suggest` gives two numbers,
the theorem's and one that grows in the same way with the constant left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

__all__ = ["Suggestion", "suggest"]


@dataclass(frozen=True)
class Suggestion:
    """Parameters for a data size.

    Attributes
    ----------
    penalty : float
        lambda of the theorem.
    n_centers : int
        Centers in practice: the theorem's number with 1 for its constant, at most n. A start for a search.
    n_iter : int
        Iterations of conjugate gradient, the theorem's number.
    theorem : int
        Of which theorem: 3, or 5 if more was said than it needs.
    theorem_n_centers : int
        The theorem's own number of centers, constants and all; often more than n, where it says nothing.
    rate : float
        The excess risk falls like n to the power of this, which is negative.
    sampling : {"uniform", "leverage"}
        What the numbers of centers are for.
    """

    penalty: float
    n_centers: int
    n_iter: int
    theorem: int
    theorem_n_centers: int
    rate: float
    sampling: Literal["uniform", "leverage"]

    def params(self) -> dict[str, Any]:
        """Return ``penalty``, ``n_centers`` and ``max_iter`` for an estimator, and ``centers`` if not uniform."""
        params: dict[str, Any] = {
            "penalty": self.penalty,
            "n_centers": self.n_centers,
            "max_iter": self.n_iter,
        }
        if self.sampling != "uniform":
            params["centers"] = self.sampling
        return params


def suggest(
    n: int,
    *,
    capacity: float = 1.0,
    source: float = 0.5,
    kappa: float = 1.0,
    target_range: float = 2.0,
    delta: float = 0.05,
    effective_dimension: float | None = None,
    sampling: Literal["uniform", "leverage"] = "uniform",
    q: float = 1.0,
) -> Suggestion:
    """Return the penalty, number of centers and iterations of Theorems 3 and 5 of the FALKON paper for n rows.

    Parameters
    ----------
    n : int
        Rows to train on, at least 3.
    capacity : float
        gamma in (0, 1]: the effective dimension at penalty lambda grows like lambda^-gamma. 1 always holds; a smooth
        kernel on few features has less, D/(2s) for a kernel of smoothness s on D features.
    source : float
        r in [1/2, 1]: how smooth the function to be learnt is for the kernel. 1/2 is no more than that the kernel's
        space contains it.
    kappa : float
        k(x, x) <= kappa^2; at least 1. It is 1 for Gaussian, Laplacian and Matérn kernels.
    target_range : float
        a: targets lie within [-a/2, a/2]; 2 suits targets of -1 and 1.
    delta : float
        Probability, in (0, 1], with which the theorem may fail.
    effective_dimension : float, optional
        N(lambda) at the penalty of the result, if it was measured (`gyrfalcon.effective_dimension`). Used in place of
        kappa^2 lambda^-gamma.
    sampling : {"uniform", "leverage"}
        How centers are to be drawn. Leverage scores need as many as the effective dimension asks for; uniform ones as
        many as the largest leverage score does, for which the theorem has only kappa^2 / lambda.
    q : float
        How good the leverage scores are: within a factor of q, at least 1.

    Returns
    -------
    Suggestion

    Examples
    --------
    >>> from gyrfalcon.centers.theory import suggest
    >>> suggestion = suggest(1_000_000)
    >>> suggestion.penalty, suggestion.n_iter
    (0.001, 16)
    >>> suggestion.n_centers, suggestion.theorem_n_centers
    (11995, 1551184)

    An easier problem, and centers drawn by leverage scores:

    >>> suggest(1_000_000, capacity=0.5, sampling="leverage").params()
    {'penalty': 0.0001..., 'n_centers': 1458, 'max_iter': 23, 'centers': 'leverage'}
    """
    if isinstance(n, bool) or not isinstance(n, Integral) or n < 3:
        raise ValueError(f"n={n!r} must be an integer of at least 3: the theorems say nothing of fewer rows")
    n = int(n)
    gamma = _number("capacity", capacity, 0 < _real(capacity) <= 1, "in (0, 1]; 1 if nothing is known")
    r = _number("source", source, 0.5 <= _real(source) <= 1, "in [0.5, 1]; 0.5 if nothing is known")
    kappa = _number("kappa", kappa, 1 <= _real(kappa) < math.inf, "at least 1: a bound may be larger than it need be")
    a = _number("target_range", target_range, 0 < _real(target_range) < math.inf, "positive: max(y) - min(y)")
    delta = _number("delta", delta, 0 < _real(delta) <= 1, "in (0, 1]; 0.05 is usual")
    q = _number("q", q, 1 <= _real(q) < math.inf, "at least 1; 1 for exact leverage scores")
    if sampling not in ("uniform", "leverage"):
        raise ValueError(f'sampling={sampling!r} must be "uniform" or "leverage"')

    penalty = float(n) ** (-1 / (2 * r + gamma))
    dimension = kappa**2 * penalty**-gamma
    if effective_dimension is not None:
        given = _real(effective_dimension)
        dimension = _number("effective_dimension", effective_dimension, 0 < given < math.inf, "a positive number")
    log = math.log(8 * kappa**2 / (penalty * delta))
    if sampling == "leverage":
        needed = 2 + q**2 * dimension
        bound = 220 * needed * log
    else:
        # Leverage scores are at most kappa^2 / lambda, and in practice seldom far from even.
        needed = 1 + (kappa**2 / penalty if effective_dimension is None else dimension)
        bound = 70 * (1 + kappa**2 / penalty) * log
    theorem = 5
    n_iter = math.log(n) + 5 + 2 * math.log(a + 3 * kappa**2)
    if gamma == 1 and r == 0.5 and sampling == "uniform":
        theorem = 3
        bound = 75 * math.sqrt(n) * math.log(48 * kappa**2 * n / delta)
        n_iter = 0.5 * math.log(n) + 5 + 2 * math.log(a + 3 * kappa)
    return Suggestion(
        penalty=penalty,
        n_centers=min(n, math.ceil(needed * log)),
        n_iter=math.ceil(n_iter),
        theorem=theorem,
        theorem_n_centers=math.ceil(bound),
        rate=-2 * r / (2 * r + gamma),
        sampling=sampling,
    )


def _real(value: Any) -> float:
    """Return the number, or NaN, which no condition holds for."""
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan


def _number(name: str, value: Any, holds: bool, words: str) -> float:
    if not holds:
        raise ValueError(f"{name}={value!r} must be {words}")
    return float(value)
