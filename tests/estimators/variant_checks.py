"""scikit-learn's checks for variants of an estimator, which passes all of them with its defaults.

What a solver or a loss decides is checked again for each: solutions, their edge cases and what `fit` leaves behind.
Input is checked before any of them is reached, by code that all variants share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

ExpectedFailures: TypeAlias = Callable[[Any], dict[str, str]] | None

CHECKS = {
    "check_class_weight_classifiers",
    "check_classifiers_classes",
    "check_classifiers_one_label",
    "check_classifiers_one_label_sample_weights",
    "check_classifiers_train",
    "check_decision_proba_consistency",
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_estimators_overwrite_params",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_non_transformer_estimators_n_iter",
    "check_positive_only_tag_during_fit",
    "check_regressor_multioutput",
    "check_regressors_int",
    "check_regressors_train",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_sample_weights_not_overwritten",
}


def parametrize_with_variant_checks(estimators: list[Any], expected_failed_checks: ExpectedFailures = None) -> Any:
    """`parametrize_with_checks` with `CHECKS` alone, those for several kinds of input with one: read-only float32."""
    every = parametrize_with_checks(estimators, expected_failed_checks=expected_failed_checks)
    names, pairs = every.args
    return pytest.mark.parametrize(names, [pair for pair in pairs if _is_chosen(pair)], **every.kwargs)


def _is_chosen(pair: Any) -> bool:
    _, check = getattr(pair, "values", pair)  # one that is expected to fail comes with a mark
    name = check.func.__name__
    return name in CHECKS and (not name.endswith("_train") or "X_dtype" in check.keywords)
