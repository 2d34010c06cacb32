"""Parameters and attributes of single methods, as the docstrings of their regressors and classifiers describe them."""

from __future__ import annotations

from collections.abc import Mapping

from .._utils.docstrings import Entry

# The prefix is the method; rules are those of `parameters`, or are given by the estimators.
METHOD_ENTRIES: Mapping[str, Entry] = {
    "eigenpro.n_subsamples": Entry(
        "int or None",
        """Number of rows from which the eigenvectors are estimated, at most n. None is 1,000, and 2,000 beyond 100,000
        rows.""",
    ),
    "eigenpro.n_components": Entry(
        "int or None",
        """Number of eigenvectors whose eigenvalues are reduced. More of them allow larger batches and longer steps, so
        that fewer epochs are needed; 0 is plain stochastic gradient descent. None is enough for batches of 1,000 rows
        (or of a tenth of the rows, if that is less), but at most a quarter of `n_subsamples`. If the kernel matrix has
        a lower rank, fewer are used.""",
    ),
    "eigenpro.max_iter": Entry(
        "int",
        "Maximum number of epochs. Each visits every row once, and computes all n^2 kernel values.",
    ),
    "eigenpro.tol": Entry(
        "float or None",
        """Tolerance at which the fit stops: when the residual of an epoch, computed from its batches, falls below `tol`
        times the norm of the targets. A `ConvergenceWarning` is given if that was not reached. None stops when further
        iterations would have no visible effect on predictions (1e-6 in float32, 1e-10 in float64), and 0 runs all
        `max_iter` epochs; neither warns.""",
    ),
    "eigenpro.step": Entry(
        'float or "auto"',
        """Length of the steps. "auto" is the longest step that is known to be safe, given the largest k(x, x) and the
        largest eigenvalue that remains.""",
    ),
    "eigenpro.batch_size": Entry(
        "int or None",
        """Number of rows in a mini-batch. None takes the largest for which an epoch achieves about as much as with
        single rows.""",
    ),
    "eigenpro.early_stopping": Entry(
        "bool",
        """Whether to stop when the validation error has not fallen for `n_iter_no_change` epochs, and keep the best
        solution. The validation set is the one given to `fit`, or a random part of the rows.""",
    ),
    "eigenpro.dtype": Entry(
        '"auto", "float32" or "float64"',
        'Precision of the kernel. "auto" is the precision of X. The eigenvectors are in float64.',
    ),
    "eigenpro.memory_budget": Entry(
        '"auto", int or str',
        """Memory that the fit may use, in bytes or as a string such as "4GB": for the eigenvectors, which must fit, for
        X if it comes from a file, and for the kernel matrix of the validation rows, which is kept if it fits. "auto" is
        the available memory, half of it for the kernel matrix. The kernel matrix of the training rows is never
        kept.""",
    ),
    "eigenpro.random_state": Entry(
        "int, RandomState or None", "Seed of the subsample, of the validation split and of the order of mini-batches."
    ),
    "eigenpro.X": Entry(
        "array or table of shape (n, n_features)",
        "float32 is computed in float32, everything else in float64, unless `dtype` says otherwise.",
    ),
    "eigenpro.centers_": Entry("array of shape (n, n_features_in_)", "The training rows."),
    "eigenpro.n_components_ batch_size_ step_": Entry(
        "int, int, float", "The number of eigenvectors, the batch size and the step that were used."
    ),
    "eigenpro.n_iter_": Entry("int", "Number of epochs."),
    "ensemble.n_components": Entry("int", "Number of features M of each member."),
    "ensemble.n_estimators": Entry(
        "int",
        "Number of members L. More members are more accurate and take proportionally longer.",
    ),
    "ensemble.memory_budget": Entry(
        '"auto", int or str',
        'Memory for the M x M normal equations of one member, which must fit, in bytes or as "4GB".',
    ),
    "ensemble.n_iter_": Entry(
        "int",
        "Number of members; fewer than `n_estimators` if a callback stopped the fit, which then averages these.",
    ),
    "labels.feature_coef_": Entry(
        "array of shape (M,) for two classes, else (M, n_classes)", "Coefficients of the features."
    ),
    "selection.n_components": Entry(
        "int",
        """Number of features M of the model, and of each round. A round takes time n M^2 / `n_rounds`, and the last one
        n M^2.""",
    ),
    "selection.n_rounds": Entry(
        "int", "Number of rounds T. After round t, t M / T features are kept; 1 is no selection."
    ),
    "selection.memory_budget": Entry(
        '"auto", int or str', 'Memory for the M x M normal equations, which must fit, in bytes or as "4GB".'
    ),
    "selection.random_state": Entry("int, RandomState or None", "Seed of the features and of the rows of each round."),
    "selection.n_iter_": Entry("int", "Number of rounds; fewer than `n_rounds` if a callback stopped the fit."),
    "parts.n_partitions": Entry("int or None", "Number of parts, at most n. None makes parts of at most 2,000 rows."),
    "parts.penalty": Entry(
        "float",
        """Strength of the regularisation: a larger penalty makes f smoother. It is the lambda of the papers, the factor
        of |f|^2 in the sum with the mean squared error, not negative. Penalties that are smaller than rounding, below
        1.5e-8 in float32 or 3e-17 in float64 times the mean of k(x, x), are raised to that value.""",
    ),
    "parts.dtype": Entry(
        '"auto", "float32" or "float64"',
        """Precision of predictions. "auto" is the precision of X, but float64 if float32 would lose the penalty or part
        of f, as happens with a smooth kernel and a small penalty. Systems are solved in float64.""",
    ),
    "parts.memory_budget": Entry(
        '"auto", int or str',
        "Not used: only the kernel matrix of one part is kept, (n / n_partitions)^2 numbers.",
    ),
    "parts.random_state": Entry("int, RandomState or None", "Seed of the parts."),
    "parts.centers_": Entry(
        "array of shape (n, n_features_in_)",
        "The training rows, part after part, without those of weight 0.",
    ),
    "parts.n_iter_": Entry(
        "int",
        """Number of parts that were solved; fewer than `n_partitions` if a callback stopped the fit, which then
        averages these.""",
    ),
    "trees.dtype": Entry(
        '"auto", "float32" or "float64"',
        "Precision of predictions. Systems are solved in float64.",
    ),
    "trees.memory_budget": Entry(
        '"auto", int or str',
        """Memory that the fit may use, in bytes or as a string such as "4GB": for factors, about 20 n rank bytes, and
        for rows of files. What does not fit is written to temporary files. "auto" is the available memory.""",
    ),
    "trees.random_state": Entry(
        "int, RandomState or None",
        """Seed of the splits, of the pivots, of the sample that chooses the penalty, and of rows held out for
        validation.""",
    ),
    "drawn.dtype": Entry('"auto", "float32" or "float64"', 'Precision of the features. "auto" is the precision of X.'),
    "drawn.memory_budget": Entry(
        '"auto", int or str',
        """Memory for X if it comes from a file, and for the features of the validation rows, which are kept if they
        fit, in bytes or as "4GB". The features of the training rows are never kept.""",
    ),
    "drawn.random_state": Entry("int, RandomState or None", "Seed of the features."),
    "drawn.feature_coef_": Entry("array of shape (M,) or (M, n_outputs)", "Coefficients of the features."),
}
