"""Choose the step size of gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from .._utils.ranges import check_kernel_scale
from ..kernels import Kernel
from ..operators.diagonal import kernel_diagonal
from ..sources import Rows

Array = NDArray[Any]


def safe_step(kernel: Kernel, rows: Rows, weight: Array | None = None) -> float:
    """Return the papers' step, 1 / max k(x, x), or 1 / max w k(x, x) with sample weights."""
    diagonal = kernel_diagonal(kernel, rows)
    largest = max(0.0, float((diagonal if weight is None else diagonal * weight).max(initial=0.0)))
    check_kernel_scale(largest, rows.dtype, kernel=kernel)
    return 1 / largest if largest > 0 else 1.0


def stable_step(
    step: Any,
    kernel: Kernel,
    rows: Rows,
    largest_eigenvalue: Callable[[], float],
    *,
    penalty: float = 0.0,
    longest: float = 2.0,
) -> Any:
    """Return `step`, or that of the papers if it is None, if gradient descent is stable with it.

    `penalty` is added to every eigenvalue, and steps are stable up to `longest` over the largest. The solver notices
    when the residual grows, but early stopping may end it sooner, with the result of a bad step.
    """
    safe = safe_step(kernel, rows)
    safe = safe / (1 + penalty * safe)
    if step is None or step == "auto":
        return step or safe
    if step > longest * safe and step * (largest := largest_eigenvalue() + penalty) > longest:
        raise FloatingPointError(
            f"gradient descent diverges with step={step:g}, where the largest stable step is about "
            f'{longest / largest:.3g}: choose a shorter one, None or "auto"'
        )
    return step
