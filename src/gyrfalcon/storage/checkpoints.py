"""A fit that survives being killed: its state on disk, and the proof that it is the state of the same fit.

A checkpoint is one file in a folder, in the format of model files (`gyrfalcon.storage.models`: arrays and JSON, nothing
that could run), and holds

    identity    whatever the result depends on, in words and digests: another fit is refused, and told what differs
    beginning   what was drawn or decided once: the random state, the centers, what is kept in memory
    progress    the solver's state, the history, the best solution so far, and at the end the solution

The file is replaced whole (`gyrfalcon._utils.atomic`), so that at any moment there is one state or the next. All that
is not in it is computed again from the same numbers by the same code, to the same bits.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import reprlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from numbers import Real
from typing import IO, Any, Self

import numpy as np
import scipy
import scipy.sparse
import threadpoolctl
from numpy.typing import NDArray

from .._utils.atomic import remove_leftovers, try_lock
from ..centers import Selection
from ..sources import Rows
from .describe import describe
from .models import Format, read_file, write_file
from .values import Decoder, Encoder, ModelFileError, package_version

__all__ = ["Checkpoint", "CheckpointError", "peek"]

Array = NDArray[Any]

_FORMAT = Format("gyrfalcon-checkpoint", 1, "checkpoint")
_FILE = "checkpoint.safetensors"
# what the start of a warm fit is called
WARM = "the coefficients to start from"
# Writing may take this share of the time.
_SHARE = 0.02
# Parameters that say how the work is done, or who is told about it, and not what the result is. The memory's use does
# matter to the last bits, and is kept in the beginning; for `max_iter` see `Journal.check`.
_FREE = ("callbacks", "verbose", "n_jobs", "memory_budget", "checkpoint", "warm_start", "max_iter")


_ONE_EACH = (
    "Fits must not share a folder: each of a search, of a cross-validation or of several clones is a fit of its own"
)


class CheckpointError(ValueError):
    """A checkpoint that cannot be gone on from: of another fit, in use by another process, or damaged."""


@dataclass(frozen=True)
class Checkpoint:
    """Where an estimator keeps the state of its fit, and how often; a value for the parameter ``checkpoint``.

    Parameters
    ----------
    folder : str or path-like
        For one fit: each has a folder of its own. It is made if it is not there; delete it to start afresh.
    every : float
        Seconds from one write to the next, at least. 0 is after each iteration. Otherwise writing never takes more than
        about 2% of the time, however slow the disk is.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from gyrfalcon import FalkonRegressor
    >>> from gyrfalcon.storage.checkpoints import Checkpoint
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(500, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = FalkonRegressor(n_centers=50, checkpoint=Checkpoint(folder, every=5)).fit(X, np.sin(X[:, 0]))
    ...     again = FalkonRegressor(n_centers=50, checkpoint=folder).fit(X, np.sin(X[:, 0]))
    >>> bool((again.coef_ == model.coef_).all())
    True
    """

    folder: str | os.PathLike[str]
    every: float = 30.0

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str | os.PathLike) or not os.fspath(self.folder):
            raise TypeError(f"folder={self.folder!r} must be the name of a folder")
        if isinstance(self.every, bool) or not isinstance(self.every, Real) or not 0 <= self.every < np.inf:
            raise ValueError(f"every={self.every!r} must be a finite number of seconds, not negative")


def as_checkpoint(value: Any) -> Checkpoint | None:
    """The parameter's value as a `Checkpoint`, or None."""
    if value is None or isinstance(value, Checkpoint):
        return value
    if isinstance(value, str | os.PathLike):
        return Checkpoint(value)
    raise TypeError(f"checkpoint={value!r} must be None, the name of a folder, or a Checkpoint")


def peek(folder: str | os.PathLike[str]) -> int | None:
    """How far the fit has come whose checkpoint is in a folder, whether or not it is running.

    Parameters
    ----------
    folder : str or path-like

    Returns
    -------
    int or None
        The iterations that are done: those a fit would go on from. 0 if it has only begun, None without a checkpoint.

    Raises
    ------
    CheckpointError
        If the checkpoint is damaged.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from gyrfalcon import FalkonRegressor
    >>> from gyrfalcon.storage.checkpoints import peek
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(500, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     before = peek(folder)
    ...     model = FalkonRegressor(n_centers=50, max_iter=7, tol=0, checkpoint=folder).fit(X, np.sin(X[:, 0]))
    ...     print(before, peek(folder))
    None 7
    """
    found = Journal(Checkpoint(folder))
    found.read()
    if found.beginning is None:
        return None
    return 0 if found.progress is None else int(found.progress.last["iteration"])


@dataclass
class Beginning:
    """What is drawn or decided once in a fit.

    Attributes
    ----------
    random_state : that of the generator before anything was drawn
    selection : the centers, and the sample weights there
    budget : bytes for keeping kernel matrices
    spare : bytes beside that, which decide whether KRILL's factors have room
    arithmetic : how products are made, see `KernelOperator.arithmetic`: others have other last bits
    factors : precision of the factors, which memory has a say in as well
    """

    random_state: dict[str, Any]
    selection: dict[str, Any]
    budget: int
    spare: int
    arithmetic: str
    factors: str


@dataclass
class Progress:
    """How far a fit has come.

    Attributes
    ----------
    state : the solver's, as `Iterate.state` gives it
    last : the numbers of the last iterate
    history : the records up to it
    best : the coefficients with the least validation error, where these are kept
    patience : the state of the rule that stops early, where there is one
    coef : the solution, once the fit has ended
    may_go_on : whether it ended only because of `max_iter`, or of a callback
    """

    state: dict[str, Any]
    last: dict[str, Any]
    history: list[dict[str, Any]]
    best: Array | None = None
    patience: dict[str, Any] | None = None
    coef: Array | None = None
    may_go_on: bool = False

    def is_over(self, max_iter: int) -> bool:
        """Whether there is nothing left to do for this number of iterations."""
        return self.coef is not None and not (self.may_go_on and max_iter > self.last["iteration"])


class Journal:
    """The checkpoint of one fit: read at its start, and written as it goes on.

    Parameters
    ----------
    checkpoint : Checkpoint

    Attributes
    ----------
    identity, beginning, progress
        What is in the file, as described above; None as far as there is nothing yet.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.folder = os.path.abspath(checkpoint.folder)  # wherever the process goes meanwhile
        self.path = os.path.join(self.folder, _FILE)
        self.every = checkpoint.every
        self.identity: dict[str, str] | None = None
        self.beginning: Beginning | None = None
        self.progress: Progress | None = None
        self.random_state: dict[str, Any] | None = None
        self._lock: IO[str] | None = None
        self._written, self._took = time.perf_counter(), 0.0

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
            self._lock.close()  # which also gives it up
            self._lock = None

    # ---- what a fit asks ---------------------------------------------------------------------------------------------

    def generator(self, given: np.random.RandomState) -> np.random.RandomState:
        """The generator to draw with: `given`, or one as it was when the fit that is resumed began."""
        if self.beginning is not None:
            again = np.random.RandomState()
            try:
                again.set_state(self.beginning.random_state)
            except (LookupError, TypeError, ValueError, ArithmeticError) as error:
                raise CheckpointError(self.unfit("its random state is none")) from error
            return again
        if self.random_state is None:
            self.random_state = dict(given.get_state(legacy=False))
        return given

    def check(self, identity: dict[str, str], max_iter: int) -> None:
        """Raise an error if the file is of another fit; `max_iter` may be any that is not yet exceeded."""
        if self.identity is not None:
            names = [*identity, *(name for name in self.identity if name not in identity)]
            pairs = [(name, self.identity.get(name, "nothing"), identity.get(name, "nothing")) for name in names]
            differences = [f"{name} was {was} and is {now}" for name, was, now in pairs if was != now]
            if self.progress is not None and self.progress.last["iteration"] > max_iter:
                done = self.progress.last["iteration"]
                differences.append(f"{done} iterations are done and max_iter is {max_iter}")
            if differences:
                why = "".join(_explained(name, was, now) for name, was, now in pairs if was != now)
                raise CheckpointError(
                    f"the checkpoint {self.path!r} belongs to another fit: {'; '.join(differences)}. {why}Make them "
                    f"agree to go on with it, choose another folder, or delete this one to start afresh. {_ONE_EACH}"
                )
        self.identity = identity

    def begin(self, beginning: Beginning) -> None:
        """Keep what was drawn and decided, from which a killed fit then begins again."""
        self.beginning = beginning
        self._write()

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        since = time.perf_counter() - self._written
        return self.every == 0 or since >= max(self.every, self._took / _SHARE)

    def keep(self, progress: Progress) -> None:
        """Replace what the file says of the progress."""
        self.progress = progress
        self._write()

    # ---- the file ----------------------------------------------------------------------------------------------------

    def _open_folder(self) -> None:
        """Make the folder, see that it can be written to, and that no other fit does so."""
        try:
            if os.path.isfile(self.folder):
                raise FileExistsError(errno.EEXIST, "it is a file and not a folder: choose another name")
            os.makedirs(self.folder, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
            lock = open(os.path.join(self.folder, "lock"), "a+", encoding="ascii")  # noqa: SIM115 (open for the fit)
        except OSError as error:
            error.filename = self.folder
            error.strerror = f"checkpoints cannot be written to this folder: {error.strerror}"
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
        """Take what is in the file, if there is one."""
        if not os.path.lexists(self.path):
            return
        try:
            node, tensors = read_file(self.path, _FORMAT)
            decoder = Decoder(tensors)
            contents = decoder.value(node, 0)
            if decoder.unused:
                raise ModelFileError("it holds an array that belongs to nothing")
            self.identity = {str(name): str(value) for name, value in _fields(contents, "identity").items()}
            self.beginning = _made(Beginning, _fields(contents, "beginning"))
            if self.beginning.factors not in ("float32", "float64"):
                raise ModelFileError(f"its factors are {reprlib.repr(self.beginning.factors)}")
            if contents.get("progress") is not None:
                self.progress = _made(Progress, _fields(contents, "progress"))
                self._check_progress(self.progress)
        except ModelFileError as error:
            raise CheckpointError(self.unfit(str(error))) from error

    def unfit(self, why: str) -> str:
        """What is said of a file that cannot be gone on from."""
        return f"cannot resume from {self.path!r}: {why}. Delete the folder to start afresh"

    def _check_progress(self, progress: Progress) -> None:
        """Raise an error unless numbers are where the fit looks for them; a solver's state is its own affair."""
        if type(progress.last.get("iteration")) is not int:
            raise ModelFileError("its last iteration has no number")
        for name in ("best", "coef"):
            if not (getattr(progress, name) is None or _is_floats(getattr(progress, name))):
                raise ModelFileError(f"its {name} is no array of numbers")
        if not (progress.patience is None or isinstance(progress.patience, dict)):
            raise ModelFileError(f"its patience is {reprlib.repr(progress.patience)}")
        for record in progress.history:
            if not (isinstance(record, dict) and isinstance(record.get("seconds"), Real)):
                raise ModelFileError(f"its history has a record {reprlib.repr(record)}")
        for values in (progress.last, progress.patience or {}):
            for name, value in values.items():
                if not (isinstance(value, Real) or _is_floats(value)):
                    raise ModelFileError(f"its {name} is {reprlib.repr(value)}")
        progress.last = _Known(progress.last)
        progress.patience = None if progress.patience is None else _Known(progress.patience)

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
            write_file(self.path, _FORMAT, text, encoder.tensors)
        except OSError as error:
            raise OSError(error.errno or errno.EIO, self._what_now(error), self.path) from error
        self._written = time.perf_counter()
        self._took = self._written - began

    def _what_now(self, error: OSError) -> str:
        reason = error.strerror or str(error)
        if not os.path.exists(self.path):
            return f"{reason}; there is no checkpoint yet"
        return f"{reason}; the checkpoint before it is whole, and running the fit again goes on from it"

    def _history(self) -> list[dict[str, Any]]:
        """The records, without what callbacks added that is not data."""
        assert self.progress is not None
        return [{name: value for name, value in record.items() if _is_data(value)} for record in self.progress.history]


@contextmanager
def journal(checkpoint: Any) -> Iterator[Journal | None]:
    """Around a fit: its journal, or None where no checkpoint is asked for."""
    wanted = as_checkpoint(checkpoint)
    if wanted is None:
        yield None
        return
    with Journal(wanted) as opened:
        yield opened


def _fields(contents: Any, name: str) -> dict[str, Any]:
    value = contents.get(name) if isinstance(contents, dict) else None
    if not isinstance(value, dict):
        raise ModelFileError(f"it lacks its {name}")
    return value


def _made(cls: Any, values: dict[str, Any]) -> Any:
    """A dataclass of these values, if they are of the right kinds as far as its fields are plain dicts and lists."""
    kinds: dict[str, Any] = {"dict[str, Any]": dict, "list[dict[str, Any]]": list, "int": int, "bool": bool, "str": str}
    for f in fields(cls):
        kind = kinds.get(str(f.type), object)
        if f.name not in values or not isinstance(values[f.name], kind):
            raise ModelFileError(f"its {f.name} is {reprlib.repr(values.get(f.name))}")
    return cls(**{f.name: values[f.name] for f in fields(cls)})


class _Known(dict[str, Any]):
    """Values of a file by name, where one that is missing is a fault of the file."""

    def __missing__(self, name: str) -> Any:
        raise CheckpointError(f"cannot resume: the checkpoint lacks {name!r}. Delete its folder to start afresh")


def _is_floats(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _is_data(value: Any) -> bool:
    try:
        Encoder("history").value(value, "history", 0)
    except TypeError:
        return False
    return True


# ---- centers ---------------------------------------------------------------------------------------------------------


def encode_selection(selection: Selection, weight: Array | None) -> dict[str, Any]:
    """Centers as data; those that are rows are known by their numbers."""
    points: Any = None if selection.indices is not None else selection.points
    if scipy.sparse.issparse(points):
        points = {"data": points.data, "indices": points.indices, "indptr": points.indptr, "shape": points.shape}
    return {
        "points": points,
        "indices": selection.indices,
        "D": selection.D,
        "n_draws": selection.n_draws,
        "sampled": selection.sampled,
        "weight": weight,
    }


def decode_selection(values: Mapping[str, Any], rows: Rows) -> tuple[Selection, Array | None]:
    """What `encode_selection` made, and the sample weights, if they can be those of centers for these rows."""
    names = ("indices", "D", "n_draws", "sampled", "weight")
    indices, D, n_draws, sampled, weight = (values.get(name) for name in names)
    points = _points(values.get("points"), indices, rows)
    arrays = all(array is None or (_is_floats(array) and array.shape == points.shape[:1]) for array in (D, weight))
    if not (arrays and isinstance(sampled, bool) and isinstance(n_draws, int | None)):
        raise CheckpointError(_DAMAGED)
    return Selection(points, indices, D, n_draws, sampled), weight


_DAMAGED = "the checkpoint's centers are not such of these rows: delete its folder to start afresh"


def _points(points: Any, indices: Any, rows: Rows) -> Any:
    n, d = rows.shape
    if indices is not None:
        whole = isinstance(indices, np.ndarray) and indices.dtype.kind == "i" and indices.ndim == 1
        if not (whole and len(indices) and 0 <= indices.min() <= indices.max() < n and points is None):
            raise CheckpointError(_DAMAGED)
        return rows.take(indices)
    if isinstance(points, dict) and isinstance(points.get("shape"), tuple):
        arrays = {name: array for name, array in points.items() if isinstance(array, np.ndarray)}
        node = {"__csr__": list(points["shape"]), **{name: {"__tensor__": name} for name in arrays}}
        try:
            points = Decoder(arrays).value(node, 0)  # which checks what compiled code will follow
        except ModelFileError as error:
            raise CheckpointError(_DAMAGED) from error
    elif not _is_floats(points):
        raise CheckpointError(_DAMAGED)
    if points.ndim != 2 or points.shape[0] == 0 or points.shape[1] != d or points.dtype.kind != "f":
        raise CheckpointError(_DAMAGED)
    return points


# ---- identity --------------------------------------------------------------------------------------------------------


def identify(estimator: Any, data: Mapping[str, Any]) -> dict[str, str]:
    """All that the result depends on, by name and in words.

    Parameters
    ----------
    estimator : estimator
    data : arrays, sources and whatever `describe` can put in words, by name
    """
    parameters = {}
    for name, value in estimator.get_params(deep=False).items():
        if name not in _FREE:
            try:
                parameters[name] = describe(value)
            except TypeError as error:
                raise CheckpointError(
                    f"{name}={reprlib.repr(value)} does not go with a checkpoint, which could not tell it from another "
                    f"one: {error}. Give a Python function or an object with get_params, or fit without checkpoint"
                ) from error
    return {
        "gyrfalcon": package_version(),
        "estimator": type(estimator).__name__,
        **parameters,
        **{name: describe(value) for name, value in data.items()},
        **_computer(),
    }


def _explained(name: str, was: str, now: str) -> str:
    """A sentence on a difference that may come as a surprise."""
    if name == WARM and now != "None":
        return (
            "With warm_start=True a fit begins with the coefficients of the one before, and so is another fit that "
            "needs another folder. "
        )
    if name == "X" and "last written" in was and "last written" in now:
        return "Files that are written again count as other files, even with the same contents: write them once. "
    return ""


def _computer() -> dict[str, str]:
    """What decides the last bits of a product or a factor."""
    try:
        from ..backends.native import instruction_set

        native = instruction_set()
    except ImportError:
        native = "none"
    libraries = [library for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
    # others that the process may have loaded are not used here
    own = [library for library in libraries if "numpy" in library["filepath"] or "scipy" in library["filepath"]]
    words = "{internal_api} {version} {architecture}"
    used = [words.format_map({"architecture": "", **library}) for library in own or libraries]
    return {
        "the machine": platform.machine(),
        "the instruction set": os.environ.get("GYRFALCON_BACKEND", "auto") + " " + native,
        "NumPy": np.__version__,
        "SciPy": scipy.__version__,
        "BLAS": ", ".join(sorted(used)),
    }
