"""Write copies of the package's files whose docstrings have shared entries, with these filled in, for a wheel.

    python cmake/fill_docstrings.py src/gyrfalcon DESTINATION

What `gyrfalcon._utils.docstrings` does when a class is imported is done to the text of the files here, so that editors
which read files show it too. Nothing outside of docstrings changes. The package is not imported: what it needs may not
be installed where wheels are built.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any


def load(path: Path) -> Any:
    """Return a module of a file that imports nothing but the standard library."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def tables(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """The keys, types and words of the tables of entries in a module."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "Mapping[str, Entry]":
            assert isinstance(node.value, ast.Dict)
            for key, entry in zip(node.value.keys, node.value.values, strict=True):
                assert key is not None
                assert isinstance(entry, ast.Call)
                yield ast.literal_eval(key), [ast.literal_eval(one) for one in entry.args[:2]]


def defaults(cls: ast.ClassDef) -> dict[str, Any]:
    """The defaults of the parameters of a class's constructor."""
    for node in cls.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            positional = node.args.args[len(node.args.args) - len(node.args.defaults) :]
            pairs = [*zip(positional, node.args.defaults, strict=True)]
            pairs += [*zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
            return {name.arg: ast.literal_eval(value) for name, value in pairs if value is not None}
    return {}


def documented(tree: ast.Module) -> Iterator[tuple[ast.Constant, dict[str, Any]]]:
    """The docstrings of decorated classes and of their methods, with the defaults they show; the last one first."""
    found = []
    for cls in tree.body:
        if isinstance(cls, ast.ClassDef) and "described" in map(ast.unparse, cls.decorator_list):
            for node in (cls, *cls.body):
                if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                    found.append((node.body[0].value, defaults(cls) if node is cls else {}))
    return reversed(found)


def fill(package: Path, destination: Path) -> list[Path]:
    """Write the files that change to a folder, and return their paths within it."""
    docstrings = load(package / "_utils" / "docstrings.py")
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in sources.items() if "{" in text}
    entries: Mapping[str, Any] = {
        key: docstrings.Entry(*entry) for tree in trees.values() for key, entry in tables(tree)
    }
    written = []
    for path, tree in trees.items():
        lines = sources[path].splitlines(keepends=True)
        for node, values in documented(tree):
            text = "".join(lines[node.lineno - 1 : node.end_lineno])
            shown = {name: docstrings.as_shown(value) for name, value in values.items()}
            lines[node.lineno - 1 : node.end_lineno] = [docstrings.filled(text, entries, shown)]
        if "".join(lines) != sources[path]:
            target = destination / path.relative_to(package)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("".join(lines), encoding="utf-8")
            written.append(target.relative_to(destination))
    return written


if __name__ == "__main__":
    fill(Path(sys.argv[1]), Path(sys.argv[2]))
