"""Callbacks of scikit-learn: which tasks they see, that they can stop a fit, and that they are told of its end."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import gyrfalcon
from gyrfalcon import ExactRegressor, FalkonClassifier, FalkonRegressor, HierarchicalRegressor, NystromRegressor

pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks from 1.9 on")

X = np.random.default_rng(0).standard_normal((200, 2))
Y = np.sin(X[:, 0])


class Log:
    """A callback that is passed down to the estimators of a search, and remembers what it sees."""

    max_propagation_depth = None

    def __init__(self, stop_at=None):
        self.stop_at = stop_at
        self.events = []

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(("begin", context.estimator_name, context.task_name, context.max_subtasks))

    def on_fit_task_end(self, estimator, context):
        self.events.append(("end", context.estimator_name, context.task_name, context.task_id))
        return self.stop_at is not None and context.task_name == "iteration" and context.task_id == self.stop_at


def model(**parameters):
    return FalkonRegressor(n_centers=20, penalty=1e-6, preconditioner="falkon", random_state=0, **parameters)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_tasks_of_a_fit():
    log = Log()
    fitted = model(max_iter=5, tol=0.0).set_callbacks(log).fit(X, Y)
    name = "FalkonRegressor"
    middle = [(kind, name, "iteration", at) for i in range(fitted.n_iter_) for kind, at in (("begin", 0), ("end", i))]
    expected = ["setup", ("begin", name, "fit", 5), *middle, ("end", name, "fit", 0), "teardown"]
    assert log.events == expected
    assert np.array_equal(fitted.predict(X), model(max_iter=5, tol=0.0).fit(X, Y).predict(X))


def test_stopping():
    assert model(max_iter=9, tol=0.0).set_callbacks(Log(stop_at=1)).fit(X, Y).n_iter_ == 2


def test_the_end_is_told_when_a_fit_fails():
    def fail(record):
        raise RuntimeError("enough")

    log = Log()
    failing = model(callbacks=fail).set_callbacks(log)
    with pytest.raises(RuntimeError, match="enough"):
        failing.fit(X, Y)
    assert log.events[-1] == "teardown"
    assert not [name for name in vars(failing) if "ctx" in name or "teardown" in name]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_inside_a_search():
    log = Log()
    search = GridSearchCV(model(max_iter=3), {"kernel__length_scale": [0.5, 1.0]}, cv=2).set_callbacks(log)
    search.fit(X, Y)
    assert log.events.count("setup") == log.events.count("teardown") == 1
    fits = [event for event in log.events if event[0] == "end" and event[1:3] == ("FalkonRegressor", "fit")]
    assert len(fits) == 5  # of four folds, and of the best
    assert ("end", "FalkonRegressor", "iteration", 0) in log.events


@pytest.mark.parametrize(
    "estimator",
    [
        NystromRegressor(n_centers=20, penalties=[1e-3, 1e-6]),
        ExactRegressor(),
        HierarchicalRegressor(leaf_size=20),
        FalkonClassifier(loss="logistic", n_centers=20),
    ],
    ids=repr,
)
def test_other_estimators(estimator):
    log = Log()
    estimator = clone(estimator).set_params(random_state=0).set_callbacks(log)
    estimator.fit(X, Y > 0 if isinstance(estimator, FalkonClassifier) else Y)
    assert (log.events[0], log.events[-1]) == ("setup", "teardown")
    assert len([event for event in log.events if event[0] == "begin"]) >= 2


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_progress_bar_and_model_files(tmp_path, capsys):
    pytest.importorskip("rich")
    from sklearn.callback import ProgressBar

    fitted = model(max_iter=3).set_callbacks(ProgressBar()).fit(X, Y)
    fitted.save(tmp_path / "model")
    assert np.array_equal(gyrfalcon.load(tmp_path / "model").predict(X), fitted.predict(X))
    copy = pickle.loads(pickle.dumps(model(max_iter=3).set_callbacks(Log())))
    assert np.array_equal(copy.fit(X, Y).predict(X), fitted.predict(X))
