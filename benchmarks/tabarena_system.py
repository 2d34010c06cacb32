"""Gyrfalcon as a system of TabArena (https://tabarena.ai), whose base class `ExternalSystemModel` runs and scores it.

TabArena hands over the raw table, the limits of time, memory and processors, and a seed; encoding, validation, search
and blending are those of `AutoRegressor` and `AutoClassifier`. `tabarena_run.py` runs it, and docs/tabarena.md is the
guide. The class is in a module of its own because TabArena's worker processes import it. Needs
`pip install "tabarena[benchmark] @ git+https://github.com/autogluon/tabarena"`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from tabarena.benchmark.exec_models.external import ExternalSystemModel

_OVERRUN = 1.2  # a fit may take this many times its time budget
_MEMORY = 0.8  # share of the memory limit for the fit; the rest is for the table and its copies
_DEFAULT_SECONDS = 600.0  # time budget if there is no limit


class GyrfalconSystem(ExternalSystemModel):
    """Fit `AutoRegressor` or `AutoClassifier` within the limits that TabArena sets.

    `parameters` are further parameters of these, such as ``{"families": ("kernel",)}``.
    """

    def __init__(self, *, parameters: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.parameters = parameters or {}

    def _fit_system(
        self,
        X: pd.DataFrame,
        y: pd.Series,
        *,
        problem_type: str,
        validation_metadata: Any,
        num_cpus: int | None,
        memory_limit: float | None,
        time_limit: float | None,
        random_state: int | None,
        **_: Any,
    ) -> GyrfalconSystem:
        from gyrfalcon import AutoClassifier, AutoRegressor

        regression = problem_type == "regression"
        X, y, how = split_by(X, y, validation_metadata.group_on, validation_metadata.time_on)
        self.model = (AutoRegressor if regression else AutoClassifier)(
            time_budget=_DEFAULT_SECONDS if time_limit is None else time_limit / _OVERRUN,
            n_jobs=num_cpus,
            memory_budget="auto" if memory_limit is None else int(_MEMORY * memory_limit * 1e9),
            random_state=0 if random_state is None else random_state,
            **({"cv": how["cv"]} if "cv" in how else {}),
            **self.parameters,
        )
        target = y.to_numpy(dtype=np.float64) if regression else np.asarray(y)
        self.model.fit(X, target, **({"groups": how["groups"]} if "groups" in how else {}))
        return self

    def _predict(self, X: pd.DataFrame) -> pd.Series:
        return pd.Series(self.model.predict(X), index=X.index)

    def _predict_proba(self, X: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(self.model.predict_proba(X), index=X.index, columns=self.model.classes_)


def split_by(
    X: pd.DataFrame, y: pd.Series, group_on: Any, time_on: Any
) -> tuple[pd.DataFrame, pd.Series, dict[str, Any]]:
    """Return the rows, and the groups or the splitter by which rows are held out as TabArena holds out the test rows.

    Rows are sorted by the column `time_on`, and later ones are held out; rows that agree in `group_on`, a column or a
    list of columns, are held out together. Columns that the table does not have are ignored.
    """
    if isinstance(time_on, str) and time_on in X:
        from sklearn.model_selection import TimeSeriesSplit

        order = np.argsort(X[time_on].to_numpy(), kind="stable")
        return X.iloc[order], y.iloc[order], {"cv": TimeSeriesSplit(5)}
    names = [group_on] if isinstance(group_on, str) else list(group_on or [])
    names = [name for name in names if name in X]
    if not names:
        return X, y, {}
    return X, y, {"groups": X.groupby(names, sort=False, dropna=False, observed=True).ngroup().to_numpy()}
