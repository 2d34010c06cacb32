"""Pegasos: the stochastic support vector machine, on Nyström features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .._utils.checks import boolean, integer, positive
from .._utils.registry import register
from .._utils.threads import single_threaded_blas
from ..callbacks import CallbackLike
from ..centers import Centers
from ..estimators._base import KernelClassifier
from ..estimators._sklearn import BASELINE_LINK
from ..fitting.arguments import described
from ..fitting.data import FitData
from ..fitting.kernel import validation_watch
from ..fitting.parameters import check_parameters
from ..fitting.plan import Needs
from ..fitting.session import Session
from ..fitting.subspace import CenterSettings, choose_subspace
from ..kernels import Kernel, KernelFunction
from ..preconditioners import Whitening
from ..solvers import Iterate
from ..solvers.pegasos import pegasos


@register
@described
class PegasosClassifier(KernelClassifier):
    """Support vector machine by Pegasos, on the functions of Nyström centers.

    Minimises mean(max(0, 1 - y f(x))) + penalty / 2 |f|^2 over f(x) = sum_j coef_j k(x, center_j), by stochastic
    subgradients on mini-batches: step t has the length 1 / (penalty t), and f may be projected onto the ball
    |f| <= 1 / sqrt(penalty), which contains the solution [1]_. The excess of the objective falls like 1 / (penalty t),
    up to a logarithm. More than two classes are learnt one against the rest. There is no intercept, as in the paper.

    Parameters
    ----------
    {kernel, n_centers}
    penalty : float, default=0.001
        The paper's lambda, greater than 0, which is 1 / (n C) for the C of `SVC`. A penalty that cannot be told from
        rounding is raised to the least one that can.
    {class_weight, centers, scale}
    projection : bool, default=True
        Whether to project f after each step, which the paper leaves open. It matters in the first steps only.
    max_iter : int, default=20
        Number of epochs. Small penalties need more of them.
    average : bool, default=False
        Whether the coefficients are the mean over all steps, instead of those after the last step.
    batch_size : int, default=32
        Number of rows in a step.
    {dtype, memory_budget, n_jobs, batches.random_state, callbacks, verbose}

    Attributes
    ----------
    {classes_, centers_, classes.dual_coef_, kernel_, eigenpro.n_iter_}
    history_ : list of dict
        For each epoch: `iteration`, `residual` (the objective of the batches before their steps, the largest of all
        columns; 1 for f = 0), `passes`, `seconds`, `converged`, and `validation_error`, the share of wrong classes,
        where there are validation rows.
    {classes.offset_, classes.output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    gyrfalcon.FalkonClassifier : With ``loss="hinge"`` or ``"squared_hinge"`` such a model, by Newton's method.

    Notes
    -----
    A step with b rows takes time b M + M^2; memory is needed for M^2 numbers.

    References
    ----------
    .. [1] Shalev-Shwartz, Singer, Srebro, Cotter, "Pegasos: primal estimated sub-gradient solver for SVM", Mathematical
       Programming 2011.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from gyrfalcon.baselines import PegasosClassifier
    >>> X, y = make_moons(500, noise=0.1, random_state=0)
    >>> model = PegasosClassifier(n_centers=50, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    _doc_link_template = BASELINE_LINK
    takes_sparse = True
    fit_intercept = False

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_centers: int | None = None,
        penalty: float = 0.001,
        class_weight: Mapping[Any, float] | str | None = None,
        centers: str | ArrayLike | Centers = "uniform",
        scale: bool | str = "auto",
        projection: bool = True,
        max_iter: int = 20,
        average: bool = False,
        batch_size: int = 32,
        dtype: DTypeLike = "auto",
        memory_budget: int | float | str = "auto",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_centers = n_centers
        self.penalty = penalty
        self.class_weight = class_weight
        self.centers = centers
        self.scale = scale
        self.projection = projection
        self.max_iter = max_iter
        self.average = average
        self.batch_size = batch_size
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None, X_val: Any = None, y_val: Any = None
    ) -> Self:
        """Learn from rows.

        Parameters
        ----------
        {fit.X, labels.y, fit.sample_weight}
        X_val, y_val : optional
            Rows on which the validation error (the share of wrong classes) of each epoch is recorded.

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False), penalty=positive(), projection=boolean, batch_size=integer(1))
        with self._session() as session:
            data, classes = self._data(session, X, y, sample_weight, X_val, y_val, random_access=True)
            with single_threaded_blas():  # threads of its own would decide the last bits
                self._learn(data, session)
            self.classes_ = classes
        return self

    def _learn(self, data: FitData, session: Session) -> None:
        needs = Needs(penalty=self.penalty, resolves_penalty=True)
        settings = CenterSettings(self.kernel, self.n_centers, self.centers)
        space = choose_subspace(settings, needs, data, self._compute, session.random_state)
        data, operator, (n, M) = space.data, space.operator, space.operator.shape
        whitening = Whitening(operator.centers_gram(space.factors), n, tile_dtype=operator.dtype)
        iterates = pegasos(
            operator,
            space.targets,
            whitening,
            max(space.penalty, whitening.least_penalty),
            batch_size=self.batch_size,
            max_iter=self.max_iter,
            projection=self.projection,
            average=self.average,
            random_state=session.random_state,
            weight=data.weight,
        )
        solution = session.run(
            iterates,
            data,
            kind=Iterate,
            max_iter=self.max_iter,
            watch=validation_watch(data, operator, space.compute, space.budget),
            n_centers=M,
            max_passes=self.max_iter,
        )
        self._set_solution(data, session)
        self._set_expansion(operator, solution.coef, data)
