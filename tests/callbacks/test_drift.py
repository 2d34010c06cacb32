"""DriftMonitor: errors that rise are found, others are not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats

from gyrfalcon import NystromRegressor
from gyrfalcon.callbacks import DriftMonitor


def feed(monitor, found):
    """Show a monitor all records, and return its answers."""
    return [monitor.on_iteration(record) for record in found]


def records(errors):
    return [{"iteration": i, "error_before": error} for i, error in enumerate(errors, start=2)]


def test_a_jump_is_found_at_once_and_reported_once():
    rng = np.random.default_rng(0)
    errors = np.exp(0.1 * rng.standard_normal(40) + (np.arange(40) >= 25))
    monitor = DriftMonitor(stop=True)
    with pytest.warns(RuntimeWarning, match="larger than those before") as seen:
        stopped = feed(monitor, records(errors))
    assert len(seen) == 1
    assert 25 <= stopped.index(True) <= 27
    assert monitor.drifted == [stopped.index(True) + 2]


def test_a_slow_rise_is_found():
    rng = np.random.default_rng(0)
    monitor = DriftMonitor(recent=5)
    errors = np.exp(0.05 * rng.standard_normal(60) + 0.03 * np.arange(60))
    with pytest.warns(RuntimeWarning):
        stopped = feed(monitor, records(errors))
    assert not any(stopped)  # stop=False
    assert monitor.drifted


def test_pvalues_are_those_of_the_t_test_and_rarely_small_without_drift():
    rng, false_alarms = np.random.default_rng(0), 0
    for _ in range(50):
        monitor, found = DriftMonitor(level=0.001), records(np.exp(0.2 * rng.standard_normal(60)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for record in found:
                monitor.on_iteration(record)
        false_alarms += len(monitor.drifted)
    assert false_alarms < 12  # 3 are expected of 3,000 batches; alarms of neighbouring batches come together
    assert [record["drift"] for record in found[:7]] == [None] * 7  # five earlier batches, and three recent ones
    logs = np.log([record["error_before"] for record in found[-23:]])
    expected = stats.ttest_ind(logs[-3:], logs[:-3], alternative="greater").pvalue
    assert found[-1]["drift"] == pytest.approx(expected, rel=1e-9)


def test_errors_that_fall_are_no_drift():
    monitor = DriftMonitor()
    for record in records(1 / np.arange(1.0, 30.0)):
        assert not monitor.on_iteration(record)
        assert record["drift"] is None or record["drift"] > 0.5


def test_equal_errors_and_errors_of_zero():
    monitor = DriftMonitor()
    for record in records([0.0] * 10):
        assert not monitor.on_iteration(record)
    assert record["drift"] > 0.01  # rounding decides: all logarithms are equal
    with pytest.warns(RuntimeWarning):
        feed(monitor, records([1.0] * 3))


def test_it_begins_with_what_a_model_has_recorded_and_ignores_other_records():
    model = NystromRegressor(n_centers=5)
    model.history_ = [{"iteration": 1, "residual": 0.1}, *records([1.0, 1.1, 0.9, 1.0, 1.05, 0.95])]
    monitor = DriftMonitor(recent=1)
    monitor.on_fit_start(model, {})
    assert monitor.on_iteration({"iteration": 1, "residual": 0.5}) is False
    with pytest.warns(RuntimeWarning):
        monitor.on_iteration({"iteration": 8, "error_before": 3.0})


@pytest.mark.parametrize("wrong", [{"recent": 0}, {"reference": 4}, {"level": 1.0}, {"stop": 1}])
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
        DriftMonitor(**wrong)
