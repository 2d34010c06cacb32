"""Functions of NumPy's arrays and of PyTorch's tensors alike, where the two libraries have the same names."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special

from .copies import as_tensor, upload
from .devices import import_torch, is_torch


def library(x: Any) -> Any:
    """Return PyTorch for its tensors, and NumPy for everything else, for functions that both have."""
    return import_torch() if is_torch(x) else np


def special(x: Any) -> Any:
    """Return `torch.special` for tensors of PyTorch, and `scipy.special` for all else: for functions that both have."""
    return import_torch().special if is_torch(x) else scipy.special


def log_expit(x: Any) -> Any:
    """Compute the logarithm of the logistic function."""
    return import_torch().nn.functional.logsigmoid(x) if is_torch(x) else scipy.special.log_expit(x)


def sorted_rows(x: Any) -> Any:
    """Sort each row."""
    return x.sort(1).values if is_torch(x) else np.sort(x, axis=1)


def in_float64(x: Any) -> Any:
    """Convert to float64."""
    return x.double() if is_torch(x) else np.asarray(x, dtype=np.float64)


def beside(values: Any, x: Any) -> Any:
    """Return numbers for arithmetic with `x`, an array or a tensor: of its type and precision, and on its device."""
    if np.ndim(values) == 0:
        return float(values)
    if not is_torch(x):
        return np.asarray(values, dtype=x.dtype)
    return upload(as_tensor(np.asarray(values, dtype=np.float64)).to(x.dtype), x.device)
