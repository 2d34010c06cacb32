"""Tensors of PyTorch and arrays of other libraries: to NumPy without a copy where memory is shared, and back.

A tensor is any object with DLPack's two methods that is not a NumPy array. No library is imported to find out.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .._utils.devices import import_torch, is_torch
from .._utils.words import a

_ON_HOST = {1, 3, 11}  # DLPack's numbers of host memory: plain, and pinned by CUDA or by ROCm


@runtime_checkable
class Tensor(Protocol):
    """An array in the memory of some device, by the DLPack protocol."""

    @property
    def shape(self) -> Any: ...

    @property
    def dtype(self) -> Any: ...

    def __dlpack__(self, **options: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...  # the kind and the number of the device


@runtime_checkable
class _OfNamespace(Protocol):
    """An array of a library that follows the array API standard."""

    @property
    def device(self) -> Any: ...

    def __array_namespace__(self, **options: Any) -> Any: ...  # the library's functions


def is_tensor(X: Any) -> bool:
    """Whether `X` is a tensor and not a NumPy array.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.sources import is_tensor
    >>> is_tensor(np.zeros(3))
    False
    """
    return not isinstance(X, np.ndarray) and isinstance(X, Tensor)


def as_torch(X: Any) -> Any:
    """Return a tensor as one of PyTorch that shares its memory, or None if PyTorch cannot read that."""
    if is_torch(X):
        return X
    try:
        return import_torch().from_dlpack(X)
    except (AssertionError, BufferError, RuntimeError, TypeError, ValueError):  # the first without CUDA
        return None


def to_host(X: Any) -> Any:
    """Return a tensor as an array of NumPy, which shares its memory if that is the host's, and else is a copy.

    Sparse tensors of PyTorch become CSR arrays, and types with fewer bits than float32 become float32. Anything
    but a tensor is returned unchanged.

    Parameters
    ----------
    X : anything

    Examples
    --------
    >>> from gyrfalcon.sources.tensors import to_host
    >>> to_host([1.0, 2.0])
    [1.0, 2.0]
    """
    if not is_tensor(X):
        return X
    return _from_torch(X) if is_torch(X) else _from_dlpack(X)


def as_given(values: Any, X: Any) -> Any:
    """Return a NumPy array, or a PyTorch tensor on the device of `X`, as the kind of tensor that `X` is, on its device.

    An array is returned unchanged if it holds strings, which tensors cannot, or if the library of `X` does not follow
    the array API standard.
    """
    if is_torch(values):
        return values if is_torch(X) else _shared(values, X)
    if values.dtype.kind not in "biuf":
        return values
    if is_torch(X):
        return sys.modules["torch"].from_numpy(values).to(X.device)
    if not isinstance(X, _OfNamespace):
        return values
    return X.__array_namespace__().asarray(values, device=X.device)


def _shared(values: Any, X: Any) -> Any:
    """Return a PyTorch tensor as an array of the library of `X`, or of NumPy if that does not follow the standard."""
    return X.__array_namespace__().from_dlpack(values) if isinstance(X, _OfNamespace) else to_host(values)


def _from_torch(X: Any) -> NDArray[Any] | scipy.sparse.csr_array:
    torch = sys.modules["torch"]
    if X.requires_grad:
        raise ValueError(
            f"a tensor of shape {tuple(X.shape)} requires gradients, and none flow through this: give tensor.detach()"
        )
    if X.is_floating_point() and X.dtype.itemsize < 4:
        X = X.float()
    if X.layout == torch.strided:
        return np.asarray(X.cpu().resolve_conj().resolve_neg().numpy())
    if X.ndim != 2:
        raise ValueError(f"a sparse tensor has shape {tuple(X.shape)}: rows need two axes")
    X = X.cpu().to_sparse_csr()
    parts = (X.values().numpy(), X.col_indices().numpy(), X.crow_indices().numpy())
    return scipy.sparse.csr_array(parts, shape=tuple(X.shape))


def _from_dlpack(X: Tensor) -> NDArray[Any]:
    try:
        if int(X.__dlpack_device__()[0]) in _ON_HOST:
            return np.from_dlpack(X)
        return np.from_dlpack(X, device="cpu")  # type: ignore[call-arg,unused-ignore]
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{a(type(X).__name__)} of shape {tuple(X.shape)} and type {X.dtype} cannot be read by NumPy: convert it "
            f"to float32 or float64 in host memory ({error})"
        ) from error
