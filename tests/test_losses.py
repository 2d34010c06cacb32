"""Losses against differences of their own values, at moderate and at extreme f."""

from __future__ import annotations

import numpy as np
import pytest

from gyrfalcon.losses import (
    Hinge,
    Huber,
    Logistic,
    Loss,
    Poisson,
    Quantile,
    Softmax,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
    as_loss,
)

LOSSES = [
    Squared(),
    Logistic(),
    Softmax(),
    SquaredHinge(),
    Hinge(0.3),
    Huber(0.7),
    SquaredEpsilonInsensitive(0.7),
    SquaredEpsilonInsensitive([0.1, 0.5, 0.8]),
    Quantile([0.1, 0.5, 0.8], 0.3),
    Quantile(0.3, 0.1),
    Poisson(),
]
OF_SIGNS = (Logistic, SquaredHinge, Hinge)


def targets(loss, n, k, rng):
    if isinstance(loss, OF_SIGNS):
        return rng.choice([-1.0, 1.0], size=(n, k))
    if isinstance(loss, Softmax):
        return np.eye(k)[rng.integers(k, size=n)]
    return rng.poisson(2.0, size=(n, k)).astype(float) if isinstance(loss, Poisson) else rng.standard_normal((n, k))


def problem(loss, n=200, k=3):
    rng = np.random.default_rng(0)
    return targets(loss, n, k, rng), 2 * rng.standard_normal((n, k))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_gradient_is_the_slope_of_the_value(loss):
    y, f = problem(loss)
    h = 1e-6
    for j in range(f.shape[1]):
        e = h * (np.arange(f.shape[1]) == j)
        slope = (loss.value(y, f + e).sum(axis=1) - loss.value(y, f - e).sum(axis=1)) / (2 * h)
        np.testing.assert_allclose(loss.gradient(y, f)[:, j], slope, atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_curvature_is_the_slope_of_the_gradient(loss):
    y, f = problem(loss)
    corner = {Huber: ("delta", 0.0), SquaredEpsilonInsensitive: ("epsilon", 0.0), SquaredHinge: (None, 1.0)}
    if type(loss) in corner:  # away from where the second derivative jumps
        name, at = corner[type(loss)]
        distance = np.abs(y * f - at) if name is None else np.abs(np.abs(f - y) - getattr(loss, name))
        f = np.where(distance < 1e-3, f + 0.01, f)
    T = np.random.default_rng(1).standard_normal(f.shape)
    h = 1e-6
    slope = (loss.gradient(y, f + h * T) - loss.gradient(y, f - h * T)) / (2 * h)
    np.testing.assert_allclose(loss.curvature(y, f, T), slope, atol=1e-7, rtol=1e-6)
    diagonal = np.stack([loss.curvature(y, f, np.eye(3)[[j] * len(f)])[:, j] for j in range(3)], axis=1)
    np.testing.assert_allclose(loss.hessian(y, f), diagonal, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stable_and_in_its_dtype_at_extreme_values(loss, dtype):
    y, _ = problem(loss, n=8)
    extreme = np.array([0, 1e-30, -1e-30, 30, -30, 80, -80, -1e4])[:, None] * np.ones(3)
    if not isinstance(loss, Poisson):
        extreme[5] = 1e4
    if isinstance(loss, Softmax):
        extreme = extreme * np.array([1.0, -1.0, 0.5])
    y, f = y.astype(dtype), extreme.astype(dtype)
    for out in (
        loss.value(y, f),
        loss.gradient(y, f),
        loss.hessian(y, f),
        loss.curvature(y, f, f),
        loss.inverse_link(f),
    ):
        assert np.isfinite(out).all()
        assert out.dtype == dtype
    assert (loss.value(y, f) >= 0).all()
    assert (loss.hessian(y, f) >= 0).all()


def test_softmax_of_large_margins_keeps_its_digits():
    y, f = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[1000.0, 1001.0], [1000.0, 980.0]])
    np.testing.assert_allclose(Softmax().value(y, f)[:, 0], [np.log1p(np.exp(1.0)), np.exp(-20.0)], rtol=1e-7)
    y = np.array([[1.0], [-1.0]])
    np.testing.assert_allclose(Logistic().value(y, np.array([[40.0], [40.0]]))[:, 0], [np.exp(-40.0), 40.0])


def test_softmax_of_two_columns_is_logistic():
    rng = np.random.default_rng(0)
    f, codes = rng.standard_normal((20, 1)), rng.integers(2, size=20)
    value = Softmax().value(np.eye(2)[codes], np.hstack([np.zeros_like(f), f]))
    np.testing.assert_allclose(value, Logistic().value(2.0 * codes[:, None] - 1, f))


def test_inverse_links():
    f = np.array([[0.0, 2.0], [-3.0, 1.0]])
    np.testing.assert_allclose(Poisson().inverse_link(f), np.exp(f))
    np.testing.assert_allclose(Logistic().inverse_link(f), 1 / (1 + np.exp(-f)))
    np.testing.assert_allclose(Softmax().inverse_link(f).sum(axis=1), 1)
    np.testing.assert_array_equal(Huber(1.0).inverse_link(f), f)


def test_numbers_and_lists_are_taken_as_arrays_are():
    assert Logistic().inverse_link(0.0) == 0.5
    assert Poisson().inverse_link([0.0])[0] == 1.0
    assert Logistic().gradient(1.0, 0.0) == -0.5
    assert Huber(1.0).gradient(0.0, 2.0) == 1.0


def test_rearrangement_orders_by_level_whatever_their_order():
    f = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, -1.0]])
    np.testing.assert_array_equal(Quantile([0.9, 0.1, 0.5], ordered=True).inverse_link(f), [[3, 1, 2], [5, -1, 0]])
    np.testing.assert_array_equal(Quantile([0.9, 0.1, 0.5]).inverse_link(f), f)  # levels of three targets
    np.testing.assert_array_equal(Quantile(0.9).inverse_link(f), f)  # three targets, not three levels


def test_smoothing_raises_the_pinball_loss_by_at_most_s_log_2():
    y, f = problem(Squared())
    r, s = y - f, 0.2
    pinball = np.where(r > 0, 0.3 * r, -0.7 * r)
    above = Quantile(0.3, s).value(y, f) - pinball
    assert above.min() >= 0
    assert above.max() <= s * np.log(2) + 1e-12


def test_smoothing_raises_the_hinge_by_at_most_s_log_2():
    y, f = problem(Hinge())
    for s in (0.02, 0.2):
        above = Hinge(s).value(y, f) - np.maximum(1 - y * f, 0)
        assert above.min() >= -1e-12  # rounding
        assert above.max() <= s * np.log(2) + 1e-12
        assert Hinge(s).value(1.0, 1.0) == pytest.approx(s * np.log(2), rel=1e-12)


def test_errors_up_to_epsilon_cost_nothing():
    y, f = problem(Squared())
    loss = SquaredEpsilonInsensitive(0.5)
    inside = np.abs(f - y) <= 0.5
    assert (loss.value(y, f)[inside] == 0).all()
    assert (loss.gradient(y, f)[inside] == 0).all()
    np.testing.assert_allclose(SquaredEpsilonInsensitive(0.0).value(y, f), 2 * Squared().value(y, f))


@pytest.mark.parametrize(
    ("loss", "y", "words"),
    [
        (Poisson(), [[1.0], [-2.0]], "-2.*not negative"),
        (Logistic(), [[1.0], [0.0]], "0.*-1 and \\+1"),
        (SquaredHinge(), [[1.0], [2.0]], "2: the squared hinge loss needs targets of -1 and \\+1"),
        (Hinge(), [[1.0], [0.5]], "0.5: the hinge loss needs targets of -1 and \\+1"),
        (Softmax(), [[1.0], [1.0]], "a column for each class"),
        (Softmax(), [[0.7, 0.7], [1.0, 0.0]], "sum to one"),
    ],
)
def test_targets_out_of_the_domain(loss, y, words):
    with pytest.raises(ValueError, match=words):
        loss.check(np.array(y))


@pytest.mark.parametrize(
    "loss",
    [
        Huber(0.0),
        Huber("auto"),
        Huber(np.inf),
        Quantile(0.0),
        Quantile([0.5, 1.0]),
        Quantile([]),
        Quantile("median"),
        Quantile(0.5, -1.0),
        Quantile(0.5, "auto"),
        Quantile([0.1, 0.9]),
        Hinge(0.0),
        Hinge("scale"),
        Hinge([0.1, 0.2]),
        SquaredEpsilonInsensitive(-0.1),
        SquaredEpsilonInsensitive("auto"),
    ],
    ids=repr,
)
def test_bad_parameters(loss):
    with pytest.raises(ValueError, match=r"must be|levels for 1 columns"):
        loss.resolve(np.zeros((3, 1)))


def test_what_depends_on_the_data():
    y = np.random.default_rng(0).normal(5.0, 2.0, size=(20_000, 1))
    y[:100] = 1e6
    assert Huber().resolve(y).delta == pytest.approx(1.35 * 2, rel=0.05)
    assert SquaredEpsilonInsensitive().resolve(y).epsilon == pytest.approx(0.2, rel=0.05)
    assert Quantile(0.9).resolve(y).smoothing == pytest.approx(0.06, rel=0.05)
    assert Huber().resolve(np.ones((5, 2))).delta == pytest.approx(1.35e-3)
    weight = np.ones(len(y))
    weight[:100] = 0
    np.testing.assert_allclose(Poisson().offset(np.abs(y), weight), np.log(np.abs(y[100:]).mean()))
    np.testing.assert_allclose(Quantile(0.9).offset(y, weight), np.quantile(y[100:], 0.9), rtol=1e-3)
    assert Poisson().offset(np.zeros((3, 2))).tolist() == [0, 0]
    np.testing.assert_allclose(Logistic().offset(np.sign(y)), [np.log((y > 0).mean() / (y < 0).mean())])
    np.testing.assert_allclose(Softmax().offset(np.eye(3)[[0, 0, 1, 2]]), np.log([0.5, 0.25, 0.25]))
    np.testing.assert_allclose(Squared().offset(y, weight), np.average(y, axis=0, weights=weight))


def test_stages_end_with_the_loss_itself():
    loss = Quantile([0.2, 0.9], 0.1)
    assert [stage.smoothing for stage in loss.stages()] == pytest.approx([0.9, 0.3, 0.1])
    assert all(stage.level is loss.level for stage in loss.stages())
    assert [stage.smoothing for stage in Hinge(0.01).stages()] == pytest.approx([0.09, 0.03, 0.01])
    logistic = Logistic()
    assert logistic.stages() == [logistic]


def test_as_loss():
    assert isinstance(as_loss("poisson"), Poisson)
    loss = Huber(2.0)
    assert as_loss(loss) is loss
    assert isinstance(as_loss("squared_hinge"), SquaredHinge)
    for bad in ("hing", None, Huber, 3):
        with pytest.raises(ValueError, match="must be one of 'squared'"):
            as_loss(bad)


def test_a_subclass_must_give_three_functions():
    for name in ("value", "gradient", "hessian"):
        with pytest.raises(NotImplementedError, match=f"Loss must define {name}"):
            getattr(Loss(), name)(np.zeros((1, 1)), np.zeros((1, 1)))
