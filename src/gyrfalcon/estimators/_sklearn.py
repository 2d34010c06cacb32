"""scikit-learn's base classes, in a form that mypy understands.

scikit-learn has no types: mypy would accept any keyword and any attribute of a class that derives from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

from numpy.typing import NDArray

# Pages of the reference: diagrams of estimators in notebooks link to them (`_doc_link_template`)
SITE = "https://gyrfalcon.readthedocs.io/en/latest/"
DOC_LINK = SITE + "api/gyrfalcon.{estimator_name}.html"
BASELINE_LINK = SITE + "api/gyrfalcon.baselines.{estimator_name}.html"

MYPY = False  # mypy takes it for true; other checkers read scikit-learn itself
if MYPY:
    Method = TypeVar("Method", bound=Callable[..., Any])

    def available_if(check: Callable[[Any], bool]) -> Callable[[Method], Method]: ...

    class BaseEstimator:
        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def get_metadata_routing(self) -> Any: ...
        def set_fit_request(self, **requests: bool | str | None) -> Self: ...
        def set_score_request(self, **requests: bool | str | None) -> Self: ...
        def __getstate__(self) -> dict[str, Any]: ...
        def __sklearn_tags__(self) -> Any: ...

    class CallbackSupportMixin:
        def set_callbacks(self, *callbacks: Any) -> Self: ...

    class ClassifierMixin:
        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...

    class RegressorMixin:
        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...

    class MultiOutputMixin: ...

    class TransformerMixin:
        def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> NDArray[Any]: ...
        def set_output(self, *, transform: str | None = None) -> Self: ...

    class ClassNamePrefixFeaturesOutMixin:
        def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]: ...

    class ClusterMixin:
        def fit_predict(self, X: Any, y: Any = None, **kwargs: Any) -> NDArray[Any]: ...

    class OutlierMixin:
        def fit_predict(self, X: Any, y: Any = None, **kwargs: Any) -> NDArray[Any]: ...

else:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        ClusterMixin,
        MultiOutputMixin,
        OutlierMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.utils.metaestimators import available_if

    try:
        from sklearn.callback import CallbackSupportMixin
    except ImportError:  # before 1.9

        class CallbackSupportMixin:
            """Nothing."""


__all__ = [
    "BASELINE_LINK",
    "DOC_LINK",
    "SITE",
    "BaseEstimator",
    "CallbackSupportMixin",
    "ClassNamePrefixFeaturesOutMixin",
    "ClassifierMixin",
    "ClusterMixin",
    "MultiOutputMixin",
    "OutlierMixin",
    "RegressorMixin",
    "TransformerMixin",
    "available_if",
]
