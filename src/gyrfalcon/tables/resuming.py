"""The checkpoint of a search: what it found, and the models that were fitted, for a fit that is started again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from ..storage.checkpoints import CheckpointError, Journal, as_checkpoint
from ..storage.models import Format, read_file, write_file
from ..storage.values import Decoder, Encoder, ModelFileError
from .families import GAUSSIAN, LAPLACIAN, LAPLACIAN_1, MATERN
from .learning import Learning
from .parts import Member
from .search import Candidate

_FORMAT = Format("gyrfalcon-search", 1, "search")
_FAMILIES = {family.name: family for family in (LAPLACIAN_1, MATERN, LAPLACIAN, GAUSSIAN)}


class SearchJournal(Journal):
    """The checkpoint file of one search, with the locks and the identity of any checkpoint.

    Attributes
    ----------
    state : dict or None
        What `state_of` gave when the file was written; None without a file.
    """

    state: dict[str, Any] | None = None

    def read(self) -> None:
        if not os.path.lexists(self.path):
            return
        try:
            node, tensors = read_file(self.path, _FORMAT)
            contents = Decoder(tensors).value(node, 0)
            self.identity = {str(name): str(value) for name, value in contents["identity"].items()}
            self.state = dict(contents["state"])
        except (ModelFileError, LookupError, AttributeError, TypeError, ValueError) as error:
            raise CheckpointError(self.unfit(str(error))) from error

    def write(self, state: dict[str, Any]) -> None:
        """Replace the file."""
        self.state = state
        encoder = Encoder("the checkpoint")
        contents = {"identity": self.identity, "state": state}
        text = json.dumps(encoder.value(contents, "checkpoint", 0), allow_nan=False, separators=(",", ":"))
        write_file(self.path, _FORMAT, text, encoder.tensors)


@contextmanager
def search_journal(checkpoint: Any) -> Iterator[SearchJournal | None]:
    """Open the journal that the parameter ``checkpoint`` asks for; None where it asks for none."""
    wanted = as_checkpoint(checkpoint)
    if wanted is None:
        yield None
        return
    with SearchJournal(wanted) as opened:
        yield opened


def state_of(learning: Learning, beginning: dict[str, Any], done: bool) -> dict[str, Any]:
    """Return what a fit that is started again needs to know."""
    finalists = learning.found.finalists
    places = {id(candidate): place for place, candidate in enumerate(finalists)}
    return {
        "beginning": beginning,
        "random_state": dict(learning.settings.random_state.get_state(legacy=False)),
        "used": learning.settings.clock.used,
        "done": done,
        "stopped": learning.stopped,
        "refined": learning.found is learning.refiner,
        "records": learning.records,
        "finalists": [
            {**vars(candidate), "family": candidate.family.name, "target": asdict(candidate.target)}
            for candidate in finalists
        ],
        "members": [
            {
                "model": member.model,
                "candidate": places[id(member.candidate)],
                "few": member.few,
                "judged": member.judged,
                "values": member.values,
                "seconds": member.seconds,
            }
            for member in learning.members
        ],
    }


def restore(learning: Learning, state: dict[str, Any], journal: SearchJournal) -> None:
    """Set what was found before, once the table is encoded."""
    search = learning.refiner if state["refined"] else learning.finder
    targets = {target.name: target for target in learning.problem.transforms}
    try:
        finalists = [
            Candidate(**{**one, "family": _FAMILIES[one["family"]], "target": targets[one["target"]["name"]]})
            for one in state["finalists"]
        ]
        if search is None:
            raise ValueError("it has a second search, and there is none")
        search.candidates.extend(finalists)
        learning.records.extend(state["records"])
        learning.stopped = bool(state["stopped"])
        for one in state["members"]:
            candidate = finalists[one["candidate"]]
            encoder = learning.encodings[candidate.view].encoder
            own = (one[name] for name in ("few", "judged", "values", "seconds"))
            learning.members.append(Member(encoder, one["model"], candidate, *own))
        learning.settings.random_state.set_state(state["random_state"])
        learning.settings.clock.began = time.perf_counter() - state["used"]
    except (LookupError, TypeError, ValueError) as error:
        raise CheckpointError(journal.unfit(f"its contents do not fit each other ({error})")) from error


def generator(state: dict[str, Any]) -> np.random.RandomState:
    """Return a generator in the state in which the fit began."""
    again = np.random.RandomState()
    again.set_state(state["beginning"])
    return again
