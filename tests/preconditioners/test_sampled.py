"""The preconditioner from a sample of the rows, against its definition in dense float64."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian, Linear
from gyrfalcon.preconditioners import Sampled

N, S, M = 3000, 800, 40


def make(kernel, dtype=np.float64, weighted=False):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 3)).astype(dtype)
    weight = (rng.uniform(0.1, 2.0, S) if weighted else np.ones(S)) * N / S
    return KernelOperator(kernel, X, X[:M]), KernelOperator(kernel, X[:S], X[:M]), weight


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_whitens_the_sample(dtype, weighted):
    """B'(K_s'W_s K_s + ridge n K_MM)B = I, with K_MM as factored."""
    _, few, weight = make(Gaussian(0.5), weighted=weighted)
    B = Sampled(few, weight, few.centers_gram(dtype), 1e-3, N)
    K = few.matmat(np.eye(M))
    H = K.T @ (weight[:, None] * K) + B.ridge * N * (few.centers_gram() + B.whitening.jitter * np.eye(M))
    inner = B.apply(np.eye(M))
    assert B.ridge == 1e-3
    assert_allclose(inner.T @ H @ inner, np.eye(M), atol=1e-9 if dtype == np.float64 else 1e-2)


@pytest.mark.parametrize("penalty", [1e-3, 1e-9])
def test_the_condition_number_does_not_depend_on_the_penalty(penalty):
    whole, few, weight = make(Gaussian(1.0))
    B = Sampled(few, weight, whole.centers_gram(), penalty, N).apply(np.eye(M))
    K = whole.matmat(np.eye(M))
    assert np.linalg.cond(B.T @ (K.T @ K + penalty * N * whole.centers_gram()) @ B) < 5


def test_centers_that_depend_on_others():
    whole, few, weight = make(Linear())
    B = Sampled(few, weight, whole.centers_gram(), 1e-3, N)
    assert B.rank < M
    inner, K = B.apply(np.eye(B.rank)), whole.matmat(np.eye(M))
    assert np.linalg.cond(inner.T @ (K.T @ K + 1e-3 * N * whole.centers_gram()) @ inner) < 3


def test_wrong_shapes_and_penalties():
    _, few, weight = make(Gaussian(1.0))
    with pytest.raises(ValueError, match=r"gram has shape \(39, 39\), but the operator has 40 centers"):
        Sampled(few, weight, np.asfortranarray(few.centers_gram()[:39, :39]), 1e-3, N)
    with pytest.raises(ValueError, match="penalty"):
        Sampled(few, weight, few.centers_gram(), -1.0, N)
