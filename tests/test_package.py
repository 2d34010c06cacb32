"""The top-level package: public names that are imported when they are used, and everything that looks at them."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pickle
import pydoc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gyrfalcon

SOURCE = Path(gyrfalcon.__file__).read_text()
PACKAGES = {"baselines", "callbacks", "centers", "kernels", "losses", "plots"}


def run(code, *arguments):
    """Run a program in a fresh interpreter."""
    environment = os.environ | {"PYTHONPATH": str(Path(gyrfalcon.__file__).parents[1])}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_type_checkers_see_the_same_names_from_the_same_modules():
    block = next(node for node in ast.parse(SOURCE).body if isinstance(node, ast.If))
    seen = {name.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert {name: module for name, module in seen.items() if module is not None} == gyrfalcon._MODULES
    assert {name for name, module in seen.items() if module is None} == PACKAGES
    assert sorted(seen) == sorted([*gyrfalcon.__all__, "open"])  # which a star must not import


@pytest.mark.parametrize("name", [*gyrfalcon.__all__, "open"])
def test_public_names_are_there(name):
    value = getattr(gyrfalcon, name)
    assert value is getattr(gyrfalcon, name)
    assert name in dir(gyrfalcon)
    if name in PACKAGES:
        assert value is importlib.import_module(f"gyrfalcon.{name}")


def test_importing_the_package_imports_no_numerical_library():
    code = (
        "import sys, gyrfalcon; print({'numpy', 'scipy', 'sklearn'} & sys.modules.keys(), gyrfalcon.kernels.Gaussian)"
    )
    assert run(code) == "set() <class 'gyrfalcon.kernels.stationary.Gaussian'>"


def test_import_of_everything():
    names = run(
        "before = set(globals()); from gyrfalcon import *; print(*sorted(set(globals()) - before - {'before'}))"
    )
    assert names.split() == sorted(gyrfalcon.__all__)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'gyrfalcon' has no attribute 'FalconRegressor'"):
        gyrfalcon.FalconRegressor  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'FalconRegressor'"):
        from gyrfalcon import FalconRegressor  # noqa: F401


def test_help_shows_the_classes():
    text = pydoc.render_doc(gyrfalcon)
    assert "FalkonRegressor" in text
    assert "Number of Nystr" in pydoc.render_doc("gyrfalcon.FalkonRegressor")
    assert inspect.isfunction(gyrfalcon.load)


def test_pickles_are_read_by_a_fresh_process(tmp_path):
    X = np.random.default_rng(0).standard_normal((50, 2))
    model = gyrfalcon.FalkonRegressor(n_centers=10, random_state=0).fit(X, X[:, 0])
    (tmp_path / "model").write_bytes(pickle.dumps([model, gyrfalcon.suggest]))
    code = "import pickle, sys; print(type(pickle.load(open(sys.argv[1], 'rb'))[0]).__name__)"
    assert run(code, tmp_path / "model") == "FalkonRegressor"


@pytest.mark.parametrize("where", ["gyrfalcon", "gyrfalcon.storage", "gyrfalcon.storage.models"])
@pytest.mark.slow
def test_model_files_are_read_by_a_fresh_process(where, tmp_path):
    """The file names classes of modules that nobody has imported yet."""
    X = np.random.default_rng(0).standard_normal((50, 2))
    gyrfalcon.FalkonRegressor(n_centers=10, random_state=0).fit(X, X[:, 0]).save(tmp_path / "model")
    code = f"import sys; from {where} import load; print(type(load(sys.argv[1])).__name__)"
    assert run(code, tmp_path / "model") == "FalkonRegressor"
