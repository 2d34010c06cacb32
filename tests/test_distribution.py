"""The installed distribution: what a wheel holds, and that it needs nothing else to fit a model."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution

import numpy as np
import pytest

import gyrfalcon


@pytest.fixture(scope="module")
def installed() -> Distribution:
    try:
        found = distribution("gyrfalcon")
    except PackageNotFoundError:
        pytest.skip("gyrfalcon is not installed, but found on the path")
    if not found.files or not any(file.name == "WHEEL" for file in found.files):
        pytest.skip("gyrfalcon was not installed from a wheel")
    if not any(str(file) == "gyrfalcon/__init__.py" for file in found.files):
        pytest.skip("gyrfalcon is installed in place: its files are those of the checkout")
    return found


def test_a_wheel_holds_the_package_and_nothing_else(installed):
    files = [file.as_posix() for file in installed.files if "__pycache__" not in file.as_posix()]
    package = [file for file in files if file.startswith("gyrfalcon/")]
    assert "gyrfalcon/py.typed" in package
    native = [file for file in package if re.fullmatch(r"gyrfalcon/_core\.[\w.-]+", file)]
    assert len(native) == 2  # the extension and its stub
    assert "gyrfalcon/_core.pyi" in native
    assert {file.rsplit(".", 1)[1] for file in package} <= {"py", "pyi", "typed", "so", "pyd", "dylib"}
    others = [file for file in files if not file.startswith("gyrfalcon/")]
    bundled = [file for file in others if not re.match(r"gyrfalcon-[\w.]+\.dist-info/|(\.\./)+(bin|Scripts)/", file)]
    assert not bundled
    assert any(file.endswith("licenses/LICENSE") for file in others)


def test_files_of_a_wheel_show_whole_docstrings(installed):
    """Editors read files, where entries that classes share are filled in."""
    files = [
        file
        for file in installed.files
        if re.fullmatch(r"gyrfalcon/(baselines|estimators|tables)/\w+\.py", file.as_posix())
    ]
    text = {file.name: file.locate().read_text(encoding="utf-8") for file in files}
    assert "    n_jobs : int or None, default=None\n        Number of threads" in text["falkon_regressor.py"]
    assert [name for name in text if re.search(r"^ +\{[a-z]\w*[\w., \n]*\}$", text[name], flags=re.MULTILINE)] == []


def test_metadata(installed):
    metadata = installed.metadata
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert {"Documentation", "Source"} <= {url.split(",")[0] for url in metadata.get_all("Project-URL")}
    assert gyrfalcon.__version__ == metadata["Version"]
    points = {(point.group, point.value) for point in installed.entry_points}
    assert points == {
        ("console_scripts", "gyrfalcon.cli.main:main"),
        ("gyrfalcon.classes", "gyrfalcon.tables"),
        ("gyrfalcon.classes", "gyrfalcon.baselines"),
    }


def test_the_native_core_is_there_and_fits():
    from gyrfalcon import _core

    assert _core.instruction_sets()[-1] == "baseline"
    x = np.linspace(0, 6, 200)[:, None]
    model = gyrfalcon.FalkonRegressor(n_centers=50, random_state=0).fit(x, np.sin(x[:, 0]))
    assert model.score(x, np.sin(x[:, 0])) > 0.99
