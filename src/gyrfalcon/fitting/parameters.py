"""The parameters that estimators share: the values they may have, and their descriptions in docstrings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._utils.checks import (
    Rule,
    boolean,
    float_dtype,
    integer,
    not_negative,
    number,
    numbers,
    one_of,
    optional,
    positive,
)
from .._utils.devices import resolve_devices
from .._utils.docstrings import Entry
from .._utils.memory import parse_memory
from .._utils.threads import effective_n_jobs
from .._utils.words import shown


def counts(name: str, value: Any) -> None:
    """Require an integer of at least 1, or a list of such integers."""
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        integer(1)(name, value)
    elif not len(value):
        raise ValueError(f"{name}={shown(value)} must be None, an integer of at least 1 or a list of them")
    else:
        for count in value:
            integer(1)(name, count)


def _memory(name: str, value: Any) -> None:
    """Require a number of bytes."""
    parse_memory(value)


def _devices(name: str, value: Any) -> None:
    """Require devices that are there."""
    resolve_devices(value)


def _threads(name: str, value: Any) -> None:
    """Require a number of threads."""
    effective_n_jobs(value)


CENTERS_OR_AUTO = optional(optional(integer(1, words='None, "auto" or an integer of at least 1')), "auto")
STEP = optional(positive('"auto" or a finite number greater than 0'), "auto")
STEP_OR_NONE = optional(optional(positive('None, "auto" or a finite number greater than 0')), "auto")
LEVELS = optional(
    numbers(lambda x: 0 < x < 1, "None, a number between 0 and 1, both excluded, or a list of them", scalar=True)
)

# Parameters with the same meaning wherever they occur: their types, words and rules. An estimator may have rules of its
# own. Words with a prefix are those of a few estimators that a parameter means something else to, by the same rule.
PARAMETERS: Mapping[str, Entry] = {
    "kernel": Entry(
        "Kernel, str or callable",
        "A kernel of `gyrfalcon.kernels`, its name, or a function k(A, B) that returns the matrix of kernel values.",
    ),
    "plain.kernel": Entry(
        "Kernel, str or callable",
        "{kernel} Features are taken as they are: bring them to comparable scales first.",
    ),
    "features.kernel": Entry(
        "Kernel or str",
        """A kernel of `gyrfalcon.kernels` that has random features, or its name: `Gaussian`, `Laplacian`, `Matern`,
        `RationalQuadratic`, `ArcCosine`, `Linear`, sums of these, and their products with a number; or a
        `RandomLayer` of units with any activation.""",
    ),
    "n_centers": Entry(
        "int or None",
        """Number of Nyström centers M, at most n. More centers are more accurate; a pass over the rows takes time
        proportional to M, and the factors take memory proportional to M^2. None is 2,000, or 2 sqrt(n) beyond a million
        rows, at most 10,000.""",
        optional(integer(1)),
    ),
    "falkon.n_centers": Entry(
        'int, "auto" or None',
        """{n_centers} "auto" holds out rows and doubles the number, from 1,000 on, until the loss on them falls by less
        than 2%, and by less than 2% of what the model explains; until every row is a center, or there are 50,000; or
        until memory, or a callback such as `TimeLimit`, allows no more. `growth_` has the numbers that were tried.""",
    ),
    "features.n_components": Entry(
        "int",
        """Number of features M. More features are more accurate; the direct solver takes time n M^2 and memory M^2.""",
    ),
    "penalty": Entry(
        'float or "auto"',
        "{features.penalty} It is not used where `penalties` are given.",
        optional(not_negative('"auto" or a finite number, not negative'), "auto"),
    ),
    "falkon.penalty": Entry(
        'float or "auto"',
        """The papers' lambda, not negative: the factor of |f|^2 beside the mean squared error, and of |f|^2 / 2 beside
        the mean of another loss. A penalty that cannot be told from rounding, below 1.5e-8 in float32 or 3e-17 in
        float64 times the mean of k(x, x), is raised to that value. "auto" chooses one on a sample of the rows, in about
        a second, by leave-one-out errors for the squared loss and by held-out rows of the sample for others; `penalty_`
        is the one it chose.""",
    ),
    "features.penalty": Entry(
        'float or "auto"',
        """The factor lambda of |f|^2 beside the mean squared error, not negative. "auto" chooses one for the kernel by
        leave-one-out errors on a sample of the rows, in about a second; `penalty_` is the one it chose.""",
    ),
    "penalties": Entry(
        "array of shape (P,), or None",
        "Penalties to choose among; one factorisation serves them all.",
        optional(numbers(lambda x: 0 <= x < np.inf, "None or a list of at least one finite number, none negative")),
    ),
    "choose_by": Entry(
        '{"validation", "gcv", "loo", "evidence"} or None',
        """What chooses among `penalties`: the error on the validation rows (given to `fit`, or held out of X),
        generalised cross-validation, the leave-one-out error, or the evidence, which is the probability of y under the
        model. None is "validation" if `fit` is given validation rows, else "loo".""",
        one_of(None, "validation", "gcv", "loo", "evidence"),
    ),
    "trees.penalties": Entry(
        "array of shape (P,), or None", "Penalties to choose among; each takes another factorisation."
    ),
    "leaf_size": Entry(
        "int or None",
        """Most rows of a leaf. Larger leaves are more accurate; time and memory grow in proportion to it. None is
        512.""",
        optional(integer(1)),
    ),
    "rank": Entry(
        "int or None",
        "Number of pivots of each inner node of the tree, at most `leaf_size`. None is a quarter of the `leaf_size`.",
        optional(integer(1)),
    ),
    "n_trees": Entry("int", "Number of trees whose values are averaged.", integer(1)),
    "n_neighbors": Entry(
        "int",
        """If positive, a prediction is that of the exact kernel for this number of training rows nearest to the new
        row, in place of the mean of the trees, which then only choose the penalty and find neighbors. It is more
        accurate, most of all for smooth functions of several columns, and predicting a row takes about n_neighbors^3 /
        3 multiplications.""",
        integer(0),
    ),
    "trees.n_centers": Entry(
        "int or None",
        """Number of centers of a global part, fitted by FALKON before the trees, which then learn what it leaves.
        None is n / 16, at most 2,500, and 0 where deviations or the evidence are asked for: they belong to the trees
        alone.""",
    ),
    "split": Entry(
        '{"axis", "principal", "random"}',
        """How the direction of a split is drawn: one of the features, in proportion to its variance in the cell; a
        random direction, in proportion to the variance along it; or any direction. Rows are split near the median.""",
        one_of("axis", "principal", "random"),
    ),
    "orthogonal": Entry(
        "bool",
        """Whether the weights are orthogonal, which approximates the kernel with less variance at the same cost; see
        `RandomFeatures`.""",
        boolean,
    ),
    "quantiles": Entry(
        "float, list of float, or None",
        """Levels for `loss="quantile"`. A list gives one column of predictions for each level, and these never cross.
        None is the median.""",
        LEVELS,
    ),
    "multi_class": Entry(
        '"multinomial" or "ovr"',
        """How the logistic loss treats more than two classes: "multinomial" is one model of all their probabilities
        (softmax), and "ovr" is one model of each class against the rest, whose probabilities are then scaled to sum to
        one.""",
        one_of("multinomial", "ovr"),
    ),
    "class_weight": Entry(
        'dict, "balanced" or None',
        """Weights of the classes: a dict from class to number, or "balanced" for weights inversely proportional to
        their frequencies. They are multiplied with `sample_weight`.""",
    ),
    "centers": Entry(
        "str, selector, or array of shape (M, n_features)",
        """How the centers are chosen: drawn from the rows by "uniform", "leverage", "bless", "rpcholesky", "kmeans++"
        or "dpp", drawn by a selector of `gyrfalcon.centers`, or given as an array.""",
    ),
    "fit_intercept": Entry(
        "bool",
        """Whether to measure f from the best constant, `offset_` (the mean of y for the squared loss), instead of from
        0. The constant is not penalised; far from the training rows, f approaches it.""",
        boolean,
    ),
    "scale": Entry(
        'bool or "auto"',
        """{dense.scale} Sparse rows are divided by the standard deviation only, so that zeros stay zeros, and "auto"
        takes them as they are, because rare words and hashes would otherwise outweigh all others.""",
        optional(boolean, "auto"),
    ),
    "dense.scale": Entry(
        'bool or "auto"',
        """Whether to bring every feature to mean 0 and standard deviation 1 as rows are read, in `fit` and in
        `predict`. It costs one pass over the rows and no memory. "auto" does it where the library chooses the length
        scale. A length scale that is given is in the units of X, and rows are then taken as they are, as are rows that
        come from `LearnedMetric` or `TableEncoder`.""",
    ),
    "uncertainty": Entry(
        "bool",
        """Whether to keep what `predict(X, return_std=True)`, `predict_interval` and `sample_y` need: M^2 numbers in
        float64, in memory and in model files. `fit` then uses memory for 6 M^2 numbers; iterative solvers and float32
        also take one more pass over the rows, of n M^2 time and in float64. It requires the squared loss and a positive
        penalty.""",
        boolean,
    ),
    "incremental": Entry(
        "bool",
        """Whether to keep sums over the rows, to which later batches of rows are added and from which rows can be taken
        away: about 2 M^2 numbers in float64, in memory and in model files. `fit` then takes one more pass over the
        rows, of n M^2 time. It does not go with `uncertainty`.""",
        boolean,
    ),
    "features.solver": Entry(
        '{"direct", "sgd", "bcd"}',
        """"direct" adds up the normal equations in one pass over the rows and factorises them. "sgd" passes over the
        rows in mini-batches, in O(M) memory. "bcd", block coordinate descent, solves for blocks of coefficients in
        turn.""",
    ),
    "preconditioner": Entry(
        '"auto", "falkon", "paper", "sample" or "krill"',
        """What makes conjugate gradient converge fast. "falkon" is computed from the centers alone, and assumes that
        they were drawn from the rows with known probabilities. "paper" is the same to the letter of the FALKON paper
        (Definition 3, Algorithms 1 and 2): its ridge is the penalty itself, where "falkon" may take a larger one, which
        takes fewer iterations if the penalty is small for the number of centers. "sample" solves the problem of a
        sample of the rows in each iteration, so that one to three iterations on all rows are enough. "krill" is
        computed from a sketch of all rows, for any centers, at the cost of one more pass and three more M x M matrices.
        "auto" uses "sample" where there are many rows for each center and a pass takes long; it uses "krill", if memory
        allows, for centers that were given or not drawn in that way, and where four or eight iterations show that
        "falkon" does not suit the rows.""",
        one_of("auto", "falkon", "paper", "krill", "sample"),
    ),
    "exact.preconditioner": Entry(
        '"auto", "nystrom", "hierarchical" or "random_features"',
        """What the preconditioner of conjugate gradient approximates the kernel matrix by: the Nyström approximation
        from `n_centers` of the rows; "hierarchical", the same with the blocks of up to 1,000 rows that are close to
        each other replaced by exact ones, which takes longer to compute, some n * 4 kB of memory for each penalty, and
        fewer iterations, above all with rough kernels and small penalties; or `n_centers` random features, for kernels
        that have them. "auto" is "hierarchical" from 60,000 rows on if memory allows and there is no `device`, and
        "nystrom" otherwise.""",
    ),
    "max_iter": Entry("int", 'Maximum number of iterations, which are epochs with `solver="sgd"`.', integer(1)),
    "falkon.max_iter": Entry(
        "int",
        """Maximum number of iterations: of conjugate gradient for the squared loss, where ten to twenty are enough with
        a good preconditioner, and of Newton's method for other losses, where most problems need ten to fifteen.""",
    ),
    "features.max_iter": Entry(
        "int",
        """Maximum number of epochs of "sgd", or of sweeps of "bcd". With a small penalty this number regularises:
        choose it by `early_stopping`.""",
    ),
    "tol": Entry(
        "float or None",
        """For the squared loss, stop when the norm of the preconditioned residual falls below `tol` times that of the
        right-hand side; for other losses, when a Newton step is expected to lower the objective by at most `tol` times
        its value. A `ConvergenceWarning` says if that was not reached. None stops where further iterations would not
        show in predictions: for the squared loss at 1e-6 in float32 and 1e-10 in float64, or, with a sample of the
        rows, when the squared error is known to a thousandth and predictions to a twentieth of their standard
        deviation; for other losses at 5e-3, which leaves about 0.1% of the objective, after a step that moves fitted
        values by at most a twentieth of their standard deviation. 0 runs all `max_iter` iterations. None and 0 warn
        only if predictions would still change by a twentieth of their standard deviation, or the objective of another
        loss by 5e-3 of its value.""",
        optional(not_negative("None or a finite number, not negative")),
    ),
    "penalty_path": Entry(
        "list of float, or None",
        """For losses other than the squared one: penalties of the first Newton steps, one step each, before `penalty`.
        None chooses them: the first is large, and each is a tenth of the one before it, taken as soon as Newton's
        method is near enough.""",
        optional(numbers(lambda x: 0 <= x < np.inf, "None or a list of finite numbers, none negative", empty=True)),
    ),
    "cg_steps": Entry(
        "int, list of int, or None",
        """For losses other than the squared one: number of conjugate gradient steps in each Newton step; the last
        number of a list holds for all steps that follow. None ends each Newton step when its residual has halved.""",
        optional(counts),
    ),
    "step": Entry(
        'float, "auto" or None',
        """Length gamma of the steps of gradient descent. None is 1 / max k(x, x), as in the papers, which is stable for
        every data set; "auto" is 1 / the largest eigenvalue, which is longer, and is estimated in ten passes.""",
    ),
    "features.step": Entry(
        'float or "auto"',
        """Length of the steps of "sgd", for the mean squared error halved. "auto" is 1 over the largest curvature of a
        few batches. With constant steps the solution is reached up to a neighbourhood that shrinks with the step;
        `power_t` and `average` lead closer to it. Steps longer than twice "auto" diverge, and raise an error.""",
    ),
    "power_t": Entry(
        "float",
        """The t-th step of "sgd" has the length `step` t^(-`power_t`), between 0, for constant steps, and 1.""",
        number(lambda x: 0 <= x <= 1, "between 0 and 1"),
    ),
    "average": Entry(
        "bool",
        """Whether the coefficients of "sgd" are the mean over all steps, which removes most of the noise of
        mini-batches, instead of those after the last step.""",
        boolean,
    ),
    "batch_size": Entry("int", 'Number of rows in a step of `solver="sgd"`.'),
    "features.batch_size": Entry(
        "int or None", 'Number of rows in a mini-batch of "sgd"; None is sqrt(n), at least 256.'
    ),
    "block_size": Entry(
        "int or None",
        """Number of coefficients in a block of `solver="bcd"`; None is a tenth of all coefficients, at least 100. An
        iteration solves for every block once, in two passes over the rows, and takes memory for `block_size` numbers
        per coefficient.""",
    ),
    "warm_start": Entry(
        "bool",
        """Whether to start from the solution of the last fit, with its centers unless `n_centers` or `centers` has
        changed since then.""",
        boolean,
    ),
    "early_stopping": Entry(
        "bool",
        """Whether to stop when the validation error has not fallen for `n_iter_no_change` iterations, and keep the best
        solution. The validation set is the one given to `fit`, or a random part of the rows, which keep their weights
        there.""",
        boolean,
    ),
    "stopping.early_stopping": Entry(
        "bool",
        """Whether the validation error chooses when to stop; otherwise there are `max_iter` iterations. The validation
        rows are those given to `fit`, or a random part of X.""",
    ),
    "features.early_stopping": Entry(
        "bool",
        """Whether to stop "sgd" or "bcd" when the validation error has not fallen for `n_iter_no_change` epochs, and
        keep the best solution. The validation set is the one given to `fit`, or a random part of the rows.""",
    ),
    "validation_fraction": Entry(
        "float",
        "Share of the rows to hold out where a validation set is needed and `fit` is given none.",
        number(lambda x: 0 < x < 1, "between 0 and 1, both excluded"),
    ),
    "n_iter_no_change": Entry(
        "int",
        "Number of iterations without improvement after which `early_stopping` stops.",
        integer(1),
    ),
    "stopping.n_iter_no_change": Entry(
        "int",
        """Number of consecutive iterations in which the validation error falls by less than `min_decrease` after which
        to stop; the papers stop after 1. The best solution is kept.""",
    ),
    "min_decrease": Entry(
        "float",
        """Stop at the first iteration that lowers the validation error by less than this share of its last value.""",
        number(lambda x: 0 <= x < 1, "a number of at least 0 and less than 1"),
    ),
    "checkpoint": Entry(
        "str, path-like, Checkpoint or None",
        """A folder for the state of the fit, which is written every 30 seconds, or as often as a `gyrfalcon.Checkpoint`
        says. A fit that was killed and is started again continues from there, and reaches the same solution bit for
        bit. Each fit needs a folder of its own; delete the folder to start afresh.""",
    ),
    "dtype": Entry(
        '"auto", "float32" or "float64"',
        """Precision of the kernel. "auto" follows X, but uses float64 where float32 would lose the penalty beside the
        values of the kernel, one term of the kernel beside another, or part of f, as happens with a smooth kernel and
        a small penalty. The factors are in float64 up to 1,500 centers, and in the precision of the kernel beyond
        that.""",
        optional(float_dtype, "auto"),
    ),
    "features.dtype": Entry(
        '"auto", "float32" or "float64"',
        'Precision of the features; "auto" follows X. The normal equations are in float64.',
    ),
    "memory_budget": Entry(
        '"auto", int or str',
        """Memory that the fit may use beside X and y, in bytes or as "4GB": for factors, blocks at work, and buffers of
        files. If the n x M kernel matrix fits as well, it is kept, and iterations run at memory speed. "auto" is the
        available memory, half of it for the kernel matrix; it keeps a matrix of more than 256 MB only where that pays
        off, which takes many features or a costly kernel. 0 is like "auto", but never keeps the matrix.""",
        optional(_memory, "auto"),
    ),
    "features.memory_budget": Entry(
        '"auto", int or str',
        """Memory for the M x M normal equations of "direct", which must fit, for X if it comes from a file and "sgd" is
        used, and for the features of the validation rows, which are kept if they fit. It is given in bytes, as a string
        such as "4GB", or as "auto" for the available memory, half of it for features. The features of the training rows
        are never kept.""",
    ),
    "device": Entry(
        "None, str, torch.device or list of these",
        """Where products with the kernel matrix are computed. None computes on the processor, in compiled code; "cuda",
        "cuda:1", "mps" or "cpu" is a device of PyTorch (``pip install torch``), and a list names several
        of them. Rows that fit in the memory of a device stay there. Model files do not keep it.""",
        _devices,
    ),
    "auto.device": Entry(
        "None, str, torch.device or list of these",
        """Where kernel models are fitted and predict: None on the processor, or devices of PyTorch such as "cuda" or
        ["cuda:0", "cuda:1"]. The search on samples, trees and linear models run on the processor in any case. Model
        files do not keep it.""",
    ),
    "precision": Entry(
        '{None, "tf32"}',
        """"tf32" lets a device that supports it compute the kernel matrix of float32 rows in TF32 during the fit: rows
        and centers are rounded to its 11 bits, and nothing else loses precision, including the least penalty. It is
        meant for dense rows of hundreds of features around 0 (`scale`). Model files do not keep it.""",
    ),
    "n_jobs": Entry("int or None", "Number of threads; None uses every core.", _threads),
    "random_state": Entry("int, RandomState or None", "Seed of the centers and of the validation split."),
    "exact.random_state": Entry(
        "int, RandomState or None",
        "Seed of the validation split, of the folds, and of the preconditioner's centers or random features.",
    ),
    "batches.random_state": Entry(
        "int, RandomState or None",
        "Seed of the centers, of the validation split and of the order of mini-batches.",
    ),
    "features.random_state": Entry(
        "int, RandomState or None",
        "Seed of the features, of the validation split and of the order of mini-batches.",
    ),
    "callbacks": Entry(
        "callable, Callback, list of them, or None",
        """Called with the record of each iteration; a callback that returns True stops the fit. See
        `gyrfalcon.callbacks`.""",
    ),
    "verbose": Entry("int", "1 shows a progress bar, 2 also logs a line for each iteration.", integer(0)),
}
_RULES: Mapping[str, Rule] = {name: entry.rule for name, entry in PARAMETERS.items() if entry.rule is not None}


def check_parameters(parameters: Mapping[str, Any], **own: Rule) -> None:
    """Raise ValueError for the first parameter whose value is not allowed.

    `own` are rules for parameters that only this estimator has, or for which it allows other values.
    """
    rules = {**_RULES, **own}
    for name, value in parameters.items():
        if name in rules:
            rules[name](name, value)
