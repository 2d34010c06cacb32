"""Lloyd's algorithm on Nyström features against a plain one on stored features."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian
from gyrfalcon.preconditioners import Whitening
from gyrfalcon.solvers import Lloyd, approach, features_of, nystrom_features


def plain_lloyd(F, C, weight, steps):
    """Labels and centroids before each of some steps."""
    for _ in range(steps):
        labels = np.square(F[:, None, :] - C).sum(axis=2).argmin(axis=1)
        yield labels, C
        C = np.stack([np.average(F[labels == j], axis=0, weights=weight[labels == j]) for j in range(len(C))])


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_every_step_is_a_step_on_stored_features(weighted):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    weight = rng.uniform(0.5, 2.0, 300) if weighted else np.ones(300)
    operator = KernelOperator(Gaussian(1.0), X, X[:40])
    whitening = Whitening(operator.centers_gram(), 300)
    F = np.hstack([block for _, block in nystrom_features(operator, whitening)]).T
    lloyd = Lloyd(operator, whitening, features_of(operator, whitening, X[:4]), 4, np.ones(300), weight)
    missed = 1 - np.square(F).sum(axis=1)
    inertias = []
    for labels, C in plain_lloyd(F, F[:4], weight, 6):
        lloyd.step()
        assert_array_equal(lloyd.best.labels, labels)
        assert_allclose(lloyd.best.centroids, C.T, atol=1e-8)
        assert_allclose(lloyd.best.squares, np.square(C).sum(axis=1), atol=1e-8)
        assert_allclose(lloyd.best.counts, np.bincount(labels, weight, minlength=4))
        assert_allclose(lloyd.best.inertia, weight @ (np.square(F - C[labels]).sum(axis=1) + missed), rtol=1e-8)
        inertias.append(lloyd.best.inertia)
    assert inertias == sorted(inertias, reverse=True)
    assert lloyd.iteration == operator.passes - 1 == 6  # one for the features


def test_a_tolerance_ends_it_with_labels_of_the_last_centroids():
    X = np.random.default_rng(0).standard_normal((300, 2))
    operator = KernelOperator(Gaussian(1.0), X, X[:40])
    whitening = Whitening(operator.centers_gram(), 300)
    start = features_of(operator, whitening, X[:5])
    found = []
    for tol in (0.0, 0.01, 0.1):
        lloyd = Lloyd(operator, whitening, start, 5, np.ones(300), tol=tol)
        while lloyd.running:
            lloyd.step()
        assert lloyd.best.converged
        values = operator.matmat(lloyd.best.coef) - lloyd.best.squares / 2
        assert_array_equal(values.argmax(axis=1), lloyd.best.labels)
        found.append(lloyd.best)
    assert found[0].iteration >= found[1].iteration > found[2].iteration
    assert found[0].inertia <= found[1].inertia < found[2].inertia


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_a_sample_comes_near_to_all_rows_in_one_pass(weighted):
    rng = np.random.default_rng(0)
    n, k = 3_000, 5
    X = rng.standard_normal((n, 2))
    weight = rng.uniform(0.0, 2.0, n) if weighted else None
    operator = KernelOperator(Gaussian(1.0), X, X[:60])
    whitening = Whitening(operator.centers_gram(), n)

    def run(on, start, weight):
        lloyd = Lloyd(on, whitening, start, k, np.ones(on.shape[0]), weight, tol=1e-8)
        while lloyd.running:
            lloyd.step()
        return lloyd.best

    some = None if weight is None else weight[:150]
    sample = run(operator.on(X[:150]), features_of(operator, whitening, X[:k]), some)
    before = operator.passes
    near = approach(operator, whitening, sample.centroids, np.ones(n), weight, 1e-8, 300, np.random.RandomState(0))
    assert operator.passes == before + 1
    far, close = run(operator, sample.centroids, weight), run(operator, near, weight)
    # two dimensions and a smooth kernel: 37 coordinates hold nearly all of the rows. Local minima may be neighbours.
    assert_allclose(close.inertia, far.inertia, rtol=1e-3)
    assert close.iteration < far.iteration / 2
