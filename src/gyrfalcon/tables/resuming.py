"""The checkpoint of a search: what it found, and the models that were fitted, for a fit that is started again."""

from __future__ import annotations

import json
import os
import reprlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from functools import reduce
from types import UnionType
from typing import Any

import numpy as np

from .._utils.checks import boolean, integer, not_negative, one_of
from ..storage.checkpoints import CheckpointError, Journal, as_checkpoint
from ..storage.models import Format, read_file, write_file
from ..storage.values import Decoder, Encoder, ModelFileError
from .families import GAUSSIAN, LAPLACIAN, LAPLACIAN_1, MATERN
from .learning import Learning
from .parts import Member
from .search import Candidate, Search
from .stored import check_candidate, check_judged, check_records

_FORMAT = Format("gyrfalcon-search", 1, "search")
# what `state_of` returns, and of which types
_STATE = {
    "beginning": dict,
    "random_state": dict,
    "used": int | float,
    "done": bool,
    "stopped": bool,
    "refined": bool,
    "records": list,
    "finalists": list,
    "members": list,
}
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
            decoder = Decoder(tensors)
            contents = decoder.value(node, 0)
            if decoder.unused:
                raise ModelFileError("it holds an array that belongs to nothing")
            identity, state = (_of_type(dict, contents, name) for name in ("identity", "state"))
            for name, kind in _STATE.items():
                _of_type(kind, state, name)
            not_negative()("used", state["used"])
            check_records(state["records"])
        except ValueError as error:
            raise CheckpointError(self.unfit(str(error))) from error
        self.identity = {str(name): str(value) for name, value in identity.items()}
        self.state = state

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
    try:
        if search is None:
            raise ValueError("it has a second search, and there is none")
        finalists = [_candidate(one, learning, search) for one in state["finalists"]]
        members = [_member(one, learning, finalists) for one in state["members"]]
        if not finalists or (state["done"] and not members):
            raise ValueError("it has no candidates, or no models of a fit that is done")
        judged = [member.judged for member in members if member.judged is not None]
        if judged and not len(reduce(np.intersect1d, judged)):
            raise ValueError("there is no row by which all its models can be judged")
    except ValueError as error:
        raise CheckpointError(journal.unfit(f"its contents do not fit each other ({error})")) from error
    search.candidates.extend(finalists)
    learning.members.extend(members)
    learning.records.extend(state["records"])
    learning.stopped = state["stopped"]
    learning.settings.random_state.set_state(journal.restored(state["random_state"]).get_state())
    learning.settings.clock.began = time.perf_counter() - state["used"]


def _candidate(values: dict[str, Any], learning: Learning, search: Search) -> Candidate:
    """Return a candidate whose values are checked against the search that is to have found it."""
    _has_names(values, {field.name for field in fields(Candidate)})
    _has_names(values["target"], {"name"})
    targets = {target.name: target for target in learning.problem.transforms}
    one_of(*_FAMILIES)("family", values["family"])
    one_of(*targets)("target", values["target"]["name"])
    known = {"family": _FAMILIES[values["family"]], "target": targets[values["target"]["name"]]}
    candidate = Candidate(**{field.name: (values | known)[field.name] for field in fields(Candidate)})
    check_candidate(candidate, search)
    return candidate


def _member(values: dict[str, Any], learning: Learning, finalists: list[Candidate]) -> Member:
    """Return a member whose model and predictions are checked against the table."""
    _has_names(values, {"model", "candidate", "few", "judged", "values", "seconds"})
    integer(0, len(finalists) - 1)("candidate", values["candidate"])
    boolean("few", values["few"])
    not_negative()("seconds", values["seconds"])
    candidate = finalists[values["candidate"]]
    problem, encoding = learning.problem, learning.encodings[candidate.view]
    problem.check_model(values["model"], encoding.X.shape[1])
    if type(values["model"].kernel_) is not type(candidate.kernel):
        raise ValueError(f"a model of {candidate.family.name} has the kernel {values['model'].kernel_!r}")
    check_judged(values["judged"], values["values"], problem.codes.shape)
    own = (values[name] for name in ("few", "judged", "values", "seconds"))
    return Member(encoding.encoder, values["model"], candidate, *own)


def _has_names(values: Any, names: set[str]) -> None:
    if not isinstance(values, dict) or not values.keys() >= names:
        raise ValueError(f"{reprlib.repr(values)} is no object with {', '.join(sorted(names))}")


def _of_type(kind: type | UnionType, values: Any, name: str) -> Any:
    value = values.get(name) if isinstance(values, dict) else None
    if not isinstance(value, kind):
        raise ModelFileError(f"its {name} is {reprlib.repr(value)}")
    return value
