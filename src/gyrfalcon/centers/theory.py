"""Penalty, number of centers and iterations for a data size, by the theorems of the FALKON paper.

Theorem 3 assumes only that the best function lies in the kernel's space. Theorem 5 uses additional knowledge: the
capacity condition N(lambda) <= Q^2 lambda^-gamma, how fast the effective dimension grows, and the source condition r,
how smooth the function is for the kernel. With gamma = 1 and r = 1/2 its penalty and rate are Theorem 3's.

The theorems' numbers of centers hold with probability 1 - delta for every distribution, with the constants of a proof:
75 sqrt(n) log(48 n / delta) exceeds n for n up to some millions. `suggest` therefore returns two numbers: the
theorem's, and one that grows in the same way with a constant of 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from .._utils.checks import integer, number, one_of, optional, positive

__all__ = ["Suggestion", "suggest"]

_RULES = {
    "n": integer(3),
    "capacity": number(lambda x: 0 < x <= 1, "in (0, 1]; 1 if nothing is known"),
    "source": number(lambda x: 0.5 <= x <= 1, "in [0.5, 1]; 0.5 if nothing is known"),
    "kappa": number(lambda x: 1 <= x < math.inf, "finite and at least 1: any upper bound of sqrt(k(x, x)) is allowed"),
    "target_range": positive("a finite number greater than 0: max(y) - min(y)"),
    "delta": number(lambda x: 0 < x <= 1, "in (0, 1]; 0.05 is usual"),
    "effective_dimension": optional(positive("None or a finite number greater than 0")),
    "sampling": one_of("uniform", "leverage"),
    "q": number(lambda x: 1 <= x < math.inf, "finite and at least 1; 1 for exact leverage scores"),
}


@dataclass(frozen=True)
class Suggestion:
    """Parameters suggested for a data size.

    Attributes
    ----------
    penalty : float
        lambda of the theorem.
    n_centers : int
        Number of centers for practice: the theorem's with a constant of 1, at most n. A starting point for a search.
    n_iter : int
        Number of conjugate gradient iterations, the theorem's.
    theorem : int
        Number of the theorem: 3, or 5 if the arguments say more than Theorem 3 needs.
    theorem_n_centers : int
        The theorem's number of centers, with its constants; often more than n, where it has no meaning.
    rate : float
        Negative exponent: the excess risk falls like n^rate.
    sampling : {"uniform", "leverage"}
        How the centers are to be drawn.
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
        params: dict[str, Any] = {"penalty": self.penalty, "n_centers": self.n_centers, "max_iter": self.n_iter}
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
        Number of training rows, at least 3.
    capacity : float
        gamma in (0, 1]: the effective dimension at penalty lambda grows like lambda^-gamma. 1 always holds; for a
        kernel of smoothness s on D features it is D / (2 s).
    source : float
        r in [1/2, 1]: smoothness of the function to be learnt, relative to the kernel. 1/2 assumes only that the
        kernel's space contains the function.
    kappa : float
        Bound k(x, x) <= kappa^2, at least 1. It is 1 for Gaussian, Laplacian and Matérn kernels.
    target_range : float
        a: targets lie within [-a/2, a/2]; 2 for targets of -1 and 1.
    delta : float
        Probability, in (0, 1], with which the theorem may fail.
    effective_dimension : float, optional
        N(lambda) at the resulting penalty, if it was measured (`gyrfalcon.effective_dimension`); it replaces
        kappa^2 lambda^-gamma.
    sampling : {"uniform", "leverage"}
        How centers are drawn. By leverage scores, their number depends on the effective dimension; uniformly, on the
        largest leverage score, for which the theorem has only the bound kappa^2 / lambda.
    q : float
        Accuracy of the leverage scores: within a factor of q, at least 1.

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
    given = {
        "n": n,
        "capacity": capacity,
        "source": source,
        "kappa": kappa,
        "target_range": target_range,
        "delta": delta,
        "effective_dimension": effective_dimension,
        "sampling": sampling,
        "q": q,
    }
    for name, value in given.items():
        _RULES[name](name, value)
    n, gamma, r, kappa, a = int(n), float(capacity), float(source), float(kappa), float(target_range)
    delta, q = float(delta), float(q)

    penalty = float(n) ** (-1 / (2 * r + gamma))
    dimension = kappa**2 * penalty**-gamma
    if effective_dimension is not None:
        dimension = float(effective_dimension)
    log = math.log(8 * kappa**2 / (penalty * delta))
    if sampling == "leverage":
        needed = 2 + q**2 * dimension
        bound = 220 * needed * log
    else:
        # leverage scores are at most kappa^2 / lambda, and in practice rarely very uneven
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
