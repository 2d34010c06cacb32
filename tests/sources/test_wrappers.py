"""Rows made of other rows: some of them, a function of them, scaled ones; for arrays and for CSR."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon.sources import as_rows, buffer_bytes, converted, feature_names, fingerprint, is_sparse, mapped, subset
from gyrfalcon.sources.base import MappedRows, SubsetRows, reblocked, stack
from gyrfalcon.sources.scaling import Standardize, moments

RNG = np.random.default_rng(0)
VALUES = RNG.standard_normal((103, 5)) * (RNG.random((103, 5)) < 0.5)


class Plain:
    """A source with the four members and no more."""

    def __init__(self, values):
        self.values = values
        self.shape, self.dtype = values.shape, values.dtype

    def blocks(self, size):
        for start in range(0, self.shape[0], size):
            yield self.values[start : start + size]

    def take(self, indices):
        return self.values[indices]


KINDS = pytest.mark.parametrize("kind", [lambda X: Plain(X), lambda X: Plain(scipy.sparse.csr_array(X))])


def dense(block):
    return block.toarray() if scipy.sparse.issparse(block) else block


@KINDS
@pytest.mark.parametrize("size", [1, 7, 50, 103, 200])
@pytest.mark.parametrize("chosen", [np.arange(103), np.arange(0, 103, 3), np.array([102]), np.arange(40, 44)])
def test_subset(kind, size, chosen):
    rows = subset(kind(VALUES), chosen)
    assert isinstance(rows, SubsetRows)
    assert rows.shape == (len(chosen), 5)
    blocks = list(rows.blocks(size))
    assert [b.shape[0] for b in blocks[:-1]] == [size] * (len(blocks) - 1)
    assert_array_equal(np.vstack([dense(b) for b in blocks]), VALUES[chosen])
    assert_array_equal(dense(rows.take(np.array([len(chosen) - 1, 0]))), VALUES[chosen[[-1, 0]]])


@KINDS
def test_mapped_and_converted(kind):
    rows = kind(VALUES)
    assert converted(rows, np.float64) is rows
    narrow = converted(rows, np.float32)
    assert isinstance(narrow, MappedRows)
    assert narrow.dtype == np.float32
    for block in narrow.blocks(10):
        assert block.dtype == np.float32
    part = subset(mapped(rows, abs, np.float64), np.array([3, 5, 90]))
    assert_array_equal(dense(stack(list(part.blocks(2)))), np.abs(VALUES[[3, 5, 90]]))
    assert is_sparse(rows) == is_sparse(narrow)


def test_reblocked():
    pieces = np.split(np.arange(57.0)[:, None], [3, 3, 20, 21, 50])
    for size in (1, 4, 20, 57, 90):
        blocks = list(reblocked(pieces, size))
        assert [len(b) for b in blocks[:-1]] == [size] * (len(blocks) - 1)
        assert_array_equal(np.concatenate(blocks)[:, 0], np.arange(57.0))


@KINDS
def test_fingerprints_change_with_the_contents(kind):
    seen = {fingerprint(kind(VALUES))}
    assert fingerprint(kind(VALUES.copy())) in seen
    changed = VALUES.copy()
    changed[100, 4] += 1e-9
    seen.add(fingerprint(kind(changed)))
    seen.add(fingerprint(kind(VALUES[:-1])))
    seen.add(fingerprint(converted(kind(VALUES), np.float32)))
    seen.add(fingerprint(mapped(kind(VALUES), Standardize(None, np.full(5, 2.0), np.float64), np.float64)))
    assert len(seen) == 5


def test_what_a_plain_source_does_not_say():
    assert feature_names(Plain(VALUES)) is None
    assert buffer_bytes(subset(Plain(VALUES), np.arange(3))) == 0


@KINDS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scaling(kind, dtype):
    X = VALUES * [1, 10, 100, 1e-3, 0] + ([0, 0, 0, 0, 0] if is_sparse(kind(VALUES)) else [0, 5, -1e4, 1, 7])
    X = X.astype(dtype)
    mean, scale = moments(kind(X))
    deviation = X.astype(np.float64).std(axis=0)
    deviation[4] = 1.0  # does not vary
    assert_allclose(scale, deviation, rtol=1e-10)
    rows = mapped(kind(X), Standardize(mean, scale, dtype), dtype)
    scaled = np.vstack([dense(block) for block in rows.blocks(40)])
    assert scaled.dtype == dtype
    if is_sparse(rows):
        assert mean is None
        assert_allclose(scaled, X / deviation, rtol=1e-6)
    else:
        assert_allclose(scaled, (X - X.astype(np.float64).mean(axis=0)) / deviation, atol=1e-5)


@KINDS
def test_weighted_moments_are_those_of_repeated_rows(kind):
    weight = RNG.integers(0, 3, 103)
    expected = np.repeat(VALUES, weight, axis=0)
    mean, scale = moments(kind(VALUES), weight / 2)
    assert_allclose(scale, expected.std(axis=0), rtol=1e-10)
    if mean is not None:
        assert_allclose(mean, expected.mean(axis=0), atol=1e-12)


def test_times_in_seconds_keep_their_differences():
    X = 1.7e9 + np.arange(1000.0)[:, None]
    mean, scale = moments(as_rows(X))
    rows = mapped(as_rows(X), Standardize(mean, scale, np.float32), np.float32)
    assert_allclose(next(rows.blocks(1000))[:, 0], (np.arange(1000.0) - 499.5) / scale, rtol=1e-5)


@KINDS
@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.7, 1e-8, 1e6 + 0.1, -3e5])
def test_constant_features_of_many_rows(kind, value):
    X = np.column_stack([np.full(50_000, value), np.arange(50_000.0)])
    _, scale = moments(kind(X))
    assert scale[0] == 1.0
    assert_allclose(scale[1], X[:, 1].std())


@KINDS
def test_small_deviations_of_large_numbers(kind):
    rng = np.random.default_rng(0)
    X = np.column_stack([1e6 + 1e-3 * rng.standard_normal(20_000), 1.6e9 + rng.random(20_000)])
    _, scale = moments(kind(X))
    assert_allclose(scale, (X - X[0]).std(axis=0), rtol=1e-4)


def test_a_feature_that_cannot_be_scaled_is_named():
    X = VALUES.copy()
    X[50, 3] = np.nan
    with pytest.raises(ValueError, match="feature 3 has NaN"):
        moments(as_rows(X))
