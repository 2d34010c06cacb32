"""Pipelines of scikit-learn in model files: what they predict, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

import gyrfalcon
from gyrfalcon import FalkonClassifier, FalkonRegressor, ModelFileError, TableEncoder
from gyrfalcon.storage.models import _MODEL, read_file, write_file

X = np.round(np.random.default_rng(0).random((60, 4)), 1)
Y = X[:, 0] - X[:, 1]
MODEL = FalkonRegressor(n_centers=10, penalty=1e-3, random_state=0)


@pytest.fixture
def table():
    pd = pytest.importorskip("pandas")
    return pd.DataFrame({"size": X[:, 0], "town": ["x", "y", "z"] * 20, "rooms": [1, 2, 3] * 20})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.gyr"


@pytest.mark.parametrize(
    "step",
    [
        StandardScaler(),
        MinMaxScaler(),
        RobustScaler(),
        MaxAbsScaler(),
        QuantileTransformer(n_quantiles=10),
        PowerTransformer(),
        SimpleImputer(),
        SimpleImputer(add_indicator=True),
        PCA(2),
        TruncatedSVD(2),
        Normalizer(),
        PolynomialFeatures(2),
        FunctionTransformer(),
        OrdinalEncoder(),
        OneHotEncoder(handle_unknown="ignore"),
        OneHotEncoder(drop="first"),
        make_union(StandardScaler(), PCA(1)),
        make_pipeline(StandardScaler(), "passthrough"),
    ],
    ids=repr,
)
def test_pipelines_predict_the_same(step, path):
    model = make_pipeline(step, MODEL).fit(X, Y)
    gyrfalcon.save(model, path)
    again = gyrfalcon.load(path)
    assert_array_equal(again.predict(X), model.predict(X))
    assert repr(again) == repr(model)
    assert_allclose(again.fit(X, Y).predict(X), model.predict(X), atol=1e-6)


def test_tables(table, path):
    columns = ColumnTransformer(
        [("numbers", StandardScaler(), ["size"]), ("town", OneHotEncoder(), ["town"]), ("rest", "passthrough", [2])]
    )
    for first in (columns, TableEncoder()):
        model = make_pipeline(first, FalkonClassifier(n_centers=10, random_state=0)).fit(table, Y > 0)
        gyrfalcon.save(model, path)
        assert_array_equal(gyrfalcon.load(path).decision_function(table), model.decision_function(table))
    kept = make_pipeline(StandardScaler().set_output(transform="pandas"), MODEL).fit(table[["size", "rooms"]], Y)
    gyrfalcon.save(kept, path)
    assert list(gyrfalcon.load(path)[0].transform(table[["size", "rooms"]]).columns) == ["size", "rooms"]


def test_transformed_targets(path):
    model = TransformedTargetRegressor(make_pipeline(PCA(2), MODEL), transformer=StandardScaler()).fit(X, Y)
    gyrfalcon.save(model, path)
    assert_array_equal(gyrfalcon.load(path).predict(X), model.predict(X))


def test_a_cache_and_processes_are_not_kept(path, tmp_path):
    model = make_pipeline(StandardScaler(), MODEL, memory=str(tmp_path / "cache")).fit(X, Y)
    gyrfalcon.save(model, path)
    assert gyrfalcon.load(path).memory is None


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (FunctionTransformer(np.log1p), "func.*holds data and no code"),
        (OneHotEncoder(min_frequency=2), "min_frequency or max_categories cannot be kept"),
    ],
    ids=repr,
)
def test_what_cannot_be_kept(step, message, path):
    with pytest.raises(TypeError, match=message):
        gyrfalcon.save(make_pipeline(step, MODEL).fit(X, Y), path)
    assert not path.exists()


def test_other_estimators_are_answered_with_the_list(path):
    with pytest.raises(TypeError, match=r"none of those of scikit-learn.*ColumnTransformer.*StandardScaler"):
        gyrfalcon.save(Ridge().fit(X, Y), path)
    with pytest.raises(TypeError, match="Ridge"):
        gyrfalcon.save(make_pipeline(StandardScaler(), Ridge()).fit(X, Y), path)


def forged(path, model, change):
    """Write a model with its JSON changed, and the right checksum."""
    gyrfalcon.save(model, path)
    node, tensors = read_file(str(path), _MODEL)
    change(node)
    write_file(str(path), _MODEL, json.dumps(node), tensors)


def first_step(node):
    return node["params"]["steps"][0]["__tuple__"][1]["__estimator__"]


def test_another_version_is_told(path):
    forged(path, make_pipeline(StandardScaler(), MODEL).fit(X, Y), lambda node: node.update(version="1.0.1"))
    with pytest.warns(UserWarning, match=r"scikit-learn '1\.0\.1', and this is"):
        gyrfalcon.load(path)


@pytest.mark.parametrize(
    ("step", "change", "message"),
    [
        (StandardScaler(), lambda node: node.update({"class": "sklearn.Ridge"}), "unknown estimator|where an object"),
        (StandardScaler(), lambda node: node.update({"class": "Pipeline"}), "where an object|unknown"),
        (StandardScaler(), lambda node: node["params"].update(with_mean="no"), "with_mean"),
        (StandardScaler(), lambda node: node["attributes"].update(n_features_in_=9), "there are 9 features"),
        (StandardScaler(), lambda node: node["attributes"].update(_private=1), "no attribute '_private'"),
        (StandardScaler(), lambda node: node["attributes"].update(transform_=1, __class__=1), "no attribute"),
        (OneHotEncoder(), lambda node: node["attributes"].update(_n_features_outs=[1, 1, 1, 1]), "says that it has"),
        (OneHotEncoder(), lambda node: node["attributes"].update(_infrequent_enabled=True), "min_frequency"),
        (OneHotEncoder(), lambda node: node["params"].update(drop="first"), "drop_idx_ does not fit"),
        (OneHotEncoder(), lambda node: node["params"].update(n_jobs=10_000), "n_jobs|no parameter"),
        (PolynomialFeatures(2), lambda node: node["attributes"].update(_max_degree=10**9), "from 0 to 100"),
    ],
)
def test_forged_files_are_refused(step, change, message, path):
    model = make_pipeline(step, MODEL).fit(X, Y)
    forged(path, model, lambda node: change(first_step(node)))
    with pytest.raises(ModelFileError, match=message):
        gyrfalcon.load(path)


def test_forged_categories_and_caches_are_refused(path):
    model = make_pipeline(OneHotEncoder(), MODEL).fit(X, Y)
    model[0].categories_ = [one[::-1].copy() for one in model[0].categories_]
    with pytest.raises(TypeError, match="categories_ must increase"):
        gyrfalcon.save(model, path)
    model = make_pipeline(StandardScaler(), MODEL).fit(X, Y)
    forged(path, model, lambda node: node["params"].update(memory="cache"))
    with pytest.raises(ModelFileError, match="memory"):
        gyrfalcon.load(path)
    forged(path, model, lambda node: node["params"].update(steps=[["a", 5]]))
    with pytest.raises(ModelFileError):
        gyrfalcon.load(path)
