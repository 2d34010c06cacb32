"""Which operator suits which rows."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from .._utils.devices import check_precision
from ..kernels import Kernel, KernelFunction, as_kernel, linear_form
from ..sources import DaskRows, Rows, as_rows, near
from ..sources.sparse import SparseRows
from .base import Operator
from .dask import DaskOperator
from .dense import KernelOperator
from .device import DeviceOperator
from .keeping import Halving
from .sparse import linear_operator

__all__ = ["make_operator"]


def make_operator(
    kernel: Kernel | str | KernelFunction,
    rows: Rows | ArrayLike,
    centers: Any,
    *,
    n_jobs: int | None = None,
    memory_budget: int | float | str = "auto",
    passes: int | None = None,
    device: Any = None,
    precision: str | None = None,
    halving: Halving | None = None,
) -> Operator:
    """Make the operator k(rows, centers) that suits the rows.

    Parameters
    ----------
    kernel : Kernel, str or callable
    rows : array or sparse matrix of shape (n, d), Dask collection, or a source
    centers : array or sparse matrix of shape (M, d)
    n_jobs, memory_budget, passes
        As for `KernelOperator`.
    device : None, str, torch.device or list of these
        None multiplies on the cores of the machine, or where the rows are. Anything else as for `DeviceOperator`.
    precision : {None, "tf32"}
        As for `DeviceOperator`; None without a device.
    halving : Halving or None
        As for `KernelOperator`; other operators keep nothing in 16 bits.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from gyrfalcon.operators import make_operator
    >>> X = sp.random(1000, 100_000, density=1e-3, format="csr", random_state=0)
    >>> make_operator("linear", X, X[:10], memory_budget="100MB").arithmetic
    'kept as a sparse matrix'
    """
    check_precision(precision, device)
    rows = as_rows(near(rows, device))
    if device is not None:
        return DeviceOperator(
            kernel, rows, centers, device=device, n_jobs=n_jobs, memory_budget=memory_budget, precision=precision
        )
    if isinstance(rows, DaskRows):
        return DaskOperator(kernel, rows, centers, n_jobs=n_jobs, memory_budget=memory_budget)
    if isinstance(rows, SparseRows) and linear_form(as_kernel(kernel)) is not None:
        return linear_operator(kernel, rows, centers, n_jobs=n_jobs, memory_budget=memory_budget)
    return KernelOperator(
        kernel,
        rows,
        centers,
        n_jobs=n_jobs,
        memory_budget=memory_budget,
        passes=passes,
        halving=halving,
    )
