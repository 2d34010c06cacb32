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
        """The similarity k(x, z) of two rows: a kernel of `gyrfalcon.kernels`, its name, or a function k(A, B) that
        returns the matrix of kernel values. "gaussian" suits smooth functions; "matern" and "laplacian" suit rougher
        ones.""",
    ),
    "plain.kernel": Entry(
        "Kernel, str or callable",
        "{kernel} Features are not scaled: bring them to comparable scales first.",
    ),
    "features.kernel": Entry(
        "Kernel or str",
        """The similarity of two rows: a kernel of `gyrfalcon.kernels` that has random features, or its name:
        `Gaussian`, `Laplacian`, `Matern`, `RationalQuadratic`, `ArcCosine`, `Linear`, sums of these, and their products
        with a number; or a `RandomLayer` of units with any activation.""",
    ),
    "n_centers": Entry(
        "int or None",
        """Number of Nyström centers M, at most n. More centers are more accurate; a pass over the rows takes time
        proportional to M, and the factors take memory proportional to M^2. Increase the number as long as this improves
        the result and there is time. None is 2,000, or 2 sqrt(n) for more than a million rows, but at most 10,000.""",
        optional(integer(1)),
    ),
    "falkon.n_centers": Entry(
        'int, "auto" or None',
        """{n_centers} Use "auto" to have the number chosen on held-out rows: it starts with 1,000 centers and is
        doubled until the loss falls by less than 2%, and by less than 2% of what the model explains; until every row is
        a center, or there are 50,000; or until memory, or a callback such as `TimeLimit`, allows no more. `growth_`
        contains the numbers that were tried.""",
    ),
    "features.n_components": Entry(
        "int",
        """Number of features M. More features are more accurate: increase the number as long as the validation error
        falls. The direct solver takes time n M^2 and memory M^2.""",
    ),
    "penalty": Entry(
        'float or "auto"',
        "{features.penalty} It is not used if `penalties` are given.",
        optional(not_negative('"auto" or a finite number, not negative'), "auto"),
    ),
    "falkon.penalty": Entry(
        'float or "auto"',
        """Strength of the regularisation: a larger penalty makes f smoother. With "auto" it is chosen on a sample of
        the rows, in about a second, and stored in `penalty_`: by leave-one-out errors for the squared loss, and on
        held-out rows of the sample for other losses. Set a number, from 1e-9 to 1e-3, if you tune it yourself. It is
        the lambda of the papers, not negative: the factor of |f|^2 in the sum with the mean squared error, and of |f|^2
        / 2 in the sum with the mean of another loss. Penalties that are smaller than rounding, below 1.5e-8 in float32
        or 3e-17 in float64 times the mean of k(x, x), are raised to that value.""",
    ),
    "features.penalty": Entry(
        'float or "auto"',
        """Strength of the regularisation: a larger penalty makes f smoother. With "auto" it is chosen by leave-one-out
        errors on a sample of the rows, in about a second, and stored in `penalty_`. Set a number, from 1e-9 to 1e-3, if
        you tune it yourself. It is the factor lambda of |f|^2 in the sum with the mean squared error, not negative.""",
    ),
    "penalties": Entry(
        "array of shape (P,), or None",
        """Penalties to choose from, by `choose_by`. Use them to try many penalties in one fit: all of them share one
        factorisation.""",
        optional(numbers(lambda x: 0 <= x < np.inf, "None or a list of at least one finite number, none negative")),
    ),
    "choose_by": Entry(
        '{"validation", "gcv", "loo", "evidence"} or None',
        """Criterion by which one of the `penalties` is chosen: the error on the validation rows (given to `fit`, or
        held out of X), generalised cross-validation, the leave-one-out error, or the evidence, which is the probability
        of y under the model. None is "validation" if `fit` is given validation rows, else "loo".""",
        one_of(None, "validation", "gcv", "loo", "evidence"),
    ),
    "trees.penalties": Entry(
        "array of shape (P,), or None", "Penalties to choose from. Each of them takes another factorisation."
    ),
    "leaf_size": Entry(
        "int or None",
        """Maximum number of rows in a leaf of the tree. Larger leaves are more accurate, and take more time and memory.
        None is 512.""",
        optional(integer(1)),
    ),
    "rank": Entry(
        "int or None",
        """Number of pivots of each inner node of the tree, at most `leaf_size`: rows that represent the others of the
        node. More pivots are more accurate, and take more time and memory. None is a quarter of the `leaf_size`.""",
        optional(integer(1)),
    ),
    "n_trees": Entry(
        "int",
        "Number of trees whose predictions are averaged. More trees are more accurate and take proportionally longer.",
        integer(1),
    ),
    "n_neighbors": Entry(
        "int",
        """If positive, each prediction is computed with the exact kernel from this number of training rows that are
        nearest to the new row, instead of as the mean of the trees. This is more accurate, most of all for smooth
        functions of several columns, but takes about n_neighbors^3 / 3 multiplications for each row. The trees are then
        used only to choose the penalty and to find neighbors.""",
        integer(0),
    ),
    "trees.n_centers": Entry(
        "int or None",
        """Number of centers of a global part, which is fitted by FALKON before the trees; the trees then learn its
        residuals. None is n / 16, at most 2,500, or 0 if standard deviations or the evidence are required, which only
        the trees provide.""",
    ),
    "split": Entry(
        '{"axis", "principal", "random"}',
        """How the direction of a split is drawn. "axis" draws one of the features, in proportion to its variance in the
        cell, "principal" a random direction, in proportion to the variance along it, and "random" any direction. Rows
        are split near the median.""",
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
        """Levels for `loss="quantile"`, such as 0.9, or [0.05, 0.5, 0.95]. A list gives one column of predictions for
        each level, and these never cross. None is the median.""",
        LEVELS,
    ),
    "multi_class": Entry(
        '"multinomial" or "ovr"',
        """How the logistic loss treats more than two classes. "multinomial" is one model of all probabilities
        (softmax). "ovr" is one model for each class against all others, whose probabilities are then scaled to sum to
        one.""",
        one_of("multinomial", "ovr"),
    ),
    "class_weight": Entry(
        'dict, "balanced" or None',
        """Weights of the classes: a dict from class to number, or "balanced" for weights inversely proportional to
        their frequencies. Use it if errors on rare classes matter more than their number of rows suggests. The weights
        are multiplied with `sample_weight`.""",
    ),
    "centers": Entry(
        "str, selector, or array of shape (M, n_features)",
        """How the centers are chosen. "uniform" draws them from the rows at random, which suits most data. "leverage",
        "bless", "rpcholesky", "kmeans++" and "dpp" draw rows that represent the others better, which can pay off if
        centers are few or rows are unevenly spread. Alternatively, pass a selector of `gyrfalcon.centers`, or the
        centers themselves as an array.""",
    ),
    "fit_intercept": Entry(
        "bool",
        """Whether to add a constant to f that is not penalised, `offset_`: the best constant prediction, which is the
        mean of y for the squared loss. Predictions approach it far from the training rows. Set False if they should
        approach 0 there.""",
        boolean,
    ),
    "scale": Entry(
        'bool or "auto"',
        """{dense.scale} Sparse rows are only divided by the standard deviation, so that zeros stay zeros. With "auto"
        they are not scaled, because rare words and hashes would otherwise outweigh all others.""",
        optional(boolean, "auto"),
    ),
    "dense.scale": Entry(
        'bool or "auto"',
        """Whether to standardise every feature, to mean 0 and standard deviation 1, in `fit` and in `predict`. "auto"
        does so unless the kernel is given with a length scale, which is in the units of X, or the rows come from
        `LearnedMetric` or `TableEncoder`. Set False if an earlier step has scaled the features, and True for length
        scales in standard deviations. Rows are scaled while they are read, which takes one more pass and no memory.""",
    ),
    "uncertainty": Entry(
        "bool",
        """Whether `predict(X, return_std=True)`, `predict_interval` and `sample_y` are available. They need M^2 numbers
        in float64, in memory and in model files. `fit` then uses memory for 6 M^2 numbers; iterative solvers and
        float32 also take one more pass over the rows, of n M^2 time and in float64. It requires the squared loss and a
        positive penalty.""",
        boolean,
    ),
    "incremental": Entry(
        "bool",
        """Whether later batches of rows can be added to the model, and rows removed from it, without a new fit. This
        needs sums over the rows: about 2 M^2 numbers in float64, in memory and in model files, and one more pass over
        the rows in `fit`, of n M^2 time. It cannot be combined with `uncertainty`.""",
        boolean,
    ),
    "features.solver": Entry(
        '{"direct", "sgd", "bcd"}',
        """How the coefficients are computed. "direct" adds up the normal equations in one pass over the rows and
        factorises them. If M x M matrices do not fit in memory, use "sgd", which visits the rows in mini-batches and
        takes O(M) memory, or "bcd", block coordinate descent, which solves for one block of coefficients after
        another.""",
    ),
    "preconditioner": Entry(
        '"auto", "falkon", "paper", "sample" or "krill"',
        """Approximation of the problem that makes conjugate gradient converge in a few iterations. "auto" is almost
        always the best choice: it uses "sample" if there are many rows for each center and a pass takes long; "krill",
        if memory allows, for centers that were given or that were not drawn with known probabilities, and if four or
        eight iterations show that "falkon" does not suit the rows; and otherwise "falkon". "falkon" is computed from
        the centers alone, and assumes that they were drawn from the rows with known probabilities. "paper" follows the
        FALKON paper to the letter (Definition 3, Algorithms 1 and 2): its ridge is the penalty itself, where "falkon"
        may use a larger one, which takes fewer iterations if the penalty is small for the number of centers. "sample"
        solves the problem of a sample of the rows in each iteration, so that one to three iterations on all rows are
        enough. "krill" is computed from a sketch of all rows, for any centers, and takes one more pass and three more M
        x M matrices.""",
        one_of("auto", "falkon", "paper", "krill", "sample"),
    ),
    "exact.preconditioner": Entry(
        '"auto", "nystrom", "hierarchical" or "random_features"',
        """Approximation of the kernel matrix that makes conjugate gradient converge in a few iterations. "auto" is
        "hierarchical" for 60,000 rows or more if memory allows and there is no `device`, and "nystrom" otherwise.
        "nystrom" uses `n_centers` of the rows as centers. "hierarchical" also replaces blocks of up to 1,000 rows that
        are close to each other by exact ones: it needs fewer iterations, above all with rough kernels and small
        penalties, but takes longer to compute, and some n * 4 kB of memory for each penalty. "random_features" uses
        `n_centers` random features, for kernels that have them.""",
    ),
    "max_iter": Entry("int", 'Maximum number of iterations, or of epochs with `solver="sgd"`.', integer(1)),
    "falkon.max_iter": Entry(
        "int",
        """Maximum number of iterations: of conjugate gradient for the squared loss, and of Newton's method for other
        losses. Most fits need fewer. Increase the number if a `ConvergenceWarning` advises it.""",
    ),
    "features.max_iter": Entry(
        "int",
        """Maximum number of epochs of "sgd", or of sweeps of "bcd". With a small penalty this number determines the
        regularisation: choose it by `early_stopping`.""",
    ),
    "tol": Entry(
        "float or None",
        """Tolerance at which the solver stops. None, the default, stops when further iterations would have no visible
        effect on predictions. Set a number to solve the problem to a given accuracy, and 0 to run all `max_iter`
        iterations. For the squared loss, the solver stops when the norm of the preconditioned residual falls below
        `tol` times that of the right-hand side; for other losses, when a Newton step is expected to lower the objective
        by at most `tol` times its value. A `ConvergenceWarning` is given if a number was not reached. For the squared
        loss, None is 1e-6 in float32 and 1e-10 in float64, or, with a sample of the rows, stops when the squared error
        is known to a thousandth and predictions to a twentieth of their standard deviation. For other losses it is
        5e-3, which leaves about 0.1% of the objective, after a step that moves fitted values by at most a twentieth of
        their standard deviation. None and 0 warn only if predictions would still change by a twentieth of their
        standard deviation, or the objective of another loss by 5e-3 of its value.""",
        optional(not_negative("None or a finite number, not negative")),
    ),
    "penalty_path": Entry(
        "list of float, or None",
        """For losses other than the squared one: penalties of the first Newton steps, one step each, before `penalty`.
        There is rarely a reason to set them: with None, the first is large, and each is a tenth of the one before it,
        used as soon as Newton's method is close enough.""",
        optional(numbers(lambda x: 0 <= x < np.inf, "None or a list of finite numbers, none negative", empty=True)),
    ),
    "cg_steps": Entry(
        "int, list of int, or None",
        """For losses other than the squared one: number of conjugate gradient steps in each Newton step. None ends each
        Newton step when its residual has halved, which suits most problems. The last number of a list is also used for
        all steps that follow.""",
        optional(counts),
    ),
    "step": Entry(
        'float, "auto" or None',
        """Length gamma of the steps of gradient descent. None is 1 / max k(x, x), as in the papers, which is stable for
        every data set. "auto" is 1 / the largest eigenvalue, which needs fewer iterations; it is estimated in ten
        passes.""",
    ),
    "features.step": Entry(
        'float or "auto"',
        """Length of the steps of "sgd", for half the mean squared error. "auto" is 1 over the largest curvature of a
        few batches. With constant steps the coefficients end near the solution, at a distance that shrinks with the
        step; use shorter steps, `power_t` or `average` to come closer. Steps longer than twice "auto" diverge, and
        raise an error.""",
    ),
    "power_t": Entry(
        "float",
        """How fast the steps of "sgd" become shorter, between 0, for constant steps, and 1: the t-th step has the
        length `step` t^(-`power_t`).""",
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
        """Number of coefficients in a block of `solver="bcd"`. Larger blocks need fewer iterations and more memory:
        `block_size` numbers for each coefficient. None is a tenth of all coefficients, at least 100. An iteration
        solves for every block once, in two passes over the rows.""",
    ),
    "warm_start": Entry(
        "bool",
        """Whether to start from the solution of the last fit, for example to add iterations or to change the penalty
        slightly. The centers remain the same unless `n_centers` or `centers` has changed.""",
        boolean,
    ),
    "early_stopping": Entry(
        "bool",
        """Whether to stop when the validation error has not fallen for `n_iter_no_change` iterations, and keep the best
        solution. The validation set is the one given to `fit`, or a random part of the rows with their weights.""",
        boolean,
    ),
    "stopping.early_stopping": Entry(
        "bool",
        """Whether to stop according to the validation error; otherwise there are `max_iter` iterations. The validation
        set is the one given to `fit`, or a random part of the rows.""",
    ),
    "features.early_stopping": Entry(
        "bool",
        """Whether to stop "sgd" or "bcd" when the validation error has not fallen for `n_iter_no_change` epochs, and
        keep the best solution. The validation set is the one given to `fit`, or a random part of the rows.""",
    ),
    "validation_fraction": Entry(
        "float",
        "Fraction of the rows to hold out if a validation set is needed and `fit` is given none; of 2 million rows or "
        "more, at most 131,072 are held out.",
        number(lambda x: 0 < x < 1, "between 0 and 1, both excluded"),
    ),
    "n_iter_no_change": Entry(
        "int",
        "Number of iterations without improvement after which `early_stopping` stops.",
        integer(1),
    ),
    "stopping.n_iter_no_change": Entry(
        "int",
        """Number of consecutive iterations in which the validation error falls by less than `min_decrease`, after which
        the fit stops; the papers use 1. The best solution is kept.""",
    ),
    "min_decrease": Entry(
        "float",
        "Smallest relative decrease of the validation error that counts as an improvement.",
        number(lambda x: 0 <= x < 1, "a number of at least 0 and less than 1"),
    ),
    "checkpoint": Entry(
        "str, path-like, Checkpoint or None",
        """A folder in which the state of the fit is saved, for long fits whose process may be killed: the same fit,
        started again, continues from there and reaches the same solution, bit for bit. The state is written every 30
        seconds, or as often as a `gyrfalcon.Checkpoint` specifies. Each fit needs a folder of its own; delete the
        folder to start from the beginning.""",
    ),
    "dtype": Entry(
        '"auto", "float32" or "float64"',
        """Precision of the kernel. "auto" is the precision of X, but float64 if float32 would lose the penalty or one
        term of the kernel in rounding, or part of f, as happens with a smooth kernel and a small penalty. float32 takes
        about half the time and memory. The factors are in float64 for up to 1,500 centers, and in the precision of the
        kernel for more.""",
        optional(float_dtype, "auto"),
    ),
    "features.dtype": Entry(
        '"auto", "float32" or "float64"',
        'Precision of the features; "auto" is the precision of X. The normal equations are in float64.',
    ),
    "memory_budget": Entry(
        '"auto", int or str',
        """Memory that the fit may use in addition to X and y, in bytes or as a string such as "4GB": for factors,
        blocks of the kernel matrix, and buffers of files. Set it if other programs need the memory. If the n x M kernel
        matrix fits as well, it is kept, so that iterations do not compute it again. "auto" is the available memory,
        half of it for the kernel matrix; a matrix of more than 256 MB is then kept only if that pays off, as with many
        features or a costly kernel. 0 is like "auto", but never keeps the matrix.""",
        optional(_memory, "auto"),
    ),
    "features.memory_budget": Entry(
        '"auto", int or str',
        """Memory that the fit may use, in bytes or as a string such as "4GB": for the M x M normal equations of
        "direct", which must fit, for X if it comes from a file and "sgd" is used, and for the features of the
        validation rows, which are kept if they fit. "auto" is the available memory, half of it for features. The
        features of the training rows are never kept.""",
    ),
    "device": Entry(
        "None, str, torch.device or list of these",
        """Where products with the kernel matrix are computed: on the processor, in compiled code (None), or on one or
        several devices of PyTorch (``pip install torch``), such as "cuda", ["cuda:0", "cuda:1"], "mps" or "cpu". Rows
        that fit in the memory of a device stay there. The device is not stored in model files.""",
        _devices,
    ),
    "auto.device": Entry(
        "None, str, torch.device or list of these",
        """Where kernel models are fitted and make predictions: on the processor (None), or on devices of PyTorch such
        as "cuda" or ["cuda:0", "cuda:1"]. The search on samples, trees and linear models always run on the processor.
        The device is not stored in model files.""",
    ),
    "precision": Entry(
        '{None, "tf32"}',
        """Precision of the kernel matrix on a `device` during the fit. With "tf32", a device that supports it computes
        the kernel matrix of float32 rows in TF32, which is faster for dense, standardised rows of hundreds of features:
        rows and centers are rounded to 11 bits, and nothing else loses precision, including the smallest possible
        penalty. It is not stored in model files.""",
    ),
    "n_jobs": Entry("int or None", "Number of threads. None uses every core.", _threads),
    "random_state": Entry(
        "int, RandomState or None",
        "Seed of the centers and of the validation split. Set an integer for reproducible results.",
    ),
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
        """Functions that are called with the record of each iteration, to watch or to stop the fit: if one returns
        True, the fit stops. See `gyrfalcon.callbacks`.""",
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
