"""Rows of the papers' tables that are not FALKON, NKRLS or NYTRO: published numbers, and what makes them here.

Numbers of the FALKON paper's Tables 2 and 3 are cited there from other papers, which have settings of their own. Here
such a method runs with the kernel, the penalty and, where it has centers or features, the number of them, that the
FALKON row of the data set has. A method without an estimator here is another program, or no kernel method.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
from _configurations import FALKON, FALKON_2, NYTRO, Row
from comparison import METHODS

from gyrfalcon import ExactRegressor, HierarchicalClassifier, HierarchicalRegressor
from gyrfalcon.baselines import (
    DivideAndConquerClassifier,
    DivideAndConquerRegressor,
    EigenProClassifier,
    EigenProRegressor,
    EnsembleClassifier,
    EnsembleRegressor,
    FeatureSelectionClassifier,
    FeatureSelectionRegressor,
    RandomFeaturesClassifier,
    RandomFeaturesRegressor,
)


@dataclass(frozen=True)
class Rival:
    """Published numbers of a method that FALKON or NYTRO is compared with."""

    data: str
    paper: str
    method: str
    published: dict[str, float]
    time: str = ""


RIVALS = [
    Rival("MillionSongs", FALKON, "Prec. KRR", {"relative error": 4.58e-3}, "289 s"),
    Rival("MillionSongs", FALKON, "Hierarchical", {"relative error": 4.56e-3}, "293 s"),
    Rival("MillionSongs", FALKON, "D&C", {"MSE": 80.35}, "737 s"),
    Rival("MillionSongs", FALKON, "Rand. Feat.", {"MSE": 80.93}, "772 s"),
    Rival("MillionSongs", FALKON, "Nyström", {"MSE": 80.38}, "876 s"),
    Rival("MillionSongs", FALKON, "ADMM R. F.", {"relative error": 5.01e-3}, "958 s"),
    Rival("MillionSongs", FALKON, "KRR", {"relative error": 4.55e-3}),
    Rival("YELP", FALKON, "BCD R. F.", {"RMSE": 0.949}, "42 min"),
    Rival("YELP", FALKON, "BCD Nyström", {"RMSE": 0.861}, "60 min"),
    Rival("YELP", FALKON, "KRR", {"RMSE": 0.854}, "500 min"),
    Rival("TIMIT", FALKON, "BCD R. F.", {"c-err": 34.0}, "1.7 h"),
    Rival("TIMIT", FALKON, "BCD Nyström", {"c-err": 33.7}, "1.7 h"),
    Rival("TIMIT", FALKON, "EigenPro", {"c-err": 32.6}, "3.9 h"),
    Rival("TIMIT", FALKON, "KRR", {"c-err": 33.5}, "8.3 h"),
    Rival("TIMIT", FALKON, "Deep NN", {"c-err": 32.4}),
    Rival("TIMIT", FALKON, "Sparse Kernels", {"c-err": 30.9}),
    Rival("TIMIT", FALKON, "Ensemble", {"c-err": 33.5}),
    Rival("SUSY", FALKON, "EigenPro", {"c-err": 19.8}, "6 min"),
    Rival("SUSY", FALKON, "Hierarchical", {"c-err": 20.1}, "40 min"),
    Rival("SUSY", FALKON, "Boosted Decision Tree", {"AUC": 0.863}),
    Rival("SUSY", FALKON, "Neural Network", {"AUC": 0.875}),
    Rival("SUSY", FALKON, "Deep Neural Network", {"AUC": 0.879}, "4680 min"),
    Rival("HIGGS", FALKON, "Boosted Decision Tree", {"AUC": 0.810}),
    Rival("HIGGS", FALKON, "Neural Network", {"AUC": 0.816}),
    Rival("HIGGS", FALKON, "Deep Neural Network", {"AUC": 0.885}, "78 h"),
    Rival("IMAGENET", FALKON, "Inception-V4", {"c-err": 20.0}),
    Rival("TAXI", FALKON_2, "GPyTorch", {"RMSE": 322.5}, "10.8 h"),
    Rival("TAXI", FALKON_2, "GPflow", {"RMSE": 313.2}, "8.5 h"),
    Rival("HIGGS", FALKON_2, "GPyTorch", {"AUC": 0.8005}, "52.9 min"),
    Rival("HIGGS", FALKON_2, "GPflow", {"AUC": 0.8042}, "24.3 min"),
    Rival("TIMIT", FALKON_2, "EigenPro2", {"c-err": 31.91}, "29 min"),
    Rival("TIMIT", FALKON_2, "GPflow", {"c-err": 33.78}, "44.5 min"),
    Rival("AIRLINE-CLS", FALKON_2, "EigenPro2", {"c-err": 32.5}, "27.2 min"),
    Rival("AIRLINE-CLS", FALKON_2, "GPyTorch", {"c-err": 33.0}, "24.2 min"),
    Rival("AIRLINE-CLS", FALKON_2, "GPflow", {"c-err": 32.6}, "10.5 min"),
    Rival("AIRLINE", FALKON_2, "EigenPro2", {"MSE": 0.785}, "24.5 min"),
    Rival("AIRLINE", FALKON_2, "GPyTorch", {"MSE": 0.803}, "31 min"),
    Rival("AIRLINE", FALKON_2, "GPflow", {"MSE": 0.790}, "28.7 min"),
    Rival("MSD", FALKON_2, "EigenPro2", {"relative error": 4.4778e-3}, "6.3 min"),
    Rival("MSD", FALKON_2, "GPyTorch", {"relative error": 4.5344e-3}, "15.5 min"),
    Rival("MSD", FALKON_2, "GPflow", {"relative error": 4.4986e-3}, "8.8 min"),
    Rival("SUSY", FALKON_2, "EigenPro2", {"c-err": 20.08}, "1.5 min"),
    Rival("SUSY", FALKON_2, "GPyTorch", {"c-err": 19.71}, "16.5 min"),
    Rival("SUSY", FALKON_2, "GPflow", {"c-err": 19.65}, "9.3 min"),
    Rival("MNIST", FALKON_2, "ThunderSVM", {}, "19.6 s"),
    Rival("CIFAR-10", FALKON_2, "ThunderSVM", {}, "82.9 s"),
    Rival("SVHN", FALKON_2, "ThunderSVM", {}, "166.4 s"),
    Rival("InsuranceCompany", NYTRO, "KOLS", {"RMSE": 5.179}, "1.04 s"),
    Rival("InsuranceCompany", NYTRO, "KRLS", {"RMSE": 0.4651}, "97.5 s"),
    Rival("InsuranceCompany", NYTRO, "Early Stopping", {"RMSE": 0.4650}, "2.92 s"),
    Rival("Adult", NYTRO, "KOLS", {"RMSE": 1765}, "112 s"),
    Rival("Adult", NYTRO, "KRLS", {"RMSE": 0.645}, "4360 s"),
    Rival("Adult", NYTRO, "Early Stopping", {"RMSE": 0.685}, "5.52 s"),
    Rival("Ijcnn", NYTRO, "KOLS", {"RMSE": 730.62}, "271 s"),
    Rival("Ijcnn", NYTRO, "KRLS", {"RMSE": 0.615}, "825 s"),
    Rival("Ijcnn", NYTRO, "Early Stopping", {"RMSE": 0.457}, "155 s"),
]

# programs of others, and models without a kernel
OTHERS = {
    "Boosted Decision Tree", "Deep NN", "Deep Neural Network", "GPflow", "GPyTorch", "Inception-V4", "Neural Network",
    "ThunderSVM",
}  # fmt: skip
# the names that comparison.py has for methods of the same kind
SAME = {"Prec. KRR": "Prec. KRR, random features", "KRR": "Prec. KRR, Nyström", "EigenPro2": "EigenPro"}
OF_NYTRO = {"KOLS": "least_squares", "KRLS": "ridge", "Early Stopping": "early_stopping"}
CLASSIFIERS: dict[Any, Any] = {
    DivideAndConquerRegressor: DivideAndConquerClassifier,
    EigenProRegressor: EigenProClassifier,
    EnsembleRegressor: EnsembleClassifier,
    FeatureSelectionRegressor: FeatureSelectionClassifier,
    HierarchicalRegressor: HierarchicalClassifier,
    RandomFeaturesRegressor: RandomFeaturesClassifier,
}


class OnSigns:
    """A regressor of several outputs as a classifier: one output for each class, +1 or -1."""

    def __init__(self, regressor: Any) -> None:
        self.regressor = regressor

    def fit(self, X: Any, y: np.ndarray) -> OnSigns:
        self.classes_ = np.unique(y)
        self.regressor.fit(X, np.where(y[:, None] == self.classes_, 1.0, -1.0))
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        values = np.asarray(self.regressor.predict(X))
        return values if len(self.classes_) > 2 else (values[:, 1] - values[:, 0]) / 2


def rival_of(method: str, row: Row, M: int, classes: bool, seed: int) -> Any:
    """A method of `RIVALS` that is here, with the settings of a row of FALKON or NKRLS (Early Stopping: of NYTRO)."""
    shared = {"kernel": row.kernel, "scale": False, "fit_intercept": False, "random_state": seed}
    if method in OF_NYTRO:
        model = ExactRegressor(method=OF_NYTRO[method], **shared)
        if method == "KRLS":
            return model.set_params(penalty=row.penalty)
        if method == "KOLS":
            return model
        return model.set_params(
            step="auto", max_iter=row.iterations, min_decrease=row.threshold / 9, validation_fraction=0.2
        )
    regressor = METHODS[SAME.get(method, method)]({**shared, "n_centers": M}, {"penalty": row.penalty})
    if not classes:
        return regressor
    classifier = CLASSIFIERS.get(type(regressor))
    if classifier is None:
        return OnSigns(regressor)
    known = inspect.signature(classifier).parameters
    return classifier(**{name: value for name, value in regressor.get_params(deep=False).items() if name in known})
