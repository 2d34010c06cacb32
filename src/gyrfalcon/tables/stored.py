"""Checks of the records, candidates and members in a file, before anything is computed from them."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._utils.checks import Rule, integer, not_negative, number, one_of, positive
from .._utils.words import a
from .search import Candidate, Search

_any_number = number(lambda x: True, "a number")
_LARGEST_METRIC = 1e3  # largest number in a metric: those of a search are at most about 1
_POSITIVE, _NOT_NEGATIVE = positive(), not_negative()


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name}={value!r} must be a string")


_RECORD: dict[str, Rule] = {
    "iteration": integer(1),
    "stage": _text,
    "encoding": _text,
    "kernel": _text,
    "target": _text,
    "round": integer(0),
    "metric": one_of("scales", "matrix"),
    "length_scale": _any_number,
    "penalty": _any_number,
    "error": _any_number,  # NaN if there are no rows to judge by
    "seconds": _NOT_NEGATIVE,
}


def check_list(name: str, value: Any, length: int | None = None) -> None:
    """Require a list, of a length if one is given."""
    if not isinstance(value, list) or length not in (None, len(value)):
        raise ValueError(f"{name} must be a list{'' if length is None else f' of length {length}'}")


def check_floats(name: str, value: Any, shape: tuple[int, ...]) -> None:
    """Require an array of finite numbers of a shape, in any precision."""
    if not (isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.shape == shape):
        raise ValueError(f"{name} must be an array of floating-point numbers of shape {shape}")
    if not np.isfinite(value).all():
        raise ValueError(f"{name} holds NaN or infinity")


def check_records(records: Any) -> None:
    """Require records of a search, to which callbacks may have added values."""
    check_list("records", records)
    for record in records:
        if not isinstance(record, dict):
            raise ValueError(f"{reprlib.repr(record)} is no record of a search, which is a dict")
        for name, rule in _RECORD.items():
            rule(f"the {name} of a record", record.get(name))


def check_model(fitted: Any, classes: tuple[type, ...], n_features: int, n_outputs: int) -> None:
    """Require a fitted model of one of the classes, for a number of features and of outputs."""
    if type(fitted) not in classes:
        raise ValueError(
            f"a model is {a(type(fitted).__name__)} and not {' or '.join(a(one.__name__) for one in classes)}"
        )
    check_is_fitted(fitted)
    if fitted.n_features_in_ != n_features or np.size(fitted.offset_) != n_outputs:
        raise ValueError(
            f"a model has {fitted.n_features_in_} features and {np.size(fitted.offset_)} outputs where there are "
            f"{n_features} and {n_outputs}"
        )


def check_candidate(candidate: Candidate, search: Search) -> None:
    """Require a candidate that this search may have tried, with arrays of the shapes of its sample."""
    integer(0, len(search.views) - 1)("view", candidate.view)
    integer(0)("round", candidate.round)
    for name in ("factor", "mu"):
        _POSITIVE(name, getattr(candidate, name))
    for name in ("error", "seconds"):
        _NOT_NEGATIVE(name, getattr(candidate, name))
    sample, d = search.sample, search.views[candidate.view].X.shape[1]
    shape = (d, d) if np.ndim(candidate.metric) == 2 else (d,)
    for name in ("metrics", "lengths", "coefs"):
        check_list(name, getattr(candidate, name), len(sample.splits))
    for metric in (candidate.metric, *candidate.metrics):
        check_floats("metric", metric, shape)
        if np.abs(metric).max() > _LARGEST_METRIC or (len(shape) == 1 and not (metric > 0).all()):
            raise ValueError(f"metric holds scales that are not positive, or numbers beyond {_LARGEST_METRIC:g}")
    for length in candidate.lengths:
        _POSITIVE("length", length)
    candidate.kernel.check_precision(np.float32)  # the precision of the final fits
    check_floats("predictions", candidate.predictions, sample.targets.shape)
    for coef, split in zip(candidate.coefs, sample.splits, strict=True):
        check_floats("coef", coef, (len(split.train), sample.targets.shape[1]))


def check_judged(judged: Any, values: Any, shape: tuple[int, int]) -> None:
    """Require the distinct rows that judge a member and its predictions of them, or neither."""
    if judged is None and values is None:
        return
    n, k = shape
    if not (isinstance(judged, np.ndarray) and judged.dtype.kind == "i" and judged.ndim == 1 and len(judged)):
        raise ValueError("judged must be None or an array of row numbers")
    if judged.min() < 0 or judged.max() >= n or len(np.unique(judged)) < len(judged):
        raise ValueError(f"judged must hold distinct row numbers from 0 to {n - 1}")
    check_floats("values", values, (len(judged), k))
