"""Tables that are not what their user thinks: ids, the target among the columns, copies of rows, two values."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from short_search import Brief

from gyrfalcon import AutoClassifier, AutoRegressor
from gyrfalcon.tables.reading import recognised_table
from gyrfalcon.tables.suspicions import id_columns, warn_of_copies, warn_of_target, warn_of_two_values


def frame_of(n=200, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": rng.standard_normal(n), "city": rng.choice(["Genova", "Roma", "Torino"], n)})
    y = np.sin(2 * frame["x"]) + (frame["city"] == "Roma") + 0.3 * rng.standard_normal(n)
    return frame, y.to_numpy()


def read(frame):
    return recognised_table(frame, "a test")


# ---- ids -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["id", "ID", "customer_id", "customerId", "row.id", "Unnamed: 0", "index"])
@pytest.mark.parametrize("kind", [float, int, str])
def test_a_different_value_in_every_row_under_the_name_of_an_id(name, kind):
    frame, _ = frame_of()
    values = [kind(f"{7 * at + 3}") if kind is not str else f"k{at}" for at in range(200)]
    assert id_columns(read(frame.assign(**{name: values}))) == [2]


@pytest.mark.parametrize("name", ["x", "period", "paid", "humid", "time"])
def test_other_names_are_no_ids(name):
    frame, _ = frame_of()
    assert id_columns(read(frame.assign(**{name: np.arange(200)}))) == []


def test_what_repeats_is_missing_or_has_decimals_is_no_id():
    frame, _ = frame_of()
    for values in (np.arange(200) // 2, np.arange(200) + 0.5, [None, *range(199)]):
        assert id_columns(read(frame.assign(id=values))) == []
    assert id_columns(read(frame.assign(id=np.arange(200))[:99])) == []
    assert id_columns(read(pd.DataFrame({"id": np.arange(200)}))) == []  # nothing else is left


def test_ids_are_dropped_with_a_warning_and_may_hold_anything_later():
    frame, y = frame_of()
    whole = frame.assign(id=np.random.default_rng(0).permutation(10_000)[:200])
    with pytest.warns(UserWarning, match="column 'id' is dropped, since it has the name of an id"):
        model = AutoRegressor(families=("kernel",), callbacks=Brief(2), random_state=0).fit(whole, y)
    assert model.best_estimator_[0].kinds_.tolist() == ["number", "category", "dropped"]
    np.testing.assert_array_equal(model.predict(whole), model.predict(whole.assign(id="other")))
    without = AutoRegressor(families=("kernel",), callbacks=Brief(2), random_state=0).fit(frame, y)
    np.testing.assert_array_equal(model.predict(whole), without.predict(frame))


# ---- the target among the columns ------------------------------------------------------------------------------------


@pytest.mark.parametrize("disguise", [lambda y: 2.54 * y + 1, np.exp, lambda y: [f"{one:.1f} m" for one in y]])
def test_a_column_that_is_the_target(disguise):
    frame, y = frame_of(3000)
    y = y.round()
    with pytest.warns(UserWarning, match="column 'again' predicts y nearly without an error"):
        warn_of_target(read(frame.assign(again=disguise(y))), y[:, None])


def test_labels_in_other_words():
    frame, y = frame_of()
    sign = np.sign(y)
    with pytest.warns(UserWarning, match="columns 'a', 'b' predict y .* each alone"):
        warn_of_target(read(frame.assign(a=np.where(sign > 0, "yes", "no"), b=sign > 0)), sign[:, None])


def test_good_columns_are_not_suspected():
    frame, y = frame_of(3000)
    close = frame.assign(
        close=y + 0.05 * np.random.default_rng(1).standard_normal(3000), key=np.arange(3000).astype(str)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_target(read(close), y[:, None])
        warn_of_target(read(frame), np.zeros((3000, 1)))


# ---- copies ----------------------------------------------------------------------------------------------------------


def test_copies_in_other_folds():
    frame, y = frame_of()
    rows = np.r_[np.arange(200), np.arange(20)]
    twice, fold = read(frame.iloc[rows]), np.arange(220) % 5
    X = frame[["x"]].to_numpy()[rows]
    fold[200:] = (fold[:20] + 1) % 5
    with pytest.warns(UserWarning, match="18% of the 220 rows are copies"):
        warn_of_copies(twice, X, y[rows, None], fold)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fold[200:] = fold[:20]  # held out together
        warn_of_copies(twice, X, y[rows, None], fold)
        fold[200:] = (fold[:20] + 1) % 5
        warn_of_copies(twice, X, np.arange(220.0)[:, None], fold)  # with other targets
        dice = np.random.default_rng(0).integers(0, 6, (220, 2)).astype(float)
        warn_of_copies(read(dice), dice, np.zeros((220, 1)), fold)  # by chance


def test_a_fit_says_so():
    frame, y = frame_of()
    rows = np.r_[np.arange(200), np.arange(100)]
    labels = np.where(y > 0.5, "high", "low")
    with pytest.warns(UserWarning, match="rows are copies of rows in other folds"):
        AutoClassifier(families=("kernel",), callbacks=Brief(1), random_state=0).fit(frame.iloc[rows], labels[rows])


def test_two_values_are_classes():
    with pytest.warns(UserWarning, match="y has two values, 0 and 2: AutoClassifier"):
        warn_of_two_values(np.tile([0.0, 2.0], 50))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_two_values(np.tile([0.0, 1.0, 2.0], 50))
        warn_of_two_values(np.tile([0.0, 1.0], 10))
