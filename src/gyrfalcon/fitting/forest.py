"""What a fit with trees has found so far, and the same as plain arrays in a checkpoint, checked when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import array
from ..hierarchy import Factors, Hierarchy, Tree
from ..solvers import StateError
from .ridge import EveryRow

Array = NDArray[Any]

_FACTORS = ("coef", "pivot_coef", "inverse_diagonal", "covariances")


class GlobalPart(NamedTuple):
    """A function with few centers: the trees learn what it leaves.

    centers, coef : of shape (M, d) and (M, k)
    fitted, validation : its values at the rows, and at validation rows if there are any
    """

    centers: Array
    coef: Array
    fitted: Array
    validation: Array | None


class Tried(NamedTuple):
    """One penalty with one tree: its factors, and predictions of left-out and of validation rows."""

    factors: Factors
    left_out: Array | None
    validation: Array | None
    evidence: float


class Forest(NamedTuple):
    """What a fit has found so far: the global part, the trees, and what was tried with each, by penalty and tree."""

    smooth: GlobalPart | None
    hierarchies: list[Hierarchy]
    tried: list[list[Tried]]


def encode(forest: Forest) -> dict[str, Any]:
    """Return a forest as plain values."""
    trees = []
    for number, hierarchy in enumerate(forest.hierarchies):
        tried = [_encode_tried(found[number]) for found in forest.tried]
        tree = hierarchy.tree.get_params()
        trees.append({"tree": tree, "order": hierarchy.order, "pivots": hierarchy.pivots, "tried": tried})
    return {"smooth": None if forest.smooth is None else forest.smooth._asdict(), "trees": trees}


def _encode_tried(tried: Tried) -> dict[str, Any]:
    factors = {name: vars(tried.factors)[name] for name in (*_FACTORS, "log_det")}
    return {**factors, "left_out": tried.left_out, "validation": tried.validation, "evidence": tried.evidence}


def decode(state: Mapping[str, Any], problem: EveryRow, rank: int, n_penalties: int) -> Forest:
    """Return the forest that a checkpoint holds; raise StateError if it cannot be one of this fit."""
    try:
        smooth = None if state["smooth"] is None else _decode_smooth(state["smooth"], problem)
        forest = Forest(smooth, [], [[] for _ in range(n_penalties)])
        for values in state["trees"]:
            forest.hierarchies.append(_decode_hierarchy(values, problem, rank))
            for found, tried in zip(forest.tried, values["tried"], strict=True):
                found.append(_decode_tried(tried, forest.hierarchies[-1], problem))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise StateError(f"its trees do not fit: {error}") from error
    return forest


def _decode_smooth(values: Mapping[str, Any], problem: EveryRow) -> GlobalPart:
    (n, d), k, held = problem.points.shape, problem.targets.shape[1], problem.data.validation
    array((None, d), problem.points.dtype)("centers", values["centers"])
    array((len(values["centers"]), k))("coef", values["coef"])
    array((n, k), problem.points.dtype)("fitted", values["fitted"])
    if held is not None:
        array((held.rows.shape[0], k), held.rows.dtype)("validation", values["validation"])
    return GlobalPart(*(values[name] for name in GlobalPart._fields))


def _decode_hierarchy(values: Mapping[str, Any], problem: EveryRow, rank: int) -> Hierarchy:
    n, d = problem.points.shape
    tree = Tree(**values["tree"])
    order, pivots = values["order"], values["pivots"]
    array((len(tree.children), d))("directions", tree.directions)
    array((n,), np.int64)("order", order)
    array((len(tree.children), rank), np.int64)("pivots", pivots)
    if tree.starts[-1] != n or not np.array_equal(np.sort(order), np.arange(n)):
        raise ValueError("the leaves do not hold every row once")
    if pivots.size and not 0 <= pivots.min() <= pivots.max() < n:
        raise ValueError("pivots are no rows")
    return Hierarchy(problem.kernel, problem.points, tree, order, pivots)


def _decode_tried(values: Mapping[str, Any], hierarchy: Hierarchy, problem: EveryRow) -> Tried:
    n, k = problem.targets.shape
    leaves, rank = hierarchy.tree.n_leaves, hierarchy.rank if len(hierarchy.tree.children) else 0
    held = problem.data.validation
    shapes = {
        "coef": (n, k),
        "pivot_coef": (leaves, rank, k),
        "inverse_diagonal": (n,),
        "covariances": (leaves, rank, rank),
        "left_out": (n, k),
    }
    for name, shape in shapes.items():
        if values[name] is not None or name in ("coef", "pivot_coef"):
            array(shape)(name, values[name])
    if held is not None and np.shape(values["validation"]) != (held.rows.shape[0], k):
        raise ValueError("validation values do not fit the validation rows")
    factors = Factors(**{name: values[name] for name in _FACTORS}, log_det=float(values["log_det"]))
    return Tried(factors, values["left_out"], values["validation"], float(values["evidence"]))
