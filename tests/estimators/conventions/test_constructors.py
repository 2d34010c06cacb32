"""The estimators' constructors are written out one by one; this keeps what they share alike."""

from __future__ import annotations

import inspect
import re
from typing import get_type_hints

import numpy as np
import pytest

import gyrfalcon
from gyrfalcon import baselines, estimators
from gyrfalcon.fitting.parameters import PARAMETERS
from gyrfalcon.sources import Rows

ESTIMATORS = [*dict.fromkeys(getattr(room, name) for room in (estimators, baselines) for name in room.__all__)]
TRANSFORMERS = [gyrfalcon.LearnedMetric, gyrfalcon.RandomFeatures]
AROUND_OTHERS = [gyrfalcon.ConformalClassifier, gyrfalcon.ConformalRegressor]
CHOOSERS = [gyrfalcon.DPP, gyrfalcon.BKB, gyrfalcon.BBKB]
LEARNERS = [cls for cls in ESTIMATORS if cls not in [*TRANSFORMERS, *AROUND_OTHERS, *CHOOSERS]]

# Parameters with another default in some estimators: the methods that regularise by stopping validate by default.
STOPPING = {"NytroRegressor", "ExactRegressor"}
EIGENPRO = {"EigenProRegressor", "EigenProClassifier"}
OWN_DEFAULTS = {
    "penalty": {"DivideAndConquerRegressor", "DivideAndConquerClassifier", "NoveltyDetector", "PegasosClassifier"},
    "early_stopping": STOPPING,
    "validation_fraction": STOPPING,
    "n_iter_no_change": STOPPING,
    "solver": {"FalkonRegressor", "NytroRegressor", "KernelPCA"},
    "max_iter": {"NystromRegressor", "ExactClassifier", "KernelKMeans", *STOPPING},
    "tol": {"KernelKMeans"},
    "step": {*EIGENPRO, "RandomFeaturesRegressor", "RandomFeaturesClassifier"},
    "batch_size": {"NystromRegressor", "NytroRegressor", "PegasosClassifier"},
    "n_components": {*EIGENPRO, "KernelPCA"},
}
# n_components is last of the solver's in one, and first in the other, as in scikit-learn's KernelPCA.
OWN_PLACE = [gyrfalcon.EigenProRegressor, baselines.EigenProClassifier, gyrfalcon.KernelPCA]
ORDER = list(dict.fromkeys(key.rpartition(".")[2] for key in PARAMETERS))


def parameters(cls):
    return inspect.signature(cls).parameters


def described(cls):
    """The type and the words of each parameter in the docstring, in its order."""
    text = inspect.getdoc(cls).split("Parameters\n----------\n")[1].split("\n\nAttributes\n")[0]
    found = re.findall(r"^(\w+) : (.*)\n((?:    .*\n?)+)", text + "\n", flags=re.MULTILINE)
    return {name: (kind, " ".join(words.split())) for name, kind, words in found}


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_at_most_thirteen_classes(cls):
    """Six of ours, seven of scikit-learn and Python."""
    assert len(cls.__mro__) <= 13


HINTS = [
    (gyrfalcon.FalkonRegressor, "alpha", "use penalty = alpha / n_samples"),
    (gyrfalcon.FalkonRegressor, "M", "use n_centers"),
    (gyrfalcon.FalkonRegressor, "n_components", "use n_centers"),
    (gyrfalcon.FalkonClassifier, "C", r"use penalty = 1 / \(C \* n_samples\)"),
    (gyrfalcon.ExactRegressor, "gamma", r"use kernel=Gaussian\(1 / sqrt\(2 \* gamma\)\)"),
    (gyrfalcon.KernelPCA, "sigma", r"use kernel=Gaussian\(sigma\)"),
    (gyrfalcon.NystromRegressor, "lambda_", "use penalty"),
    (gyrfalcon.NystromRegressor, "reg", "use penalty"),
    (gyrfalcon.NoveltyDetector, "nu", "use contamination"),
    (gyrfalcon.FalkonRegressor, "nu", r"use kernel=Matern\(nu=nu\)"),
    (gyrfalcon.RandomFeatures, "gamma", "use kernel"),
    (gyrfalcon.LearnedMetric, "seed", "use random_state"),
    (gyrfalcon.AutoRegressor, "time_limit", "use time_budget"),
    (gyrfalcon.AutoRegressor, "alpha", "it has time_budget, scoring"),
    (gyrfalcon.ConformalRegressor, "methods", "did you mean 'method'"),
    (gyrfalcon.TableEncoder, "max_categorie", "did you mean|it has"),
    (gyrfalcon.DPP, "k", "use size"),
    (gyrfalcon.BKB, "n_center", "did you mean|it has"),
]


@pytest.mark.parametrize(("cls", "name", "remedy"), HINTS, ids=lambda value: getattr(value, "__name__", None))
def test_names_of_other_libraries_are_answered_with_ours(cls, name, remedy):
    with pytest.raises(TypeError, match=f"{cls.__name__} has no parameter '{name}'.*({remedy})"):
        cls(**{name: 1.0})


def test_subclasses_may_have_other_parameters():
    class Own(gyrfalcon.FalkonRegressor):
        def __init__(self, alpha=1.0, *, penalty="auto"):
            super().__init__(penalty=penalty)
            self.alpha = alpha

    class Any(gyrfalcon.FalkonRegressor):
        def __init__(self, **named):
            super().__init__(**named)

    assert Own(alpha=2.0).alpha == 2.0
    assert Any(penalty=1e-3).penalty == 1e-3


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_signature_is_that_of_the_constructor(cls):
    assert list(parameters(cls)) == list(inspect.signature(cls.__init__).parameters)[1:]


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_constructor_is_plain(cls):
    assert "__init__" in vars(cls)
    code = inspect.getsource(cls.__init__)
    body = code[code.index(") -> None:") :].splitlines()[1:]
    assert [line.strip() for line in body] == [f"self.{name} = {name}" for name in parameters(cls)]


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_signature_hints_and_docstring_agree(cls):
    names = list(parameters(cls))
    assert [name for name in get_type_hints(cls.__init__) if name != "return"] == names
    assert list(described(cls)) == names
    for name, (kind, _) in described(cls).items():
        default = repr(parameters(cls)[name].default).replace("'", '"')
        assert kind.endswith(f", default={default}"), name


@pytest.mark.parametrize("cls", LEARNERS)
def test_parameters_stand_in_the_order_users_need(cls):
    names = list(parameters(cls))
    order = [name for name in ORDER if name != "n_components" or cls not in OWN_PLACE]
    known = [name for name in names if name in order]
    assert known == sorted(known, key=order.index)


@pytest.mark.parametrize("cls", LEARNERS)
def test_sparse_rows_are_promised_where_they_are_taken(cls):
    promised = "sparse" in inspect.getdoc(cls.fit) or "parse rows" in described(cls)["scale"][1]
    assert promised == cls.takes_sparse


class Unread(Rows):
    """Rows that nobody may read."""

    shape, dtype = (50, 2), np.dtype(np.float64)

    def blocks(self, size):
        raise AssertionError("rows were read")

    def take(self, indices):
        assert not len(indices), "rows were read"
        return np.empty((0, 2))


@pytest.mark.parametrize("cls", LEARNERS)
@pytest.mark.parametrize(
    "wrong",
    [{"memory_budget": "x"}, {"memory_budget": -5}, {"n_jobs": 0}, {"verbose": -1}, {"scale": "yes"}, {"callbacks": 3}],
    ids=repr,
)
def test_shared_parameters_are_checked_before_rows_are_read(cls, wrong):
    (name,) = wrong
    with pytest.raises((ValueError, TypeError), match=name):
        cls(**wrong).fit(Unread(), np.arange(50) % 2)


@pytest.mark.parametrize("name", sorted({name for cls in LEARNERS for name in parameters(cls)}))
def test_shared_defaults(name):
    defaults = {cls.__name__: repr(parameters(cls)[name].default) for cls in LEARNERS if name in parameters(cls)}
    own = {defaults.pop(cls) for cls in OWN_DEFAULTS.get(name, set()) & defaults.keys()}
    assert len(set(defaults.values())) == 1, defaults
    assert not own & set(defaults.values()), "OWN_DEFAULTS lists a default that is not its own"
