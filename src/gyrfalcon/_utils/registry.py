"""The classes that model files may hold, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Class = TypeVar("Class", bound=type)

_classes: dict[str, type] = {}
_import_all: Callable[[], None] | None = None  # before the first name that is not known


def register(cls: Class) -> Class:
    """Let model files hold instances of `cls`; use as a class decorator.

    A file refers to a class by its name alone, and `load` looks the name up among registered classes, so nothing is
    ever imported because a file says so. A class with a ``fit`` method is an estimator: its parameters and its public
    attributes ending in an underscore are kept. Any other class is a kernel: its parameters say everything.

    An estimator may define ``_check_loaded(self)``, called at the end of `load`; a ValueError there refuses the file.

    Parameters
    ----------
    cls : type
        A class with ``get_params(deep=False)``, whose constructor accepts what that returns as keyword arguments.

    Returns
    -------
    type
        `cls` itself.

    Examples
    --------
    >>> from sklearn.base import BaseEstimator
    >>> from gyrfalcon.storage import register
    >>> @register
    ... class MeanPredictor(BaseEstimator):
    ...     def fit(self, X, y):
    ...         self.mean_ = y.mean(axis=0)
    ...         return self
    """
    if not (isinstance(cls, type) and callable(getattr(cls, "get_params", None))):
        raise TypeError(f"register needs a class with get_params(deep=False), got {cls!r}")
    known = _classes.get(cls.__name__)
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(
            f"the name {cls.__name__!r} is already registered, by {known.__module__}.{known.__qualname__}: "
            "model files know classes by name, so rename one of the two"
        )
    _classes[cls.__name__] = cls
    return cls


def registered(name: str) -> type | None:
    """Return the class of that name, or None."""
    global _import_all
    if name not in _classes and _import_all is not None:
        _import_all()
        _import_all = None
    return _classes.get(name)


def set_import_all(import_all: Callable[[], None]) -> None:
    """Set the function that imports every module of the package that registers classes.

    The package imports its modules when they are used; a name in a model file may be of one that was not used yet.
    """
    global _import_all
    _import_all = import_all


def is_registered_estimator(cls: type) -> bool:
    """Whether model files may hold instances of `cls` with what they learnt."""
    return _classes.get(cls.__name__) is cls and is_estimator(cls)


def is_estimator(cls: type) -> bool:
    """Whether a class has a ``fit`` method."""
    return callable(getattr(cls, "fit", None))
