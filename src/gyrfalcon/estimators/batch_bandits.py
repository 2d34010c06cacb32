"""Kernel bandits that try candidates in batches."""

from __future__ import annotations

import numpy as np

from .._utils.checks import integer, optional
from .._utils.registry import register
from ..kernels import Kernel, KernelFunction
from ..solvers.arms import Indices
from .bandits import BKB, described

_LONGEST = 1000  # arms in a batch whose length is not given: computing the model anew for each 1,000 plays costs little


@register
@described
class BBKB(BKB):
    """Batched budgeted kernel bandit: find the best of many candidates by trying batches of them.

    This is `BKB` with the mean and the dictionary fixed within a batch, where only the variances shrink with each arm
    that is chosen [1]_. A batch ends when the variances of its arms, as they were at its start, add up to
    `threshold` - 1, so that batches grow as more is known, up to 1,000 arms. It also ends with an arm whose reward is
    known for certain, because no other arm would be chosen after it. The plays of a batch can run in parallel, and the
    model is computed once for all of them.

    Parameters
    ----------
    {bandit.kernel, noise, norm, delta, exploration, oversampling, threshold, n_jobs, bandit.random_state}

    Attributes
    ----------
    {arms.candidates_, counts_, sums_, dictionary_, kernel_, random_state_, arms.n_features_in_, arms.feature_names_in_}

    See Also
    --------
    BKB : The same, one arm at a time.

    References
    ----------
    .. [1] Calandriello, Carratino, Lazaric, Valko, Rosasco, "Near-linear Time Gaussian Process Optimization with
       Adaptive Batching and Resparsification", ICML 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import BBKB
    >>> from gyrfalcon.kernels import Gaussian
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> bandit, sizes = BBKB(Gaussian(0.1), noise=0.1, random_state=0).fit(X), []
    >>> while bandit.counts_.sum() < 200:
    ...     arms = bandit.ask()
    ...     sizes.append(len(arms))
    ...     bandit = bandit.tell(arms, np.exp(-20 * (X[arms, 0] - 0.7) ** 2))
    >>> sizes[0], max(sizes) > 10, bool(abs(X[bandit.best_, 0] - 0.7) < 0.05)
    (1, True, True)
    """

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        noise: float = 0.1,
        norm: float = 1.0,
        delta: float = 0.5,
        exploration: float = 1.0,
        oversampling: float = 5.0,
        threshold: float = 2.0,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.noise = noise
        self.norm = norm
        self.delta = delta
        self.exploration = exploration
        self.oversampling = oversampling
        self.threshold = threshold
        self.n_jobs = n_jobs
        self.random_state = random_state

    def ask(self, n: int | None = None) -> Indices:
        """Choose the batch of arms to play next.

        Parameters
        ----------
        n : int, optional
            Maximum number of arms in the batch; by default as many as `threshold` allows, and 1,000 at most.

        Returns
        -------
        array of int
            Row numbers of candidates, possibly with repetitions. Asking again before `tell` returns the same arms.
        """
        optional(integer(1))("n", n)
        return self._posterior().choose(_LONGEST if n is None else n, float(self.threshold))
