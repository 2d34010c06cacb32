"""What a type checker tells users of the installed package."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gyrfalcon
from gyrfalcon import _core

# Each line that ends with "# error: ..." must have that error, and no other line may have any.
PROGRAM = """\
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

from gyrfalcon import AutoClassifier, EigenProRegressor, FalkonClassifier, FalkonRegressor, KernelKMeans
from gyrfalcon import KernelOperator, KernelPCA, NoveltyDetector, NystromRegressor, RandomFeaturesClassifier
from gyrfalcon.kernels import Gaussian
from gyrfalcon.losses import Loss

X, y = np.zeros((10, 2)), np.zeros(10)

model = FalkonRegressor(Gaussian(0.5), n_centers=10, loss="quantile", quantiles=[0.1, 0.9])
assert_type(model.fit(X, y), FalkonRegressor)
assert_type(model.fit(X, y, sample_weight=y).set_params(penalty=1e-3), FalkonRegressor)
assert_type(FalkonClassifier(multi_class="ovr").fit(X, y), FalkonClassifier)
assert_type(RandomFeaturesClassifier(n_components=5).fit(X, y), RandomFeaturesClassifier)
assert_type(EigenProRegressor().fit(X, y), EigenProRegressor)
assert_type(model.predict(X), NDArray[Any])
assert_type(model.predict(X, return_std=True), tuple[NDArray[Any], NDArray[Any]])
assert_type(model.predict_interval(X), NDArray[Any])
assert_type(AutoClassifier().fit(X, y).predict(X), NDArray[Any])
assert_type(KernelKMeans().fit(X).predict(X), NDArray[Any])
assert_type(model.score(X, y), float)
assert_type(model.dual_coef_, NDArray[Any])
assert_type(model.loss_, Loss)
assert_type(model.penalty_, float)
assert_type(model.n_centers, int | str | None)
assert_type(KernelOperator(Gaussian(0.5), X, X).matmat(y), NDArray[Any])
model.set_score_request(sample_weight=True).get_params(deep=False)["n_centers"]
assert_type(FalkonClassifier(loss="logistic").fit(X, y).predict_proba(X), NDArray[Any])
assert_type(NystromRegressor().partial_fit(X, y), NystromRegressor)
assert_type(KernelPCA().fit_transform(X), NDArray[Any])
assert_type(NoveltyDetector().fit_predict(X), NDArray[Any])

FalkonRegressor(n_center=10)  # error: call-arg
FalkonClassifier(quantiles=0.5)  # error: call-arg
EigenProRegressor(n_centers=10)  # error: call-arg
FalkonRegressor(n_centers=b"ten")  # error: arg-type
Gaussian(length=0.5)  # error: call-arg
model.fit(X, y, sample_weights=y)  # error: call-arg
model.fit()  # error: call-arg
model.predictions(X)  # error: attr-defined
model.predict(X, y)  # error: call-overload
"""


def test_the_native_core_is_typed():
    """The stub has what the compiled module has: `python -m nanobind.stubgen -m gyrfalcon._core` writes it."""
    stub = ast.parse((Path(__file__).parents[1] / "src" / "gyrfalcon" / "_core.pyi").read_text(encoding="utf-8"))
    typed = {node.name: node for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert set(typed) == {name for name in dir(_core) if not name.startswith("_")}
    for name, node in typed.items():
        if isinstance(node, ast.ClassDef) and name.startswith(("Centers", "Sparse")):
            methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)} - {"__init__"}
            assert methods == {part for part in dir(getattr(_core, name)) if not part.startswith("_")}


def test_the_package_says_that_it_is_typed():
    assert Path(gyrfalcon.__file__).with_name("py.typed").is_file()


@pytest.mark.slow
def test_a_users_program(tmp_path):
    pytest.importorskip("mypy")
    if str(Path(gyrfalcon.__file__).parents[1]) not in sys.path:
        pytest.skip("an editable install by an import hook, which mypy cannot follow")
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--config-file=", "--cache-dir", str(tmp_path / "cache"), "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    found = re.findall(r"^program\.py:(\d+): error: .* +\[([\w-]+)\]$", done.stdout, flags=re.MULTILINE)
    wanted = [
        (str(number), line.rpartition("# error: ")[2])
        for number, line in enumerate(PROGRAM.splitlines(), start=1)
        if "# error: " in line
    ]
    assert found == wanted, done.stdout + done.stderr
    assert len(found) == done.stdout.count("error: "), done.stdout
