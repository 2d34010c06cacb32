"""The precision of PyTorch's matrix products in float32: one setting for the process, and for all of its threads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .devices import import_torch
from .forks import PerProcess


class _Holders:
    """The threads that make products now; the first one saves the user's setting, and the last one restores it.

    changed : condition that is notified when a thread leaves
    threads : how many times each thread has entered, by its number
    alone : the thread that no other may join because it makes products in TF32, or None
    precision : "ieee" or "tf32", of the products that are made now
    saved : the user's setting, while there are threads
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()  # of a lock that its thread may take again: a signal's handler may fork
        self.threads: Counter[int] = Counter()
        self.alone: int | None = None
        self.precision = "ieee"
        self.saved: list[str] = []

    def may_join(self, thread: int, alone: bool) -> bool:
        """Return whether a thread may enter now."""
        return self.alone in (None, thread) and (not alone or set(self.threads) <= {thread})

    def leave(self) -> None:
        """Restore the setting in a forked child: the threads that hold it were not copied, and would never leave."""
        if self.threads:
            _restore(self.saved)


_holders = PerProcess(_Holders, lambda holders: holders.changed, _Holders.leave)


@contextmanager
def matmul_precision(tf32: bool = False) -> Iterator[None]:
    """Let matrix products in float32 keep all 24 bits, or 11 if `tf32`; restore the user's setting at the end.

    Several threads may be in the context at once, but one with `tf32` waits until it is alone and makes others wait,
    since its setting also applies to their products. It should only make the product in the context, and must not be in
    the context already: two such threads would wait for each other. To enter it again without `tf32` is cheap.
    """
    holders, thread = _holders.current, threading.get_ident()
    with holders.changed:
        holders.changed.wait_for(lambda: holders.may_join(thread, tf32))
        first = not holders.threads
        if first:
            holders.saved = _saved()
        holders.threads[thread] += 1
        before = holders.alone, holders.precision
        holders.alone, holders.precision = (thread, "tf32") if tf32 else (holders.alone, "ieee")
        if first or holders.precision != before[1]:
            _set(holders.precision)
    try:
        yield
    finally:
        with holders.changed:
            holders.threads[thread] -= 1
            holders.threads += Counter()  # drops those that are 0
            held = holders.precision
            holders.alone, holders.precision = before
            if not holders.threads:
                _restore(holders.saved)
            elif holders.precision != held:
                _set(holders.precision)
            holders.changed.notify_all()


# ---- PyTorch's settings ----------------------------------------------------------------------------------------------


def _by_backend() -> tuple[Any, ...]:
    """Return the settings that PyTorch has from 2.9 on, beside the older one for all backends."""
    torch = import_torch()
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 9):
        return ()
    return torch.backends.cuda.matmul, torch.backends.mkldnn.matmul


def _saved() -> list[str]:
    """Return the user's settings, the older one first, and leave them undefined."""
    saved = []
    for setting in _by_backend():
        precision = setting.fp32_precision
        # what is left is inherited, from torch.backends.fp32_precision, and has to follow it again afterwards
        setting.fp32_precision = "none"
        saved.append("none" if setting.fp32_precision == precision else precision)
    return [_older(), *saved]


def _older() -> str:
    """Return the older setting, which PyTorch refuses to tell where the newer ones differ from it: these are lost."""
    torch = import_torch()
    for precisions in (("ieee", "ieee"), ("tf32", "tf32"), ("tf32", "bf16")):
        for setting, precision in zip(_by_backend(), precisions, strict=False):
            setting.fp32_precision = precision
        try:
            return str(torch.get_float32_matmul_precision())
        except RuntimeError:
            continue
    return "highest"  # what PyTorch begins with


def _set(precision: str) -> None:
    """Set all of them: where they differ, PyTorch's matrix products on CUDA raise an error."""
    import_torch().set_float32_matmul_precision(_OLDER_NAMES[precision])
    for setting in _by_backend():
        setting.fp32_precision = precision


def _restore(saved: list[str]) -> None:
    older, *precisions = saved
    import_torch().set_float32_matmul_precision(older)
    for setting, precision in zip(_by_backend(), precisions, strict=True):
        setting.fp32_precision = precision


_OLDER_NAMES = {"ieee": "highest", "tf32": "high"}
