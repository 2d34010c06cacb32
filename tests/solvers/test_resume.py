"""States to resume from may come from a file: what does not belong to the problem is refused, with words."""

from __future__ import annotations

import numpy as np
import pytest

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian
from gyrfalcon.losses import Logistic, Quantile
from gyrfalcon.preconditioners import Preconditioner
from gyrfalcon.solvers import Iterate, StateError, conjugate_gradient
from gyrfalcon.solvers.newton import newton

X = np.random.default_rng(0).standard_normal((200, 2))
Y = np.sign(np.stack([X[:, 0], X[:, 1] + X[:, 0] ** 2 - 1], axis=1))


def problem():
    operator = KernelOperator(Gaussian(1.0), X, X[:20], n_jobs=1)
    return operator, Preconditioner(operator.centers_gram(), 1e-6, 200)


def cg(resume=None, **options):
    operator, B = problem()
    return conjugate_gradient(operator, Y, B, 1e-6, max_iter=6, tol=0.0, resume=resume, **options)


def logistic(resume=None):
    operator, B = problem()
    return newton(operator, Y, Logistic(), B, 1e-6, max_iter=6, tol=0.0, resume=resume)


def quantile(resume=None):
    operator, B = problem()
    return newton(operator, Y, Quantile(0.5).resolve(Y, None), B, 1e-3, max_iter=6, tol=0.0, resume=resume)


SOLVERS = {"cg": cg, "logistic": logistic, "quantile": quantile}


def state_of(solve):
    iterates = solve()
    for _ in range(2):
        next(iterates)
    return next(iterates).state()


@pytest.mark.parametrize("kind", SOLVERS)
def test_a_sound_state_goes_on(kind):
    solve = SOLVERS[kind]
    *_, whole = solve()
    *_, resumed = solve(state_of(solve))
    assert resumed.iteration == whole.iteration
    assert np.array_equal(resumed.coef(), whole.coef())


WRONG = {"a string": "x", "nothing": None, "a list": [1.0], "a dict": {}, "an object array": np.array([None])}


@pytest.mark.parametrize("kind", SOLVERS)
def test_every_value_is_needed_and_checked(kind):
    """Nothing but a StateError, which names the value, whatever one of them is replaced with."""
    solve = SOLVERS[kind]
    state = state_of(solve)
    # these CG computes again
    again = {"residual", "residuals", "converged", "condition_number", "error", "signal"}
    unused = again if kind == "cg" else set()
    for name in state.keys() - unused:
        value = state[name]
        hostile = list(WRONG.values())
        if isinstance(value, np.ndarray):
            hostile += [value[..., None], value.astype(np.float32), value.tolist()]
        states = [{**state, name: bad} for bad in hostile]
        for bad in ({key: state[key] for key in state.keys() - {name}}, *states):
            with pytest.raises(StateError, match=name):
                next(solve(bad))


@pytest.mark.parametrize(("kind", "name"), [("cg", "beta"), ("cg", "rr"), ("cg", "gains"), ("logistic", "u")])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite(kind, name, bad):
    state = state_of(SOLVERS[kind])
    values = state[name].copy()
    values.flat[-1] = bad
    with pytest.raises(StateError, match=f"{name} holds NaN or infinity"):
        next(SOLVERS[kind]({**state, name: values}))


@pytest.mark.parametrize(
    ("name", "bad"), [("iteration", -1), ("iteration", 2.0), ("iteration", True), ("passes", -3), ("seconds", np.nan)]
)
@pytest.mark.parametrize("kind", SOLVERS)
def test_counts(kind, name, bad):
    with pytest.raises(StateError, match=rf"{name}=.* must be"):
        next(SOLVERS[kind]({**state_of(SOLVERS[kind]), name: bad}))


@pytest.mark.parametrize("bad", [0, 99, 1.5])
def test_stages_of_a_loss(bad):
    with pytest.raises(StateError, match="n_stages"):
        next(quantile({**state_of(quantile), "n_stages": bad}))


def test_a_state_of_another_problem():
    with pytest.raises(StateError, match=r"does not belong to this problem: beta must be .* of shape \(20, 2\)"):
        next(cg({**state_of(cg), "beta": np.zeros((19, 2))}))


def test_a_record_that_is_not_complete():
    record = next(cg()).numbers()
    assert repr(Iterate.again(record).numbers()) == repr(record)
    with pytest.raises(StateError, match="has no 'residual'"):
        Iterate.again({name: value for name, value in record.items() if name != "residual"})
    with pytest.raises(StateError, match="converged=1 must be True or False"):
        Iterate.again({**record, "converged": 1})
