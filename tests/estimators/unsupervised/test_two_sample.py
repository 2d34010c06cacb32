"""mmd_test against its definition, and its level."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal

import gyrfalcon
from gyrfalcon import mmd_test
from gyrfalcon.estimators import two_sample
from gyrfalcon.kernels import Constant, Gaussian, Linear
from gyrfalcon.sources.csv_files import CsvReader


@pytest.fixture(scope="module")
def sets():
    rng = np.random.default_rng(0)
    return rng.standard_normal((60, 2)), rng.standard_normal((80, 2)) * 1.5 + 0.2


def by_definition(kernel, X, Y):
    return kernel(X, X).mean() + kernel(Y, Y).mean() - 2 * kernel(X, Y).mean()


def test_with_every_row_a_center_it_is_the_definition(sets):
    X, Y = sets
    kernel = Gaussian(1.0)
    test = mmd_test(X, Y, kernel, n_permutations=40, scale=False, random_state=0)
    assert_allclose(test.statistic, by_definition(kernel, X, Y), rtol=1e-8)
    both, rng = np.vstack([X, Y]), np.random.RandomState(0)
    rng.choice(140, 140, replace=False)  # the centers
    orders = [rng.permutation(140) for _ in range(40)]
    expected = [by_definition(kernel, both[order[:60]], both[order[60:]]) for order in orders]
    assert_allclose(test.permutations, expected, rtol=1e-8)
    assert test.pvalue == (1 + np.sum(np.array(expected) >= test.statistic)) / 41
    new = both[:10] + 0.5
    assert_allclose(test.witness(new), kernel(new, X).mean(axis=1) - kernel(new, Y).mean(axis=1), atol=1e-10)
    with pytest.raises(dataclasses.FrozenInstanceError):
        test.pvalue = 0.5


def test_few_centers_and_scaled_features(sets):
    X, Y = sets
    options = {"scale": True, "n_centers": 30, "n_permutations": 20, "random_state": 0}
    test = mmd_test(X * [1, 100], Y * [1, 100], Gaussian(1.0), **options)
    both = np.vstack([X, Y])
    Z = (both - both.mean(axis=0)) / both.std(axis=0)
    kernel, C = Gaussian(1.0), test.centers
    w = np.r_[np.full(60, 1 / 60), np.full(80, -1 / 80)]
    z = kernel(Z, C).T @ w
    assert_allclose(test.statistic, z @ np.linalg.pinv(kernel(C, C), rcond=1e-14, hermitian=True) @ z, rtol=1e-6)
    assert test.statistic < by_definition(kernel, Z[:60], Z[60:])
    assert_allclose((test.witness(X * [1, 100]).mean() - test.witness(Y * [1, 100]).mean()), test.statistic, rtol=1e-6)


def test_chunks_of_columns_change_nothing(monkeypatch, sets):
    X, Y = sets
    expected = mmd_test(X, Y, n_permutations=30, random_state=0)
    monkeypatch.setattr(two_sample, "_MOST_COLUMNS", 7)
    test = mmd_test(X, Y, n_permutations=30, random_state=0, memory_budget=0)
    assert_allclose(test.permutations, expected.permutations, rtol=1e-9)
    assert test.pvalue == expected.pvalue


def test_level_and_power():
    rng = np.random.default_rng(0)
    draws = [(rng.standard_normal((20, 2)), rng.standard_normal((15, 2))) for _ in range(200)]
    options = {"kernel": Gaussian(1.0), "n_permutations": 39, "n_centers": 10, "scale": False, "random_state": 0}
    p = np.array([mmd_test(X, Y, **options).pvalue for X, Y in draws])
    # 5%, with a standard error of 1.5%
    assert 0.01 < (p <= 0.05).mean() < 0.09
    assert 0.4 < p.mean() < 0.6
    assert all(mmd_test(X, Y + 2.0, **options).pvalue == 1 / 40 for X, Y in draws[:20])


def test_rows_from_elsewhere(tmp_path, sets):
    X, Y = sets
    expected = mmd_test(X, Y, n_permutations=20, random_state=0)
    np.save(tmp_path / "X.npy", X)
    test = mmd_test(gyrfalcon.open(tmp_path / "X.npy").X, Y, n_permutations=20, random_state=0)
    assert_array_equal(test.permutations, expected.permutations)
    da = pytest.importorskip("dask.array")
    test = mmd_test(X, da.from_array(Y, chunks=(30, -1)), n_permutations=20, random_state=0)
    assert_allclose(test.permutations, expected.permutations, rtol=1e-7)
    sparse = [scipy.sparse.csr_array(rows) for rows in sets]
    test = mmd_test(*sparse, n_permutations=20, random_state=0)
    expected = mmd_test(X, Y, n_permutations=20, scale=False, random_state=0)
    assert_allclose(test.permutations, expected.permutations, rtol=1e-6)
    assert_allclose(test.witness(X[:5]), expected.witness(X[:5]), atol=1e-9)


def test_the_same_rows_are_never_told_apart(sets):
    X, _ = sets
    test = mmd_test(X, X, n_permutations=19, random_state=0)
    assert test.statistic == pytest.approx(0, abs=1e-12)
    assert test.pvalue == 1.0
    for kernel in (Constant(1.0), "gaussian", Linear()):
        test = mmd_test(np.ones((3, 2)), np.ones((1, 2)), kernel, n_permutations=9, random_state=0)
        assert test.pvalue == 1.0
    assert mmd_test([[0.0]], [[1.0]], n_permutations=9, random_state=0).pvalue == 1.0


@pytest.mark.parametrize(
    ("X", "Y", "options", "message"),
    [
        (np.zeros((3, 2)), np.zeros((3, 1)), {}, "X has 2 features and Y 1"),
        (np.zeros((3, 2)), np.zeros((0, 2)), {}, "Y has no rows"),
        (np.zeros((3, 2)), np.zeros((3, 2)), {"n_permutations": 0}, "n_permutations=0 must be"),
        (np.zeros((3, 2)), np.zeros((3, 2)), {"n_centers": 0}, "n_centers=0 must be"),
        (np.zeros((3, 2)), np.zeros((3, 2)), {"scale": "yes"}, "scale='yes' must be"),
        (np.array([[np.nan]]), np.zeros((3, 1)), {}, "NaN"),
        (np.array([[np.nan], [0.0]]), np.zeros((3, 1)), {"scale": False}, "NaN|nan"),
    ],
)
def test_bad_input(X, Y, options, message):
    with pytest.raises(ValueError, match=message):
        mmd_test(X, Y, **options)


def test_sparse_beside_dense(sets):
    with pytest.raises(TypeError, match="give both sparse"):
        mmd_test(sets[0], scipy.sparse.csr_array(sets[1]))
    with pytest.raises(MemoryError, match="lower n_centers"):
        mmd_test(*sets, memory_budget="100kB")


def test_names_of_features(sets):
    pd = pytest.importorskip("pandas")
    X, Y = (pd.DataFrame(rows, columns=["a", "b"]) for rows in sets)
    test = mmd_test(X, Y, n_permutations=9, random_state=0)
    assert test.feature_names == ["a", "b"]
    assert test.statistic == mmd_test(*sets, n_permutations=9, random_state=0).statistic
    with pytest.raises(ValueError, match="feature 0 of Y is 'b', but X has 'a' there"):
        mmd_test(X, Y[["b", "a"]])
    with pytest.raises(ValueError, match="feature 1 of Y is 'c', but X has 'b' there"):
        mmd_test(X, Y.rename(columns={"b": "c"}))
    with pytest.raises(ValueError, match="feature 0 of the rows is 'b', but the test has 'a' there"):
        test.witness(X[["b", "a"]])
    assert_array_equal(test.witness(X), test.witness(sets[0]))  # numbers without names pass
    assert mmd_test(sets[0], Y, n_permutations=9, random_state=0).feature_names == ["a", "b"]
    assert mmd_test(*sets, n_permutations=9, random_state=0).feature_names is None


@pytest.mark.parametrize("scale", [True, False])
def test_witness_of_rows_of_another_width(sets, scale):
    test = mmd_test(*sets, n_permutations=9, scale=scale, random_state=0)
    assert test.n_features == 2
    with pytest.raises(ValueError, match="the rows have 1 features, but the test was made with 2"):
        test.witness(np.zeros((3, 1)))


def test_text_is_parsed_once_and_has_names(sets, tmp_path, monkeypatch):
    X, Y = sets
    for name, rows, header in (("X", X, "a,b"), ("Y", Y, "a,b"), ("Z", Y, "b,a")):
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header=header, comments="", fmt="%.17g")
    text = {name: gyrfalcon.open(tmp_path / f"{name}.csv").X for name in "XYZ"}
    parsed, batches = [], CsvReader.batches
    monkeypatch.setattr(CsvReader, "batches", lambda *arguments: parsed.append(1) or batches(*arguments))
    test = mmd_test(text["X"], text["Y"], n_permutations=20, random_state=0)
    assert len(parsed) == 2
    assert_array_equal(test.permutations, mmd_test(X, Y, n_permutations=20, random_state=0).permutations)
    with pytest.raises(ValueError, match="feature 0 of Y is 'b', but X has 'a' there"):
        mmd_test(text["X"], text["Z"])
    assert_array_equal(test.witness(text["X"]), test.witness(X))


def test_result_is_like_those_of_scipy_stats(sets):
    test = mmd_test(*sets, n_permutations=9, random_state=0)
    statistic, pvalue = test
    assert (statistic, pvalue) == (test.statistic, test.pvalue) == (test[0], test[1])
    assert len(test) == 2
    assert test.p_value == test.pvalue
    assert len(test.permutations) == 9
