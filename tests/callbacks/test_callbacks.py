"""Callbacks: the order of hooks, who may stop a fit, and that the end comes whatever happens."""

from __future__ import annotations

import copy
import math
import pickle
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyrfalcon.callbacks import Callback, CallbackList, NoImprovement, TimeLimit


class Recorder(Callback):
    """Writes down every call, and raises where told to."""

    def __init__(self, log, name="r", fail=None, error=None, answer=None):
        self.log, self.name, self.fail, self.error, self.answer = log, name, fail, error, answer

    def __repr__(self):
        return f"Recorder({self.name})"

    def note(self, hook, *args):
        self.log.append((self.name, hook, *args))
        if self.fail == hook:
            raise self.error

    def on_fit_start(self, estimator, info):
        self.note("start", estimator, dict(info))

    def on_iteration(self, record):
        self.note("iteration", record["iteration"])
        return self.answer

    def on_fit_end(self, estimator):
        self.note("end", estimator)


def run(callbacks, iterations=3):
    """A fit in small: as an estimator uses the list."""
    history = []
    with CallbackList(callbacks).fitting("model", {"max_iter": iterations}) as hooks:
        for iteration in range(1, iterations + 1):
            record = {"iteration": iteration, "residual": 1.0 / iteration}
            history.append(record)
            if hooks.on_iteration(record):
                break
    return history


def test_hooks_in_order():
    log = []
    history = run([Recorder(log, "a"), Recorder(log, "b")], 2)
    assert len(history) == 2
    assert log == [
        ("a", "start", "model", {"max_iter": 2}),
        ("b", "start", "model", {"max_iter": 2}),
        ("a", "iteration", 1),
        ("b", "iteration", 1),
        ("a", "iteration", 2),
        ("b", "iteration", 2),
        ("a", "end", "model"),
        ("b", "end", "model"),
    ]


def test_base_class_does_nothing():
    assert len(run(Callback())) == 3


@pytest.mark.parametrize(
    ("callbacks", "length"),
    [(None, 0), ([], 0), (print, 1), (Callback(), 1), ([print, Callback()], 2), ((c for c in [print]), 1), ((), 0)],
)
def test_one_none_or_many(callbacks, length):
    assert len(CallbackList(callbacks)) == length


def test_functions_and_objects_with_some_hooks():
    class OnlyEnd:
        ended = False

        def on_fit_end(self, estimator):
            self.ended = True

    class CallableToo(Callback):
        def __call__(self, record):
            raise AssertionError("the hooks go first")

    seen, only_end = [], OnlyEnd()
    run([seen.append, only_end, CallableToo()])
    assert [record["iteration"] for record in seen] == [1, 2, 3]
    assert only_end.ended


def test_keys_added_to_the_record_stay():
    history = run(lambda record: record.update(double=2 * record["iteration"]))
    assert [record["double"] for record in history] == [2, 4, 6]


@pytest.mark.parametrize("answer", [True, np.True_])
def test_true_stops_after_all_have_seen_the_iteration(answer):
    log = []
    assert len(run([lambda record: answer, Recorder(log)])) == 1
    assert ("r", "iteration", 1) in log
    assert log[-1] == ("r", "end", "model")


@pytest.mark.parametrize("answer", [None, False, np.False_, 1, "yes", [1], np.array([1, 2])])
def test_nothing_else_stops(answer):
    assert len(run(lambda record: answer)) == 3


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (5, r"callbacks\[0\]=5 of type int is not a callback: pass a gyrfalcon\.callbacks\.Callback or a function"),
        ("print", r"callbacks\[0\]='print' of type str is not a callback"),
        ([print, 7], r"callbacks\[1\]=7 of type int is not a callback"),
        ({"a": print}, r"callbacks\[0\]=\{.*\} of type dict is not a callback"),
        (TimeLimit, r"callbacks\[0\] is the class TimeLimit: pass an instance, TimeLimit\(\.\.\.\)"),
        ([TimeLimit], r"callbacks\[0\] is the class TimeLimit: pass an instance"),
        ([None], r"callbacks\[0\]=None of type NoneType is not a callback"),
    ],
)
def test_what_is_no_callback(callbacks, message):
    with pytest.raises(TypeError, match=message):
        CallbackList(callbacks)


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_raising_in_an_iteration_ends_all(error):
    log = []
    with pytest.raises(type(error)) as info:
        run([Recorder(log, "a"), Recorder(log, "b", "iteration", error), Recorder(log, "c")])
    assert info.value is error
    assert [entry for entry in log if entry[1] == "end"] == [
        ("a", "end", "model"),
        ("b", "end", "model"),
        ("c", "end", "model"),
    ]
    assert ("c", "iteration", 1) not in log


def test_raising_in_the_fit_itself_ends_all():
    log = []
    with (
        pytest.raises(KeyboardInterrupt),
        CallbackList(Recorder(log)).fitting("model", {}),
    ):
        raise KeyboardInterrupt
    assert log[-1] == ("r", "end", "model")


def test_raising_at_the_start_ends_those_that_started():
    log = []
    with pytest.raises(RuntimeError, match="boom"):
        run([Recorder(log, "a"), Recorder(log, "b", "start", RuntimeError("boom")), Recorder(log, "c")])
    assert [entry[:2] for entry in log] == [("a", "start"), ("b", "start"), ("a", "end")]


def test_raising_at_the_end_still_ends_the_others():
    log = []
    with pytest.raises(RuntimeError, match="first") as info:
        run(
            [
                Recorder(log, "a", "end", RuntimeError("first")),
                Recorder(log, "b", "end", RuntimeError("second")),
                Recorder(log, "c"),
            ]
        )
    assert log[-1] == ("c", "end", "model")
    assert info.value.__notes__ == ["Then Recorder(b).on_fit_end raised RuntimeError('second')"]


def test_a_second_error_does_not_hide_the_first():
    log = []
    with pytest.raises(KeyboardInterrupt) as info:
        run(
            [
                Recorder(log, "a", "end", RuntimeError("while closing")),
                Recorder(log, "b", "iteration", KeyboardInterrupt()),
            ]
        )
    assert info.value.__notes__ == ["Then Recorder(a).on_fit_end raised RuntimeError('while closing')"]


def test_ctrl_c_while_closing_wins_over_an_error():
    log = []
    with pytest.raises(KeyboardInterrupt) as info:
        run(
            [
                Recorder(log, "a", "iteration", RuntimeError("boom")),
                Recorder(log, "b", "end", KeyboardInterrupt()),
                Recorder(log, "c"),
            ]
        )
    assert isinstance(info.value.__cause__, RuntimeError)
    assert log[-1] == ("c", "end", "model")


def test_a_list_serves_many_fits():
    log = []
    callbacks = CallbackList(Recorder(log))
    for _ in range(2):
        with callbacks.fitting("model", {}):
            pass
    assert [entry[1] for entry in log] == ["start", "end", "start", "end"]
    callbacks.on_fit_end("model")
    assert len(log) == 4, "what was not started is not ended"


# TimeLimit ------------------------------------------------------------------------------------------------------------


def test_time_limit(monkeypatch):
    clock = iter([100.0, 100.4, 100.9, 101.0, 101.3])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    assert len(run(TimeLimit(1), 10)) == 3


def test_time_limit_starts_anew(monkeypatch):
    limit = TimeLimit(1)
    for start in (0.0, 50.0):
        clock = iter([start, start + 0.5, start + 1.5])
        monkeypatch.setattr(time, "perf_counter", lambda clock=clock: next(clock))
        assert len(run(limit, 10)) == 2
    assert limit.on_iteration({"iteration": 1}) is False


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_time_limit_can_be_copied(copied):
    assert repr(copied(TimeLimit(2.5))) == "TimeLimit(2.5)"


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        (0, "seconds=0 must be a number greater than 0"),
        (-1.5, r"seconds=-1\.5 must be a number greater than 0"),
        (math.nan, "seconds=nan must be a number greater than 0"),
        ("60", "seconds='60' must be a number"),
        (True, "seconds=True must be a number"),
        (None, "seconds=None must be a number"),
    ],
)
def test_time_limit_checks(seconds, message):
    with pytest.raises(ValueError, match=message):
        TimeLimit(seconds)


# NoImprovement --------------------------------------------------------------------------------------------------------


def stops_at(values, *args, **kwargs):
    rule = NoImprovement(*args, **kwargs)
    for iteration, value in enumerate(values, start=1):
        if rule.update(value, iteration):
            return iteration, rule
    return None, rule


def test_stops_after_n_values_without_improvement():
    stop, rule = stops_at([5, 4, 3, 3.5, 3.1, 3.2, 1], 3)
    assert (stop, rule.best, rule.best_iteration, rule.improved) == (6, 3.0, 3, False)


def test_does_not_stop_while_it_falls():
    stop, rule = stops_at([1 / i for i in range(1, 50)], 1)
    assert (stop, rule.best_iteration, rule.improved) == (None, 49, True)


def test_small_falls_move_the_best_but_do_not_renew_patience():
    stop, rule = stops_at([1.0, 0.9999, 0.9998, 0.9997, 0.9996], 3, tol=0.01)
    assert (stop, rule.best, rule.best_iteration, rule.improved) == (4, 0.9997, 4, True)


def test_small_falls_that_add_up_renew_patience():
    values = [0.999**i for i in range(60)]
    assert stops_at(values, 12, tol=0.01)[0] is None
    assert stops_at(values, 5, tol=0.01)[0] == 6


def test_tolerance_is_relative():
    values = np.array([1.0, 0.5, 0.49999, 0.49998])
    assert stops_at(values * 1e-12, 2)[0] == stops_at(values * 1e12, 2)[0] == stops_at(values, 2)[0] == 4


def test_negative_and_zero_values():
    assert stops_at([-1.0, -2.0, -2.00001, -1.9], 2)[0] == 4
    stop, rule = stops_at([1.0, 0.0, 0.0, 0.0], 2)
    assert (stop, rule.best, rule.best_iteration) == (4, 0.0, 2)


def test_nan_and_infinity_never_improve():
    stop, rule = stops_at([math.nan, math.inf, math.nan], 3)
    assert (stop, rule.best, rule.best_iteration) == (3, math.inf, None)
    stop, rule = stops_at([math.inf, 2.0, math.nan, 1.0], 2)
    assert (stop, rule.best, rule.best_iteration) == (None, 1.0, 4)


@given(st.lists(st.floats(), min_size=1, max_size=30), st.integers(1, 5))
def test_best_is_the_first_minimum(values, patience):
    rule = NoImprovement(patience)
    for i, value in enumerate(values):
        rule.update(value, i)
    finite = [v for v in values if not math.isnan(v) and v != math.inf]
    assert rule.best == min(finite, default=math.inf)
    assert rule.best_iteration == (values.index(min(finite)) if finite else None)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((0,), "n_iter_no_change=0 must be an integer of at least 1"),
        ((2.0,), r"n_iter_no_change=2\.0 must be an integer"),
        ((True,), "n_iter_no_change=True must be an integer"),
        ((1, -0.1), r"tol=-0\.1 must be a number, at least 0 and less than 1"),
        ((1, math.nan), "tol=nan must be a number, at least 0"),
        ((1, "x"), "tol='x' must be a number"),
    ],
)
def test_no_improvement_checks(args, message):
    with pytest.raises(ValueError, match=message):
        NoImprovement(*args)


def test_numpy_numbers_are_numbers():
    assert NoImprovement(np.int64(2), np.float32(0.5)).n_iter_no_change == 2
    assert TimeLimit(np.float32(0.5)).seconds == 0.5
