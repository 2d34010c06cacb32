"""``gyrfalcon fit``, as it is by default: find a model of a table with nothing to choose."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import check_random_state

from .._utils.memory import format_bytes
from .._utils.words import plural, shown
from ..tables import AutoClassifier, AutoRegressor, TableEncoder
from ..tables.targets import in_form
from ._automatic import cross_validated, importances
from ._data import TableData, csv_format, read_data, where
from ._metrics import NAMES, in_words, measure
from ._shared import check_output, print_json, print_table, say, seconds, shows_progress
from ._tasks import target_form, task_of
from .main import UsageError

Array = NDArray[Any]

_LARGER = ": with --method falkon rows are read from files as they are needed"


def run(arguments: argparse.Namespace) -> int:
    """Find a model, save it, print a report and return the exit code."""
    if arguments.holdout is not None and arguments.validation is not None:
        raise UsageError("--holdout and --validation: choose one")
    columns = {"target": arguments.target, "features": arguments.features, "weight": arguments.weight}
    data = read_data(arguments.train, _LARGER, csv_format(arguments), **columns)
    chosen_by = _read_validation(arguments, data)
    check_output(arguments.output, *data.files, *(chosen_by.files if chosen_by is not None else []))
    target = ", ".join(arguments.target)
    shape = f"{plural(data.n_rows, 'row')} of {plural(data.n_features, 'column')}"
    say(f"Learning from {shape} in {where(arguments.train, data.files)} ...", arguments)
    form = None if data.has_categories else target_form(arguments, target, _known(data))
    data = replace(data, y=in_form(data.y, form, "the target"))
    if chosen_by is not None:
        chosen_by = replace(chosen_by, y=in_form(chosen_by.y, form, "the target"))
    task = _task(arguments, target, data)
    model = _model(arguments, task)
    train, held = _split(arguments, data, task)
    X_val, y_val = (None, None) if chosen_by is None else (chosen_by.X, chosen_by.y)
    began = time.perf_counter()
    model.fit(train.X, train.y, train.weight, X_val=X_val, y_val=y_val)
    took = time.perf_counter() - began
    vars(model).update(target_names_=np.array(arguments.target, dtype=object), target_form_=form)
    model.save(arguments.output)
    if held is not None:
        on, errors = "held out", _compared(arguments, model, task, train, held)
    elif chosen_by is not None:
        on, errors = "validation", {"model": measure(model, chosen_by.X, _known(chosen_by), chosen_by.weight)}
    else:
        on, errors = "cross-validation", {"model": _cross_validated(model, train)}
    _report(arguments, model, task, train, took, on, errors, held)
    return 0


def _known(data: TableData) -> Array:
    assert data.y is not None
    return data.y


def _read_validation(arguments: argparse.Namespace, data: TableData) -> TableData | None:
    if arguments.validation is None:
        return None
    named = arguments.features if isinstance(data.X, np.ndarray) else data.X.column_names
    return read_data([arguments.validation], _LARGER, csv_format(arguments), target=arguments.target, features=named)


def _task(arguments: argparse.Namespace, target: str, data: TableData) -> str:
    y = _known(data)
    task = task_of(arguments, target, y, data.has_categories) if arguments.task == "auto" else str(arguments.task)
    if task == "regression" and y.dtype.kind not in "fiub":
        raise ValueError(f"the target {target!r} is text and not numbers: leave out --task regression to learn labels")
    if task == "regression" and arguments.class_weight is not None:
        raise UsageError("--class-weight is for classification, and this is regression: see --task")
    if task == "classification":
        if len(arguments.target) > 1:
            raise UsageError(f"--target: labels of one column can be learned at a time, not of {len(arguments.target)}")
        if y.dtype.kind == "f" and not (y == np.round(y)).all():
            raise ValueError(
                f"the target {target!r} contains numbers with fractions, which are not labels: leave out --task "
                "classification "
                "to learn numbers"
            )
        different = len(np.unique(y))
        if different > max(2, len(y) // 2):
            raise ValueError(
                f"the target {target!r} has {different:,} different labels in {plural(len(y), 'row')}, such as "
                f"{shown(y[0])}: most would be seen once only. If they are numbers, write them without other characters"
            )
    return task


def _model(arguments: argparse.Namespace, task: str) -> AutoRegressor | AutoClassifier:
    options = {
        "time_budget": arguments.time_budget,
        "memory_budget": arguments.memory_budget,
        "n_jobs": arguments.n_jobs,
        "random_state": arguments.random_state,
        "verbose": 2 if arguments.verbose else int(shows_progress(arguments)),
    }
    if task == "classification":
        return AutoClassifier(class_weight=arguments.class_weight, **options)
    return AutoRegressor(**options)


# ---- errors on rows that were not learnt from ------------------------------------------------------------------------


def _split(arguments: argparse.Namespace, data: TableData, task: str) -> tuple[TableData, TableData | None]:
    """Return the rows to learn from, and those that are held out at random."""
    if arguments.holdout is None:
        return data, None
    count = round(arguments.holdout * data.n_rows)
    if not 1 <= count < data.n_rows - 1:
        raise UsageError(
            f"--holdout {arguments.holdout:g} of {plural(data.n_rows, 'row')} is {count}: too few are left"
        )
    order = check_random_state(arguments.random_state).permutation(data.n_rows)
    train, held = data.take(np.sort(order[count:])), data.take(np.sort(order[:count]))
    if task == "classification" and len(np.unique(_known(train))) < 2:
        raise ValueError("the rows that are not held out have one label only: use another --random-state")
    return train, held


def _compared(
    arguments: argparse.Namespace, model: Any, task: str, train: TableData, held: TableData
) -> dict[str, dict[str, Any]]:
    """Return the errors on held-out rows of the model, of a linear model on the same columns, and of a constant."""
    errors = {"model": measure(model, held.X, _known(held), held.weight)}
    say("Fitting a linear model to compare with ...", arguments)
    encoder = TableEncoder(random_state=0)
    classes = task == "classification"
    last = LogisticRegression(max_iter=1000) if classes else RidgeCV(np.logspace(-3, 5, 17))
    linear = make_pipeline(encoder, last)
    linear.fit(train.X, train.y, **{f"{type(last).__name__.lower()}__sample_weight": train.weight})
    errors["linear"] = measure(linear, held.X, _known(held), held.weight)
    constant = DummyClassifier(strategy="prior") if classes else DummyRegressor()
    constant.fit(np.zeros((train.n_rows, 1)), train.y, train.weight)
    errors["constant"] = measure(constant, np.zeros((held.n_rows, 1)), _known(held), held.weight)
    return errors


def _cross_validated(model: AutoRegressor | AutoClassifier, data: TableData) -> dict[str, Any]:
    """Return errors of predictions for rows that were held out in the folds of the search."""
    metrics = cross_validated(model)
    if isinstance(model, AutoClassifier) or _known(data).ndim > 1:
        return metrics
    deviation = float(np.mean(np.var(_known(data), axis=0)))
    return {**metrics, "r2": 1 - float(np.mean(model.residuals_**2)) / deviation}


# ---- the report ------------------------------------------------------------------------------------------------------


def _report(
    arguments: argparse.Namespace,
    model: AutoRegressor | AutoClassifier,
    task: str,
    train: TableData,
    took: float,
    on: str,
    errors: dict[str, dict[str, Any]],
    held: TableData | None,
) -> None:
    size = os.path.getsize(arguments.output)
    matters = importances(model)
    if arguments.json:
        print_json(
            {
                "model": arguments.output,
                "bytes": size,
                "class": type(model).__name__,
                "task": task,
                "target": arguments.target,
                "rows": train.n_rows,
                "held_out": 0 if held is None else held.n_rows,
                "features": train.n_features,
                "candidates": len(model.candidates_),
                "members": len(model.models_),
                "importances": dict(matters),
                "seconds": took,
                "on": on,
                "metrics": errors["model"],
                **{name: values for name, values in errors.items() if name != "model"},
            }
        )
        return
    most = ", ".join(f"{name} {share:.0%}" for name, share in matters[:5])
    used = "the best is used" if len(model.models_) == 1 else f"{len(model.models_)} of them averaged"
    lines = [
        ("fitted", f"{type(model).__name__} of {', '.join(arguments.target)}"),
        ("rows", f"{train.n_rows:,} of {plural(train.n_features, 'column')}"),
        ("tried", f"{plural(len(model.candidates_), 'model')}, {used}"),
        ("matters most", most),
        ("time", seconds(took)),
    ]
    if held is None:
        words = ", ".join(f"{name} {text}" for name, text in in_words(errors["model"]))
        lines.append(("in cross-validation" if on == "cross-validation" else f"on {on} rows", words))
    lines.append(("written", f"{arguments.output} ({format_bytes(size)})"))
    print_table(lines)
    if held is not None:
        print(f"\n{plural(held.n_rows, 'row')} held out:")
        _print_comparison(errors)


def _print_comparison(errors: dict[str, dict[str, Any]]) -> None:
    """Print a line of errors for each model."""
    words = {"model": "this model", "linear": "linear model", "constant": "a constant"}
    metrics = [name for name in NAMES if name in errors["model"]]
    print(" " * 14 + "".join(NAMES[name].rjust(12) for name in metrics))
    for which, values in errors.items():
        numbers = ["undefined" if values[name] is None else f"{values[name]:.5g}" for name in metrics]
        print(words[which].ljust(14) + "".join(text.rjust(12) for text in numbers))
