"""Which operator suits which rows, and operators for the predictions of a fitted model."""

from __future__ import annotations

from typing import Any, NamedTuple

import scipy.sparse
from numpy.typing import ArrayLike

from .._utils.devices import check_precision
from .._utils.threads import effective_n_jobs
from ..kernels import Kernel, KernelFunction, as_kernel, linear_form
from ..sources import DaskRows, Rows, as_rows, near
from ..sources.sparse import SparseRows
from .base import Operator
from .dask import DaskOperator
from .dense import KernelOperator
from .device import DeviceOperator
from .keeping import Halving
from .sparse import linear_operator

__all__ = ["PreparedCenters", "make_operator"]

# Bytes of centers beyond which a prepared copy is not kept: preparing them costs no more than predicting a few rows
_LARGEST_PREPARED = 1 << 28


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
        kernel, rows, centers, n_jobs=n_jobs, memory_budget=memory_budget, passes=passes, halving=halving
    )


class _Prepared(NamedTuple):
    kernel: Kernel
    centers: Any
    n_threads: int
    device: Any
    operator: KernelOperator | DeviceOperator


class PreparedCenters:
    """Operators of one kernel and its centers for successive rows.

    The centers are prepared for the first rows, and again when the kernel, the centers, the device or the number of
    threads change. Kernel and centers are compared by identity, so they must not be modified in place. The object can
    be used from several threads. Copies and pickles are empty.
    """

    def __init__(self) -> None:
        self._last: _Prepared | None = None

    def operator(
        self, kernel: Kernel, rows: Rows, centers: Any, *, n_jobs: int | None = None, device: Any = None
    ) -> Operator:
        """Make the operator k(rows, centers), which keeps no K; parameters are those of `make_operator`."""
        sparse = scipy.sparse.issparse(centers)
        size = (centers.data if sparse else centers).nbytes
        here = device is None
        if (
            (here and isinstance(rows, DaskRows))
            or rows.is_sparse != sparse
            or rows.dtype != centers.dtype
            or size > _LARGEST_PREPARED
        ):
            return make_operator(kernel, rows, centers, n_jobs=n_jobs, memory_budget=0, device=device)
        n_threads = effective_n_jobs(n_jobs)
        last = self._last  # read once: another thread may replace it
        if last is None or not (
            last.kernel is kernel and last.centers is centers and last.n_threads == n_threads and last.device == device
        ):
            # made for the centers as rows, so that rows of a caller are not held
            operator: KernelOperator | DeviceOperator
            if here:
                operator = KernelOperator(kernel, centers, centers, n_jobs=n_threads, memory_budget=0)
            else:
                operator = DeviceOperator(kernel, centers, centers, device=device, n_jobs=n_threads, memory_budget=0)
            last = self._last = _Prepared(kernel, centers, n_threads, device, operator)
        return last.operator.on(rows)

    def __reduce__(self) -> tuple[type[PreparedCenters], tuple[()]]:
        return PreparedCenters, ()
