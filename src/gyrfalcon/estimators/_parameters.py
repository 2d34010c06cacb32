"""Keywords that a constructor does not have, and the parameter that is meant."""

from __future__ import annotations

import inspect
from typing import Any, Self

from .._utils.words import hint, listed
from ._sklearn import BaseEstimator

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


class NamedParameters(BaseEstimator):
    """An estimator whose constructor, given a keyword that it does not have, names the parameter that is meant.

    Keywords are looked at before `__init__` is called, which stays written out in each estimator: signatures are as
    scikit-learn and `inspect` expect them.
    """

    def __new__(cls, *args: Any, **named: Any) -> Self:
        parameters = inspect.signature(cls.__init__).parameters
        takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
        for name in named:
            if name not in parameters and not takes_any:
                raise TypeError(f"{cls.__name__} has no parameter {name!r}{_remedy(name, list(parameters)[1:])}")
        return super().__new__(cls)


def _remedy(name: str, parameters: list[str]) -> str:
    """Return the end of a message, which says what to use in the place of a parameter."""
    for parameter, words in _OTHER_NAMES.get(name, ()):
        if parameter in parameters:
            return f": use {words.format(name)}"
    return hint(name, parameters) or f": it has {listed(parameters, None, plain=True)}"
