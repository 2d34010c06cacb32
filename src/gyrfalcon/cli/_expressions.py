"""Kernels and losses as text, such as ``matern(nu=2.5) + 0.1 * linear``: parsed as data, never run as code."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, cast

import numpy as np

from ..kernels import Constant, Product, Sum

_LONGEST = 1000


def read_object(text: str, names: Mapping[str, Callable[..., Any]], *, sums: bool = False) -> Any:
    """Build the object that a text describes: a name, or a name with constants in parentheses.

    Parameters
    ----------
    text : str
    names : mapping from str to class
        The classes that can be named.
    sums : bool
        Whether ``+`` and ``*`` may join objects, and numbers to objects.

    Raises
    ------
    ValueError
        If the text is anything else.

    Examples
    --------
    >>> from gyrfalcon.cli._expressions import read_object
    >>> from gyrfalcon.kernels import Gaussian, Linear
    >>> read_object("gaussian(length_scale=2) + linear", {"gaussian": Gaussian, "linear": Linear}, sums=True)
    Gaussian(length_scale=2) + Linear()
    """
    lower = [name for name in names if name.islower()] or list(names)  # the others are class names
    known = f"one of {', '.join(lower)}, with numbers in parentheses where wanted, such as name(parameter=2.5)"
    wrong = ValueError(f"{text!r} is not understood: it must be {known}")
    if len(text) > _LONGEST:
        raise ValueError(f"{text[:30]!r}... has {len(text)} characters, more than any description has")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise wrong from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) >= 2**1023:
            digits = len(str(abs(node.value)))
            raise ValueError(f"{text[:30]!r}... holds a number of {digits} digits: numbers must be less than 1e307")

    def build(node: ast.AST) -> Any:
        if isinstance(node, ast.Name):
            return make(node.id, [], {})
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if any(keyword.arg is None for keyword in node.keywords):  # **something
                raise wrong
            values = {str(keyword.arg): constant(keyword.value) for keyword in node.keywords}
            return make(node.func.id, [constant(argument) for argument in node.args], values)
        if sums and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
            left, right = build(node.left), build(node.right)
            return left + right if isinstance(node.op, ast.Add) else left * right
        if sums and isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return float(cast(float, node.value))  # a product of integers could be too large for a float
        raise wrong

    def make(name: str, values: list[Any], named: dict[str, Any]) -> Any:
        if name not in names:
            close = get_close_matches(name.lower(), lower, n=1)
            hint = f"did you mean {close[0]}? Use" if close else "use"
            raise ValueError(f"{name!r} is not known: {hint} {known}")
        try:
            return names[name](*values, **named)
        except TypeError as error:
            parameters = ", ".join(inspect.signature(names[name]).parameters) or "none"
            raise ValueError(f"{text!r}: the parameters of {name} are: {parameters}") from error

    def constant(node: ast.expr) -> Any:
        try:
            return ast.literal_eval(node)
        except ValueError as error:
            raise wrong from error

    result = build(tree)
    if isinstance(result, int | float):
        raise wrong
    return result


def written(value: Any) -> str:
    """Return a kernel or a loss as text that `read_object` reads, in one line.

    Examples
    --------
    >>> from gyrfalcon.cli._expressions import written
    >>> from gyrfalcon.kernels import Gaussian, Linear
    >>> written(Gaussian(2.0) * (0.5 + Linear()))
    'Gaussian(length_scale=2.0) * (0.5 + Linear())'
    """
    if isinstance(value, Sum):
        return f"{written(value.k1)} + {written(value.k2)}"
    if isinstance(value, Product):
        parts = (f"({written(k)})" if isinstance(k, Sum) else written(k) for k in (value.k1, value.k2))
        return " * ".join(parts)
    if isinstance(value, Constant):
        return repr(value.value)
    values = value.get_params(deep=False)
    named = (f"{name}={np.asarray(item).tolist()!r}" for name, item in values.items())
    return f"{type(value).__name__}({', '.join(named)})"
