"""What is drawn of Shapley values is what they are."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

from gyrfalcon import FalkonRegressor, ShapleyValues, shapley_values
from gyrfalcon.plots import ShapleyDisplay

mpl.use("Agg")

rng = np.random.default_rng(0)
X = rng.standard_normal((80, 4))


@pytest.fixture(scope="module")
def model():
    return FalkonRegressor("gaussian", random_state=0).fit(X, 3 * X[:, 2] + X[:, 0])


def test_swarms(model):
    display = ShapleyDisplay.from_estimator(model, X[:30], X[30:])
    display.figure_.canvas.draw()
    why = shapley_values(model, X[:30], X[30:])
    assert display.order[0] == 2
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == [f"x{j}" for j in display.order]
    for points, j in zip(display.points_, display.order, strict=True):
        np.testing.assert_array_equal(points.get_offsets()[:, 0], why.values[:, j])
        np.testing.assert_array_equal(np.argsort(points.get_array()), np.argsort(X[:30, j]))
    heights = display.points_[0].get_offsets()[:, 1]
    assert np.abs(heights).max() < 0.5


def test_steps_lead_from_the_base_value_to_the_prediction(model):
    display = ShapleyDisplay.from_estimator(model, X[:30], X[30:], kind="waterfall", row=5, max_features=2)
    display.figure_.canvas.draw()
    bars = display.bars_.patches
    starts, ends = np.array([(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars]).T
    np.testing.assert_allclose(starts[-1], model.predict(X[30:]).mean(), atol=1e-5)
    np.testing.assert_allclose(ends[1:], starts[:-1], atol=1e-9)
    np.testing.assert_allclose(ends[0], model.predict(X[5:6])[0], atol=1e-5)
    assert display.ax_.get_yticklabels()[-1].get_text() == "2 other columns"


def test_text_and_outputs():
    data = np.array([["a", 1.0], ["b", np.nan], ["a", 3.0]], dtype=object)
    why = ShapleyValues(rng.standard_normal((3, 2, 2)), np.ones((3, 2)), data, ["word", "number"], exact=True)
    display = ShapleyDisplay(explanation=why, output=1).plot()
    display.figure_.canvas.draw()
    np.testing.assert_array_equal(display.values, why.values[:, :, 1])
    steps = ShapleyDisplay(explanation=why, kind="waterfall", row=1).plot()
    assert {label.get_text() for label in steps.ax_.get_yticklabels()} == {"word = b", "number"}


def test_errors(model):
    why = shapley_values(model, X[:3])
    with pytest.raises(ValueError, match="kind='bars'"):
        ShapleyDisplay(explanation=why, kind="bars")
    with pytest.raises(ValueError, match="row=3"):
        ShapleyDisplay(explanation=why, row=3)
    with pytest.raises(ValueError, match="output=1"):
        ShapleyDisplay(explanation=why, output=1)
    with pytest.raises(NotFittedError):
        ShapleyDisplay.from_estimator(FalkonRegressor(), X)
    with pytest.raises(TypeError, match="Ridge"):
        ShapleyDisplay.from_estimator(Ridge(), X)
