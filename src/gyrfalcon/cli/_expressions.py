"""Kernels and losses as text, such as ``matern(nu=2.5) + 0.1 * linear``: parsed as data, never run as code."""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from .._utils.words import similar
from ..kernels import Constant, Product, Sum

_LONGEST = 1000  # most characters of a description
_JOINS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {ast.Add: operator.add, ast.Mult: operator.mul}


def read_object(text: str, names: Mapping[str, Callable[..., Any]], *, sums: bool = False) -> Any:
    """Build the object that a text describes: a name of `names`, or a name with constants in parentheses.

    With `sums`, ``+`` and ``*`` may join objects, and numbers to objects. Any other text raises ValueError.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"{text[:30]!r}... has {len(text)} characters, more than any description has")
    builder = _Builder(text, names, sums)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise builder.wrong from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) >= 2**1023:
            digits = len(str(abs(node.value)))
            raise ValueError(f"{text[:30]!r}... holds a number of {digits} digits: numbers must be less than 1e307")
    result = builder.visit(tree)
    if isinstance(result, int | float):
        raise builder.wrong
    return result


class _Builder(ast.NodeVisitor):
    """Builds the object that a syntax tree describes; a node without a method here is refused."""

    def __init__(self, text: str, names: Mapping[str, Callable[..., Any]], sums: bool) -> None:
        self.text, self.names, self.sums = text, names, sums
        self.lower = [name for name in names if name.islower()] or list(names)  # the others are class names
        self.known = (
            f"one of {', '.join(self.lower)}, with numbers in parentheses where wanted, such as name(parameter=2.5)"
        )
        self.wrong = ValueError(f"{text!r} is not understood: it must be {self.known}")

    def generic_visit(self, node: ast.AST) -> Any:
        raise self.wrong

    def visit_Name(self, node: ast.Name) -> Any:
        return self._make(node.id, [], {})

    def visit_Call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Name) or any(keyword.arg is None for keyword in node.keywords):  # **something
            raise self.wrong
        values = {str(keyword.arg): self._constant(keyword.value) for keyword in node.keywords}
        return self._make(node.func.id, [self._constant(argument) for argument in node.args], values)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        join = _JOINS.get(type(node.op))
        if not self.sums or join is None:
            raise self.wrong
        return join(self.visit(node.left), self.visit(node.right))

    def visit_Constant(self, node: ast.Constant) -> Any:
        if not self.sums or type(node.value) not in (int, float):
            raise self.wrong
        return float(cast(float, node.value))  # a product of integers could be too large for a float

    def _make(self, name: str, values: list[Any], named: dict[str, Any]) -> Any:
        if name not in self.names:
            close = similar(name.lower(), self.lower, 1)
            hint = f"did you mean {close[0]}? Use" if close else "use"
            raise ValueError(f"{name!r} is not known: {hint} {self.known}")
        try:
            return self.names[name](*values, **named)
        except TypeError as error:
            parameters = ", ".join(inspect.signature(self.names[name]).parameters) or "none"
            raise ValueError(f"{self.text!r}: the parameters of {name} are: {parameters}") from error

    def _constant(self, node: ast.expr) -> Any:
        try:
            return ast.literal_eval(node)
        except ValueError as error:
            raise self.wrong from error


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
