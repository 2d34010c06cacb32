"""Compute: what a fit computes with, made once by the estimator and handed down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .devices import check_precision, resolve_devices
from .threads import effective_n_jobs

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Compute:
    """The resources to compute with, as given by the user.

    n_jobs : number of threads, see `effective_n_jobs`
    memory_budget : bytes that the fit may take, see `parse_memory`
    device : None for the processor, or one or several devices of PyTorch
    precision : None, or "tf32" for products on devices
    """

    n_jobs: int | None = None
    memory_budget: int | float | str = "auto"
    device: Any = None
    precision: str | None = None

    def __post_init__(self) -> None:
        check_precision(self.precision, self.device)

    @property
    def n_threads(self) -> int:
        """Number of threads."""
        return effective_n_jobs(self.n_jobs)

    @property
    def devices(self) -> tuple[torch.device, ...] | None:
        """The devices, or None for the processor."""
        return resolve_devices(self.device)
