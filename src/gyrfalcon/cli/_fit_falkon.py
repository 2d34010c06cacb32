"""``gyrfalcon fit --method falkon``: one kernel model whose parameters are options, from rows read block by block."""

from __future__ import annotations

import argparse
import inspect
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from .._utils.memory import format_bytes
from .._utils.words import plural
from ..callbacks import Callback
from ..estimators import FalkonClassifier, FalkonRegressor
from ..losses import Softmax, as_loss
from ..losses.named import OF_LABELS, OF_NUMBERS, loss_name
from ..sources.files import Dataset
from ..storage.checkpoints import Checkpoint, peek
from ..tables.targets import in_form
from ._data import csv_format, open_data, where
from ._expressions import written
from ._fit_options import default_of
from ._metrics import in_words, measure
from ._shared import check_output, described, print_json, print_table, say, say_above, seconds, shows_progress, watched
from ._tasks import target_form, task_of
from .main import UsageError

Array = NDArray[Any]


def run(arguments: argparse.Namespace) -> int:
    """Fit a model, save it, print a report and return the exit code."""
    given = _given(arguments)
    columns = {"target": arguments.target, "features": arguments.features, "weight": arguments.weight}
    data = open_data(arguments.train, csv=csv_format(arguments), **columns)
    held = _open_validation(arguments, data)
    check_output(arguments.output, *data.files, *(held.files if held is not None else []))
    n, d = data.X.shape
    target = ", ".join(arguments.target)
    shape = f"{plural(n, 'row')} of {plural(d, 'feature')} ({data.X.dtype})"
    say(f"Reading {shape} from {where(arguments.train, data.files)} ...", arguments)
    y = data.y
    assert y is not None
    form = None if _is_of_labels(arguments.loss) else target_form(arguments, target, y)
    y = in_form(y, form, "the target")
    task = _task(arguments, target, y)
    _check_loss(arguments, task)
    model = _model(arguments, task, given)
    _check_target(arguments, task, target, y)
    began = time.perf_counter()
    if held is None:
        model.fit(data.X, y, data.weight)
    else:
        model.fit(data.X, y, data.weight, held.X, in_form(held.y, form, "the target"))
    took = time.perf_counter() - began
    vars(model).update(target_names_=np.array(arguments.target, dtype=object), target_form_=form)
    model.save(arguments.output)
    metrics = _measured(arguments, model, data, held)
    _report(arguments, model, task, n, took, metrics)
    return 0


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters of the estimator that depend on more than one option."""
    counts = [value for value in arguments.centers or [] if isinstance(value, int)]
    ways = [value for value in arguments.centers or [] if not isinstance(value, int)]
    counts += [] if arguments.n_centers is None else [arguments.n_centers]
    if len(set(counts)) > 1 or len(ways) > 1:
        raise UsageError(f"--centers: give one number and one name at most, not {', '.join(map(str, counts + ways))}")
    return {
        "kernel": _with_options(arguments),
        "n_centers": counts[0] if counts else None,
        "centers": ways[0] if ways else default_of("centers"),
        "checkpoint": _checkpoint(arguments),
        "callbacks": None if arguments.checkpoint is None else _ReportResume(arguments),
        "verbose": 2 if arguments.verbose else int(shows_progress(arguments)),
    }


class _ReportResume(Callback):
    """Print from which iteration a fit resumes, once the checkpoint is known to be of this fit."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.done = peek(arguments.checkpoint)  # before the fit, which writes a checkpoint in any case

    def on_fit_start(self, estimator: Any, info: Mapping[str, Any]) -> None:
        if self.done is not None:
            folder = self.arguments.checkpoint
            say_above(f"Going on from iteration {self.done}, with the checkpoint in {folder} ...", self.arguments)


def _checkpoint(arguments: argparse.Namespace) -> Checkpoint | None:
    if arguments.checkpoint is None:
        return None
    try:
        return Checkpoint(arguments.checkpoint, arguments.checkpoint_every)
    except (TypeError, ValueError) as error:
        raise UsageError(f"--checkpoint {arguments.checkpoint}: {error}") from error


def _with_options(arguments: argparse.Namespace) -> Any:
    """Return the kernel with the parameters that have options of their own."""
    given = {"length_scale": arguments.length_scale, "nu": arguments.nu, "degree": arguments.degree}
    options = {name: value for name, value in given.items() if value is not None}
    if not options:
        return arguments.kernel
    kernel = kernels.as_kernel(arguments.kernel)
    known = kernel.get_params(deep=False)
    for name, value in options.items():
        if name not in known:
            raise UsageError(
                f"--{name.replace('_', '-')}: {type(kernel).__name__} has no {name}, its parameters are: "
                f"{', '.join(known) or 'none'}"
            )
        kernel.set_params(**{name: value})
    return kernel


def _open_validation(arguments: argparse.Namespace, data: Dataset) -> Dataset | None:
    if arguments.validation is None:
        return None
    features = arguments.features if data.feature_names is None else data.feature_names
    held = open_data([arguments.validation], target=arguments.target, features=features, csv=csv_format(arguments))
    if held.X.shape[1] != data.X.shape[1]:
        raise ValueError(
            f"--validation {arguments.validation} gives {plural(held.X.shape[1], 'feature')}, and the training data "
            f"{data.X.shape[1]}: choose them with --features"
        )
    return held


def _task(arguments: argparse.Namespace, target: str, y: Array) -> str:
    """Return "regression" or "classification"."""
    if arguments.task != "auto":
        return str(arguments.task)
    name = _name(arguments.loss)
    if name != "squared":
        return "classification" if _is_of_labels(arguments.loss) else "regression"
    return task_of(arguments, target, y)


def _name(loss: Any) -> str:
    return loss_name(loss) or type(loss).__name__.lower()


def _is_of_labels(loss: Any) -> bool:
    return isinstance(as_loss(loss), (Softmax, *OF_LABELS.values()))


def _check_loss(arguments: argparse.Namespace, task: str) -> None:
    name = _name(arguments.loss)
    if task == "regression" and _is_of_labels(arguments.loss):
        raise UsageError(f"--loss {name} is for labels, and --task regression for numbers: leave out one of them")
    if task == "classification" and name in OF_NUMBERS and isinstance(arguments.loss, str):
        raise UsageError(f"--loss {name} is for numbers, and --task classification for labels: leave out one of them")


def _check_target(arguments: argparse.Namespace, task: str, target: str, y: Array) -> None:
    if task == "regression" and y.dtype.kind not in "fiub":
        name = _name(arguments.loss)
        which = "--task regression" if name == "squared" else f"--loss {name}"
        raise ValueError(f"the target {target!r} is text and not numbers: leave out {which} to learn labels")
    if task == "classification" and y.dtype.kind == "f" and not (y == np.round(y)).all():
        given = [f"--loss {_name(arguments.loss)}"] if _is_of_labels(arguments.loss) else []
        given += ["--task classification"] if arguments.task == "classification" else []
        raise ValueError(
            f"the target {target!r} contains numbers with fractions, which are not labels: leave out "
            f"{' and '.join(given)} to "
            "learn numbers"
        )


def _model(arguments: argparse.Namespace, task: str, given: dict[str, Any]) -> FalkonRegressor | FalkonClassifier:
    cls = FalkonClassifier if task == "classification" else FalkonRegressor
    known = inspect.signature(cls).parameters
    for name, other in (("quantiles", "regression"), ("class_weight", "classification")):
        if vars(arguments)[name] is not None and name not in known:
            raise UsageError(f"--{name.replace('_', '-')} is for {other}, and this is {task}: see --task")
    if task == "classification" and len(arguments.target) > 1:
        raise UsageError(f"--target: labels of one column can be learned at a time, not of {len(arguments.target)}")
    values = {name: value for name, value in (vars(arguments) | given).items() if name in known}
    return cls(**values)


def _measured(arguments: argparse.Namespace, model: Any, data: Dataset, held: Dataset | None) -> dict[str, Any]:
    """Return the metrics of the model, and the name of the rows they were computed on."""
    if held is None and (arguments.early_stopping or model.n_centers == "auto"):
        errors = [record["validation_error"] for record in model.history_]
        return {"on": "held out", "validation_error": min(errors) if arguments.early_stopping else errors[-1]}
    rows = data if held is None else held
    with watched(rows.X, "Measuring the error", arguments) as X:
        assert rows.y is not None
        on = "training" if held is None else "validation"
        y = in_form(rows.y, vars(model)["target_form_"], "the target")
        return {"on": on, **measure(model, X, y, rows.weight)}


def _report(arguments: argparse.Namespace, model: Any, task: str, n: int, took: float, metrics: dict[str, Any]) -> None:
    last = model.history_[-1]
    M, d = model.centers_.shape
    size = os.path.getsize(arguments.output)
    if arguments.json:
        print_json(
            {
                "model": arguments.output,
                "bytes": size,
                "class": type(model).__name__,
                "task": task,
                "target": arguments.target,
                "rows": n,
                "features": d,
                "n_centers": M,
                "kernel": described(model.kernel_),
                "penalty": model.penalty_,
                "dtype": model.centers_.dtype.name,
                "n_iter": model.n_iter_,
                "residual": last.get("residual"),
                "converged": last.get("converged"),
                "seconds": took,
                "metrics": metrics,
            }
        )
        return
    words = ", ".join(f"{name} {text}" for name, text in in_words(metrics))
    residual = f", residual {last['residual']:.1e}" if last.get("residual") is not None else ""
    print_table(
        [
            ("fitted", f"{type(model).__name__} of {', '.join(arguments.target)}"),
            ("rows", f"{n:,} of {plural(d, 'feature')}"),
            ("centers", f"{M:,}"),
            ("kernel", written(model.kernel_)),
            ("penalty", f"{model.penalty_:.3g}"),
            ("iterations", f"{model.n_iter_}{residual}"),
            ("time", seconds(took)),
            (f"on {metrics['on']} rows", words),
            ("written", f"{arguments.output} ({format_bytes(size)})"),
        ]
    )
