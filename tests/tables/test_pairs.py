"""Pairs of categories: means of the target in each combination of levels, from rows of other folds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gyrfalcon
from gyrfalcon import AutoRegressor, TableEncoder
from gyrfalcon.tables import encoded_tables
from gyrfalcon.tables.columns import from_text
from gyrfalcon.tables.pairs import PairColumn, held_out_means
from gyrfalcon.tables.reading import recognised_table

N = 1500
A, B, C = np.random.default_rng(0).integers(4, size=(3, N))
TABLE = pd.DataFrame({"a": A, "b": [f"b{value}" for value in B], "c": C, "x": np.random.default_rng(1).normal(size=N)})
ODD = (A + B) % 2  # neither column alone says anything about it


def slow_means(codes, targets, fold):
    """The definition, row by row."""
    out = np.empty_like(targets)
    for row, (code, own) in enumerate(zip(codes, fold, strict=True)):
        others = (fold != own) & (codes == code) & ((fold < 0) | (own >= 0))
        out[row] = targets[others].sum(axis=0) / (others.sum() + 10)
    return out


@pytest.mark.parametrize("first", [0, -2])
def test_means_of_other_folds(first):
    rng = np.random.default_rng(0)
    codes, fold = rng.integers(5, size=60), rng.integers(first, 3, size=60)
    targets = rng.normal(size=(60, 2))
    np.testing.assert_allclose(held_out_means(codes, 6, targets, fold), slow_means(codes, targets, fold), atol=1e-12)


def test_a_pair_without_an_effect_of_its_columns_is_found():
    encoder = TableEncoder(integers="categories", pairs=3, random_state=0)
    Z = encoder.fit_transform(TABLE, ODD)
    assert encoder.pair_columns_.tolist() == [[0, 1]]
    assert encoder.get_feature_names_out().tolist().count("a x b (target)") == 1
    at = encoder.get_feature_names_out().tolist().index("a x b (target)")
    assert abs(np.corrcoef(Z[:, at], ODD)[0, 1]) > 0.95
    assert encoder.feature_origin_[at] == 0
    values = np.zeros(Z.shape[1])
    values[at] = 1.0
    assert encoder.column_totals(values).tolist() == [0.5, 0.5, 0.0, 0.0]
    assert encoder.column_totals(np.ones(Z.shape[1])).sum() == Z.shape[1]


def test_own_targets_do_not_count():
    rng = np.random.default_rng(0)
    y = rng.permutation(ODD)  # nothing to find: pairs are not chosen, and a forced one does not know its rows
    assert len(TableEncoder(integers="categories", pairs=3, random_state=0).fit(TABLE, y).pairs_) == 0
    first, second = from_text([f"{value}" for value in A]), from_text([f"{value}" for value in B])
    targets = (y - y.mean())[:, None]
    out = PairColumn().fit(first, second, targets, rng.integers(5, size=N))
    assert abs(np.corrcoef(out[:, 0], y)[0, 1]) < 0.1


def test_classes_have_two_outputs_and_new_levels_are_known_as_such():
    y = np.array(["u", "v", "w", "z"])[(A * B) % 4]
    encoder = TableEncoder(integers="categories", pairs=5, target_type="multiclass", random_state=0).fit(TABLE, y)
    assert encoder.pairs_[0].values_.shape[2] == 2
    later = pd.DataFrame({"a": [9, None, 1], "b": ["b1", "new", None], "c": [0, 1, 2], "x": [0.0, 0.0, 0.0]})
    out = encoder.transform(later)
    assert np.isfinite(out).all()
    plain = TableEncoder(integers="categories", target_type="multiclass", random_state=0).fit(TABLE, y)
    assert out.shape[1] == plain.transform(later).shape[1] + 2 * len(encoder.pairs_)


def test_files_and_columns_in_another_order(tmp_path):
    encoder = TableEncoder(integers="categories", pairs=3, random_state=0).fit(TABLE, ODD)
    gyrfalcon.save(encoder, tmp_path / "encoder.gyr")
    again = gyrfalcon.load(tmp_path / "encoder.gyr")
    np.testing.assert_array_equal(again.transform(TABLE[["x", "c", "b", "a"]]), encoder.transform(TABLE))


def test_no_pairs_without_targets():
    encoder = TableEncoder(integers="categories", pairs=3).fit(TABLE)
    assert encoder.pairs_ == []
    with pytest.raises(ValueError, match="pairs=-1"):
        TableEncoder(pairs=-1).fit(TABLE, ODD)
    with pytest.raises(ValueError, match="one for each output"):
        encoder.column_totals([1.0])


class Once:
    """A callback that ends the search after its first candidate."""

    def on_iteration(self, record):
        return True


def test_a_model_with_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr(encoded_tables, "_order", lambda table: ["pairs"])
    y = ODD + 0.1 * np.random.default_rng(1).normal(size=N)
    model = AutoRegressor(time_budget=300, families=("kernel",), random_state=0, callbacks=[Once()]).fit(TABLE, y)
    assert model.candidates_[0]["encoding"] == "pairs"
    assert len(model.encoders_[0].pairs_) == 1
    model.save(tmp_path / "model.gyr")
    np.testing.assert_array_equal(gyrfalcon.load(tmp_path / "model.gyr").predict(TABLE[:9]), model.predict(TABLE[:9]))
    importances = model.feature_importances_
    assert importances[0] == pytest.approx(importances[1], rel=0.1)  # those of the pair count half for each
    assert importances[0] > importances[2]
    # sampled, since one output depends on two columns
    found = gyrfalcon.shapley_values(model, TABLE[:2], TABLE[:5], n_permutations=8, random_state=0)
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base_values, model.predict(TABLE[:2]), atol=1e-6)


def test_when_pairs_are_tried():
    table = recognised_table(TABLE, "a test")
    assert encoded_tables._order(table)[1] == "pairs"  # three of four columns are categories or few whole numbers
    assert "pairs" not in encoded_tables._order(table.take(np.arange(2)))
