"""Show on the page of a class the parameters with which it is made.

Estimators and kernels define `__new__(cls, *args, **named)`, which names the right parameter in the error for an
unknown one. Sphinx takes its signature for that of the class, unlike `inspect.signature`, `help` and editors.
"""

from __future__ import annotations

import inspect
from typing import Any


def of_class(cls: type[Any]) -> str:
    """Return the parameters of a class as text; nothing for a class whose constructor is not a function of its own.

    >>> class Model:
    ...     def __new__(cls, *args, **named):
    ...         return super().__new__(cls)
    ...
    ...     def __init__(self, n_centers: int = 10, *, kernel: str = "gaussian") -> None: ...
    >>> of_class(Model)
    "(n_centers=10, *, kernel='gaussian')"
    """
    found = inspect.signature(cls)
    parameters = [one.replace(annotation=inspect.Parameter.empty) for one in found.parameters.values()]
    if {one.kind for one in parameters} <= {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        return ""
    return str(found.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def on_signature(
    app: object, what: str, name: str, thing: Any, options: object, shown: str | None, returned: str | None
) -> tuple[str, None] | None:
    """Replace what Sphinx found where it is the signature of `__new__`."""
    return (of_class(thing), None) if what == "class" and shown and shown.startswith("(*args, **") else None
