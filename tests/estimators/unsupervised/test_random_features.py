"""Random features against the kernels they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import gyrfalcon
from gyrfalcon import ModelFileError
from gyrfalcon.estimators import RandomFeatures
from gyrfalcon.kernels import (
    ArcCosine,
    Constant,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)
from gyrfalcon.kernels.features import FeatureMap, directions
from gyrfalcon.operators import feature_operator

KERNELS = {
    "gaussian": Gaussian(1.3),
    "per feature": Gaussian([1.0, 2.0, 0.5, 3.0]),
    "laplacian": Laplacian(1.5),
    "matern 1/2": Matern(1.2, nu=0.5),
    "matern 3/2": Matern(1.2, nu=1.5),
    "matern 5/2": Matern(1.2, nu=2.5),
    "rational quadratic": RationalQuadratic(1.0, alpha=0.7),
    "linear": Linear(),
    "arc-cosine 0": ArcCosine(0),
    "arc-cosine 1": ArcCosine(1),
    "sum": Gaussian(1.0) + 0.3 * Linear(),
    "intercept": 2.0 * Laplacian(1.0) + 1.0,
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
ONE_NORM = {"laplacian 1-norm": Laplacian(1.5, norm=1), "per feature 1-norm": Laplacian([1.0, 2.0, 0.5, 3.0], norm=1)}
plain_and_orthogonal = pytest.mark.parametrize("orthogonal", [False, True], ids=["plain", "orthogonal"])


@pytest.fixture(scope="module")
def X():
    X = np.random.default_rng(0).standard_normal((24, 4))
    X[0] = 0.0  # where the arc-cosine kernel has no angle
    X[1] = 2 * X[2]
    return X


def errors(kernel, X, n_components, orthogonal, seeds):
    """F F' - k(X, X), for each seed."""
    K = kernel(X, X)
    maps = (kernel.random_features(n_components, X.shape[1], np.random.RandomState(s), orthogonal) for s in seeds)
    return np.array([features(X) @ features(X).T - K for features in maps])


@pytest.mark.parametrize(
    ("kernel", "orthogonal"),
    [pytest.param(k, o, id=f"{name} {o}") for name, k in KERNELS.items() for o in (False, True)]
    + [pytest.param(k, False, id=name) for name, k in ONE_NORM.items()],
)
def test_the_mean_is_the_kernel(kernel, orthogonal, X):
    draws = errors(kernel, X, 64, orthogonal, range(200))
    standard_error = draws.std(axis=0) / np.sqrt(len(draws))
    # 300 entries: 5 standard errors happen once in a thousand runs, and the seeds are fixed
    assert (np.abs(draws.mean(axis=0)) <= 5 * standard_error + 1e-12).all()


@every_kernel
def test_the_error_falls_like_the_root_of_the_number(kernel, X):
    few, many = (np.sqrt(np.square(errors(kernel, X, m, False, range(40))).mean()) for m in (50, 800))
    assert 3.0 < few / many < 5.4  # sqrt(16) = 4


@pytest.mark.parametrize(
    ("name", "share"),
    [("gaussian", 0.8), ("linear", 0.1), ("sum", 0.8), ("laplacian", 1.0), ("matern 5/2", 1.0)],
)
def test_orthogonal_features_vary_less(name, share, X):
    plain, orthogonal = (np.square(errors(KERNELS[name], X, 64, o, range(80))).mean() for o in (False, True))
    assert orthogonal < share * plain


@pytest.mark.parametrize(
    ("kernel", "law"),
    [
        (Gaussian(2.0), stats.norm()),
        (Laplacian(2.0), stats.cauchy()),
        (Matern(2.0, nu=0.5), stats.cauchy()),
        (Matern(2.0, nu=1.5), stats.t(3)),
        (Matern(2.0, nu=2.5), stats.t(5)),
    ],
    ids=["gaussian", "laplacian", "matern 1/2", "matern 3/2", "matern 5/2"],
)
@plain_and_orthogonal
def test_laws_of_frequencies(kernel, law, orthogonal):
    # a direction of a spherical law has the law in one dimension; cosines and sines share their frequencies
    maps = (kernel.random_features(2000, 5, np.random.RandomState(s), orthogonal) for s in range(2, 6))
    W = 2.0 * np.concatenate([features.weights[:1000] for features in maps])
    assert stats.kstest(W @ np.full(5, 1 / np.sqrt(5)), law.cdf).pvalue > 1e-3


def test_frequencies_of_the_1_norm_are_independent():
    W = 2.0 * Laplacian(2.0, norm=1).random_features(4000, 5, np.random.RandomState(0)).weights
    assert stats.kstest(W.ravel(), stats.cauchy().cdf).pvalue > 1e-3
    # not so with one radius for all features: large ones come alone
    ranks = stats.spearmanr(np.abs(W)).statistic[np.triu_indices(5, 1)]
    assert (np.abs(ranks) < 5 / np.sqrt(4000)).all()
    with pytest.raises(
        ValueError, match=r"Laplacian\(norm=1\) has no orthogonal random features.*use orthogonal=False"
    ):
        Laplacian(2.0, norm=1).random_features(10, 5, np.random.RandomState(0), orthogonal=True)


@plain_and_orthogonal
def test_directions_are_uniform_on_the_sphere(orthogonal):
    U = np.concatenate([directions(7, 3, np.random.RandomState(s), orthogonal) for s in range(1000)])
    assert_allclose(np.linalg.norm(U, axis=1), 1.0)
    assert_allclose(U.mean(axis=0), 0.0, atol=0.03)
    assert_allclose(U.T @ U / len(U), np.eye(3) / 3, atol=0.03)
    if orthogonal:
        groups = U.reshape(-1, 7, 3)
        assert_allclose(
            groups[:, :3] @ groups[:, :3].transpose(0, 2, 1), np.broadcast_to(np.eye(3), (1000, 3, 3)), atol=1e-12
        )
        assert_allclose(groups[:, 6] * groups[:, 6] @ np.ones(3), 1.0)  # the rest of a group


def test_orthogonal_sketch_of_all_dimensions_loses_nothing(X):
    features = Linear().random_features(4, 4, np.random.RandomState(0), orthogonal=True)
    assert_allclose(features(X) @ features(X).T, X @ X.T, atol=1e-12)


def test_the_intercept_takes_one_feature():
    for kernel in (Gaussian(1.0) + 1.0, 1.0 + Gaussian(1.0), Gaussian(1.0) + 0.5 * Constant(2.0)):
        features = kernel.random_features(51, 2, np.random.RandomState(0))
        assert sorted(features.activations) == [("cos", 50), ("identity", 1)]
    assert len((Constant(1.0) + 2.0).random_features(51, 2, np.random.RandomState(0))) == 2


@pytest.mark.parametrize(
    "kernel",
    [Polynomial(), Sigmoid(), Gaussian(1.0) * Laplacian(1.0), lambda A, B: A @ B.T],
    ids=lambda k: type(k).__name__,
)
def test_kernels_without_features(kernel, X):
    with pytest.raises(ValueError, match="has no random features: use Gaussian, Laplacian"):
        RandomFeatures(kernel).fit(X)


def test_a_class_of_ones_own(X):
    class Cosine(Kernel):
        def random_features(self, n_components, n_features, random_state, orthogonal=False):
            return FeatureMap.layer("cos", np.ones((1, n_features)), 0.5, 2.0)

    assert_allclose(RandomFeatures(Cosine()).fit_transform(X), 2 * np.cos(X.sum(axis=1, keepdims=True) + 0.5))


# ---- the operator and least squares ----------------------------------------------------------------------------------


@every_kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_operator_is_the_matrix_of_features(kernel, dtype):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((333, 4)).astype(dtype)
    features = kernel.random_features(37, 4, np.random.RandomState(0))
    F = features(X.astype(np.float64))
    operator = feature_operator(features, X, n_jobs=2)
    assert operator.dtype == dtype
    v, u = rng.standard_normal((37, 2)), rng.standard_normal(333)
    # a step has no precision at its edge, and heavy tails of frequencies magnify rounding
    atol = 1e-12 if dtype == np.float64 else 3e-3
    assert_allclose(operator.matmat(v), F @ v, rtol=atol, atol=atol * np.abs(F @ v).max())
    assert_allclose(operator.rmatmat(u), F.T @ u, rtol=atol, atol=atol * np.abs(F.T @ u).max())


# ---- the transformer -------------------------------------------------------------------------------------------------


@parametrize_with_checks([RandomFeatures(n_components=20), RandomFeatures("arccosine", 5, orthogonal=True)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@every_kernel
def test_transform_gives_the_features(kernel, X):
    model = RandomFeatures(kernel, 50, random_state=3).fit(X)
    F = model.transform(X)
    assert F.shape == (24, 50)
    features = kernel.random_features(50, 4, np.random.RandomState(3))
    assert_allclose(F, features(X), atol=1e-13)
    assert_array_equal(clone(model).fit_transform(X), F)
    assert_array_equal(model.set_params(n_jobs=1).transform(X), F)
    assert list(model.get_feature_names_out()[:2]) == ["randomfeatures0", "randomfeatures1"]


def test_length_scale_from_the_rows(X):
    model = RandomFeatures("gaussian", 10).fit(X)
    assert model.kernel_.length_scale == pytest.approx(np.sqrt(X.var(axis=0).sum() / 2))
    many = np.repeat(X, 1000, axis=0)
    model = RandomFeatures("gaussian", 10, random_state=0).fit(many)
    assert model.kernel_.length_scale == pytest.approx(np.sqrt(X.var(axis=0).sum() / 2), rel=0.03)


def test_precision(X):
    for dtype in (np.float32, np.float64):
        model = RandomFeatures(Gaussian(1.0), 30, random_state=0)
        F = model.fit_transform(X.astype(dtype))
        assert F.dtype == dtype
        assert_allclose(F, RandomFeatures(Gaussian(1.0), 30, random_state=0).fit(X).transform(X), atol=1e-5)
    assert RandomFeatures(n_components=3, dtype="float32").fit_transform(X).dtype == np.float32
    assert RandomFeatures(n_components=3, dtype=np.float64).fit_transform(X.astype(np.float32)).dtype == np.float64


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "n_components=0 must be an integer of at least 1"),
        ({"n_components": 2.5}, "n_components=2.5 must be"),
        ({"n_components": True}, "n_components=True must be"),
        ({"dtype": "float16"}, "dtype='float16' must be"),
        ({"dtype": "nothing"}, "dtype='nothing' must be"),
        ({"kernel": "nothing"}, "kernel='nothing' is not known"),
        ({"kernel": Gaussian(-1.0)}, "length_scale=-1.0 must be positive"),
        ({"kernel": Gaussian([1.0, 2.0])}, "length_scale has 2 values for 4 features"),
        ({"kernel": Gaussian(1.0) + 1.0, "n_components": 1}, "n_components=1 must be at least 2 for a sum"),
    ],
)
def test_bad_parameters(parameters, message, X):
    with pytest.raises(ValueError, match=message):
        RandomFeatures(**parameters).fit(X)


def test_rows_that_overflow_are_told(X):
    with pytest.raises(ValueError, match="not finite"):
        RandomFeatures(ArcCosine(1), 10).fit(X).transform(np.full((2, 4), 3e38, dtype=np.float32))


def test_one_row_and_constant_rows():
    assert np.isfinite(RandomFeatures(n_components=5).fit_transform(np.ones((1, 3)))).all()
    assert np.isfinite(RandomFeatures("laplacian", 5).fit_transform(np.full((9, 1), 7.0))).all()


@pytest.mark.parametrize("kernel", ["gaussian", "arccosine", Gaussian(1.0) + 0.5 * Linear() + 1.0], ids=str)
def test_saved_and_loaded(kernel, X, tmp_path):
    model = RandomFeatures(kernel, 20, orthogonal=True, random_state=0).fit(X)
    model.save(tmp_path / "model")
    loaded = gyrfalcon.load(tmp_path / "model")
    assert_array_equal(loaded.transform(X), model.transform(X))
    assert_array_equal(loaded.get_feature_names_out(), model.get_feature_names_out())


@pytest.mark.parametrize(
    "change",
    [
        {"weights": np.ones((3, 9))},
        {"weights": np.full((5, 4), np.nan)},
        {"offset": np.ones(4)},
        {"scale": np.ones((5, 1))},
        {"scale": np.ones(5, dtype=np.float32)},
        {"offset": np.ones(5, dtype=np.int64)},
        {"activations": (("tan", 5),)},
        {"activations": (("cos", 4),)},
        {"activations": (("cos", -1), ("cos", 6))},
        {"activations": (("cos", 5.0),)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_parts_that_disagree_are_not_loaded(change, X, tmp_path):
    model = RandomFeatures("gaussian", 5).fit(X)
    for name, value in change.items():
        setattr(model.feature_map_, name, value)
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="inconsistent RandomFeatures"):
        gyrfalcon.load(tmp_path / "model")
