"""Every example in a docstring of the package that is imported here, the installed one, gives what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import gyrfalcon

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
