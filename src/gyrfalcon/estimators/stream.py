"""Learn a stream: batches that an iterator yields, or rows that are added to files, with a checkpoint."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import integer
from ..callbacks import CallbackLike, CallbackList
from ..sources.files import Dataset
from ..storage.checkpoints import Checkpoint, CheckpointError
from ..storage.checkpoints.journal import as_checkpoint
from ..storage.describe import describe
from ..storage.models import load
from ._estimator import unchanged_on_failure
from ._learning_on import check_steps, learn_batch
from ._posterior import PosteriorRegressor

__all__ = ["learn_stream"]

Array = NDArray[Any]
Batch = tuple[Any, Any, Any]

_FILE = "stream.gyr"
_BATCH_SIZE = integer(1)
_DECISIVE = ("kernel", "n_centers", "centers", "penalty", "fit_intercept", "scale", "dtype")  # what a model is made by


def learn_stream(
    model: Any,
    batches: Any,
    *,
    batch_size: int = 10_000,
    forgetting_factor: float = 1.0,
    max_new_centers: int = 0,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
) -> Any:
    r"""Learn batches one after the other, or the rows that were added to files since the last call.

    Parameters
    ----------
    model : NystromRegressor or FalkonRegressor
        With ``incremental=True``. If the model is not fitted, it is fitted to the first batch, which determines the
        centers, the kernel, the penalty and the scales of the features, and should be representative.
    batches : iterable or Dataset
        Batches: tuples (X, y) or (X, y, sample_weight), with X and y as for `fit`. A `Dataset`, from
        ``gyrfalcon.open(path, target=...)``, stands for files that grow: rows are added to a file, or files to a
        folder, whose names sort after the earlier ones. Rows that the model has learnt by an earlier call, also one
        before it was saved, are left out. Open the files again for each call.
    batch_size : int, default=10000
        Rows of a `Dataset` that are learnt at a time.
    forgetting_factor : float, default=1.0
        Weights of all earlier rows are multiplied by this number before each batch.
    max_new_centers : int, default=0
        Largest number of rows of each batch that become centers, because the present ones do not represent them.
    checkpoint : str, path-like or Checkpoint, optional
        Folder in which the model is saved, every 30 seconds, or as often as a `Checkpoint` specifies, and at the end.
        If the process was killed, the same call continues from there: it skips the batches that were learned before.
    callbacks : callable, Callback or a list of these, optional
        Functions that are called with the record of each batch, except for the first batch of a model that is not
        fitted. `error_before` is the root mean squared error on the batch before it was learned. If a function returns
        True, no further batch is learned. See `callbacks.DriftMonitor`.

    Returns
    -------
    model
        The same object. Its attribute `stream_` contains the numbers of ``batches`` and ``rows`` that were learned by
        this function, and is stored in model files.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import gyrfalcon
    >>> from gyrfalcon import NystromRegressor, learn_stream
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "log.csv")
    ...     _ = path.write_text("x,y\n" + "\n".join(f"{i / 100},{i % 7}" for i in range(200)) + "\n")
    ...     model = NystromRegressor(n_centers=10, incremental=True, random_state=0)
    ...     model = learn_stream(model, gyrfalcon.open(path, target="y"))
    ...     with path.open("a") as file:  # later
    ...         _ = file.write("2.0,4\n2.1,1\n")
    ...     learn_stream(model, gyrfalcon.open(path, target="y")).stream_["rows"]
    202
    """
    _check_model(model)
    _BATCH_SIZE("batch_size", batch_size)
    check_steps(forgetting_factor, max_new_centers)
    kind = "files" if isinstance(batches, Dataset) else "batches"
    journal = _Journal(as_checkpoint(checkpoint), model)
    place = dict(vars(model).get("stream_", {}))
    if place.get("kind") != kind or (kind == "batches" and not journal.found):
        place = {"kind": kind, "batches": 0, "rows": 0, "first": "", "first_rows": 0}
    given = _of_files(batches, place, batch_size) if isinstance(batches, Dataset) else _of_iterable(batches, place)
    watchers = CallbackList(callbacks)
    try:
        with watchers.fitting(model, {}) as watching:
            for X, y, weight in given:
                with unchanged_on_failure(model):
                    is_first = not model._is_fitted
                    if is_first:
                        model.fit(X, y, weight)
                    else:
                        learn_batch(model, X, y, weight, forgetting_factor, max_new_centers)
                    place = model.stream_ = _after(place, y)
                is_stopped = not is_first and watching.on_iteration(model.history_[-1])
                journal.write()
                if is_stopped:
                    break
    finally:
        journal.write(at_once=True)
    return model


def _check_model(model: Any) -> None:
    """Raise an error for a model that cannot learn on."""
    if not isinstance(model, PosteriorRegressor) or "incremental" not in model.get_params(deep=False):
        raise TypeError(f"learn_stream needs a NystromRegressor or FalkonRegressor, not {model!r}")
    if not model._is_fitted and not model.get_params(deep=False)["incremental"]:
        raise ValueError(f"{type(model).__name__} has incremental=False, and would keep nothing to learn on: use True")


def _after(place: dict[str, Any], y: Any) -> dict[str, Any]:
    """Return the place in the stream after another batch."""
    n = len(y)
    begun = {} if place["batches"] else {"first": describe(np.asarray(y)), "first_rows": n}
    return {**place, **begun, "batches": place["batches"] + 1, "rows": place["rows"] + n}


def _of_iterable(batches: Any, place: dict[str, Any]) -> Iterator[Batch]:
    """Yield the batches after those that were learnt."""
    for number, batch in enumerate(batches):
        if not isinstance(batch, tuple) or len(batch) not in (2, 3):
            raise TypeError(
                f"batch {number} is {type(batch).__name__}: batches must be tuples (X, y) or (X, y, weight)"
            )
        if number == 0 and place["batches"]:
            _check_first(place, batch[1])
        if number >= place["batches"]:
            yield (*batch, None)[:3]


def _of_files(data: Dataset, place: dict[str, Any], size: int) -> Iterator[Batch]:
    """Yield the rows after those that were learnt, in batches."""
    y, weight = data.y, data.weight
    if y is None:
        raise ValueError("the files were opened without a target: use open(path, target=...)")
    if data.n_rows < place["rows"]:
        raise ValueError(
            f"the files have {data.n_rows} rows, and {place['rows']} were learnt from them: rows were removed. Use "
            "forget, or fit a new model"
        )
    if place["batches"]:
        _check_first(place, y[: place["first_rows"]])
    for start in range(place["rows"], data.n_rows, size):
        at = np.arange(start, min(start + size, data.n_rows))
        yield data.X.subset(at), y[at], None if weight is None else weight[at]


def _check_first(place: dict[str, Any], y: Any) -> None:
    """Raise ValueError if a stream does not begin with the targets with which it began before."""
    if describe(np.asarray(y)) != place["first"]:
        raise ValueError(
            "the stream does not begin with the targets that were learnt from it first: give the same stream, or use "
            "another checkpoint, or partial_fit, for another one"
        )


class _Journal:
    """The model in the folder of a checkpoint; the state that is found there is given to the model.

    Attributes
    ----------
    found : bool
        Whether there was a model.
    """

    def __init__(self, checkpoint: Checkpoint | None, model: Any) -> None:
        self.checkpoint, self.model, self.found, self.written = checkpoint, model, False, time.monotonic()
        self.saved = vars(model).get("stream_")
        if checkpoint is None:
            return
        os.makedirs(checkpoint.folder, exist_ok=True)
        self.path = os.path.join(os.fspath(checkpoint.folder), _FILE)
        if not os.path.exists(self.path):
            return
        stored, parameters = load(self.path), model.get_params(deep=False)
        before = stored.get_params(deep=False)
        names = [name for name in _DECISIVE if name in parameters]
        if type(stored) is not type(model) or any(describe(before[i]) != describe(parameters[i]) for i in names):
            raise CheckpointError(
                f"{self.path} has {stored!r}, and the model is {model!r}: use another folder, or delete this one"
            )
        vars(model).clear()
        vars(model).update({**vars(stored), **parameters})
        self.found, self.saved = True, model.stream_

    def write(self, at_once: bool = False) -> None:
        """Write the model if it has learnt more, and if that was not done recently."""
        if self.checkpoint is None or vars(self.model).get("stream_") is self.saved:
            return
        if at_once or time.monotonic() - self.written >= self.checkpoint.every:
            self.model.save(self.path)
            self.saved, self.written = self.model.stream_, time.monotonic()
