"""The checkpoint file of one fit: read at its start, and replaced as the fit goes on."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Self

import numpy as np

from ..._utils.atomic import check_replaceable, remove_leftovers, try_lock
from ..._utils.generators import restored
from ..models import Format, read_file, write_file
from ..values import Decoder, Encoder, ModelFileError
from .identity import explain_difference
from .parameter import Checkpoint, CheckpointError
from .state import Beginning, Progress, read_beginning, read_progress
from .sums import KeptSums, Pace

FORMAT = Format("gyrfalcon-checkpoint", 1, "checkpoint")
_FILE = "checkpoint.safetensors"
_ONE_EACH = (
    "Fits must not share a folder: each fit of a search, of a cross-validation or of several clones needs its own"
)


def peek(folder: str | os.PathLike[str]) -> int | None:
    """Return the number of iterations from which the fit with a checkpoint in this folder would resume.

    The fit may still be running. The number is 0 if it has only begun, and None without a checkpoint. Raises
    CheckpointError if the checkpoint is damaged.
    """
    found = Journal(Checkpoint(folder))
    found.read()
    if found.beginning is None:
        return None
    return 0 if found.progress is None else int(found.progress.last["iteration"])


class Journal:
    """The checkpoint of one fit; a context manager that holds the folder for this fit alone.

    identity : what the result depends on, see `identify`; None before the first `check` if there is no file
    beginning : what was drawn or decided once; None before the first `begin` if there is no file
    progress : how far the fit has come; None before the first `keep` if the file has none
    random_state : the state of the generator passed to `generator`, for a fit that is not resumed
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.folder = os.path.abspath(checkpoint.folder)  # the working directory may change during the fit
        self.path = os.path.join(self.folder, _FILE)
        self.every = checkpoint.every
        self.identity: dict[str, str] | None = None
        self.beginning: Beginning | None = None
        self.progress: Progress | None = None
        self.random_state: dict[str, Any] | None = None
        self._lock: IO[str] | None = None
        self._pace = Pace(self.every)
        self._sums: KeptSums | None = None

    def __enter__(self) -> Self:
        self._open_folder()
        try:
            self.read()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            self._lock.close()  # which also releases it
            self._lock = None

    # ---- what a fit asks ---------------------------------------------------------------------------------------------

    def generator(self, given: np.random.RandomState) -> np.random.RandomState:
        """Return the generator to draw with: `given`, or one in the state in which the resumed fit began."""
        if self.beginning is not None:
            return self.restored(self.beginning.random_state)
        if self.random_state is None:
            self.random_state = dict(given.get_state(legacy=False))
        return given

    def restored(self, random_state: Any) -> np.random.RandomState:
        """Return a generator in a state that the file holds; raise an error if it is not a state."""
        try:
            return restored(random_state)
        except ValueError as error:
            raise CheckpointError(self.unfit(str(error))) from error

    def check(self, identity: dict[str, str], max_iter: int) -> None:
        """Raise an error if the file belongs to another fit; `max_iter` may differ, unless it is already exceeded."""
        if self.identity is not None:
            names = [*identity, *(name for name in self.identity if name not in identity)]
            pairs = [(name, self.identity.get(name, "nothing"), identity.get(name, "nothing")) for name in names]
            differences = [f"{name} was {was} and is {now}" for name, was, now in pairs if was != now]
            if self.progress is not None and self.progress.last["iteration"] > max_iter:
                done = self.progress.last["iteration"]
                differences.append(f"{done} iterations are done and max_iter is {max_iter}")
            if differences:
                why = "".join(explain_difference(name, was, now) for name, was, now in pairs if was != now)
                raise CheckpointError(
                    f"the checkpoint {self.path!r} belongs to another fit: {'; '.join(differences)}. {why}Make them "
                    f"agree to go on with it, choose another folder, or delete this one to start afresh. {_ONE_EACH}"
                )
        self.identity = identity

    def begin(self, beginning: Beginning) -> None:
        """Write what was drawn and decided, so that a killed fit starts again from it."""
        self.beginning = beginning
        self._write()

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return self.every == 0 or self._pace.due

    def keep(self, progress: Progress) -> None:
        """Write the progress in place of the one in the file."""
        self.progress = progress
        self._write()
        self.sums.clear()

    @property
    def sums(self) -> KeptSums:
        """Sums over rows since the last progress; `check` must have been called."""
        assert self.identity is not None
        if self._sums is None:
            self._sums = KeptSums(self.folder, self.identity, self.every)
        return self._sums

    def unfit(self, why: str) -> str:
        """Return the message about a file that cannot be resumed."""
        return f"cannot resume from {self.path!r}: {why}. Delete the folder to start afresh"

    # ---- the file ----------------------------------------------------------------------------------------------------

    def _open_folder(self) -> None:
        """Create and lock the folder; raise an error if it cannot be written to or another fit uses it."""
        try:
            if os.path.lexists(self.folder) and not os.path.isdir(self.folder):
                raise FileExistsError(errno.EEXIST, "it exists and is not a folder: choose another name")
            os.makedirs(self.folder, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
            lock_path = os.path.join(self.folder, "lock")
            check_replaceable(lock_path)
            lock = open(lock_path, "a+", encoding="ascii")  # noqa: SIM115 (open for the fit)
        except OSError as error:
            error.strerror = f"checkpoints cannot be written to this folder: {error.strerror or error}"
            error.filename = self.folder
            raise
        self._lock = lock
        if try_lock(lock.fileno()) is False:
            lock.seek(0)
            process = lock.read(20).strip() or "unknown"
            self.__exit__()
            raise CheckpointError(
                f"the checkpoint folder {self.folder!r} is in use by process {process}: wait for its end, or choose "
                f"another folder. {_ONE_EACH}"
            )
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        remove_leftovers(self.path)

    def read(self) -> None:
        """Read the file, if there is one."""
        if not os.path.lexists(self.path):
            return
        try:
            node, tensors = read_file(self.path, FORMAT)
            decoder = Decoder(tensors)
            contents = decoder.value(node, 0)
            if decoder.unused:
                raise ModelFileError("it holds an array that belongs to nothing")
            identity = _part(contents, "identity")
            self.identity = {str(name): str(value) for name, value in identity.items()}
            self.beginning = read_beginning(_part(contents, "beginning"))
            if contents.get("progress") is not None:
                self.progress = read_progress(_part(contents, "progress"))
        except ModelFileError as error:
            raise CheckpointError(self.unfit(str(error))) from error

    def _write(self) -> None:
        began = time.perf_counter()
        encoder = Encoder("the checkpoint")
        contents = {
            "identity": self.identity,
            "beginning": vars(self.beginning),
            "progress": None if self.progress is None else vars(self.progress) | {"history": self._history()},
        }
        text = json.dumps(encoder.value(contents, "checkpoint", 0), allow_nan=False, separators=(",", ":"))
        try:
            write_file(self.path, FORMAT, text, encoder.tensors)
        except OSError as error:
            raise OSError(error.errno or errno.EIO, self._explain_failure(error), self.path) from error
        self._pace.wrote(began)

    def _explain_failure(self, error: OSError) -> str:
        reason = error.strerror or str(error)
        if not os.path.exists(self.path):
            return f"{reason}; there is no checkpoint yet"
        return f"{reason}; the previous checkpoint is intact, and running the fit again resumes from it"

    def _history(self) -> list[dict[str, Any]]:
        """Return the records without values of callbacks that are not data."""
        assert self.progress is not None
        return [{name: value for name, value in record.items() if _is_data(value)} for record in self.progress.history]


@contextmanager
def journal(checkpoint: Any) -> Iterator[Journal | None]:
    """Open the journal for the parameter ``checkpoint``, or yield None if the parameter is None."""
    wanted = as_checkpoint(checkpoint)
    if wanted is None:
        yield None
        return
    with Journal(wanted) as opened:
        yield opened


def as_checkpoint(value: Any) -> Checkpoint | None:
    """Return the parameter's value as a `Checkpoint`, or None."""
    if value is None or isinstance(value, Checkpoint):
        return value
    if isinstance(value, str | os.PathLike):
        return Checkpoint(value)
    raise TypeError(f"checkpoint={value!r} must be None, the name of a folder, or a Checkpoint")


def _part(contents: Any, name: str) -> dict[str, Any]:
    value = contents.get(name) if isinstance(contents, dict) else None
    if not isinstance(value, dict):
        raise ModelFileError(f"it lacks its {name}")
    return value


def _is_data(value: Any) -> bool:
    try:
        Encoder("history").value(value, "history", 0)
    except TypeError:
        return False
    return True
