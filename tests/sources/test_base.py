"""The defaults of Rows, sources that users write, and rows derived from other rows, for arrays and for CSR."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon.sources import Rows, as_rows
from gyrfalcon.sources.base import MappedRows, SubsetRows
from gyrfalcon.sources.blocks import reblock, stack
from gyrfalcon.sources.foreign import ForeignRows
from gyrfalcon.sources.scaling import Moments, Standardize

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


KINDS = pytest.mark.parametrize(
    "kind", [lambda X: as_rows(Plain(X)), lambda X: as_rows(Plain(scipy.sparse.csr_array(X)))]
)


def dense(block):
    return block.toarray() if scipy.sparse.issparse(block) else block


@KINDS
@pytest.mark.parametrize("size", [1, 7, 50, 103, 200])
@pytest.mark.parametrize("chosen", [np.arange(103), np.arange(0, 103, 3), np.array([102]), np.arange(40, 44)])
def test_subset(kind, size, chosen):
    rows = kind(VALUES).subset(chosen)
    assert isinstance(rows, SubsetRows)
    assert rows.shape == (len(chosen), 5)
    blocks = list(rows.blocks(size))
    assert [b.shape[0] for b in blocks[:-1]] == [size] * (len(blocks) - 1)
    assert_array_equal(np.vstack([dense(b) for b in blocks]), VALUES[chosen])
    assert_array_equal(dense(rows.take(np.array([len(chosen) - 1, 0]))), VALUES[chosen[[-1, 0]]])


@KINDS
def test_map_and_astype(kind):
    rows = kind(VALUES)
    assert rows.astype(np.float64) is rows
    narrow = rows.astype(np.float32)
    assert isinstance(narrow, MappedRows)
    assert narrow.dtype == np.float32
    for block in narrow.blocks(10):
        assert block.dtype == np.float32
    part = rows.map(abs, np.float64).subset(np.array([3, 5, 90]))
    assert_array_equal(dense(stack(list(part.blocks(2)))), np.abs(VALUES[[3, 5, 90]]))
    assert rows.is_sparse == narrow.is_sparse


def test_reblock():
    pieces = np.split(np.arange(57.0)[:, None], [3, 3, 20, 21, 50])
    for size in (1, 4, 20, 57, 90):
        blocks = list(reblock(pieces, size))
        assert [len(b) for b in blocks[:-1]] == [size] * (len(blocks) - 1)
        assert_array_equal(np.concatenate(blocks)[:, 0], np.arange(57.0))


@KINDS
def test_fingerprints_change_with_the_contents(kind):
    seen = {kind(VALUES).fingerprint()}
    assert kind(VALUES.copy()).fingerprint() in seen
    changed = VALUES.copy()
    changed[100, 4] += 1e-9
    seen.add(kind(changed).fingerprint())
    seen.add(kind(VALUES[:-1]).fingerprint())
    seen.add(kind(VALUES).astype(np.float32).fingerprint())
    seen.add(kind(VALUES).map(Standardize(None, np.full(5, 2.0), np.float64), np.float64).fingerprint())
    assert len(seen) == 5


def test_defaults_of_a_plain_source():
    rows = as_rows(Plain(VALUES))
    assert isinstance(rows, ForeignRows)
    assert as_rows(rows) is rows
    assert rows.feature_names is None
    assert rows.client is None
    assert not rows.runs_elsewhere
    assert rows.subset(np.arange(3)).buffer_bytes == 0


def test_what_a_plain_source_offers_is_used():
    class Offers(Plain):
        feature_names, buffer_bytes, client = list("abcde"), 7, "mine"

        def subset(self, indices):
            return Offers(self.values[indices])

        def map(self, function, dtype):
            return Plain(function(self.values))

        def fingerprint(self):
            return "the same"

        def moments(self, weight=None):
            return Moments.of(2 * self.values, weight)

    rows = as_rows(Offers(VALUES))
    assert (rows.feature_names, rows.buffer_bytes, rows.client) == (list("abcde"), 7, "mine")
    assert rows.fingerprint() == "the same"
    part = rows.subset(np.array([3, 50]))
    assert isinstance(part, ForeignRows)
    assert isinstance(part.source, Offers)
    assert_array_equal(part.take(np.arange(2)), VALUES[[3, 50]])
    assert isinstance(rows.map(np.abs, np.float64).source, Plain)
    assert_allclose(rows.moments().mean, 2 * VALUES.mean(axis=0))


def test_a_source_that_derives_from_rows():
    class Derived(Plain, Rows):
        pass

    rows = Derived(VALUES)
    assert as_rows(rows) is rows
    assert not rows.is_sparse
    assert_array_equal(rows.subset(np.array([2, 4])).take(np.array([1])), VALUES[[4]])
    with pytest.raises(TypeError, match="abstract"):
        Rows()


@KINDS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scaling(kind, dtype):
    X = VALUES * [1, 10, 100, 1e-3, 0] + ([0, 0, 0, 0, 0] if kind(VALUES).is_sparse else [0, 5, -1e4, 1, 7])
    X = X.astype(dtype)
    mean, scale = kind(X).moments().mean_and_scale()
    deviation = X.astype(np.float64).std(axis=0)
    deviation[4] = 1.0  # does not vary
    assert_allclose(scale, deviation, rtol=1e-10)
    rows = kind(X).map(Standardize(mean, scale, dtype), dtype)
    scaled = np.vstack([dense(block) for block in rows.blocks(40)])
    assert scaled.dtype == dtype
    if rows.is_sparse:
        assert mean is None
        assert_allclose(scaled, X / deviation, rtol=1e-6)
    else:
        assert_allclose(scaled, (X - X.astype(np.float64).mean(axis=0)) / deviation, atol=1e-5)


@KINDS
def test_weighted_moments_are_those_of_repeated_rows(kind):
    weight = RNG.integers(0, 3, 103)
    expected = np.repeat(VALUES, weight, axis=0)
    mean, scale = kind(VALUES).moments(weight / 2).mean_and_scale()
    assert_allclose(scale, expected.std(axis=0), rtol=1e-10)
    if mean is not None:
        assert_allclose(mean, expected.mean(axis=0), atol=1e-12)


def test_times_in_seconds_keep_their_differences():
    X = 1.7e9 + np.arange(1000.0)[:, None]
    mean, scale = as_rows(X).moments().mean_and_scale()
    rows = as_rows(X).map(Standardize(mean, scale, np.float32), np.float32)
    assert_allclose(next(rows.blocks(1000))[:, 0], (np.arange(1000.0) - 499.5) / scale, rtol=1e-5)


@KINDS
@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.7, 1e-8, 1e6 + 0.1, -3e5])
def test_constant_features_of_many_rows(kind, value):
    X = np.column_stack([np.full(50_000, value), np.arange(50_000.0)])
    _, scale = kind(X).moments().mean_and_scale()
    assert scale[0] == 1.0
    assert_allclose(scale[1], X[:, 1].std())


@KINDS
def test_small_deviations_of_large_numbers(kind):
    rng = np.random.default_rng(0)
    X = np.column_stack([1e6 + 1e-3 * rng.standard_normal(20_000), 1.6e9 + rng.random(20_000)])
    _, scale = kind(X).moments().mean_and_scale()
    assert_allclose(scale, (X - X[0]).std(axis=0), rtol=1e-4)


def test_a_feature_that_cannot_be_scaled_is_named():
    X = VALUES.copy()
    X[50, 3] = np.nan
    with pytest.raises(ValueError, match="feature 3 has NaN"):
        as_rows(X).moments().mean_and_scale()
