"""The checkpoint of a search: the progress of a run in a file, from which a fit that is started again continues."""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import reduce
from types import UnionType
from typing import Any

import numpy as np

from .._utils.checks import boolean, integer, not_negative, one_of
from ..storage.checkpoints import CheckpointError, Journal, as_checkpoint
from ..storage.models import Format, read_file, write_file
from ..storage.values import Decoder, Encoder, ModelFileError
from .encoded_tables import EncodedTable
from .finding import Found, Searches
from .learning import LearningProgress
from .members import Member
from .plain_candidates import SETTINGS, PlainCandidate
from .scored import ScoreModel
from .search import GAUSSIAN, LAPLACIAN, LAPLACIAN_1, MATERN, Candidate, Search
from .stored import check_candidate, check_judged, check_records
from .training import TrainingData

_FORMAT = Format("gyrfalcon-search", 1, "search")
# What a file holds of a `LearningProgress`, and its types
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

    `state` is the contents of the file, checked as far as that is possible without the table; None without a file.
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

    def write(self, progress: LearningProgress) -> None:
        """Replace the file."""
        encoder = Encoder("the checkpoint")
        contents = {"identity": self.identity, "state": _state_of(progress)}
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


def _state_of(progress: LearningProgress) -> dict[str, Any]:
    """Return a progress as values that a file can hold."""
    finalists = progress.found.finalists
    places = {id(candidate): place for place, candidate in enumerate(finalists)}
    return {
        "beginning": progress.beginning,
        "random_state": progress.random_state,
        "used": progress.used,
        "done": progress.done,
        "stopped": progress.stopped,
        "refined": progress.found.refined,
        "records": progress.records,
        "finalists": [
            {**vars(candidate), "family": candidate.family.name, "target": {"name": candidate.target.name}}
            for candidate in finalists
        ],
        "members": [
            {
                "model": member.model,
                "candidate": places.get(id(member.candidate), -1),
                "plain": _plain_names(member),
                "few": member.few,
                "judged": member.judged,
                "values": member.values,
                "seconds": member.seconds,
            }
            for member in progress.members
        ],
    }


def restore(
    journal: SearchJournal, data: TrainingData, encodings: tuple[EncodedTable, ...], searches: Searches
) -> LearningProgress:
    """Return the progress in a file, checked against the table of this run."""
    state = journal.state
    assert state is not None
    search = searches.second if state["refined"] else searches.first
    try:
        if search is None:
            raise ValueError("it has a second search, and there is none")
        finalists = tuple(_candidate(one, data, search) for one in state["finalists"])
        members = tuple(_member(one, data, encodings, finalists) for one in state["members"])
        if not finalists or (state["done"] and not members):
            raise ValueError("it has no candidates, or no models of a fit that is done")
        judged = [member.judged for member in members if member.judged is not None]
        if judged and not len(reduce(np.intersect1d, judged)):
            raise ValueError("there is no row by which all its models can be judged")
    except ValueError as error:
        raise CheckpointError(journal.unfit(f"its contents do not fit each other ({error})")) from error
    return LearningProgress(
        state["beginning"],
        dict(journal.restored(state["random_state"]).get_state(legacy=False)),
        state["used"],
        state["done"],
        state["stopped"],
        state["records"],
        Found(finalists, search.sample, state["refined"], searches.rows, search.views),
        members,
    )


def _candidate(values: dict[str, Any], data: TrainingData, search: Search) -> Candidate:
    """Return a candidate whose values are checked against the search that is said to have found it."""
    _has_names(values, {field.name for field in fields(Candidate)})
    _has_names(values["target"], {"name"})
    targets = {target.name: target for target in data.problem.targets}
    one_of(*_FAMILIES)("family", values["family"])
    one_of(*targets)("target", values["target"]["name"])
    known = {"family": _FAMILIES[values["family"]], "target": targets[values["target"]["name"]]}
    candidate = Candidate(**{field.name: (values | known)[field.name] for field in fields(Candidate)})
    check_candidate(candidate, search)
    return candidate


def _member(
    values: dict[str, Any], data: TrainingData, encodings: tuple[EncodedTable, ...], finalists: tuple[Candidate, ...]
) -> Member:
    """Return a member whose model and predictions are checked against the table."""
    _has_names(values, {"model", "candidate", "few", "judged", "values", "seconds"})
    plain = isinstance(values["model"], ScoreModel)
    integer(-1 if plain else 0, -1 if plain else len(finalists) - 1)("candidate", values["candidate"])
    boolean("few", values["few"])
    not_negative()("seconds", values["seconds"])
    candidate = _plain_candidate(values, data) if plain else finalists[values["candidate"]]
    encoding = encodings[candidate.view]
    data.problem.check_fitted(values["model"], encoding.X.shape[1])
    if isinstance(candidate, Candidate) and type(values["model"].kernel_) is not type(candidate.kernel):
        raise ValueError(f"a model of {candidate.family.name} has the kernel {values['model'].kernel_!r}")
    check_judged(values["judged"], values["values"], data.problem.codes.shape)
    own = (values[name] for name in ("few", "judged", "values", "seconds"))
    return Member(encoding, values["model"], candidate, *own)


def _plain_names(member: Member) -> list[str]:
    """Return the names of the settings and of the target of a model without a kernel; none for kernel models."""
    return list(member.candidate.key) if isinstance(member.candidate, PlainCandidate) else []


def _plain_candidate(values: dict[str, Any], data: TrainingData) -> PlainCandidate:
    """Return the candidate of a model without a kernel by its names."""
    targets = {target.name: target for target in data.problem.targets}
    names = values.get("plain")
    if not isinstance(names, list) or len(names) != 2:
        raise ValueError(f"plain={reprlib.repr(names)} must be the names of settings and of a target")
    one_of(*SETTINGS)("settings", names[0])
    one_of(*targets)("target", names[1])
    return PlainCandidate(0, targets[names[1]], SETTINGS[names[0]])


def _has_names(values: Any, names: set[str]) -> None:
    if not isinstance(values, dict) or not values.keys() >= names:
        raise ValueError(f"{reprlib.repr(values)} is no object with {', '.join(sorted(names))}")


def _of_type(kind: type | UnionType, values: Any, name: str) -> Any:
    value = values.get(name) if isinstance(values, dict) else None
    if not isinstance(value, kind):
        raise ModelFileError(f"its {name} is {reprlib.repr(value)}")
    return value
