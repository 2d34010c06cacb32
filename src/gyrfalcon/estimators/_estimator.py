"""What every estimator has: advice on unknown keywords, the session of a fit, the features that it was fitted to."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from .._utils.words import hint, listed
from ..callbacks import CallbackList, NoImprovement
from ..callbacks.base import ScikitLearnCallbacks
from ..callbacks.progress import progress_callback
from ..fitting.arguments import described
from ..fitting.explained import Explained
from ..fitting.rows import Features
from ..fitting.session import Session, fit_session
from ..kernels.names import with_kernel_object
from ..storage.models import save
from ._sklearn import DOC_LINK, BaseEstimator

Array = NDArray[Any]

_LENGTH_SCALE = ("kernel", "kernel=Gaussian({})")
_MEAN_PENALTY = ("penalty", "penalty, which is beside the mean of the losses")

# Names of other libraries. The first remedy whose parameter the estimator has is the one to use; {} is the name.
_OTHER_NAMES: dict[str, tuple[tuple[str, str], ...]] = {
    "alpha": (("penalty", "penalty = alpha / n_samples"),),
    "C": (("penalty", "penalty = 1 / (C * n_samples)"),),
    **dict.fromkeys(("lambda_", "lam", "lmbda", "reg", "reg_lambda", "regularization", "l2"), (_MEAN_PENALTY,)),
    "gamma": (("kernel", "kernel=Gaussian(1 / sqrt(2 * gamma))"),),
    **dict.fromkeys(("sigma", "length_scale", "lengthscale", "bandwidth"), (_LENGTH_SCALE,)),
    "nu": (("contamination", "contamination"), ("kernel", "kernel=Matern(nu=nu)")),
    **dict.fromkeys(("degree", "coef0"), (("kernel", "kernel=Polynomial(degree, coef0=coef0)"),)),
    "metric": (("kernel", "kernel"),),
    **dict.fromkeys(("M", "n_components", "num_centers", "n_inducing"), (("n_centers", "n_centers"),)),
    **dict.fromkeys(("n_features", "D"), (("n_components", "n_components"),)),
    "k": (("n_clusters", "n_clusters"), ("size", "size")),
    **dict.fromkeys(("maxiter", "n_iter", "n_epochs", "epochs"), (("max_iter", "max_iter"),)),
    "tolerance": (("tol", "tol"),),
    "patience": (("n_iter_no_change", "n_iter_no_change"),),
    "quantile": (("quantiles", 'loss="quantile", quantiles=[quantile]'),),
    "objective": (("loss", "loss"),),
    **dict.fromkeys(("standardize", "normalize"), (("scale", "scale"),)),
    **dict.fromkeys(("seed", "random_seed"), (("random_state", "random_state"),)),
    **dict.fromkeys(("n_threads", "num_threads"), (("n_jobs", "n_jobs"),)),
    **dict.fromkeys(("time_limit", "max_time"), (("time_budget", "time_budget"),)),
}


@described
class Estimator(BaseEstimator):
    """An estimator that checks keywords before `__init__`: the error for an unknown one names the right parameter."""

    _doc_link_module = "gyrfalcon"
    _doc_link_template = DOC_LINK

    takes_sparse: ClassVar[bool] = False

    # of estimators without these parameters
    kernel: Any = None
    device: Any = None
    callbacks: Any = None
    verbose: int = 0

    n_features_in_: int
    feature_names_in_: Array

    def __new__(cls, *args: Any, **named: Any) -> Self:
        parameters = inspect.signature(cls.__init__).parameters
        takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
        for name in named:
            if name not in parameters and not takes_any:
                raise TypeError(f"{cls.__name__} has no parameter {name!r}{_remedy(name, list(parameters)[1:])}")
        return super().__new__(cls)

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, also those of a kernel, such as ``kernel__length_scale``.

        A kernel given by name is replaced by the object of that name where one of its own parameters is set.

        Parameters
        ----------
        **params : values of the parameters

        Returns
        -------
        self
        """
        super().set_params(**with_kernel_object(params, self.kernel))
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file that `gyrfalcon.load` reads back.

        The file is safetensors with JSON in its header: no pickle, and loading it runs no code. An existing file is
        replaced whole or not at all. ``callbacks``, ``checkpoint``, ``device``, ``precision`` and the state of a random
        generator given as ``random_state`` are not kept.

        Parameters
        ----------
        {path}

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the estimator is not fitted.
        TypeError
            If a parameter or an attribute is not data, such as a kernel given as a function; pickle can keep those.
        OSError
            If the file cannot be written.
        """
        save(self, path)

    @contextmanager
    def _session(self, *, patience: NoImprovement | None = None, checkpoint: Any = None) -> Iterator[Session]:
        """Open the session of a fit, and tell the callbacks of this estimator; see `fit_session`."""
        own = [progress_callback(self.verbose), ScikitLearnCallbacks() if vars(self).get("_skl_callbacks") else None]
        callbacks = CallbackList([*filter(None, own), *CallbackList(self.callbacks).callbacks])
        name, params, watch = type(self).__name__, self.get_params(deep=False), partial(callbacks.fitting, self)
        opened = fit_session(name, params, watch, patience=patience, checkpoint=checkpoint)
        with unchanged_on_failure(self), opened as session:  # on_fit_end is shown the fitted estimator, and may fail
            yield session

    def _explained(self) -> Explained:
        """Return what `shapley_values` needs to know of the predictions."""
        raise TypeError(f"{type(self).__name__} has no predictions to explain: give a regressor or a classifier")

    @property
    def _features(self) -> Features:
        """The features that the estimator was fitted to."""
        return Features(self.n_features_in_, vars(self).get("feature_names_in_"))

    def _set_features(self, features: Features) -> None:
        self.n_features_in_ = features.n
        vars(self).pop("feature_names_in_", None)  # of an earlier fit
        if features.names is not None:
            self.feature_names_in_ = features.names


def _remedy(name: str, parameters: list[str]) -> str:
    """Return the end of a message, which says what to use in the place of a parameter."""
    for parameter, words in _OTHER_NAMES.get(name, ()):
        if parameter in parameters:
            return f": use {words.format(name)}"
    return hint(name, parameters) or f": it has {listed(parameters, None, plain=True)}"


@contextmanager
def unchanged_on_failure(estimator: Any) -> Iterator[None]:
    """Leave the estimator as it was if the block fails or is interrupted."""
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        now = vars(estimator)
        now.update(before)
        for name in now.keys() - before.keys():
            del now[name]
        raise
