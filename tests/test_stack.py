"""Tools for scikit-learn take Gyrfalcon's estimators: what docs/in_your_stack.md shows, if they are installed."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

from gyrfalcon import FalkonRegressor
from gyrfalcon.kernels import Gaussian

pytestmark = pytest.mark.slow


@pytest.fixture
def rows():
    random = np.random.default_rng(0)
    X = random.standard_normal((300, 3))
    return X, np.sin(X[:, 0]) + X[:, 1]


def fitted(X, y):
    return FalkonRegressor(n_centers=50, random_state=0).fit(X, y)


def r2(length_scale, X, y):
    model = FalkonRegressor(Gaussian(length_scale), n_centers=50, penalty=1e-6, random_state=0)
    return cross_val_score(model, X, y, cv=3).mean()


def test_mlflow(rows, tmp_path, monkeypatch):
    flavor = pytest.importorskip("mlflow.sklearn")
    import mlflow as root
    import skops.io

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    root.set_tracking_uri((tmp_path / "runs").as_uri())
    X, y = rows
    model = fitted(X, y)
    types = skops.io.get_untrusted_types(data=skops.io.dumps(model))
    assert types
    assert all(name.startswith("gyrfalcon.") for name in types)
    with root.start_run():
        info = flavor.log_model(model, name="model", serialization_format="skops", skops_trusted_types=types)
    np.testing.assert_array_equal(root.pyfunc.load_model(info.model_uri).predict(X), model.predict(X))
    with pytest.raises(root.exceptions.MlflowException, match="untrusted types"):
        flavor.save_model(model, str(tmp_path / "refused"), serialization_format="skops")


def test_optuna(rows):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(lambda trial: r2(trial.suggest_float("length_scale", 0.1, 10, log=True), *rows), n_trials=8)
    assert study.best_value > 0.9


def test_flaml(rows):
    tune = pytest.importorskip("flaml.tune")
    space = {"length_scale": tune.loguniform(0.1, 10)}
    found = tune.run(
        lambda config: {"r2": r2(config["length_scale"], *rows)},
        config=space,
        metric="r2",
        mode="max",
        num_samples=8,
        verbose=0,
    )
    assert found.best_result["r2"] > 0.9


def test_sktime():
    compose = pytest.importorskip("sktime.forecasting.compose")
    pandas = pytest.importorskip("pandas")
    series = pandas.Series(np.sin(np.arange(200) / 5) + 0.05 * np.random.default_rng(0).standard_normal(200))
    regressor = FalkonRegressor(n_centers=100, random_state=0)
    forecaster = compose.make_reduction(regressor, window_length=20, strategy="recursive").fit(series[:180])
    forecast = np.ravel(forecaster.predict(fh=np.arange(1, 21)))
    assert np.sqrt(np.mean((forecast - series[180:]) ** 2)) < 0.3


def test_mapie(rows):
    mapie = pytest.importorskip("mapie.regression")
    X, y = rows
    around = mapie.SplitConformalRegressor(FalkonRegressor(n_centers=50), confidence_level=0.9, prefit=False)
    _, ends = around.fit(X[:150], y[:150]).conformalize(X[150:], y[150:]).predict_interval(X)
    assert (ends[:, 0, 0] <= ends[:, 1, 0]).all()


def test_crepes(rows):
    crepes = pytest.importorskip("crepes")
    X, y = rows
    around = crepes.WrapRegressor(FalkonRegressor(n_centers=50))
    around.fit(X[:150], y[:150])
    around.calibrate(X[150:], y[150:])
    ends = around.predict_int(X, confidence=0.9)
    assert (ends[:, 0] <= ends[:, 1]).all()
