"""Integrals of products, of which Shapley values consist: against each product without one factor."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.market import INSTRUCTION_SETS
from gyrfalcon import _core
from gyrfalcon.backends.shapley import shapley_sums

REFUSED = (TypeError, ValueError, RuntimeError)


@pytest.mark.parametrize("backend", [*INSTRUCTION_SETS, "reference"])
@pytest.mark.parametrize(
    "shape", [(0, 2, 3, 4), (2, 0, 3, 4), (1, 1, 1, 1), (3, 2, 2, 31), (2, 3, 5, 32), (2, 2, 9, 33), (1, 2, 4, 130)]
)
def test_shapley_sums(shape, backend, monkeypatch):
    name = "GYRFALCON_BACKEND" if backend == "reference" else "GYRFALCON_ISA"
    monkeypatch.setenv(name, backend)
    n, m, groups, centers = shape
    rng = np.random.default_rng(groups)
    z, b = rng.random((n, groups, centers)), rng.random((m, groups, centers))
    z[:, 0, ::3] = 0.0  # products without one factor are not made by division
    nodes, weights = rng.random(3), rng.random(3)
    path = b[None, :, :, :, None] + nodes * (z[:, None] - b)[..., None]  # rows, background, groups, centers, nodes
    expected = np.zeros_like(z)
    for g in range(groups):
        others = np.delete(path, g, axis=2).prod(axis=2) @ weights
        expected[:, g] = ((z[:, None, g] - b[None, :, g]) * others).sum(axis=1)
    np.testing.assert_allclose(shapley_sums(z, b, nodes, weights), expected, rtol=0, atol=1e-13 * max(1, m))


def test_what_does_not_fit_is_refused():
    def arrays(**changed):
        given = {"z": (4, 3, 5), "b": (2, 3, 5), "nodes": (2,), "weights": (2,), "out": (4, 3, 5)} | changed
        return [np.ones(shape) for shape in given.values()]

    _core.shapley_sums("", *arrays())
    for changed in (
        {"b": (2, 4, 5)},
        {"b": (2, 3, 4)},
        {"weights": (3,)},
        {"nodes": (0,), "weights": (0,)},
        {"out": (4, 3, 4)},
        {"out": (3, 3, 5)},
        {"z": (4, 3)},
    ):
        with pytest.raises(REFUSED):
            _core.shapley_sums("", *arrays(**changed))
    for i in range(5):
        wrong = arrays()
        wrong[i] = wrong[i].astype(np.float32)
        with pytest.raises(REFUSED):
            _core.shapley_sums("", *wrong)
