"""FALKON's estimators with a device: its factors are made there, and are those of the host."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gyrfalcon import FalkonClassifier, FalkonRegressor
from gyrfalcon.fitting import falkon, plan
from gyrfalcon.preconditioners.torch_factors import TorchFactors

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.devices, pytest.mark.usefixtures("one_thread")]

RNG = np.random.default_rng(0)
X = RNG.standard_normal((400, 3))
Y = np.sin(X[:, 0]) + X[:, 1]


@pytest.fixture
def engines(monkeypatch):
    """The factorisations that PyTorch has made, by their sizes."""
    made, honest = [], TorchFactors.cholesky

    def cholesky(self, matrix, *, lower):
        made.append(len(matrix))
        return honest(self, matrix, lower=lower)

    monkeypatch.setattr(TorchFactors, "cholesky", cholesky)
    return made


@pytest.mark.parametrize("device", ["cpu", ["cpu"] * 3], ids=["one", "three"])
@pytest.mark.parametrize("preconditioner", ["falkon", "krill"])
def test_least_squares(engines, device, preconditioner):
    given = {"n_centers": 60, "penalty": 1e-3, "preconditioner": preconditioner, "max_iter": 100, "random_state": 0}
    there = FalkonRegressor(device=device, **given).fit(X, Y)
    assert engines == [60, 60]
    here = FalkonRegressor(**given).fit(X, Y)
    assert engines == [60, 60]
    assert_allclose(there.predict(X), here.predict(X), atol=1e-8)


def test_newton_makes_another_factor_for_each_step(engines):
    given = {"n_centers": 60, "penalty": 1e-3, "loss": "logistic", "tol": 1e-10, "random_state": 0}
    there = FalkonClassifier(device="cpu", **given).fit(X, Y > 0)
    assert len(engines) > 3
    here = FalkonClassifier(**given).fit(X, Y > 0)
    assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-6)


def test_gram_is_rounded_once(engines, monkeypatch):
    """Far from the origin float32 tiles lose digits of the distances, and K_MM does not."""
    monkeypatch.setattr(plan, "_LARGEST_FLOAT64_FACTORS", 0)
    seen, honest = [], falkon.Preconditioner

    def look(gram, *arguments, **options):
        seen.append(gram.copy(order="K"))
        return honest(gram, *arguments, **options)

    monkeypatch.setattr(falkon, "Preconditioner", look)
    rows = (X + 30).astype(np.float32)
    model = FalkonRegressor(n_centers=60, penalty=1e-3, scale=False, device="cpu", random_state=0).fit(rows, Y)
    (gram,) = seen
    assert gram.dtype == np.float32
    assert gram.flags.f_contiguous
    Z = model.centers_.astype(np.float64)
    expected = np.exp(-np.square(Z[:, None] - Z).sum(axis=2) / (2 * model.kernel_.length_scale**2))
    assert_allclose(gram, expected, rtol=0, atol=0.51 * np.finfo(np.float32).eps)
