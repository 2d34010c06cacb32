"""Examples in docstrings of the package that is imported here, the installed one, give what they say, and every
sentence about a parameter that classes share is written once."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import gyrfalcon
from gyrfalcon._utils.docstrings import Entry, describing, filled
from gyrfalcon.fitting.arguments import ARGUMENTS, SHARED
from gyrfalcon.fitting.attributes import ATTRIBUTES
from gyrfalcon.fitting.method_entries import METHOD_ENTRIES
from gyrfalcon.fitting.parameters import PARAMETERS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "gyrfalcon"

# __main__ runs the command line, and the native module's signatures are not Python
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(gyrfalcon.__path__, prefix="gyrfalcon.")
    if not module.name.endswith(("__main__", "_core"))
)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture(autouse=True)
def _no_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")


@pytest.mark.parametrize("name", ["gyrfalcon", *MODULES])
def test_examples_of_docstrings(name):
    if name.endswith("triton_kernels"):
        pytest.importorskip("triton")
    module = importlib.import_module(name)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        runner.run(example, out=report.append)
    assert runner.failures == 0, "".join(report)


@pytest.mark.parametrize("name", [name for name in gyrfalcon.__all__ if isinstance(getattr(gyrfalcon, name), type)])
def test_public_classes_have_an_example(name):
    if issubclass(getattr(gyrfalcon, name), Exception):
        pytest.skip("an exception")
    assert ">>>" in getattr(gyrfalcon, name).__doc__


def test_a_wrong_example_is_found():
    example = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    runner.run(example, out=lambda text: None)
    assert runner.failures == 1


# ---- entries that several classes share -----------------------------------------------------------------------------

ENTRIES = {
    "n_jobs": Entry("int or None", "Number of threads; None uses every core."),
    "fit.X": Entry("array of shape (n, d)"),
    "val.X_val y_val": Entry("optional", "Rows {n_jobs} See below."),
}
SHARED_LINE = re.compile(r"^ *\{[A-Za-z]\w*[\w., ]*,?$|^ *\{[A-Za-z]\w*[\w., ]*\}$", re.MULTILINE)


def as_method(*lines: str) -> str:
    return "Do it.\n\n        Parameters\n        ----------\n        " + "\n        ".join(lines) + "\n        "


def test_entries_are_filled_in_with_defaults_and_continued():
    text = filled(as_method("{fit.X, n_jobs}", "    More of it.", "a : {None, 1}"), ENTRIES, {"n_jobs": "None"})
    assert text == as_method(
        "X : array of shape (n, d)",
        "n_jobs : int or None, default=None",
        "    Number of threads; None uses every core.",
        "    More of it.",
        "a : {None, 1}",
    )
    several = filled("\n{val.X_val y_val,\nfit.X}\n", ENTRIES, {})
    words = "Rows Number of threads; None uses every core. See below."
    assert several == f"\nX_val, y_val : optional\n    {words}\nX : array of shape (n, d)\n"


def test_an_unknown_entry_is_an_error():
    with pytest.raises(KeyError, match="n_job"):
        filled("\n{n_job}\n", ENTRIES, {})


def test_wrapped_methods_are_described():
    def wrapping(method):
        return functools.wraps(method)(lambda self: method(self))

    class Own:
        """A class.

        {n_jobs}
        """

        def __init__(self, n_jobs: int | None = None) -> None: ...

        @wrapping
        def fit(self) -> None:
            """Fit.

            {fit.X}
            """

    described = describing(ENTRIES)(Own)
    assert described is Own
    words = "n_jobs : int or None, default=None\n    Number of threads; None uses every core."
    assert inspect.getdoc(Own) == f"A class.\n\n{words}"
    assert inspect.getdoc(Own.fit) == inspect.getdoc(Own.fit.__wrapped__) == "Fit.\n\nX : array of shape (n, d)"
    assert inspect.getdoc(describing(ENTRIES)(Own)) == f"A class.\n\n{words}"  # a second time there is nothing to fill


def fill_docstrings(destination: Path) -> list[Path]:
    """Write the files of a wheel whose docstrings have shared entries; return their paths in the package."""
    script = ROOT / "cmake" / "fill_docstrings.py"
    subprocess.run([sys.executable, script, SOURCE, destination], check=True)
    return [path.relative_to(destination) for path in sorted(destination.rglob("*.py"))]


def docstrings(tree: ast.Module) -> dict[str, str]:
    """The docstrings of a module's classes and of their methods, by name."""
    found = {}
    for cls in tree.body:
        if isinstance(cls, ast.ClassDef):
            for node in (cls, *cls.body):
                if isinstance(node, ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)) is not None:
                    found[cls.name if node is cls else f"{cls.name}.{node.name}"] = text
    return found


def test_files_of_a_wheel_show_what_is_shown_when_they_are_imported(tmp_path):
    files = fill_docstrings(tmp_path)
    assert len(files) > 20
    for file in files:
        before, after = (ast.parse((root / file).read_text(encoding="utf-8")) for root in (SOURCE, tmp_path))
        module = importlib.import_module(".".join(("gyrfalcon", *file.with_suffix("").parts)))
        for name, text in docstrings(after).items():
            cls, _, method = name.partition(".")
            owner = vars(module)[cls]
            assert inspect.cleandoc((vars(owner)[method] if method else owner).__doc__) == text, name
            assert not SHARED_LINE.search(text), name
        for tree in (before, after):
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                    node.body = node.body[1:]
        assert ast.dump(before) == ast.dump(after), file


def test_no_two_tables_have_an_entry_of_the_same_name():
    tables = PARAMETERS, METHOD_ENTRIES, ATTRIBUTES, ARGUMENTS
    assert len(SHARED) == sum(map(len, tables))


def test_every_entry_of_a_docstring_is_written_once():
    """Entries with words, in the files of estimators."""
    written: Counter[str] = Counter()
    for path in [
        *SOURCE.glob("estimators/*.py"),
        *SOURCE.glob("baselines/*.py"),
        *(SOURCE / "tables").glob("*auto*.py"),
    ]:
        for text in docstrings(ast.parse(path.read_text(encoding="utf-8"))).values():
            for section in re.findall(r"(?:Parameters|Attributes)\n-+\n(.*?)(?:\n\n|$)", text, flags=re.DOTALL):
                entries = re.findall(r"^(\w.*)\n((?:    .*\n?)+)", section, flags=re.MULTILINE)
                written.update(f"{head} {' '.join(words.split())}" for head, words in entries)
    assert [entry for entry, count in written.items() if count > 1] == []


def test_modules_can_be_imported_without_docstrings():
    code = "import gyrfalcon.estimators, gyrfalcon.tables; print(gyrfalcon.FalkonRegressor.__doc__)"
    run = subprocess.run([sys.executable, "-OO", "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == "None"
