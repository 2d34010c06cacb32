"""Estimators as the textbooks have them: no intercept, features as they are, and the penalty that one says."""

from __future__ import annotations

from typing import Any


def plain(Estimator: Any, *arguments: Any, **parameters: Any) -> Any:
    """Make an estimator that decides nothing by itself; `parameters` come first."""
    textbook: dict[str, Any] = {"fit_intercept": False, "scale": False, "penalty": 1e-6}
    known = Estimator().get_params()
    if parameters.get("method") in ("least_squares", "early_stopping", "nu"):
        del textbook["penalty"]
    return Estimator(*arguments, **{name: value for name, value in textbook.items() if name in known} | parameters)
