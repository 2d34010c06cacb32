"""Columns of free text: hashed n-grams, their principal coordinates, and what they say about the target."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

import gyrfalcon
from gyrfalcon import AutoRegressor, TableEncoder
from gyrfalcon.tables.columns import from_text
from gyrfalcon.tables.texts import TextColumn, hashed_ngrams, is_free_text

WORDS = [
    "solid",
    "oak",
    "table",
    "chair",
    "vintage",
    "broken",
    "lamp",
    "brass",
    "new",
    "used",
    "small",
    "large",
    "blue",
]
RNG = np.random.default_rng(0)
N = 600
PARTS = [RNG.choice(WORDS, size=6).tolist() for _ in range(N)]
TITLES = [f"{' '.join(words)} no {at}" for at, words in enumerate(PARTS)]
PRICE = np.array([words.count("vintage") - words.count("broken") for words in PARTS]) + 0.1 * RNG.normal(size=N)
TABLE = pd.DataFrame({"title": TITLES, "size": RNG.normal(size=N)})


def slow_ngrams(text):
    """The definition, one n-gram at a time."""
    data = b" " + " ".join(text.lower().split()).encode() + b" "
    found = Counter()
    for size in (3, 4):
        for start in range(len(data) - size + 1):
            number = size
            for byte in data[start : start + size]:
                number = (number * 257 + byte) % 2**32
            found[(number * 2654435761 % 2**32) >> 20] += 1
    return found


@pytest.mark.parametrize("text", ["Oak  table", "x", "", "Ünïcode 椅子", "aaaa aaaa"])
def test_hashes(text):
    row = hashed_ngrams([text, "other"])
    assert isinstance(row, csr_array)
    found = {int(at): int(count) for at, count in zip(row[[0]].indices, row[[0]].data, strict=True)}
    assert found == dict(slow_ngrams(text))


@pytest.mark.parametrize(
    ("texts", "free"),
    [
        (TITLES, True),
        ([f"id{at}" for at in range(N)], False),  # one word
        ([f"shop {at % 80}" for at in range(N)], False),  # levels that repeat
        (TITLES[:20], False),  # few levels
        (["new lamp", None] * 3, False),
    ],
)
def test_what_is_free_text(texts, free):
    assert is_free_text(from_text(texts), 30) == free


def test_what_text_says_about_y():
    encoder = TableEncoder(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a column of text is used, so there is no warning of its levels
        Z = encoder.fit_transform(TABLE[:400], PRICE[:400])
    assert encoder.kinds_.tolist() == ["text", "number"]
    names = encoder.get_feature_names_out().tolist()
    assert names[:2] == ["title (target)", "title (text, 1)"]
    assert names[-1] == "size"
    assert encoder.feature_origin_.tolist() == [0] * 31 + [1]
    later = encoder.transform(TABLE[400:])
    assert np.corrcoef(Z[:, 0], PRICE[:400])[0, 1] > 0.8  # out of fold
    assert np.corrcoef(later[:, 0], PRICE[400:])[0, 1] > 0.8
    assert later[:, 1:31].var(axis=0).sum() == pytest.approx(1.0, rel=0.4)
    assert encoder.column_totals(np.ones(32)).tolist() == [31.0, 1.0]


def test_own_targets_do_not_count():
    y = np.random.default_rng(1).normal(size=N)
    Z = TableEncoder(random_state=0).fit_transform(TABLE, y)
    assert abs(np.corrcoef(Z[:, 0], y)[0, 1]) < 0.15


def test_principal_coordinates_against_a_dense_decomposition():
    column = from_text(TITLES[:80])
    text = TextColumn(5)
    text.fit(column, None, None, 0)
    dense = hashed_ngrams(TITLES[:80]).toarray()
    frequency = (dense > 0).sum(axis=0)
    weights = np.where(frequency > 2, np.log(81 / (1 + frequency)), 0.0)
    rows = np.sqrt(dense) * weights
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    _, _, directions = np.linalg.svd(rows, full_matrices=False)
    expected = rows @ directions[:5].T
    expected = (expected - expected.mean(axis=0)) / np.sqrt(expected.var(axis=0).sum())
    found = text.transform(column)
    np.testing.assert_allclose(np.abs(found[:, 0]), np.abs(expected[:, 0]), atol=0.05)  # a randomised decomposition
    assert found.var(axis=0).sum() == pytest.approx(1.0)


def test_missing_and_strange_texts(tmp_path):
    titles = [None if at % 9 == 0 else title for at, title in enumerate(TITLES)]
    encoder = TableEncoder(random_state=0).fit(pd.DataFrame({"title": titles}), PRICE)
    assert encoder.get_feature_names_out().tolist()[-1] == "title missing"
    later = pd.DataFrame({"title": [None, "", "椅子", "x" * 10_000]})
    out = encoder.transform(later)
    assert np.isfinite(out).all()
    assert out[0].tolist() == [0.0] * (out.shape[1] - 1) + [1.0]
    gyrfalcon.save(encoder, tmp_path / "encoder.gyr")
    np.testing.assert_array_equal(gyrfalcon.load(tmp_path / "encoder.gyr").transform(later), out)


def test_zero_coordinates_means_categories():
    with pytest.warns(UserWarning, match="more levels than half"):
        encoder = TableEncoder(text=0, random_state=0).fit(TABLE, PRICE)
    assert encoder.kinds_.tolist() == ["dropped", "number"]  # every level is rare
    with pytest.raises(ValueError, match="text=-1"):
        TableEncoder(text=-1).fit(TABLE, PRICE)


def test_many_classes_are_combined():
    y = np.array(WORDS)[[WORDS.index(words[0]) for words in PARTS]]
    encoder = TableEncoder(target_type="multiclass", random_state=0).fit(TABLE, y)
    assert encoder.texts_[0].slopes_.shape[1] == 4


class Once:
    """A callback that ends the search after its first candidate."""

    def on_iteration(self, record):
        return True


def test_a_model_of_text(tmp_path):
    model = AutoRegressor(time_budget=300, families=("kernel",), random_state=0, callbacks=[Once()])
    model.fit(TABLE[:400], PRICE[:400])
    assert model.score(TABLE[400:], PRICE[400:]) > 0.5
    assert model.feature_importances_[0] > 0.5
    model.save(tmp_path / "model.gyr")
    again = gyrfalcon.load(tmp_path / "model.gyr")
    np.testing.assert_array_equal(again.predict(TABLE[400:410]), model.predict(TABLE[400:410]))
