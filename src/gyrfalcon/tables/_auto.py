"""What AutoRegressor and AutoClassifier share: the steps of a fit, model files, and the rows that models see."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._utils.checks import one_of, positive
from .._utils.compute import Compute
from .._utils.docstrings import Entry, describing
from .._utils.memory import BudgetError, format_bytes
from ..callbacks import CallbackLike, CallbackList, Record
from ..estimators._estimator import Estimator, unchanged_on_failure
from ..fitting.arguments import SHARED
from ..fitting.attributes import check_attributes
from ..fitting.explained import ExpansionPart, Explained
from ..fitting.folds import check_cv, folds_among
from ..fitting.parameters import check_parameters
from ..fitting.rows import computed, for_score, labelled
from ..fitting.weights import Counted
from ..sources import as_table
from ..sources.scratch import Scratch
from ..storage.checkpoints import identify
from .budget import EXACT_ROWS, Budget, least_seconds, searched_rows
from .encoder import TableEncoder
from .families import check_families
from .finding import REFINE_SHARE
from .inputs import Inputs, apply_mixing, as_inputs, stays_in_files, text_columns
from .learning import LearningInterrupted, Learnt, learn
from .mixing import Mixing
from .mixtures import stack_tables
from .problems import Problem
from .progress import progress_line
from .reading import read_table
from .resuming import restore, search_journal
from .stored import check_floats, check_list, check_records
from .training import Run, TrainingData
from .transforms import LogTarget, Target
from .validation import groups_among, plan_folds

Array = NDArray[Any]

AUTO: Mapping[str, Entry] = {
    "auto.time_budget": Entry(
        "float",
        """Seconds that `fit` may take. With more time, more candidates are tried and the blend contains more models;
        small tables take less than the budget. It is kept to within a fifth, and the search takes at most half of it.
        The smallest search and fit take a few tenths of a second, and more for more rows, columns, outputs and classes:
        a smaller budget gives a warning that states the time needed. If the budget ends the search or a fit, another
        run may stop at a different point; otherwise the same `random_state` gives the same model.""",
    ),
    "auto.scoring": Entry(
        "str, callable or None",
        """Metric by which the weights of the models in the blend are chosen: the name of a scorer of scikit-learn, such
        as "neg_mean_absolute_error" or "roc_auc", or a scorer. Set it if predictions are judged by another metric than
        the squared error for numbers or the log-loss for classes, which None stands for. The search for candidates
        always uses these two. A scorer must accept `sample_weight` if `fit` is given weights.""",
    ),
    "auto.families": Entry(
        "tuple of str",
        """Families of models that are averaged: "kernel", which must be one of them; "trees", gradient-boosted trees;
        and "linear", ridge or logistic regression. Use ``("kernel",)`` if all models have to be kernel models. All
        families are fitted on the same folds, and their weights are chosen on held-out rows.""",
    ),
    "auto.cv": Entry(
        "int, splitter or array of int of shape (n,)",
        """Cross-validation folds: their number, a splitter of scikit-learn, or an array with the number of each row's
        fold. Use a splitter if rows depend on each other, such as `TimeSeriesSplit` for rows in the order of time. If
        its splits do not hold out each row once, as in that example, only its last split is used.""",
    ),
    "auto.checkpoint": Entry(
        "str, path-like, Checkpoint or None",
        """A folder in which the state of the fit is saved, for long fits whose process may be killed: the same fit,
        started again, continues from there. The state is written after the search and after each final fit. Each fit
        needs a folder of its own; delete the folder to start from the beginning.""",
    ),
    "auto.memory_budget": Entry(
        '"auto", int or str',
        """Memory that the fit may use in addition to X and y, in bytes or as a string such as "4GB". "auto" is the
        available memory.""",
    ),
    "auto.random_state": Entry("int, RandomState or None", "Seed of the samples, of the folds and of the final fits."),
    "auto.callbacks": Entry(
        "callable, Callback, list of them, or None",
        """Functions that are called with the record of each candidate, as in `candidates_`. If one returns True, the
        search ends, and the best candidates found so far are fitted to all rows. See `gyrfalcon.callbacks`.""",
    ),
    "auto.verbose": Entry(
        "int",
        """1 shows how the columns were interpreted, and a line with the stage, the number of candidates, the smallest
        error and the time left; 2 also writes a line for each candidate.""",
    ),
    "auto.feature_importances_": Entry(
        "array of shape (n_features_in_,)",
        """Importance of each column of X: how much the squared error on held-out rows of the search increases if the
        column is shuffled, as shares that sum to 1 (unless no column matters). A column that contains no information
        about y has an importance of about 0: a standard error is subtracted, and negative values are set to 0.""",
    ),
    "auto.feature_slopes_": Entry(
        "array of shape (n_features_in_,)",
        """How much predictions change along each column of X (for trees, how much their splits explain), as shares that
        sum to 1. A column whose noise was learned has a slope, but no importance.""",
    ),
    "auto.best_estimator_": Entry(
        "pipeline",
        """The model with the largest weight, as an ordinary pipeline of public classes. `estimators_` contains all
        models.""",
    ),
    "auto.weights_": Entry("array of shape (n_models,)", "Weights of the models in the average."),
    "auto.n_features_in_": Entry("int", "Number of columns."),
    "auto.feature_names_in_": Entry("array of str", "Names of the columns, if X has names that are all strings."),
    "auto.X": Entry(
        "table, array, source or Dask collection of shape (n, n_features)",
        """``gyrfalcon.open(path, target=...)`` also provides the target and weights. A source or a Dask collection
        whose columns are all numbers is read block by block: samples for the search, and all rows for the final fit. If
        there are columns of text, categories or dates, it is read into memory as a table, unless it is Parquet or
        Arrow files of more than 100,000 rows that would take more than a quarter of `memory_budget`.""",
    ),
    "auto.groups": Entry(
        "array of shape (n,), optional", "The group of each row. The rows of a group are held out together."
    ),
    "auto.X_val y_val": Entry(
        "optional",
        """Rows on which candidates and weights are chosen, instead of by cross-validation. They are not used for
        training. A source is read into memory.""",
    ),
}

described = describing(SHARED, AUTO)

_MANY_CLASSES = 100  # above this many classes, a budget that is too small is refused
_OVERRUN = 1.2  # time that a fit may take, relative to the budget


@contextmanager
def advice_on_memory(name: str, n: int) -> Iterator[None]:
    """Name the least memory of a fit of n rows where a model's error advises to change parameters of its own."""
    try:
        yield
    except BudgetError as error:
        raise MemoryError(
            f"{name} takes at least {format_bytes(error.size)} for {n} rows, and {error.room}: raise memory_budget"
        ) from error


def refuse_slow_classes(n: int, n_classes: int, budget: float) -> None:
    """Raise ValueError if the smallest fit of many classes takes longer than the budget."""
    least = least_seconds(n, n_classes)
    if n_classes > _MANY_CLASSES and least > _OVERRUN * budget:
        raise ValueError(
            f"time_budget={budget:g} is too little for {n_classes:,} classes of {n:,} rows: the smallest fit takes "
            f"about {np.ceil(least):.0f} s. Use time_budget={np.ceil(least):.0f} or more, fewer classes or fewer rows"
        )


@described
class AutoEstimator(Estimator):
    """A blend of models of a table, found by a search."""

    time_budget: float
    scoring: Any
    families: tuple[str, ...]
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
    feature_slopes_: Array
    n_features_in_: int
    feature_names_in_: Array

    # ---- learning ----------------------------------------------------------------------------------------------------

    def _learn(self, X: Any, problem: Problem, weight: Array | None, groups: Any, X_val: Any, counted: Counted) -> None:
        """Search, fit, blend and set the attributes; rows of weight 0 are in X and `groups` alone."""
        check_parameters(
            self.get_params(deep=False),
            time_budget=positive("a finite number of seconds greater than 0"),
            cv=check_cv,
            families=check_families,
        )
        seconds, total = float(self.time_budget), len(problem.codes)
        began = time.perf_counter()
        cv, groups = folds_among(self.cv, counted), groups_among(groups, counted)
        refuse_slow_classes(total, problem.n_outputs, seconds)
        with search_journal(self.checkpoint) as journal, closing(Scratch()) as scratch:
            inputs = as_inputs(X, scratch, counted, memory_budget=self.memory_budget)
            held = None if X_val is None else as_inputs(X_val, scratch)
            if journal is not None:
                journal.check(self._identity(inputs, held, problem, weight, groups), max_iter=0)
            if journal is None or journal.state is None:
                random_state, resume = check_random_state(self.random_state), None
            else:
                random_state, resume = journal.restored(journal.state["beginning"]), partial(restore, journal)
                began -= journal.state["used"]
            budget = Budget(seconds, began)
            beginning = dict(random_state.get_state(legacy=False))
            folds = plan_folds(
                cv,
                inputs.n_rows,
                total - inputs.n_rows,
                problem.codes,
                groups,
                problem.stratify,
                EXACT_ROWS,
                random_state,
            )
            table = None if held is None else read_table(held.take(np.arange(held.n_rows)), TableEncoder.__name__)
            data = TrainingData(inputs, table, problem, folds, weight)
            try:
                with self._told(budget, inputs.n_rows) as (tell, say):
                    compute = Compute(self.n_jobs, self.memory_budget, self.device)
                    search_budget = budget.until(REFINE_SHARE * seconds)
                    run = Run(compute, budget, search_budget, random_state, beginning, tuple(self.families), tell, say)
                    learnt = learn(data, run, resume, *([] if journal is None else [journal.write]))
            except LearningInterrupted as interrupt:
                self._set(interrupt.learnt)
                raise
            self._set(learnt)  # while rows in the scratch file can still be read

    def _identity(
        self, inputs: Inputs, held: Inputs | None, problem: Problem, weight: Array | None, groups: Array | None
    ) -> dict[str, str]:
        """Describe what the result depends on, by which a checkpoint tells this fit from others."""
        rows = {"X": inputs.fingerprint(), "X_val": None if held is None else held.fingerprint()}
        parts = {
            "y": problem.y,
            "sample_weight": weight,
            "groups": None if groups is None else groups.tolist(),
            "searched_rows": searched_rows(self.memory_budget),
        }
        return identify(type(self).__name__, self.get_params(deep=False), rows | parts)

    @contextmanager
    def _told(self, budget: Budget, n: int) -> Iterator[tuple[Callable[[Record], bool], Callable[[str], None]]]:
        """Open what shows a fit: a function that tells callbacks of each record, and one that shows a line of text."""
        callbacks, name = CallbackList(self.callbacks), type(self).__name__
        with (
            progress_line(name, self.verbose, budget) as (show, say),
            callbacks.fitting(self, {"time_budget": budget.seconds}),
            advice_on_memory(name, n),
        ):

            def tell(record: Record) -> bool:
                show(record)
                return callbacks.on_iteration(record)

            yield tell, say

    def _set(self, learnt: Learnt) -> None:
        """Set all attributes; a second Ctrl-C leaves the estimator as it was."""
        outcome = self._outcome(learnt)
        first = learnt.encoding.encoder
        with unchanged_on_failure(self):
            self.n_features_in_ = first.n_features_in_
            if "feature_names_in_" in vars(self):  # of an earlier fit
                del self.feature_names_in_
            if "feature_names_in_" in vars(first):
                self.feature_names_in_ = first.feature_names_in_
            mixings = [member.candidate.mixing for member in learnt.members]
            self.encoders_ = [member.encoding.encoder for member in learnt.members]
            self.mixings_ = [None if matrix is None else Mixing(matrix) for matrix in mixings]
            self.models_ = [member.model for member in learnt.members]
            self.targets_ = [member.candidate.target.name for member in learnt.members]
            self.weights_ = learnt.weights
            self.candidates_ = learnt.records
            self.feature_importances_ = learnt.importances
            self.feature_slopes_ = learnt.slopes
            vars(self).update(outcome)

    def _outcome(self, learnt: Learnt) -> dict[str, Any]:
        """Return the attributes that regression or classification alone has."""
        raise NotImplementedError

    def _check_loaded(self) -> None:
        """Raise ValueError if attributes that come from a model file do not fit together."""
        check_attributes(vars(self))
        check_list("models_", self.models_)
        m, d = len(self.models_), self.n_features_in_
        for name in ("encoders_", "mixings_", "targets_"):
            check_list(name, vars(self)[name], m)
        if not m or not all(isinstance(encoder, TableEncoder) for encoder in self.encoders_):
            raise ValueError("it has no models, or encoders_ of another class than TableEncoder")
        check_floats("weights_", self.weights_, (m,))
        check_floats("feature_importances_", self.feature_importances_, (d,))
        check_floats("feature_slopes_", self.feature_slopes_, (d,))
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

    def _check_model(self, fitted: Any, n_features: int) -> None:
        """Raise ValueError if a model from a file is not one that this estimator fits."""
        raise NotImplementedError

    # ---- predictions -------------------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return "weights_" in vars(self)

    def _encoded(self, X: Any) -> list[Any]:
        """Return the rows as each model sees them; each encoding is made once."""
        check_is_fitted(self)
        inputs = as_inputs(X, as_text=text_columns(self.encoders_[0]))
        # encoders of a fit with the same parameters are the same, also if a model file held each of them
        names = [_name_of(encoder) for encoder in self.encoders_]
        distinct = dict(zip(names, self.encoders_, strict=True))
        made = {name: inputs.encoded(encoder) for name, encoder in distinct.items()}
        return [apply_mixing(made[name], mixing) for name, mixing in zip(names, self.mixings_, strict=True)]

    def _explained(self) -> Explained:
        check_is_fitted(self)
        names = vars(self).get("feature_names_in_")
        function, offset, parts = self._explained_blend()
        return Explained(
            function=function,
            n_features=self.n_features_in_,
            names=None if names is None else [str(name) for name in names],
            offset=offset,
            one_column=self._has_one_column,
            parts=parts,
            stack=partial(stack_tables, owner=type(self).__name__),
        )

    @property
    def _has_one_column(self) -> bool:
        """Whether the function that is explained has one value for each row."""
        raise NotImplementedError

    def _explained_blend(self) -> tuple[Callable[[Any], Array], Array, tuple[ExpansionPart, ...] | None]:
        """Return the function to explain, its offset, and the expansions whose sum it is, or None."""
        raise NotImplementedError

    def _for_score(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """Return what `score` is given in memory, or as rows that are read in blocks."""
        check_is_fitted(self)
        X, y, sample_weight = labelled(X, y, sample_weight)
        if stays_in_files(X):  # predictions are made of it block by block
            return X, computed(y), computed(sample_weight)
        return for_score(as_table(X, text_columns(self.encoders_[0])), y, sample_weight)

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
        metric = [] if mixing is None else [("metric", mixing)]
        return Pipeline([("columns", self.encoders_[number]), *metric, ("model", self.models_[number])])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.sparse = True
        tags.non_deterministic = True  # where the time budget ends the search
        return tags


def _name_of(encoder: TableEncoder) -> str:
    """Return a name that differs between the encoders of one fit."""
    return f"{encoder.numbers}, {encoder.integers}"


def _mixed_width(mixing: Any, width: int) -> int:
    """Return the number of columns of rows that are multiplied by a matrix from a file."""
    if not isinstance(mixing, Mixing) or np.ndim(mixing.matrix) != 2:
        raise ValueError("mixings_ holds something else than a Mixing with a matrix")
    check_floats("the matrix of a Mixing", mixing.matrix, (width, np.shape(mixing.matrix)[1]))
    return int(mixing.matrix.shape[1])
