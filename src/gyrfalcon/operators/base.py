"""Operator: the contract of the tall matrix K = k(rows, centers), n x M, that is never built.

Every method here and every way of running it is a few products with K, and each product is a concatenation or a sum
over blocks of rows:

    matmat(V)            K V              one block of the result for each block of rows
    rmatmat(U)           K' U             a sum over blocks
    sandwich(V, weight)  K' W (K V)       a sum over blocks; each tile of K is computed once and used twice

Solvers know these verbs and nothing of where the rows are. Who keeps the contract, and for which rows (`choose.py`):

    KernelOperator   dense.py      any rows, read in blocks and multiplied in this process
    SparseOperator   sparse.py     sparse rows and a linear kernel whose K is itself sparse
    DaskOperator     dask.py       Dask rows, multiplied where their partitions are
    DeviceOperator   device.py     any rows, multiplied on PyTorch's devices
    feature_operator features.py   random features in the place of kernel entries

Blocks have a size that depends on the problem alone and are added in their order in float64, so that results have the
same bits for any number of threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.portable import beside, library
from ..backends import BlockWeight, weighted
from ..kernels import Kernel
from ..sources import Rows
from ..sources.columns import Vector
from ..sources.row_matrix import RowMatrix
from .interrupted import Sums
from .squares import BlockSums

__all__ = [
    "Operator",
    "Rowwise",
    "Shifted",
    "Weight",
    "as_columns",
    "check_image",
    "check_product",
    "check_weight",
    "locate_non_finite",
    "recording",
]

Array = NDArray[Any]
Weight = ArrayLike | Callable[[slice, Array], Array] | None


class Rowwise:
    """A weight for `Operator.sandwich` that names the per-row arrays it is a function of.

    An operator whose rows are elsewhere can then send each part its own rows of the arrays, instead of fetching K V.

    Parameters
    ----------
    function : callable
        ``function(T, *parts)``: T = (K V)[at] of shape (b, k) and the rows `at` of the arrays, to an array like T.
    arrays : arrays whose first axis is that of the rows
    portable : bool
        Whether the function is arithmetic that tensors of PyTorch know as NumPy's arrays do (``+ - * /``, comparisons,
        ``.sum(1)``, ``[:, None]``) and writes into nothing that it is given. It is then run where K V is, also on a
        device: there with tensors, of the arrays too, in the operator's precision.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import Gaussian
    >>> from gyrfalcon.operators import KernelOperator, Rowwise
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> y = X[:, 0]
    >>> K = KernelOperator(Gaussian(1.0), X, X[:5])
    >>> gradient = K.sandwich(np.zeros(5), Rowwise(lambda T, part: T - part[:, None], y))  # K'(K v - y)
    >>> bool(np.allclose(gradient, -K.rmatmat(y)))
    True
    """

    def __init__(self, function: Callable[..., Array], *arrays: Array, portable: bool = False) -> None:
        self.function = function
        self.arrays = arrays
        self.portable = portable

    def __call__(self, at: slice, T: Array) -> Array:
        return self.function(T, *(array[at] for array in self.arrays))

    def of(self, *arrays: Array) -> Rowwise:
        """Return the same weight of other rows."""
        return Rowwise(self.function, *arrays, portable=self.portable)


class Shifted(Rowwise):
    """The weight W (T + Y C): what residuals K'W (y - K a) are made of, so that compiled tiles know it.

    Parameters
    ----------
    Y : array of shape (n,) or (n, k)
    weight : array of shape (n,), optional
        The diagonal of W.
    C : array of shape (k, columns of V), optional
        Which columns of Y are added to which of K V; the identity by default.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import Gaussian
    >>> from gyrfalcon.operators import KernelOperator, Shifted
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> y, a = X[:, :1], np.ones((5, 1))
    >>> K = KernelOperator(Gaussian(1.0), X, X[:5])
    >>> residual = K.sandwich(-a, Shifted(y))
    >>> bool(np.allclose(residual, K.rmatmat(y - K.matmat(a))))
    True
    """

    def __init__(self, Y: Array, weight: Array | None = None, C: Array | None = None) -> None:
        Y = Y[:, None] if Y.ndim == 1 else Y
        if C is not None and len(C) != Y.shape[1]:
            raise ValueError(f"C has shape {C.shape}: it must have one row for each of the {Y.shape[1]} columns of Y")
        super().__init__(partial(_shifted, C), *((Y,) if weight is None else (Y, weight)), portable=True)
        self.C = C

    def of(self, *arrays: Array) -> Shifted:
        return Shifted(arrays[0], arrays[1] if len(arrays) > 1 else None, self.C)

    def check_columns(self, k: int) -> None:
        """Raise a ValueError unless Y C has as many columns as K V."""
        _check_columns(self.arrays[0] if self.C is None else self.C, k)

    def added(self, at: slice, dtype: DTypeLike) -> Array:
        """Return the rows `at` of Y C."""
        Y = self.arrays[0][at]
        return np.ascontiguousarray(Y if self.C is None else Y @ self.C, dtype=dtype)

    def weights(self, at: slice, dtype: DTypeLike) -> Array | None:
        """Return the rows `at` of the diagonal of W."""
        return np.ascontiguousarray(self.arrays[1][at], dtype=dtype) if len(self.arrays) > 1 else None


def _check_columns(added: Array, k: int) -> None:
    if added.shape[1] != k:
        raise ValueError(f"{added.shape[1]} columns are to be added to the {k} of K V: give Shifted as many")


def _shifted(C: Array | None, T: Array, Y: Array, weight: Array | None = None) -> Array:
    _check_columns(Y if C is None else C, T.shape[1])
    U = T + (Y if C is None else Y @ beside(C, Y))
    return U if weight is None else weight[:, None] * U


class Operator(ABC):
    """The matrix K = k(rows, centers) of shape (n, M), known by its products.

    Attributes
    ----------
    kernel : Kernel
        With all parameters resolved.
    rows : Rows
        What the operator reads.
    centers : array or CSR matrix of shape (M, d)
    shape : tuple of int
        (n, M).
    dtype : dtype
        Of the entries of K, float32 or float64.
    passes : int
        Completed passes over the rows. Each verb is one; so is `blocks`, when it is exhausted.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import Gaussian
    >>> from gyrfalcon.operators import Operator, make_operator
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> K = make_operator(Gaussian(1.0), X, X[:5])
    >>> isinstance(K, Operator), K.shape, K.matmat(np.ones(5)).shape, K.passes
    (True, (100, 5), (100,), 1)
    """

    kernel: Kernel
    rows: Rows
    centers: Any
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    passes: int

    @property
    @abstractmethod
    def keeps(self) -> bool:
        """Whether K is kept in memory, here or where the rows are."""

    @property
    def arithmetic(self) -> str:
        """Describe in words how products are computed: another way gives other last bits."""
        return "kept in memory" if self.keeps else "made again"

    @property
    @abstractmethod
    def kept_bytes(self) -> int:
        """Memory of this process that K takes."""

    @abstractmethod
    def matmat(self, V: ArrayLike) -> Array:
        """Compute K V, in `dtype`.

        Parameters
        ----------
        V : array of shape (M,) or (M, k)

        Returns
        -------
        array of shape (n,) or (n, k)
        """

    def image(self, V: ArrayLike) -> Any:
        """Compute K V where the rows are: as `matmat`, or on the device of rows that are a tensor, as one.

        Parameters
        ----------
        V : array of shape (M,) or (M, k)
        """
        return self.matmat(V)

    @abstractmethod
    def rmatmat(self, U: ArrayLike) -> Array:
        """Compute K' U, in float64.

        Parameters
        ----------
        U : array of shape (n,) or (n, k)

        Returns
        -------
        array of shape (M,) or (M, k)
        """

    @abstractmethod
    def sandwich(self, V: ArrayLike, weight: Weight = None, *, KV: RowMatrix | None = None) -> Array:
        """Compute K' W (K V), in float64 and in one pass.

        Parameters
        ----------
        V : array of shape (M,) or (M, k)
        weight : None, array of shape (n,), Rowwise or callable
            The diagonal of W; or ``weight(at, T)``, called from several threads with a slice of the rows and
            T = (K V)[at] of shape (b, k), which returns what K' is multiplied with, of the same shape. So
            ``sandwich(a, lambda at, T: y[at] - T)`` is K'(y - K a), and so is ``sandwich(-a, Shifted(y))``.
        KV : array of shape (n,) or (n, k) and of `dtype`, optional
            K V, which the pass makes anyway, is written into it.

        Returns
        -------
        array of shape (M,) or (M, k)
        """

    @abstractmethod
    def centers_gram(self, dtype: DTypeLike | None = None) -> Array:
        """Compute K_MM = k(centers, centers) as a new Fortran-ordered array that the caller may overwrite.

        Parameters
        ----------
        dtype : float32 or float64, optional
            Precision of the entries; that of the operator by default.
        """

    @abstractmethod
    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Iterate over K itself, a block of rows at a time and in order: for methods that need more than products.

        A block must not be written into. BLAS has its threads while the caller uses a block.

        Yields
        ------
        at : slice
            The rows of the block.
        K : array of shape (b, M)
            In `dtype`.
        """

    def rounded_gram(self, dtype: DTypeLike) -> Array:
        """Compute K_MM as `centers_gram` does, but in float64, and round it once to `dtype`."""
        return self.centers_gram(np.float64).astype(dtype, copy=False)

    def add_blocks(self, sums: BlockSums) -> None:
        """Add all blocks of K to sums, in one pass: in this process, or on the devices where the blocks are.

        Parameters
        ----------
        sums : gyrfalcon.operators.squares.BlockSums
        """
        for at, K in self.blocks():
            sums.add(at, K)

    @abstractmethod
    def on(self, rows: Rows | ArrayLike) -> Operator:
        """Make the operator of other rows with the same kernel and prepared centers, which keeps no K."""

    def remember(self, sums: Sums) -> None:  # noqa: B027 (operators that cannot do so do nothing)
        """Let passes go on from sums over their first rows, and tell these sums how far they have come.

        `rmatmat` and `sandwich` do so, unless the weight of the latter is a function other than `Shifted`, if K is not
        kept and the rows are multiplied in this process.

        Parameters
        ----------
        sums : Sums
        """

    def fill(self) -> None:
        """Make the pass that fills a K that is kept; do nothing if none is.

        Products of that pass are added in another order than those of later passes, so a solver that resumes from a
        saved state must not be the one to make it.
        """
        if self.keeps:
            self.rmatmat(np.zeros((self.shape[0], 1)))


# ---- checks of rows, vectors, weights and products that all operators share ------------------------------------------


def locate_non_finite(start: int, rows: Any, names: Sequence[str] | None) -> str:
    """Locate the first non-finite value of a block whose first row is number `start`."""
    if scipy.sparse.issparse(rows):
        at = int(np.flatnonzero(~np.isfinite(rows.data))[0])
        row, column = int(np.searchsorted(rows.indptr, at, side="right")) - 1, int(rows.indices[at])
        value = rows.data[at]
    else:
        row, column = (int(i) for i in np.argwhere(~np.isfinite(rows))[0])
        value = rows[row, column]
    return f"row {start + row} has {value} in feature {column if names is None else repr(names[column])}"


def as_columns(V: ArrayLike, length: int, dtype: DTypeLike, name: str) -> tuple[Array, Callable[[Array], Array]]:
    """Convert to contiguous columns; the function returned gives results the number of dimensions of `V`."""
    columns = np.asarray(V)
    if columns.dtype.kind not in "fiub":
        raise ValueError(f"{name} is of type {columns.dtype}: it must hold real numbers")
    with np.errstate(over="ignore"):  # a product with infinity is refused
        columns = columns.astype(dtype, copy=False)
    if columns.ndim not in (1, 2) or len(columns) != length:
        raise ValueError(f"{name} has shape {columns.shape}: it must be ({length},) or ({length}, k)")
    if columns.ndim == 1:
        return np.ascontiguousarray(columns[:, None]), lambda out: out[:, 0]
    return np.ascontiguousarray(columns), lambda out: out


def check_weight(weight: Weight, n: int) -> Array | Callable[[slice, Array], Array] | None:
    """Return the weight of `sandwich`, as an array unless it is None or a function, if it fits n rows."""
    if weight is None:
        return None
    if callable(weight):
        for array in weight.arrays if isinstance(weight, Rowwise) else ():
            if len(array) != n:
                raise ValueError(f"an array of the weight has shape {np.shape(array)}: it must have {n} rows")
        return weight
    numbers: Any = weight if isinstance(weight, Vector) else np.asarray(weight)
    if numbers.shape != (n,):
        raise ValueError(f"weight has shape {numbers.shape}: it must have one number for each row, {n}")
    return numbers


def check_image(KV: RowMatrix, n: int, k: int, dtype: DTypeLike) -> Any:
    """Return the matrix that K V is written into, with k columns, if it fits n rows."""
    if KV.dtype != dtype or KV.shape not in ([(n,), (n, 1)] if k == 1 else [(n, k)]):
        raise ValueError(f"KV has shape {KV.shape} and type {KV.dtype}: it must be ({n}, {k}) of {dtype}")
    return KV[:, None] if isinstance(KV, np.ndarray) and KV.ndim == 1 else KV


def recording(weight: BlockWeight, KV: RowMatrix) -> Callable[[slice, Array], Array]:
    """Make a weight of one that also writes K V into `KV`."""

    def record(at: slice, T: Array) -> Array:
        KV[at] = T
        return weighted(T, weight, at)

    return record


def check_product(product: Any, kernel: Kernel, dtype: DTypeLike) -> Any:
    """Return the product, an array or a tensor, if it is finite."""
    if not library(product).isfinite(product).all():
        raise ValueError(
            f"a product with {kernel!r} is not finite in {dtype}: check the vectors it is multiplied with, the "
            "kernel's parameters and the scale of the rows"
        )
    return product
