"""What AutoRegressor and AutoClassifier share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._utils.checks import one_of, positive
from .._utils.docstrings import Entry, describing
from .._utils.memory import BudgetError, format_bytes
from ..callbacks import CallbackLike, CallbackList, Record
from ..estimators._parameters import NamedParameters
from ..estimators._sklearn import DOC_LINK
from ..fitting.arguments import SHARED
from ..fitting.attributes import check_attributes
from ..fitting.folds import check_cv, folds_among
from ..fitting.parameters import check_parameters
from ..fitting.session import unchanged_on_failure
from ..fitting.weights import Counted
from ..sources.scratch import Scratch
from ..storage.checkpoints import identify
from ..storage.models import save
from .clock import Clock
from .costs import least_seconds, searched_rows
from .encoder import TableEncoder
from .inputs import as_inputs, mixed
from .learning import EXACT_ROWS, Learning
from .mixing import Mixing
from .parts import Learnt, Settings
from .problems import Problem
from .progress import progress_line
from .resuming import restore, search_journal, state_of
from .stored import check_floats, check_list, check_records
from .transforms import LogTarget, Target
from .validation import groups_among, make_plan

Array = NDArray[Any]

AUTO: Mapping[str, Entry] = {
    "auto.time_budget": Entry(
        "float",
        """Seconds that `fit` may take, kept to within a fifth. The search takes half of it at most, and small tables
        take less. The smallest search and fit take a few tenths of a second, more with rows, columns and outputs: a
        budget below that gets a warning that says how much. Where the time ends the search or a fit, another run may
        end it elsewhere; where it does not, the same `random_state` gives the same model.""",
    ),
    "auto.cv": Entry(
        "int, splitter or array of int of shape (n,)",
        """Folds by which everything is chosen: how many, a splitter of scikit-learn, or the number of each row's fold.
        Of a splitter whose splits do not hold out each row once, such as `TimeSeriesSplit`, the last split is used.""",
    ),
    "auto.checkpoint": Entry(
        "str, path-like, Checkpoint or None",
        """A folder for the state of the fit, written after the search and after each last fit. A fit that was killed
        and is started again continues from there. Each fit needs a folder of its own; delete it to start afresh.""",
    ),
    "auto.memory_budget": Entry(
        '"auto", int or str',
        'Memory that the fit may use beside X and y, in bytes or as "4GB"; "auto" is what is available.',
    ),
    "auto.random_state": Entry("int, RandomState or None", "Seed of the sample, of the folds and of the last fits."),
    "auto.callbacks": Entry(
        "callable, Callback, list of them, or None",
        """Called with the record of each candidate, as in `candidates_`; one that returns True ends the search, and
        what was found so far is fitted to all rows. See `gyrfalcon.callbacks`.""",
    ),
    "auto.verbose": Entry(
        "int",
        """1 shows what the columns were taken for, and a line with the stage, the number of candidates, the least error
        and the time left; 2 also writes a line for each candidate.""",
    ),
    "auto.best_estimator_": Entry(
        "pipeline",
        "The model with the largest weight, an ordinary pipeline of public parts. `estimators_` has all of them.",
    ),
    "auto.weights_": Entry("array of shape (n_models,)", "Weights of the models in the average."),
    "auto.n_features_in_": Entry("int", "Number of columns."),
    "auto.feature_names_in_": Entry("array of str", "Names of the columns, if X has names that are all strings."),
    "auto.X": Entry(
        "table, array, source or Dask collection of shape (n, n_features)",
        """A source, such as ``gyrfalcon.open(path, target=...)``, is searched on samples, and the last fit reads all of
        it. Columns of a source or a Dask collection are numbers or booleans; a file with text, categories or dates is
        to be read with pandas or pyarrow, or fitted by the command line.""",
    ),
    "auto.groups": Entry("array of shape (n,), optional", "Rows of a group are held out together."),
    "auto.X_val y_val": Entry(
        "optional",
        """Rows by which everything is chosen, in the place of cross-validation. They are not learnt from; a source is
        read into memory.""",
    ),
}

described = describing(SHARED, AUTO)

_MANY_CLASSES = 100  # beyond which a budget that is too small is refused
_KEPT_TO = 1.2  # times the budget, that a fit may take


@contextmanager
def advice_on_memory(estimator: AutoEstimator, n: int) -> Iterator[None]:
    """Say what an estimator takes at least, where its models advise to change parameters of their own."""
    try:
        yield
    except BudgetError as error:
        name = type(estimator).__name__
        raise MemoryError(
            f"{name} takes at least {format_bytes(error.size)} for {n} rows, and {error.room}: raise memory_budget"
        ) from error


def refuse_slow_classes(n: int, n_classes: int, budget: float) -> None:
    """Raise ValueError if the smallest fit of many classes takes longer than the budget."""
    least = least_seconds(n, n_classes)
    if n_classes > _MANY_CLASSES and least > _KEPT_TO * budget:
        raise ValueError(
            f"time_budget={budget:g} is too little for {n_classes:,} classes of {n:,} rows: the smallest fit takes "
            f"about {np.ceil(least):.0f} s. Use time_budget={np.ceil(least):.0f} or more, fewer classes or fewer rows"
        )


@described
class AutoEstimator(NamedParameters):
    """A blend of kernel models of a table, found by a search."""

    _doc_link_module = "gyrfalcon"
    _doc_link_template = DOC_LINK

    time_budget: float
    cv: Any
    checkpoint: Any
    memory_budget: int | float | str
    n_jobs: int | None
    random_state: Any
    callbacks: CallbackLike | Iterable[CallbackLike] | None
    verbose: int

    encoders_: list[TableEncoder]
    mixings_: list[Mixing | None]
    models_: list[Any]
    targets_: list[str]
    weights_: Array
    candidates_: list[dict[str, Any]]
    feature_importances_: Array
    n_features_in_: int
    feature_names_in_: Array

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file that `gyrfalcon.load` reads back.

        The file is safetensors with JSON in its header: no pickle, and loading it runs no code. It is written under a
        temporary name and then moved, so an existing file is replaced whole or not at all. ``callbacks``,
        ``checkpoint``, ``device`` and the state of a random generator given as ``random_state`` are not kept.

        Parameters
        ----------
        {path}
        """
        save(self, path)

    # ---- learning ----------------------------------------------------------------------------------------------------

    def _learn(self, X: Any, problem: Problem, weight: Array | None, groups: Any, X_val: Any, counted: Counted) -> None:
        """Search, fit and blend, and set the attributes that all have.

        `problem` and `weight` are those of the rows that count; X and `groups` are given for all rows.
        """
        check_parameters(self, time_budget=positive("a finite number of seconds greater than 0"), cv=check_cv)
        clock = Clock(float(self.time_budget))
        cv, groups = folds_among(self.cv, counted), groups_among(groups, counted)
        total = len(problem.codes)
        refuse_slow_classes(total, problem.codes.shape[1], clock.budget)
        with search_journal(self.checkpoint) as journal, closing(Scratch()) as scratch:
            inputs = as_inputs(X, scratch, counted)
            held = None if X_val is None else as_inputs(X_val, scratch)
            state = None
            if journal is not None:
                parts = {
                    "y": problem.y,
                    "sample_weight": weight,
                    "groups": None if groups is None else groups.tolist(),
                    "searched_rows": searched_rows(self.memory_budget),
                }
                rows = {"X": inputs.fingerprint(), "X_val": None if held is None else held.fingerprint()}
                journal.check(identify(self, rows | parts), max_iter=0)
                state = journal.state
            if journal is None or state is None:
                random_state = check_random_state(self.random_state)
            else:
                random_state = journal.restored(state["beginning"])
            beginning = dict(random_state.get_state(legacy=False))
            plan = make_plan(
                cv,
                inputs.n_rows,
                total - inputs.n_rows,
                problem.codes,
                groups,
                problem.stratify,
                EXACT_ROWS,
                random_state,
            )

            def keep(done: bool = False) -> None:
                if journal is not None:
                    journal.write(state_of(learning, beginning, done))

            callbacks = CallbackList(self.callbacks)
            with (
                progress_line(self, clock) as (show, say),
                callbacks.fitting(self, {"time_budget": clock.budget}),
                advice_on_memory(self, inputs.n_rows),
            ):

                def told(record: Record) -> bool:
                    show(record)
                    return callbacks.on_iteration(record)

                given = groups is not None or not isinstance(self.cv, Integral)
                settings = Settings(clock, self.n_jobs, self.memory_budget, random_state, told, given, say)
                validation = None if held is None else held.take(np.arange(held.n_rows))
                learning = Learning(inputs, validation, problem, plan, weight, settings)
                try:
                    if state is None:
                        learning.search()
                        keep()
                    else:
                        assert journal is not None
                        learning.search(partial(restore, state=state, journal=journal))
                    if state is None or not state["done"]:
                        learning.fit_all(keep)
                        keep(done=True)
                except KeyboardInterrupt:
                    if learning.has_best_so_far():
                        self._set(learning, learning.result(), problem)
                    raise
                learnt = learning.result()
            self._set(learning, learnt, problem)  # which looks at rows that may be in the scratch file

    def _set(self, learning: Learning, learnt: Learnt, problem: Problem) -> None:
        with unchanged_on_failure(self):  # a second Ctrl-C leaves no half of a model
            self._set_blend(learning, learnt, problem)

    def _set_blend(self, learning: Learning, learnt: Learnt, problem: Problem) -> None:
        first = learnt.members[0].encoder
        self.n_features_in_ = first.n_features_in_
        if "feature_names_in_" in vars(self):  # of an earlier fit
            del self.feature_names_in_
        if "feature_names_in_" in vars(first):
            self.feature_names_in_ = first.feature_names_in_
        self.encoders_ = [member.encoder for member in learnt.members]
        self.mixings_ = [member.mixing for member in learnt.members]
        self.models_ = [member.model for member in learnt.members]
        self.targets_ = [member.target.name for member in learnt.members]
        self.weights_ = learnt.weights
        self.candidates_ = learning.records
        self.feature_importances_ = learnt.importances
        self._set_outcome(learning, learnt, problem)

    def _set_outcome(self, learning: Learning, learnt: Learnt, problem: Problem) -> None:
        """Set what a kind of problem has beside that."""
        raise NotImplementedError

    def _check_loaded(self) -> None:
        """Raise ValueError if attributes that come from a model file do not fit together."""
        check_attributes(self)
        check_list("models_", self.models_)
        m, d = len(self.models_), self.n_features_in_
        for name in ("encoders_", "mixings_", "targets_"):
            check_list(name, vars(self)[name], m)
        if not m or not all(isinstance(encoder, TableEncoder) for encoder in self.encoders_):
            raise ValueError("it has no models, or encoders_ of another class than TableEncoder")
        check_floats("weights_", self.weights_, (m,))
        check_floats("feature_importances_", self.feature_importances_, (d,))
        check_records(self.candidates_)
        widths: dict[str, int] = {}
        for encoder, mixing, model, target in zip(
            self.encoders_, self.mixings_, self.models_, self.targets_, strict=True
        ):
            check_is_fitted(encoder)
            width = len(encoder.feature_origin_)
            if encoder.n_features_in_ != d or widths.setdefault(_name_of(encoder), width) != width:
                raise ValueError("encoders_ do not fit each other, or n_features_in_")
            if mixing is not None:
                width = _mixed_width(mixing, width)
            one_of(Target.name, LogTarget.name)("a target", target)
            self._check_model(model, width)

    def _check_model(self, model: Any, n_features: int) -> None:
        """Raise ValueError if a model from a file is not one of such an estimator."""
        raise NotImplementedError

    # ---- predictions -------------------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return "weights_" in vars(self)

    def _encoded(self, X: Any) -> list[Any]:
        """Return the rows as each model sees them; each encoding is made once."""
        check_is_fitted(self)
        inputs = as_inputs(X)
        # encoders of a fit with the same parameters are the same, also if a model file held each of them
        names = [_name_of(encoder) for encoder in self.encoders_]
        distinct = dict(zip(names, self.encoders_, strict=True))
        made = {name: inputs.encoded(encoder) for name, encoder in distinct.items()}
        return [mixed(made[name], mixing) for name, mixing in zip(names, self.mixings_, strict=True)]

    @property
    def estimators_(self) -> list[Any]:
        """The models of the blend, each an ordinary pipeline of public parts, with the largest weight first."""
        order = np.argsort(-self.weights_, kind="stable")
        return [self._pipeline(int(i)) for i in order]

    @property
    def best_estimator_(self) -> Any:
        """The model with the largest weight, an ordinary pipeline of public parts."""
        return self.estimators_[0]

    def _pipeline(self, number: int) -> Any:
        mixing = self.mixings_[number]
        mixed = [] if mixing is None else [("metric", mixing)]
        return Pipeline([("columns", self.encoders_[number]), *mixed, ("model", self.models_[number])])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.sparse = True
        tags.non_deterministic = True  # where the time budget ends the search
        return tags


def _name_of(encoder: TableEncoder) -> str:
    """Return what tells the encoders of one fit from each other."""
    return f"{encoder.numbers}, {encoder.integers}"


def _mixed_width(mixing: Any, width: int) -> int:
    """Return the number of columns of rows that are multiplied with a matrix from a file."""
    if not isinstance(mixing, Mixing) or np.ndim(mixing.matrix) != 2:
        raise ValueError("mixings_ holds something else than a Mixing with a matrix")
    check_floats("the matrix of a Mixing", mixing.matrix, (width, np.shape(mixing.matrix)[1]))
    return int(mixing.matrix.shape[1])
