"""Checkpoints of tuning: the parameters after the last iteration, in a file that is replaced whole."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.atomic import replacing
from ..kernels import Kernel
from ..storage.checkpoints import Checkpoint, CheckpointError
from .tuning import Tuned

Array = NDArray[Any]

_FILE = "tuning.npz"


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

    def write(self, tuned: Tuned, place: tuple[int, int, int], at_once: bool = False) -> None:
        """Write parameters, and at which kernel, stage and iteration they were found, unless that was just done."""
        if not at_once and time.monotonic() - self.written < self.every:
            return
        d = tuned.centers.shape[1]
        arrays: dict[str, Any] = {
            "theta": tuned.kernel.log_parameters(d),
            "mu": np.array(tuned.mu),
            "centers": tuned.centers,
            "value": np.array(tuned.value),
            "place": np.array(place, dtype=np.int64),
            "text": np.array(json.dumps({"identity": self.identity, "history": tuned.history})),
            **({} if tuned.moments is None else {"moments": tuned.moments}),
        }
        with replacing(self.path) as partial, open(partial, "wb") as file:
            np.savez(file, **arrays)
        self.written = time.monotonic()

    def read(self, kernels: list[Kernel], centers: Array) -> tuple[Tuned, tuple[int, int, int]] | None:
        """Return what was written before and its place; None if there is nothing."""
        if not os.path.exists(self.path):
            return None
        try:
            with np.load(self.path, allow_pickle=False) as stored:
                values = {name: stored[name] for name in stored.files}
            text = json.loads(str(values["text"]))
            identity, history = dict(text["identity"]), list(text["history"])
            number, stage, done = (int(i) for i in values["place"])
            kernel = kernels[number]
            theta = kernel.log_parameters(centers.shape[1])
            moments = values.get("moments")
            mu = float(values["mu"])
            sound = (
                values["theta"].shape == theta.shape
                and values["centers"].shape == centers.shape
                and all(np.isfinite(values[name]).all() for name in ("theta", "centers", "mu"))
                and mu > 0
                and min(number, stage, done) >= 0
                and (moments is None or moments.shape == (2, len(theta) + 1 + centers.size))
            )
        except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError) as error:
            raise CheckpointError(f"{self.path} is damaged ({error}): delete it to begin anew") from error
        differ = [name for name in {**identity, **self.identity} if identity.get(name) != self.identity.get(name)]
        if differ:
            raise CheckpointError(
                f"{self.path} is of another search: {', '.join(sorted(differ))} differ; use another folder, or delete "
                "this one"
            )
        if not sound:
            raise CheckpointError(f"{self.path} is damaged: delete it to begin anew")
        tuned = Tuned(
            kernel.with_log_parameters(values["theta"], centers.shape[1]),
            mu,
            values["centers"],
            float(values["value"]),
            history,
            moments,
        )
        return tuned, (number, stage, done)
