"""Python functions as kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from .base import Array, Kernel, KernelFunction, require_both_sparse


class CallableKernel(Kernel):
    """Python function k(A, B) that returns the matrix of kernel values, len(A) x len(B).

    Parameters
    ----------
    function : callable
        Called with two 2-D arrays, or with two CSR matrices if the rows are sparse; from several threads at once.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import CallableKernel
    >>> CallableKernel(lambda A, B: np.minimum(A, B.T))([[1.0], [3.0]], [[2.0]])
    array([[1.],
           [2.]])
    """

    def __init__(self, function: KernelFunction) -> None:
        self.function = function

    def resolve(self, X: Array) -> Kernel:
        if not callable(self.function):
            raise TypeError(f"function={self.function!r} must be callable as k(A, B)")
        return type(self)(self.function)  # not clone, which would copy a function that is an object with state

    def constant_diag(self) -> None:
        return None

    def diag(self, X: Array) -> Array:
        X = X if sp.issparse(X) else np.asarray(X)
        rows = (X[i : i + 1] for i in range(X.shape[0]))
        return np.array([self(row, row)[0, 0] for row in rows])

    def __call__(self, A: ArrayLike, B: ArrayLike) -> Array:
        if sp.issparse(A) or sp.issparse(B):
            require_both_sparse(A, B)
            K, shape = self._of_sparse(A, B), (A.shape[0], B.shape[0])  # type: ignore[union-attr]
        else:
            A, B = np.asarray(A), np.asarray(B)
            with np.errstate(over="ignore", invalid="ignore"):  # the caller checks for values that are not finite
                K, shape = np.asarray(self.function(A, B)), (len(A), len(B))
        if K.shape != shape:
            raise ValueError(
                f"the kernel function gave an array of shape {K.shape} for {shape[0]} rows and {shape[1]} centers: "
                f"it must give {shape}"
            )
        if K.dtype.kind not in "fiub":
            raise ValueError(f"the kernel function gave an array of type {K.dtype}: it must give real numbers")
        return K

    def _of_sparse(self, A: Any, B: Any) -> Array:
        try:
            K = self.function(A, B)
        except Exception as error:
            raise ValueError(
                f"the kernel function cannot take sparse rows ({type(error).__name__}: {error}): it is called with two "
                "CSR matrices; use a named kernel, or dense rows"
            ) from error
        return K.toarray() if sp.issparse(K) else np.asarray(K)  # type: ignore[union-attr]
