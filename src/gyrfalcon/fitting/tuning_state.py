"""Checkpoints of tuning: the parameters after the last iteration, in a file that is replaced whole."""

from __future__ import annotations

import json
import os
import time
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.atomic import replacing
from ..kernels import Kernel
from ..storage.checkpoints import Checkpoint, CheckpointError
from .tuning import Tuned

Array = NDArray[Any]

_FILE = "tuning.npz"
_LARGEST = 700.0  # largest logarithm whose exponential is finite, rounded down


@dataclass(frozen=True)
class Place:
    """Where a search is: which kernel, which stage of it, and how many iterations of that stage are done."""

    kernel: int
    stage: int
    done: int


class TuningJournal:
    """What a search has found so far, in the folder of a checkpoint.

    Parameters
    ----------
    checkpoint : Checkpoint
    identity : dict of str
        What the result depends on, by name.
    """

    def __init__(self, checkpoint: Checkpoint, identity: dict[str, str]) -> None:
        self.path = os.path.join(os.fspath(checkpoint.folder), _FILE)
        self.every, self.identity, self.written = checkpoint.every, identity, -np.inf
        os.makedirs(checkpoint.folder, exist_ok=True)

    def write(self, tried: list[Tuned], place: Place, at_once: bool = False) -> None:
        """Write where the search is, unless that was just done.

        In the first stage `tried` has what was found for each kernel up to the one it is at; later, for the chosen one.
        """
        if not at_once and time.monotonic() - self.written < self.every:
            return
        arrays: dict[str, Any] = {
            "place": np.array(astuple(place), dtype=np.int64),
            "text": np.array(json.dumps({"identity": self.identity, "history": tried[-1].history})),
        }
        for i, tuned in enumerate(tried):
            arrays |= {
                f"logarithms{i}": tuned.logarithms(),
                f"centers{i}": tuned.centers,
                f"numbers{i}": np.array([tuned.value, tuned.steps]),
                **({} if tuned.moments is None else {f"moments{i}": tuned.moments}),
            }
        with replacing(self.path) as partial, open(partial, "wb") as file:
            np.savez(file, **arrays)
        self.written = time.monotonic()

    def read(self, kernels: list[Kernel], centers: Array) -> tuple[list[Tuned], Place] | None:
        """Return what was written before and its place; None if there is nothing."""
        if not os.path.exists(self.path):
            return None
        try:
            with np.load(self.path, allow_pickle=False) as stored:
                values = {name: stored[name] for name in stored.files}
            text = json.loads(str(values["text"]))
            identity, history = dict(text["identity"]), list(text["history"])
            place = Place(*(int(i) for i in values["place"]))
            differ = [name for name in {**identity, **self.identity} if identity.get(name) != self.identity.get(name)]
            if not differ:
                return _all_tuned(kernels, centers, values, place, history), place
        except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError) as error:
            raise CheckpointError(f"{self.path} is damaged ({error}): delete it to begin anew") from error
        raise CheckpointError(
            f"{self.path} is of another search: {', '.join(sorted(differ))} differ; use another folder, or delete this "
            "one"
        )


def _all_tuned(
    kernels: list[Kernel], centers: Array, values: dict[str, Array], place: Place, history: list[dict[str, Any]]
) -> list[Tuned]:
    """Return what was written for the kernels that a search was at."""
    if min(astuple(place)) < 0:
        raise ValueError(f"{place} has negative numbers")
    chosen = kernels[: place.kernel + 1] if place.stage == 0 else [kernels[place.kernel]]
    return [_tuned(kernel, centers, values, i, history) for i, kernel in enumerate(chosen)]


def _tuned(kernel: Kernel, centers: Array, values: dict[str, Array], i: int, history: list[dict[str, Any]]) -> Tuned:
    """Return the parameters that were written with a number."""
    logarithms, found, moments = values[f"logarithms{i}"], values[f"centers{i}"], values.get(f"moments{i}")
    value, steps = (float(number) for number in values[f"numbers{i}"])
    n_parameters = len(kernel.log_parameters(centers.shape[1]))
    if logarithms.shape != (n_parameters + 1,) or found.shape != centers.shape:
        raise ValueError("other shapes of parameters")
    mu = float(np.exp(logarithms[-1])) if abs(logarithms[-1]) < _LARGEST else np.nan
    if not (np.isfinite(logarithms).all() and np.isfinite(found).all() and 0 < mu < np.inf):
        raise ValueError("parameters that are not finite")
    if moments is not None and moments.shape != (2, n_parameters + 1 + centers.size):
        raise ValueError("other shapes of moments")
    tuned = kernel.with_log_parameters(logarithms[:-1], centers.shape[1])
    return Tuned(tuned, mu, found, value, history, moments, int(steps), found=logarithms)
