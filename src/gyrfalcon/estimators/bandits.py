"""Kernel bandits: which of many candidates to try next, one at a time."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._utils.checks import Rule, array, integer, number, optional, positive
from .._utils.docstrings import Entry, describing
from .._utils.generators import restored
from .._utils.ranges import check_kernel_scale
from .._utils.registry import register
from .._utils.sampling import sample_rows
from ..fitting.arguments import SHARED
from ..fitting.attributes import check_attributes
from ..fitting.parameters import check_parameters
from ..fitting.rows import Reading, classify, training_rows
from ..kernels import Kernel, KernelFunction, as_kernel
from ..solvers.arms import ArmPosterior, BoundSettings, ConfidenceBounds, Indices, Vectors
from ._estimator import Estimator

Array = NDArray[Any]

# The parameters and attributes of bandits: their types, words and rules.
BANDIT: Mapping[str, Entry] = {
    "bandit.kernel": Entry("Kernel, str or callable", "{plain.kernel} It is the prior covariance of the rewards."),
    "noise": Entry(
        "float",
        """Standard deviation of the noise of a reward. Rewards should be of the order of 1, around 0: the model expects
        0 of arms that are unlike all arms played so far.""",
        number(lambda x: x > 0 and 0 < x * x < math.inf, "a finite number greater than 0, like its square"),
    ),
    "norm": Entry(
        "float",
        "Bound on the norm of the reward function in the kernel's space; a larger bound explores more.",
        positive(),
    ),
    "delta": Entry(
        "float",
        "Probability with which the confidence bounds may fail.",
        number(lambda x: 0 < x <= 1, "a number greater than 0, at most 1"),
    ),
    "exploration": Entry(
        "float",
        """Factor of the width of the confidence bounds. The theorem asks for 1, which is safe for any function of that
        norm; values from 0.1 to 0.3 often find good arms sooner.""",
        positive(),
    ),
    "oversampling": Entry(
        "float",
        """An arm is in the dictionary with probability `oversampling` times its number of plays times its variance. A
        larger number is more accurate and slower; a very large one takes every arm that was played.""",
        positive(),
    ),
    "threshold": Entry(
        "float",
        """Factor by which the confidence bounds may widen within a batch, compared with playing one arm at a time; a
        larger one gives larger batches.""",
        number(lambda x: 1 < x < math.inf, "a finite number greater than 1"),
    ),
    "bandit.random_state": Entry("int, RandomState or None", "Seed of the dictionaries."),
    "arms.candidates_": Entry("array of shape (N, n_features_in_)", "The arms."),
    "counts_": Entry("array of shape (N,)", "Number of times each arm was played."),
    "sums_": Entry("array of shape (N,)", "Sum of the rewards of each arm."),
    "dictionary_": Entry("array of int", "The arms in the dictionary."),
    "random_state_": Entry(
        "tuple", "State of the random generator, so that a saved bandit continues as it would have."
    ),
    "arms.n_features_in_": Entry("int", "Number of features of an arm."),
    "arms.feature_names_in_": Entry(
        "array of str", "Names of the features, if the candidates have names that are all strings."
    ),
}
_RULES: Mapping[str, Rule] = {name: entry.rule for name, entry in BANDIT.items() if entry.rule is not None}

described = describing(SHARED, BANDIT)


@register
@described
class BKB(Estimator):
    """Budgeted kernel bandit: find the best of many candidates by trying few of them, one at a time.

    The reward of an arm is a function of its features, with noise. Each play goes to the arm with the highest upper
    confidence bound of a Gaussian process, whose posterior is computed from a small dictionary of the arms that were
    played, drawn anew in proportion to their variances [1]_. A play takes time N m^2 for N arms and a dictionary of m,
    whatever the number of plays; with all arms in the dictionary it is GP-UCB.

    Parameters
    ----------
    {bandit.kernel, noise, norm, delta, exploration, oversampling, n_jobs, bandit.random_state}

    Attributes
    ----------
    {arms.candidates_, counts_, sums_, dictionary_, kernel_, random_state_, arms.n_features_in_, arms.feature_names_in_}

    See Also
    --------
    BBKB : The same in growing batches, many times faster.

    References
    ----------
    .. [1] Calandriello, Carratino, Lazaric, Valko, Rosasco, "Gaussian Process Optimization with Adaptive Sketching:
       Scalable and No Regret", COLT 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import BKB
    >>> from gyrfalcon.kernels import Gaussian
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> bandit = BKB(Gaussian(0.1), noise=0.1, random_state=0).fit(X)
    >>> for _ in range(25):
    ...     arms = bandit.ask()
    ...     bandit = bandit.tell(arms, np.exp(-20 * (X[arms, 0] - 0.7) ** 2))
    >>> bool(abs(X[bandit.best_, 0] - 0.7) < 0.05)
    True
    """

    candidates_: Vectors
    counts_: NDArray[np.int64]
    sums_: Vectors
    dictionary_: NDArray[np.int64]
    kernel_: Kernel
    random_state_: Any

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        noise: float = 0.1,
        norm: float = 1.0,
        delta: float = 0.5,
        exploration: float = 1.0,
        oversampling: float = 5.0,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.noise = noise
        self.norm = norm
        self.delta = delta
        self.exploration = exploration
        self.oversampling = oversampling
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Set the candidates, and forget all rewards.

        Parameters
        ----------
        X : array, table, source or Dask collection of shape (N, n_features)
            The arms, which `ask` and `tell` refer to by their row numbers. They are kept in memory.
        y : ignored

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False), **_RULES)
        # candidates are read as they are, and computed with in float64
        train = training_rows(Reading(type(self).__name__, self.kernel), classify(X))
        rows = train.rows
        arms = np.array(rows.take(np.arange(rows.shape[0])), dtype=np.float64, order="C")
        if not np.isfinite(arms).all():  # of a source: what is in memory was checked
            at = int(np.flatnonzero(~np.isfinite(arms).all(axis=1))[0])
            raise ValueError(f"candidate {at} has NaN or infinity: leave it out, or fill in a number")
        # a generator of its own, so that nothing else moves it
        random = np.random.RandomState(check_random_state(self.random_state).randint(2**31 - 1))
        kernel = as_kernel(self.kernel).resolve(arms[sample_rows(len(arms), random)])
        diagonal = np.asarray(kernel.diag(arms), dtype=np.float64)
        if not (np.isfinite(diagonal).all() and diagonal.min() >= 0 and diagonal.max() > 0):
            raise ValueError(
                f"{kernel!r} is not positive and finite at the candidates: choose another kernel, or rescale"
            )
        check_kernel_scale(float(diagonal.mean()), np.float64, kernel=kernel)
        self._set_features(train.features)
        self.candidates_, self.kernel_ = arms, kernel
        self.counts_, self.sums_ = np.zeros(len(arms), dtype=np.int64), np.zeros(len(arms))
        self.dictionary_ = np.zeros(0, dtype=np.int64)
        self.random_state_ = random.get_state()
        self._known: ConfidenceBounds | None = None
        return self

    def ask(self, n: int | None = None) -> Indices:
        """Choose the arms to play next.

        Parameters
        ----------
        n : int, optional
            Number of arms; one by default. Each of several is chosen as if the arms before it had given their
            expected rewards.

        Returns
        -------
        array of int
            Row numbers of candidates. Asking again before `tell` returns the same arms.
        """
        optional(integer(1))("n", n)
        return self._posterior().choose(1 if n is None else n, math.inf)

    def tell(self, indices: ArrayLike, y: ArrayLike) -> Self:
        """Add rewards of arms that were played, whether they were asked for or not.

        Several threads may tell and ask at the same time; they wait for each other.

        Parameters
        ----------
        indices : int or array of int
            Row numbers of candidates; an arm that was played several times occurs as often.
        y : float or array of the same length
            Their rewards.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        check_parameters(self.get_params(deep=False), **_RULES)  # they may have been set since fit
        arms, rewards = _played(indices, y, len(self.candidates_))
        with self._one_at_a_time():
            counts, sums = self.counts_.copy(), self.sums_.copy()
            np.add.at(counts, arms, 1)
            with np.errstate(over="ignore"):
                np.add.at(sums, arms, rewards)
            if not np.isfinite(sums).all():
                raise ValueError("the sum of an arm's rewards is not finite: rescale y to numbers of the order of 1")
            seen = self._posterior_of(self.dictionary_, counts, sums, float(self.noise))
            random = restored(self.random_state_)
            chances = float(self.oversampling) * counts[seen.played] * seen.played_variances
            kept = random.random_sample(len(chances)) < chances
            self.counts_, self.sums_ = counts, sums
            self.dictionary_, self.random_state_ = seen.played[kept].astype(np.int64), random.get_state()
            self._known = None
        return self

    @property
    def best_(self) -> int:
        """The arm with the highest posterior mean; at least one arm must have been played."""
        check_is_fitted(self)
        if not self.counts_.any():
            raise NotFittedError("no arm is known to be good yet: play what ask() returns, and tell() the rewards")
        return int(np.argmax(self._posterior().means))

    def posterior(self) -> tuple[Vectors, Vectors]:
        """Return the posterior means and standard deviations of the arms.

        Returns
        -------
        mean, std : arrays of shape (N,)
            Of the rewards without noise, as a Gaussian process sees them.
        """
        known = self._posterior()
        return known.means.copy(), known.settings.noise * np.sqrt(known.variances)

    def _posterior(self) -> ConfidenceBounds:
        check_is_fitted(self)
        check_parameters(self.get_params(deep=False), **_RULES)  # they may have been set since fit
        settings = BoundSettings(*(float(value) for value in (self.noise, self.norm, self.delta, self.exploration)))
        with self._one_at_a_time():
            known: ConfidenceBounds | None = vars(self).get("_known")  # a file does not have it
            if known is None or known.settings != settings:
                posterior = self._posterior_of(self.dictionary_, self.counts_, self.sums_, settings.noise)
                self._known = known = ConfidenceBounds(posterior, int(self.counts_.sum()), settings)
        return known

    def _one_at_a_time(self) -> threading.RLock:
        """Return the lock that is held while rewards are added and while they are used."""
        lock: threading.RLock = self.__dict__.setdefault("_lock", threading.RLock())  # the first one, for all threads
        return lock

    def _posterior_of(self, dictionary: Array, counts: Array, sums: Vectors, noise: float) -> ArmPosterior:
        return ArmPosterior(self.kernel_, self.candidates_, dictionary, counts, sums, noise**2, n_jobs=self.n_jobs)

    def __sklearn_is_fitted__(self) -> bool:
        return "candidates_" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_known", None)  # it is computed again, and is as large as the candidates
        state.pop("_lock", None)  # a copy has its own
        return state

    def _check_loaded(self) -> None:
        check_attributes(vars(self))
        check_parameters(self.get_params(deep=False), **_RULES)
        array((None, self.n_features_in_))("candidates_", self.candidates_)
        N = len(self.candidates_)
        array((N,), np.int64)("counts_", self.counts_)
        array((N,))("sums_", self.sums_)
        array((None,), np.int64)("dictionary_", self.dictionary_)
        if self.counts_.min(initial=0) < 0 or not np.isin(self.dictionary_, np.flatnonzero(self.counts_)).all():
            raise ValueError("dictionary_ has arms that were not played")
        if not isinstance(self.kernel_, Kernel):
            raise ValueError("kernel_ is not a kernel")
        restored(self.random_state_)


def _played(indices: ArrayLike, y: ArrayLike, n_arms: int) -> tuple[Indices, Vectors]:
    """Return arms and rewards as arrays, or raise ValueError if they are not valid."""
    arms = np.atleast_1d(np.asarray(indices))
    if arms.ndim != 1 or (arms.dtype.kind not in "iu" and arms.size):
        raise ValueError(f"indices must be row numbers of candidates, not an array of {arms.dtype} of {arms.ndim} axes")
    unknown = arms[(arms < 0) | (arms >= n_arms)]
    if len(unknown):
        raise ValueError(f"there is no arm {unknown[0]}: arms are the rows 0 to {n_arms - 1} of the candidates")
    try:
        rewards = np.atleast_1d(np.asarray(y, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must be numbers, one for each arm: {error}") from None
    if rewards.shape != arms.shape:
        raise ValueError(f"{len(arms)} arms were played and y has shape {rewards.shape}: give one reward for each")
    wrong = np.flatnonzero(~np.isfinite(rewards))
    if len(wrong):
        raise ValueError(
            f"the reward of arm {arms[wrong[0]]} is {rewards[wrong[0]]}: leave out plays that failed, or give them a "
            "low reward"
        )
    return arms.astype(np.intp), rewards
