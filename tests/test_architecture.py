"""Imports point down the list of rooms, no modules import each other in a circle, and none reaches into another.

The graph is read from the source: imports inside functions and those for type checkers alone count as well. So do edges
that appear only when the program runs: a module that assigns to attributes of another's classes, or that hands a
function of its own to another module, which keeps it in a global variable to call it later.
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
    "baselines",
    "estimators",
    "fitting",
    "storage",
    "callbacks",
    "solvers",
    "hierarchy",
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


def reaching_in(root: Path) -> set[tuple[str, str]]:
    """Modules and the lines by which they change others, or let others change them, at run time."""
    found = set()
    for name, path in modules(root).items():
        tree = ast.parse(path.read_text())
        for line in (*_assigned_from_outside(tree), *_handed_over(tree), *_kept_for_later(tree)):
            found.add((name, ast.unparse(line)))
    return found


def _own_imports(tree: ast.AST) -> set[str]:
    """Names that a module imports from the package, without those that it binds to something else somewhere."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("gyrfalcon")):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname or "gyrfalcon" for alias in node.names if alias.name.startswith("gyrfalcon")}
    rebound = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    rebound |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names - rebound


def _assigned_from_outside(tree: ast.AST) -> Iterator[ast.AST]:
    """Assignments to attributes of imported classes and modules, and calls of setattr with them."""
    imports = _own_imports(tree)
    for node in ast.walk(tree):
        changed = None
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            changed = _root(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr"):
            changed = _root(node.args[0])
        if changed in imports:
            yield node


def _handed_over(tree: ast.Module) -> Iterator[ast.AST]:
    """Calls of imported functions, for their effect and while the module is imported, with functions of the module.

    Decorators are not among them: `@register` puts a class on the list of those that model files may name.
    """
    imports = _own_imports(tree)
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for statement in tree.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and _root(call.func) in imports:
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            if any(isinstance(value, ast.Lambda) or _root(value) in own for value in given):
                yield call


def _kept_for_later(tree: ast.AST) -> Iterator[ast.AST]:
    """Assignments of parameters to global variables."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            shared = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
            parameters = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and _root(node.value) in parameters:
                    yield from [node] if {ast.unparse(target) for target in node.targets} & shared else []


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def test_every_module_has_a_room():
    assert {room(name) for name in modules(ROOT)} <= set(ROOMS)


def test_imports_point_down():
    assert pointing_up(graph(ROOT)) == set()


def test_no_circles():
    assert find_cycle(graph(ROOT), ALGEBRA) == []


def receiving_estimators(root: Path) -> set[tuple[str, str]]:
    """Functions below `estimators`, by module and name, with a parameter that is an estimator.

    Model files hold estimators, and users' callbacks are given the one that is fitted: these rooms are not looked at.
    """
    below = set(ROOMS[ROOMS.index("fitting") :]) - {"storage", "callbacks"}
    kinds = ("Estimator", "Regressor", "Classifier")
    found = set()
    for name, path in modules(root).items():
        if room(name) not in below:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            for one in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
                kind = "" if one.annotation is None else ast.unparse(one.annotation)
                named = one.arg == "estimator" or (one.arg == "model" and kind == "Any")
                if named or kind.endswith(kinds):
                    found.add((name, node.name))
    return found


def test_nothing_below_estimators_receives_one():
    assert receiving_estimators(ROOT) == set()


@pytest.mark.parametrize("parameter", ["estimator", "model: Any", "fitted: FalkonRegressor", "*, one: KernelEstimator"])
def test_a_function_that_receives_an_estimator_is_found(tmp_path, parameter):
    root = tmp_path / "gyrfalcon"
    (root / "fitting").mkdir(parents=True)
    (root / "fitting" / "steps.py").write_text(f"def step({parameter}): ...")
    assert receiving_estimators(root) == {("gyrfalcon.fitting.steps", "step")}


def test_no_module_reaches_into_another():
    assert reaching_in(ROOT) == set()


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("from .dense import KernelOperator\nKernelOperator._on_devices = print", "KernelOperator._on_devices"),
        ("from . import dense\ndef f():\n    dense.KernelOperator.limit = 3", "dense.KernelOperator.limit"),
        ("from .dense import KernelOperator\nKernelOperator.passes += 1", "KernelOperator.passes"),
        ("from .dense import KernelOperator\nsetattr(KernelOperator, 'a', 1)", "setattr(KernelOperator, 'a', 1)"),
        ("import gyrfalcon.dense\ngyrfalcon.dense.a = 1", "gyrfalcon.dense.a"),
        ("from .dense import set_import_all\ndef f(): ...\nset_import_all(f)", "set_import_all(f)"),
        ("from . import dense\ndense.call_later(then=lambda: 1)", "dense.call_later(then=lambda: 1)"),
        ("_then = None\ndef call_later(then):\n    global _then\n    _then = then", "_then = then"),
        ("from .dense import Thing\nthing = Thing(lambda: 1)\nthing.limit = 3", None),
        ("from .dense import register\n@register\nclass Mine: ...", None),
    ],
)
def test_what_reaches_into_another_module_is_found(tmp_path, source, line):
    root = tmp_path / "gyrfalcon"
    root.mkdir()
    (root / "upper.py").write_text(source)
    assert reaching_in(root) == (set() if line is None else {("gyrfalcon.upper", line)})


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
