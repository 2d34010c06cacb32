"""Penalty, number of centers and iterations for a data size, and centers for a penalty, by the FALKON paper's theorems.

Theorem 3 assumes only that the best function lies in the kernel's space. Theorem 5 uses additional knowledge: the
capacity condition N(lambda) <= Q^2 lambda^-gamma, how fast the effective dimension grows, and the source condition r,
how smooth the function is for the kernel. With gamma = 1 and r = 1/2 its penalty and rate are Theorem 3's.

The theorems' numbers of centers hold with probability 1 - delta for every distribution, with the constants of a proof:
75 sqrt(n) log(48 n / delta) exceeds n for n up to some millions. `suggest` therefore returns two numbers: the
theorem's, and one that grows in the same way with a constant of 1. The theorems hold from some n on, which the proofs
in the paper's appendix E name; below it, there is a warning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from .._utils.checks import integer, number, one_of, optional, positive
from .._utils.warnings import warn

__all__ = ["Suggestion", "centers_needed", "suggest"]

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
    least_n : int
        Number of rows from which the theorem holds (the n_0 of its proof, apart from the norm of the covariance).
    """

    penalty: float
    n_centers: int
    n_iter: int
    theorem: int
    theorem_n_centers: int
    rate: float
    sampling: Literal["uniform", "leverage"]
    least_n: int

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

    A warning says if there are fewer rows than the theorem holds from; the numbers are then a starting point.

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
    theorem, s = 5, 2 * r + gamma
    n_iter = math.log(n) + 5 + 2 * math.log(a + 3 * kappa**2)
    least_n = (102 * kappa**2 * s / (s - 1) * math.log(912 / delta)) ** (s / (s - 1))
    if gamma == 1 and r == 0.5 and sampling == "uniform":
        theorem = 3
        bound = 75 * math.sqrt(n) * math.log(48 * kappa**2 * n / delta)
        n_iter = 0.5 * math.log(n) + 5 + 2 * math.log(a + 3 * kappa)
        least_n = (82 * kappa**2 * math.log(373 * kappa**2 / math.sqrt(delta))) ** 2
    if n < least_n:
        warn(
            f"Theorem {theorem} holds from n = {least_n:,.0f} on, and n={n}: take the numbers as a starting point",
            UserWarning,
        )
    return Suggestion(
        penalty=penalty,
        n_centers=min(n, math.ceil(needed * log)),
        n_iter=math.ceil(n_iter),
        theorem=theorem,
        theorem_n_centers=math.ceil(bound),
        rate=-2 * r / (2 * r + gamma),
        sampling=sampling,
        least_n=math.ceil(least_n),
    )


def centers_needed(
    penalty: float,
    *,
    theorem: Literal[2, 4, 5] = 4,
    sampling: Literal["uniform", "leverage"] = "uniform",
    n: int | None = None,
    n_infinity: float | None = None,
    effective_dimension: float | None = None,
    kappa: float = 1.0,
    delta: float = 0.05,
    q: float = 1.0,
) -> int:
    """Return the number of centers that a theorem of the FALKON paper asks for at a penalty.

    With log = log(8 kappa^2 / (penalty delta)), Theorem 2 asks for 5 (1 + 14 kappa^2 / penalty) log uniform centers;
    Theorems 4 and 5 ask for 70 (1 + N_infinity) log uniform ones, or for 215 (Theorem 5: 220) (2 + q^2 N) log drawn by
    leverage scores, where N is the effective dimension. With this number of centers, the condition number of the
    preconditioned system is below 17 (Theorems 2 and 4), and FALKON learns at the fast rates (Theorem 5).

    A warning says which of the theorem's conditions does not hold for `n` rows, or that it asks for more centers than
    there are rows: its constants are those of a proof, and far fewer are enough in practice.

    Parameters
    ----------
    penalty : float
        lambda, positive.
    theorem : {2, 4, 5}
        Number of the theorem; Theorem 2 is for uniform centers.
    sampling : {"uniform", "leverage"}
        How centers are drawn.
    n : int, optional
        Number of rows, to check the conditions.
    n_infinity : float, optional
        N_infinity(penalty), see `gyrfalcon.n_infinity`; the bound kappa^2 / penalty by default.
    effective_dimension : float, optional
        N(penalty), see `gyrfalcon.effective_dimension`; the bound kappa^2 / penalty by default.
    kappa, delta, q : float
        As for `suggest`.

    Returns
    -------
    int

    Examples
    --------
    >>> from gyrfalcon import centers_needed
    >>> centers_needed(1e-3, theorem=2)
    838865
    >>> centers_needed(1e-3, n_infinity=266)
    223961
    >>> centers_needed(1e-3, sampling="leverage", effective_dimension=77)
    203531
    """
    positive()("penalty", penalty)
    if theorem not in (2, 4, 5):
        raise ValueError(f"theorem={theorem!r} must be 2, 4 or 5")
    optional(integer(3))("n", n)
    optional(positive("None or a finite number greater than 0"))("n_infinity", n_infinity)
    given = {"sampling": sampling, "effective_dimension": effective_dimension, "kappa": kappa, "delta": delta, "q": q}
    for name, value in given.items():
        _RULES[name](name, value)
    if theorem == 2 and (sampling == "leverage" or n_infinity is not None or effective_dimension is not None):
        raise ValueError("Theorem 2 is for uniform centers and needs only the penalty: use theorem=4")
    bound, log = kappa**2 / penalty, math.log(8 * kappa**2 / (penalty * delta))
    if theorem == 2:
        found = 5 * (1 + 14 * bound) * log
    elif sampling == "uniform":
        found = 70 * (1 + (bound if n_infinity is None else n_infinity)) * log
    else:
        dimension = bound if effective_dimension is None else effective_dimension
        found = (215 if theorem == 4 else 220) * (2 + q**2 * dimension) * log
    M = max(3, math.ceil(found))
    failed = _failed_conditions(theorem, sampling, float(penalty), n, kappa, delta)
    if n is not None and n < M and not failed:
        failed = [f"it asks for {M:,} centers, and there are {n:,} rows"]
    if failed:
        warn(
            f"Theorem {theorem} does not apply: {'; '.join(failed)}. Far fewer centers are enough in practice",
            UserWarning,
        )
    return M


def _failed_conditions(
    theorem: int, sampling: str, penalty: float, n: int | None, kappa: float, delta: float
) -> list[str]:
    """Describe the conditions of a theorem that do not hold."""
    failed = []
    if penalty > kappa**2:
        failed.append(f"penalty={penalty:g} exceeds kappa^2 = {kappa**2:g}, and with it the norm of the covariance")
    if n is None or (theorem != 5 and sampling == "uniform"):
        return failed
    if theorem == 4:  # with leverage scores
        least_n = 405 * kappa**2 * math.log(12 * kappa**2 / delta)
        least_penalty = 19 * kappa**2 / n * math.log(n / (2 * delta))
    else:  # Theorem 8 of the appendix, of which it is a case
        least_n = 1655 * kappa**2 + 223 * kappa**2 * math.log(24 * kappa**2 / delta)
        least_penalty = 19 * kappa**2 / n * math.log(24 * n / delta)
    if n < least_n:
        failed.append(f"n={n:,} is too small, it holds from {math.ceil(least_n):,} rows on")
    if penalty < least_penalty:
        failed.append(f"n={n:,} is too small for penalty={penalty:g}, the least penalty is {least_penalty:.2g}")
    return failed
