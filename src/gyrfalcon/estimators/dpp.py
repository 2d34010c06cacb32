"""Diverse subsets of rows: samples of determinantal point processes."""

from __future__ import annotations

import weakref
from typing import Any, ClassVar, Self, overload

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._utils.checks import integer, optional, positive
from .._utils.threads import single_threaded_blas
from ..centers.determinantal import Sampler, prepare_dpp
from ..centers.leverage import Indices, RandomState, Scoring
from ..fitting.arguments import described
from ..fitting.parameters import check_parameters
from ..fitting.rows import Reading, classify, training_rows
from ..kernels import Kernel, KernelFunction
from ..sources.scratch import Scratch
from ._estimator import Estimator

_RULES = {"size": optional(integer(1)), "expected_size": optional(positive("None or a finite number greater than 0"))}


@described
class DPP(Estimator):
    """Determinantal point process: random subsets of the rows in which no two rows are alike.

    A subset S is drawn with a probability proportional to det(alpha k(S, S)), exactly, among all subsets or among all
    subsets of one size. `fit` passes over the rows twice, in O(n) memory beside a few M^2 numbers; the cost of a sample
    then depends on its size only, by DPP-VFX [1]_. It serves to choose batches of experiments, rows to label, or
    summaries.

    Parameters
    ----------
    {plain.kernel}
        The kernel says which rows are alike.
    size : int or None, default=None
        Number of rows in every sample (a k-DPP). The time of a sample grows like size^6, so that a size of at most a
        few hundred is practical. A size that is set after `fit` takes effect at the next fit.
    expected_size : float or None, default=None
        Expected number of rows in a sample, instead of `size`: it sets alpha, and takes a tenth of the time. Without
        both, alpha is 1. Samples are smaller on average if the centers represent the rows poorly: see `expected_size_`.
    n_centers : int or None, default=None
        Number of centers M by which rows are scored. Samples are exact for any number; with more centers more samples
        are accepted at the first attempt, and `fit` takes n M^2 time. None is 10 times the size and at least 500, or
        all rows if there are at most 2,000, whose eigenvectors are then computed. A number below the size of a sample
        plus one is raised to that.
    {n_jobs}
    random_state : int, RandomState or None, default=None
        Seed of the centers and of the samples.

    Attributes
    ----------
    alpha_ : float
        The factor of the kernel.
    expected_size_ : float
        Expected number of rows in a sample without a given `size`. With fewer centers than rows it is an upper bound:
        about 5% too large with five times as many centers as rows in a sample, 25% too large with equally many, and
        twice the true value or more with fewer.
    {kernel_, n_features_in_, feature_names_in_}

    See Also
    --------
    sample_dpp : The same in one call.
    gyrfalcon.centers.KDPP : Centers of an estimator by such a process.

    Notes
    -----
    `gyrfalcon.save` does not take a process, because samples read the rows of X. Pickle it, which keeps the rows and
    the state of the random generator, or fit it again with the same `random_state`.

    References
    ----------
    .. [1] Derezinski, Calandriello, Valko, "Exact sampling of determinantal point processes with sublinear time
       preprocessing", NeurIPS 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import DPP
    >>> X = np.random.default_rng(0).standard_normal((5_000, 2))
    >>> process = DPP("gaussian", size=10, n_centers=200, random_state=0).fit(X)
    >>> [len(chosen) for chosen in process.sample(3)]
    [10, 10, 10]
    """

    takes_sparse: ClassVar[bool] = True

    alpha_: float
    expected_size_: float
    kernel_: Kernel
    _sampler: Sampler
    _size: int | None
    _random: np.random.RandomState

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        size: int | None = None,
        expected_size: float | None = None,
        n_centers: int | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.size = size
        self.expected_size = expected_size
        self.n_centers = n_centers
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Prepare samples of rows.

        Parameters
        ----------
        X : array, table, sparse matrix, source or Dask collection of shape (n, n_features)
            It is kept, not copied: samples read the rows that they consider.
        y : ignored

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False), **_RULES)
        if self.size is not None and self.expected_size is not None:
            raise ValueError(
                f"size={self.size} and expected_size={self.expected_size} exclude each other: give one of them"
            )
        scratch = Scratch()
        # rows are read as they are, and computed with in float64
        reading = Reading(type(self).__name__, self.kernel, sparse=self.takes_sparse)
        train = training_rows(reading, classify(X), scratch=scratch)
        weakref.finalize(train.rows, scratch.close)  # samples look at them as long as the process exists
        scoring = Scoring(train.rows, self.kernel, self.random_state, self.n_jobs)
        sampler, alpha = prepare_dpp(scoring, self.size, self.expected_size, self.n_centers)
        self._set_features(train.features)
        self._sampler, self.alpha_, self.expected_size_ = sampler, alpha, sampler.expected_size
        self._random, self.kernel_ = scoring.random_state, scoring.kernel
        self._size = self.size  # alpha_ was chosen for it: one that is set later takes a new fit
        return self

    @overload
    def sample(self, n_samples: None = None) -> Indices: ...
    @overload
    def sample(self, n_samples: int) -> list[Indices]: ...
    def sample(self, n_samples: int | None = None) -> Indices | list[Indices]:
        """Draw independent samples; each call goes on where the last one ended.

        Parameters
        ----------
        n_samples : int, optional
            Number of samples; one by default.

        Returns
        -------
        array of int, or a list of `n_samples` of them
            Indices of the rows of X that are in the sample, increasing.
        """
        check_is_fitted(self)
        optional(integer(0))("n_samples", n_samples)
        with single_threaded_blas():  # held over all samples: setting it takes longer than a small sample
            samples = [
                self._sampler.draw(self._random, self._size) for _ in range(1 if n_samples is None else n_samples)
            ]
        return samples[0] if n_samples is None else samples

    def save(self, path: Any) -> None:
        """Raise TypeError: samples read the rows of X, which model files do not hold. Pickle the process instead."""
        raise TypeError("cannot save a DPP, whose samples read the rows of X: pickle it, which keeps the rows")

    def __sklearn_is_fitted__(self) -> bool:
        return "alpha_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.takes_sparse
        return tags


def sample_dpp(
    X: Any,
    kernel: Kernel | str | KernelFunction = "gaussian",
    *,
    size: int | None = None,
    expected_size: float | None = None,
    n_samples: int | None = None,
    n_centers: int | None = None,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> Indices | list[Indices]:
    """Draw diverse rows: exact samples of a determinantal point process.

    Parameters
    ----------
    X : array, table, sparse matrix, source or Dask collection of shape (n, d)
    kernel, size, expected_size, n_centers, n_jobs, random_state
        As for `DPP`, which is preferable where more samples may be needed later.
    n_samples : int, optional
        Number of samples; one by default.

    Returns
    -------
    array of int, or a list of `n_samples` of them
        Indices of the rows that are in the sample, increasing.

    Examples
    --------
    Of two crowds and a row far away, uniform samples rarely have all three:

    >>> from gyrfalcon import sample_dpp
    >>> X = [[0.0]] * 50 + [[5.0]] * 50 + [[9.0]]
    >>> chosen = sample_dpp(X, "gaussian", size=3, random_state=0)
    >>> [X[i] for i in chosen]
    [[0.0], [5.0], [9.0]]
    """
    process = DPP(
        kernel, size=size, expected_size=expected_size, n_centers=n_centers, n_jobs=n_jobs, random_state=random_state
    ).fit(X)
    return process.sample(n_samples)
