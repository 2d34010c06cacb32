"""KRILL's preconditioner: A from a sketch of the rows instead of the centers, for one more pass.

The method of arXiv 2304.12465 (Díaz, Epperly, Frangella, Tropp and Webber, "Robust, randomized preconditioning for
kernel ridge regression"). FALKON's ``(n/M) K_MM D^2 K_MM`` approximates K'K only if the centers were drawn with known
probabilities. KRILL estimates K'K from K itself, for any centers: with a sparse sign matrix Phi of about 2 M rows,
eight entries +-1/sqrt(8) in each column,

    H = (Phi W^(1/2) K)'(Phi W^(1/2) K) + lambda n K_MM,     B B' = H^-1.

The paper takes B = chol(H)^-1. H has the squared condition number of the kernel, so that its Cholesky factor in working
precision is wrong in the small directions. Here Phi K is first brought into coordinates in which K_MM is the identity,
which gives the same B up to a rotation that does not affect CG:

    A'A = R'(Phi K)'(Phi K)R / n + lambda I,     B = R A^-1 / sqrt(n),     R'K_MM R = I.

Measured (n = 20,000, M = 500, Gaussian and Laplacian kernels, lambda = 1e-5 to 1e-9): the condition number stays below
35 for uniform centers, k-means, a grid, a box around the rows and the most extreme rows, where FALKON's is 60 to 220,
60 to 90, and thousands in the last three. Sketch and factors take as long as some 10 passes while M is some hundreds,
more when M is thousands and n not much larger.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csc_matrix

from .._utils.checks import number
from ..operators import Operator
from .factors import FactorEngine
from .falkon import RowFactors
from .whitening import Whitening

if TYPE_CHECKING:
    import torch

_ENTRIES = 8  # entries of a column of Phi, which the paper found to be enough
_CHUNK = 1024  # rows of the sketch that are processed at once


class Krill(RowFactors):
    """KRILL's preconditioner, with A from a sketch of the rows: for any centers.

    Parameters
    ----------
    operator : Operator
        K, of shape (n, M); the sketch is one pass over its rows.
    gram : ndarray of shape (M, M), Fortran order, float32 or float64
        K_MM. Overwritten: afterwards its memory holds T in the upper triangle and A' in the lower one.
    penalty : float
        lambda, at least 0.
    weight : ndarray of shape (n,), optional
        Sample weights, the diagonal of W.
    jitter, n_jobs, devices
        As for `Whitening`.
    oversampling : float
        Rows of Phi, as a multiple of M.
    random_state : int, RandomState, Generator or None
        Seed of Phi.

    Attributes
    ----------
    whitening, A, rank, least_penalty
        As in `Preconditioner`.
    ridge : float
        The ridge in A'A: the penalty, or the least that rounding allows.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Krill
    >>> from gyrfalcon.solvers import conjugate_gradient
    >>> X = np.random.default_rng(0).standard_normal((2000, 2))
    >>> K = KernelOperator("gaussian", X, np.linspace(-1, 1, 60).reshape(30, 2))
    >>> krill = Krill(K, K.centers_gram(), 1e-4, random_state=0)
    >>> *_, last = conjugate_gradient(K, np.sin(X[:, 0]), krill, 1e-4, max_iter=30, tol=1e-6)
    >>> last.converged
    True
    """

    def __init__(
        self,
        operator: Operator,
        gram: NDArray[Any],
        penalty: float,
        *,
        weight: NDArray[Any] | None = None,
        jitter: float | Literal["auto"] = "auto",
        oversampling: float = 2.0,
        random_state: Any = None,
        n_jobs: int | None = None,
        devices: Sequence[torch.device] | None = None,
    ) -> None:
        number(lambda x: 1 <= x < math.inf, "a finite number, at least 1")("oversampling", oversampling)
        n, M = operator.shape
        super().__init__(operator, gram, penalty, n, jitter=jitter, n_jobs=n_jobs, devices=devices)
        size = math.ceil(oversampling * M)
        S = sketch(operator, size, self.whitening.dtype, weight=weight, random_state=random_state)
        S = whitened(S, self.whitening)
        self.factor(partial(_put_square, S, self.whitening.engine))


def sketch(
    operator: Operator, size: int, dtype: DTypeLike, *, weight: NDArray[Any] | None = None, random_state: Any = None
) -> NDArray[Any]:
    """Return Phi W^(1/2) K, of shape (size, M), in one pass, with a random sparse sign matrix Phi of `size` rows."""
    legacy = isinstance(random_state, np.random.RandomState)  # which gives one number, as a seed
    rng = np.random.default_rng(random_state.randint(2**31 - 1) if legacy else random_state)
    M, n_entries = operator.shape[1], min(_ENTRIES, size)
    # The e-th entry of each column falls into the e-th of equal parts of the rows, so that no two coincide.
    edges = np.arange(n_entries + 1) * size // n_entries
    S = np.zeros((size, M), dtype=dtype)
    for at, K in _at_least(M // 2, operator.blocks()):
        rows = rng.integers(edges[:-1, None], edges[1:, None], size=(n_entries, len(K)))
        entries = rng.choice([-1.0, 1.0], size=(n_entries, len(K))) / np.sqrt(n_entries)
        if weight is not None:
            entries *= np.sqrt(weight[at])
        entries = entries.astype(K.dtype)
        for e in range(n_entries):
            part = slice(edges[e], edges[e + 1])
            shape, columns = (part.stop - part.start, len(K)), np.arange(len(K) + 1)
            S[part] += csc_matrix((entries[e], rows[e] - part.start, columns), shape=shape).tocsr() @ K
    return S


def whitened(S: NDArray[Any], whitening: Whitening) -> NDArray[Any]:
    """Return S R / sqrt(n) in the memory of S, of shape (size, rank)."""
    for i in range(0, len(S), _CHUNK):
        S[i : i + _CHUNK, : whitening.rank] = whitening.restrict(S[i : i + _CHUNK].T).T
    found = S[:, : whitening.rank]
    whitening.engine.solve_upper_transposed(whitening.triangles.buffer, found.T)
    return found


def _put_square(S: NDArray[Any], engine: FactorEngine, T1: NDArray[Any]) -> None:
    """Put S'S into the lower triangle of the square part of T."""
    for j in range(len(T1)):
        T1[j:, j] = 0.0
    for i in range(0, len(S), _CHUNK):
        engine.add_square(T1, S[i : i + _CHUNK])


def _at_least(size: int, blocks: Iterator[tuple[slice, NDArray[Any]]]) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Join blocks until they have at least ``size`` rows, since each costs an addition to all of S."""
    waiting: list[NDArray[Any]] = []
    start = rows = 0
    for at, K in blocks:
        waiting.append(K)
        rows += len(K)
        if rows >= size:
            yield slice(start, at.stop), waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
            waiting, start, rows = [], at.stop, 0
    if waiting:
        yield slice(start, start + rows), np.concatenate(waiting)
