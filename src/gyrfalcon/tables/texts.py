"""Columns of free text: character n-grams, hashed and reduced to a few columns.

A level that occurs once has no mean target, but it shares words and parts of words with other rows. The outputs are
what a linear model of the n-grams says about the target, from rows of other folds, and principal coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import lsqr
from sklearn.base import BaseEstimator
from sklearn.utils.extmath import randomized_svd

from .._utils.checks import array
from .._utils.registry import register
from .columns import Column
from .numbers import smoothly_clipped

Array = NDArray[Any]

_SIZES = (3, 4)  # lengths of n-grams, in bytes of UTF-8
_LEAST_TEXTS = 3  # n-grams of fewer texts are ignored: directions would tell these texts from others
_BUCKETS = 4096  # n-grams are counted in this many buckets
_MULTIPLIER, _SHIFT = 2654435761, 20  # of multiplicative hashing to 32 - 20 = 12 bits (Knuth)
_MOST_BYTES = 2_000  # bytes of a text that are read
_MOST_ROWS = 20_000  # most distinct texts from which directions are learnt, and rows of a linear model
_SINGLE = 0.5  # least share of rows whose text no other row has
_WORDS = 0.5  # least share of texts with two words or more
_SAMPLE = 1_000  # texts that are looked at to find out whether they have words
_DAMPING, _ITERATIONS = 1.0, 12  # root of the ridge of the linear model, whose rows have length 1, and its iterations
_MOST_TARGETS = 4  # most targets of the linear model; more are combined at random
_LEAST = 1e-6  # directions below this share of the largest singular value are rounding


@register
class TextColumn(BaseEstimator):  # type: ignore[misc]
    """Linear predictions of the targets from the n-grams of a text, and its coordinates along principal directions.

    Counts of n-grams are damped by the square root, weighted by how rare the n-gram is, and have length 1 in each text.

    n_components : most principal directions
    weights_ : weight of each bucket, the logarithm of the inverse frequency; 0 for n-grams of one or two texts
    slopes_ : coefficients of standardised predictions, of shape (_BUCKETS, n_targets)
    directions_ : directions, of shape (_BUCKETS, k), in units in which the variances of the coordinates add up to 1
    center_ : mean coordinates of the training rows
    gaps_ : whether training had missing values, which then have an output; missing texts are at the center
    """

    weights_: Array
    slopes_: Array
    directions_: Array
    center_: Array
    gaps_: bool

    def __init__(self, n_components: int = 30) -> None:
        self.n_components = n_components

    def fit(self, column: Column, targets: Array | None, fold: Array | None, seed: int) -> Array | None:
        """Learn from the rows of a text column; targets have mean 0, and `fold` is as for `CategoryColumn.fit`.

        Returns the predictions of the rows from targets of other folds, or None without targets or folds.
        """
        known = column.values >= 0
        self.gaps_ = not known.all()
        random_state = np.random.RandomState(seed)
        hashed = hashed_ngrams(column.levels)
        used, counts = np.unique(column.values[known], return_counts=True)
        frequency = np.bincount(hashed[used].indices, minlength=_BUCKETS)
        rarity = np.log((1.0 + len(used)) / (1.0 + frequency))
        self.weights_ = np.where(frequency >= min(_LEAST_TEXTS, len(used)), rarity, 0.0)
        weighted = _weighted(hashed, self.weights_)
        some = np.sort(random_state.permutation(len(used))[:_MOST_ROWS])
        self._set_directions(weighted[used[some]], counts[some] / counts[some].sum(), random_state)
        if targets is None:
            self.slopes_ = np.empty((_BUCKETS, 0))
            return None
        if targets.shape[1] > _MOST_TARGETS:
            targets = targets @ random_state.standard_normal((targets.shape[1], _MOST_TARGETS))
        rows = weighted[np.where(known, column.values, 0)]
        slopes = _slopes(rows[known], targets[known])
        spread = (rows[known] @ slopes).std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        self.slopes_ = slopes / spread
        if fold is None:
            return None
        out = np.zeros((len(known), targets.shape[1]))
        for number in np.unique(fold):
            own = known & (fold == number)
            others = known & (fold != number) & ((fold < 0) | (number >= 0))
            if own.any() and others.any():
                out[own] = rows[own] @ _slopes(rows[others], targets[others]) / spread
        return smoothly_clipped(out)

    def _set_directions(self, texts: csr_array, weight: Array, random_state: np.random.RandomState) -> None:
        """Find the principal directions of distinct texts, which have weights with sum 1."""
        k = min(self.n_components, *texts.shape)
        _, values, directions = randomized_svd(texts, k, n_iter=2, random_state=random_state)
        directions = directions[values > _LEAST * values[0]].T
        outputs = texts @ directions
        center = weight @ outputs
        spread = float(np.sqrt(weight @ np.square(outputs - center).sum(axis=1))) or 1.0
        self.directions_, self.center_ = directions / spread, center / spread

    def transform(self, column: Column) -> Array:
        """Return the outputs of each row."""
        p = self.slopes_.shape[1]
        out = np.zeros((len(column.levels) + 1, p + len(self.center_)))  # the last row is for missing values
        if column.levels:
            texts = _weighted(hashed_ngrams(column.levels), self.weights_)
            out[:-1, :p] = smoothly_clipped(texts @ self.slopes_)
            out[:-1, p:] = texts @ self.directions_ - self.center_
        rows = out[column.values]
        return np.column_stack([rows, column.values < 0]) if self.gaps_ else rows

    @property
    def endings(self) -> list[str]:
        """Names of the outputs, without the name of the column."""
        p = self.slopes_.shape[1]
        names = [f" (target{f', {number + 1}' * (p > 1)})" for number in range(p)]
        names += [f" (text, {number + 1})" for number in range(len(self.center_))]
        return names + [" missing"] * self.gaps_

    def _check_loaded(self) -> None:
        array((_BUCKETS,))("weights_", self.weights_)
        array((None,))("center_", self.center_)
        array((_BUCKETS, None))("slopes_", self.slopes_)
        array((_BUCKETS, len(self.center_)))("directions_", self.directions_)
        if type(self.gaps_) is not bool:
            raise ValueError(f"gaps_={self.gaps_!r} must be True or False")


def _slopes(rows: csr_array, targets: Array) -> Array:
    """Return the coefficients of a ridge regression of each target, from evenly spaced rows if there are many."""
    step = -(-len(targets) // _MOST_ROWS)
    if step > 1:
        rows, targets = rows[::step], targets[::step]
    fits = [lsqr(rows, target, damp=_DAMPING, iter_lim=_ITERATIONS)[0] for target in targets.T]
    return np.stack(fits, axis=1)


def is_free_text(column: Column, most_levels: int) -> bool:
    """Whether a column has more levels than `most_levels`, most of them in one row and made of several words."""
    codes = column.values[column.values >= 0]
    counts = np.bincount(codes, minlength=len(column.levels))
    if (counts > 0).sum() <= most_levels or (counts == 1).sum() < _SINGLE * len(codes):
        return False
    used = np.flatnonzero(counts)
    some = [column.levels[at].split() for at in used[:: -(-len(used) // _SAMPLE)]]
    return sum(sum(any(map(str.isalpha, word)) for word in words) > 1 for words in some) >= _WORDS * len(some)


def hashed_ngrams(texts: Sequence[str]) -> csr_array:
    """Count the n-grams of texts, in lower case with a space before and after, in buckets; rows are texts.

    Each n-gram is a number in base 256, hashed by a multiplication modulo 2^32, so equal texts have equal rows in every
    process and on every machine.
    """
    encoded = [b" " + " ".join(text.lower().split()).encode("utf-8", "replace")[:_MOST_BYTES] + b" " for text in texts]
    lengths = np.array([len(one) for one in encoded])
    joined = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.uint64)
    owner = np.repeat(np.arange(len(texts)), lengths)
    ends = np.repeat(np.cumsum(lengths), lengths)
    rows, buckets = [], []
    for size in _SIZES:
        starts = np.arange(max(0, len(joined) - size + 1))
        starts = starts[starts + size <= ends[starts]]
        number = np.full(len(starts), size, dtype=np.uint64)
        for offset in range(size):
            number = (number * np.uint64(257) + joined[starts + offset]) & np.uint64(0xFFFFFFFF)
        rows.append(owner[starts])
        buckets.append(((number * np.uint64(_MULTIPLIER)) & np.uint64(0xFFFFFFFF)) >> np.uint64(_SHIFT))
    row, bucket = np.concatenate(rows), np.concatenate(buckets).astype(np.int64)
    counts = csr_array((np.ones(len(row)), (row, bucket)), shape=(len(texts), _BUCKETS))
    counts.sum_duplicates()
    return counts


def _weighted(counts: csr_array, weights: Array) -> csr_array:
    """Return square roots of counts times weights, with length 1 in each row."""
    out = counts.copy()
    out.data = np.sqrt(out.data) * weights[out.indices]
    rows = np.repeat(np.arange(out.shape[0]), np.diff(out.indptr))
    sizes = np.sqrt(np.bincount(rows, weights=np.square(out.data), minlength=out.shape[0]))
    out.data /= np.where(sizes > 0, sizes, 1.0)[rows]
    return out
