"""The classes that model files may hold, by name."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import TypeVar

Class = TypeVar("Class", bound=type)

_classes: dict[str, type] = {}


def register(cls: Class) -> Class:
    """Let model files hold instances of `cls`; use as a class decorator.

    A file refers to a class by its name alone, and `load` looks the name up among registered classes, so nothing is
    ever imported because a file says so. A class with a ``fit`` method is an estimator: its parameters and its public
    attributes ending in an underscore are kept. Any other class is a kernel: its parameters say everything.

    A package that is installed can name a module under the entry point group ``gyrfalcon.classes``: it is imported, so
    that its classes are registered, before a file is refused for a name that is not known.

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
    """Return the class of that name, or None; modules that register classes are imported before the first None."""
    if name not in _classes:
        _import_all()
    return _classes.get(name)


@cache
def _import_all() -> None:
    """Import what installed packages, this one included, declare to register classes (see ``pyproject.toml``)."""
    for entry in entry_points(group="gyrfalcon.classes"):
        entry.load()


def is_registered_estimator(cls: type) -> bool:
    """Whether model files may hold instances of `cls` with what they learnt."""
    return _classes.get(cls.__name__) is cls and is_estimator(cls)


def is_estimator(cls: type) -> bool:
    """Whether a class has a ``fit`` method."""
    return callable(getattr(cls, "fit", None))
