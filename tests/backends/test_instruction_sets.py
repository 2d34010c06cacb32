"""Which instruction set runs dense rows: decided by the shape alone, unless one is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.market import INSTRUCTION_SETS
from gyrfalcon.backends import native, prepare
from gyrfalcon.kernels import ArcCosine, Gaussian, Laplacian


class Core:
    """An extension on a processor that has these instruction sets."""

    def __init__(self, *sets):
        self.sets = sets

    def instruction_sets(self):
        return list(self.sets)


@pytest.fixture
def choose(monkeypatch):
    monkeypatch.delenv("GYRFALCON_ISA", raising=False)
    monkeypatch.setattr(native, "_core", Core("avx512", "avx2", "baseline"))
    return native.dense_instruction_set


def test_centers_of_one_narrow_vector_run_on_the_narrower_set(choose):
    assert choose(8, 18, np.float32, False) == choose(8, 784, np.float32, True) == "avx2"
    assert choose(8, 784, np.float32, False) == choose(9, 18, np.float32, True) == "avx512"
    assert choose(4, 18, np.float64, False) == choose(4, 784, np.float64, True) == "avx512"


def test_few_centers_of_short_rows_run_on_the_narrower_set(choose):
    assert choose(16, 8, np.float32, False) == choose(8, 8, np.float64, True) == "avx2"
    assert choose(17, 8, np.float32, False) == choose(9, 8, np.float64, True) == "avx512"
    assert choose(2000, 784, np.float32, True) == choose(2000, 2, np.float64, False) == "avx512"


def test_a_set_that_is_asked_for_is_obeyed(choose, monkeypatch):
    monkeypatch.setenv("GYRFALCON_ISA", "avx512")
    assert choose(8, 784, np.float32, True) == "avx512"


@pytest.mark.parametrize("sets", [("avx2", "baseline"), ("baseline",), ("avx512", "baseline")])
def test_a_processor_without_both(sets, choose, monkeypatch):
    monkeypatch.setattr(native, "_core", Core(*sets))
    assert choose(8, 784, np.float32, True) == sets[0]


@pytest.mark.parametrize("kernel", [Gaussian(30.0), Laplacian(30.0), ArcCosine(1)], ids=repr)
@pytest.mark.parametrize("m", [8, 40])
def test_sets_agree(kernel, m, monkeypatch):
    """A choice changes last bits, and nothing else."""
    rng = np.random.default_rng(0)
    X, Z = (rng.standard_normal((size, 300)).astype(np.float32) for size in (30, m))
    exact = prepare(kernel, Z.astype(float), "reference").fill(X.astype(float))
    for isa in INSTRUCTION_SETS:
        monkeypatch.setenv("GYRFALCON_ISA", isa)
        K = prepare(kernel, Z, "native").fill(X)
        assert np.abs(K - exact).max() <= 300 * np.finfo(np.float32).eps * np.abs(exact).max()
