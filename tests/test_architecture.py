"""Imports point down the list of rooms, and no modules import each other in a circle.

The graph is read from the source: imports inside functions and those for type checkers alone count as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import gyrfalcon

ROOT = Path(gyrfalcon.__file__).parent

# Each may import those after it. A room is a package or a module of src/gyrfalcon; `_core` is the compiled extension.
ROOMS = [
    "__main__",
    "__init__",
    "cli",
    "plots",
    "testing",
    "tables",
    "estimators",
    "fitting",
    "storage",
    "callbacks",
    "solvers",
    "centers",
    "preconditioners",
    "operators",
    "sources",
    "backends",
    "kernels",
    "losses",
    "_utils",
    "_core",
]

# The one circle that is wanted: k + l is a `Sum`, which is a kernel.
ALGEBRA = {("gyrfalcon.kernels.base", "gyrfalcon.kernels.composite")}


def modules(root: Path) -> dict[str, Path]:
    """Files by the names of their modules; the package itself is "gyrfalcon"."""
    found = {}
    for path in root.rglob("*.py"):
        parts = (root.name, *path.relative_to(root).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, path: Path) -> Iterator[str]:
    """Full names in the import statements of a module, and in calls of import_module."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            yield from (word.value for word in node.args if isinstance(word, ast.Constant))


def graph(root: Path) -> dict[str, set[str]]:
    """The modules that each module imports, of those in the package."""
    files = modules(root)
    known = {*files, f"{root.name}._core"}

    def module_of(name: str) -> str | None:
        """The module that a full name is, or is a member of."""
        return name if name in known else name.rpartition(".")[0] if name.rpartition(".")[0] in known else None

    return {
        name: {target for full in imported(name, path) if (target := module_of(full)) is not None} - {name}
        for name, path in files.items()
    }


def room(module: str) -> str:
    return [*module.split("."), "__init__"][1]


def pointing_up(edges: dict[str, set[str]]) -> set[tuple[str, str]]:
    return {
        (source, target)
        for source, targets in edges.items()
        for target in targets
        if ROOMS.index(room(source)) > ROOMS.index(room(target))
    }


def find_cycle(edges: dict[str, set[str]], without: set[tuple[str, str]]) -> list[str]:
    """The modules of one circle of imports; none if there is no circle."""
    kept = {source: {to for to in targets if (source, to) not in without} for source, targets in edges.items()}
    try:
        TopologicalSorter(kept).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_module_has_a_room():
    assert {room(name) for name in modules(ROOT)} <= set(ROOMS)


def test_imports_point_down():
    assert pointing_up(graph(ROOT)) == set()


def test_no_circles():
    assert find_cycle(graph(ROOT), ALGEBRA) == []


@pytest.mark.parametrize(
    ("source", "edge"),
    [
        ("from ..operators.dense import KernelOperator", "gyrfalcon.operators.dense"),
        ("def f():\n    from .. import operators", "gyrfalcon.operators"),
        ("if TYPE_CHECKING:\n    from ..operators.dense import KernelOperator", "gyrfalcon.operators.dense"),
        ("import gyrfalcon.operators.dense as dense", "gyrfalcon.operators.dense"),
        ("import_module('gyrfalcon.operators.dense')", "gyrfalcon.operators.dense"),
        ("from .. import __version__", "gyrfalcon"),
    ],
)
def test_an_import_that_points_up_is_found(tmp_path, source, edge):
    root = tmp_path / "gyrfalcon"
    for name, text in {"operators/dense": "from ..sources import rows", "sources/rows": source}.items():
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    (root / "__init__.py").touch()
    edges = graph(root)
    assert pointing_up(edges) == {("gyrfalcon.sources.rows", edge)}
    assert bool(find_cycle(edges, set())) == (edge == "gyrfalcon.operators.dense")
