"""Tensors in and out: PyTorch's, and arrays of any library that speaks DLPack."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV

from gyrfalcon import (
    AutoRegressor,
    ConformalRegressor,
    DivideAndConquerRegressor,
    EigenProRegressor,
    ExactClassifier,
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    HierarchicalClassifier,
    HierarchicalRegressor,
    KernelKMeans,
    KernelOperator,
    KernelPCA,
    NoveltyDetector,
    NystromRegressor,
    NytroRegressor,
    RandomFeatures,
    RandomFeaturesClassifier,
    RandomFeaturesRegressor,
)
from gyrfalcon.sources import as_rows, is_tensor, to_host

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 3))
Y = np.sin(X[:, 0]) + X[:, 1]
LABELS = (Y > 0).astype(np.int64)


class Exported:
    """An array of another library: no more than DLPack, the array API's namespace, and a device."""

    def __init__(self, values, device="cpu", kind=1):
        self.values, self.device, self.kind = np.array(values), device, kind

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)

    def __len__(self):
        return len(self.values)

    def __dlpack__(self, **options):
        if self.kind != 1 and options.get("dl_device") != (1, 0):
            raise BufferError("not in host memory")
        options.pop("dl_device", None)
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return (self.kind, 0)

    def __array_namespace__(self, **options):
        return self

    def asarray(self, values, device):
        return Exported(values, device, self.kind)

    def from_dlpack(self, values):
        return Exported(np.from_dlpack(values), "shared", self.kind)


class Bare:
    """What has DLPack and nothing else."""

    def __init__(self, values):
        self._values, self.shape, self.dtype = values, values.shape, values.dtype

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return (1, 0)


# ---- any library -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [X, X.tolist(), scipy.sparse.csr_array(X), None, 3.0, "y", as_rows(X)])
def test_what_is_no_tensor_stays_as_it_is(other):
    assert not is_tensor(other)
    assert to_host(other) is other


def test_tables_are_no_tensors():
    pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    for other in (pandas.DataFrame(X), pandas.Series(Y), polars.DataFrame(X), polars.Series(Y), pyarrow.array(Y)):
        assert not is_tensor(other)


def test_host_memory_is_shared():
    given = Exported(X)
    assert np.shares_memory(to_host(given), given.values)
    assert_array_equal(KernelOperator("gaussian", given, X[:5]).matmat(np.ones(5)).shape, (120,))


@pytest.mark.parametrize("kind", [1, 2], ids=["host", "device"])
def test_arrays_of_the_standard_come_back_on_their_device(kind):
    given = Exported(X, device="there", kind=kind)
    plain = FalkonRegressor(n_centers=20, random_state=0).fit(X, Y)
    model = FalkonRegressor(n_centers=20, random_state=0).fit(given, Exported(Y, kind=kind))
    predictions = model.predict(given)
    assert isinstance(predictions, Exported)
    assert predictions.device == "there"
    assert_array_equal(predictions.values, plain.predict(X))
    assert model.score(given, Exported(Y, kind=kind)) == plain.score(X, Y)
    assert type(model.dual_coef_) is type(model.centers_) is np.ndarray


def test_without_the_standard_predictions_are_numpy():
    model = FalkonRegressor(n_centers=20, random_state=0).fit(Bare(X), Bare(Y))
    assert_array_equal(model.predict(Bare(X)), model.predict(X))


def test_strings_stay_numpy():
    names = np.array(["no", "yes"])[LABELS]
    predictions = FalkonClassifier(n_centers=20, random_state=0).fit(Exported(X), names).predict(Exported(X))
    assert set(predictions) == {"no", "yes"}


def test_memory_that_cannot_be_read_is_an_error():
    class Locked(Exported):
        def __dlpack__(self, **options):
            raise BufferError("locked")

    with pytest.raises(ValueError, match=r"a Locked of shape \(120, 3\) and type float64 cannot be read.*locked"):
        FalkonRegressor(n_centers=20).fit(Locked(X), Y)


@pytest.mark.slow
def test_numpy_does_not_import_torch():
    code = (
        "import sys, numpy as np, gyrfalcon\n"
        "X = np.arange(20.0).reshape(10, 2)\n"
        "gyrfalcon.FalkonRegressor(n_centers=5).fit(X, X[:, 0]).predict(X)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.devices
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_regression(torch, dtype):
    x, y, weight = torch.tensor(X, dtype=getattr(torch, dtype)), torch.tensor(Y), torch.ones(len(Y))
    plain = FalkonRegressor(n_centers=20, random_state=0).fit(x.numpy(), Y, np.ones(len(Y)), X_val=x.numpy(), y_val=Y)
    model = FalkonRegressor(n_centers=20, random_state=0).fit(x, y, weight, X_val=x, y_val=y)
    predictions = model.predict(x)
    assert isinstance(predictions, torch.Tensor)
    assert predictions.dtype == x.dtype
    assert_array_equal(predictions.numpy(), plain.predict(x.numpy()))
    assert_array_equal(model.predict(x.numpy()), predictions.numpy())
    assert model.score(x, y, weight) == pytest.approx(plain.score(x.numpy(), Y))
    assert type(model.dual_coef_) is type(model.centers_) is np.ndarray


@pytest.mark.devices
@pytest.mark.parametrize("kind", [1, 2], ids=["host", "device"])
@pytest.mark.usefixtures("one_thread")
def test_arrays_of_other_libraries_stay_where_a_device_computes(kind):
    """Memory of a kind of device that this PyTorch does not know is read on the host."""
    given, names = Exported(X, kind=kind), np.array(["no", "yes"])[LABELS]
    plain = FalkonRegressor(n_centers=20, random_state=0, device="cpu").fit(X, Y)
    model = clone(plain).fit(given, Exported(Y))
    predictions = model.predict(given)
    assert isinstance(predictions, Exported)
    assert (predictions.device == "shared") == (kind == 1)
    assert_array_equal(predictions.values, model.predict(X))
    assert_allclose(predictions.values, plain.predict(X), atol=1e-6)
    bare = model.predict(Bare(X))
    assert type(bare) is np.ndarray
    assert_array_equal(bare, predictions.values)
    labels = FalkonClassifier(n_centers=20, random_state=0, device="cpu").fit(given, names).predict(given)
    assert set(labels) == {"no", "yes"}


@pytest.mark.devices
def test_models_of_tensors_in_the_hands_of_scikit_learn(torch):
    x, y = torch.tensor(X), torch.tensor(Y)
    model = FalkonRegressor(n_centers=20, penalty=1e-3, random_state=0, device="cpu")
    search = GridSearchCV(model, {"penalty": [1e-1, 1e-3]}, cv=3).fit(x, y)
    plain = GridSearchCV(model, {"penalty": [1e-1, 1e-3]}, cv=3).fit(X, Y)
    assert_allclose(search.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"], rtol=1e-8)
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert_array_equal(again.predict(x).numpy(), search.predict(x).numpy())
    for rows, targets in ((x[:1], y[:1]), (x[:9], y[:9]), (x[:, :1], y), (x.int(), y), (x > 0, y)):
        predictions = clone(model).fit(rows, targets).predict(rows)
        assert predictions.shape == targets.shape
        assert predictions.isfinite().all()


@pytest.mark.devices
def test_what_is_wrong_with_tensors_is_said_as_for_arrays(torch):
    x, y = torch.tensor(X), torch.tensor(Y)
    model = FalkonRegressor(n_centers=20, penalty=1e-3, random_state=0, device="cpu").fit(x, y)
    for rows, message in (
        (torch.where(x > 2, torch.nan, x), "contains NaN"),
        (torch.where(x > 2, torch.inf, x), "contains infinity"),
        (x.clone().requires_grad_(), "requires gradients"),
        (x[:, 0], "Expected 2D array"),
        (x[:0], r"0 sample\(s\)"),
        (x.to(torch.complex64), "Complex data not supported"),
        (1e200 * x, "too large to scale"),
    ):
        with pytest.raises(ValueError, match=message):
            clone(model).fit(rows, y)
    with pytest.raises(ValueError, match="X has 2 features"):
        model.predict(x[:, :2])
    narrow = clone(model).set_params(dtype="float32", scale=False)
    for factor, message in ((1e200, "too large for float32"), (1e-200, "too small for float32")):
        with pytest.raises(ValueError, match=message):
            narrow.fit(factor * x, y)
    with pytest.raises(ValueError, match="120 rows and y has 119"):
        model.fit(x, y[:-1])


@pytest.mark.devices
def test_classification(torch):
    x, y = torch.tensor(X), torch.tensor(LABELS)
    model = FalkonClassifier(n_centers=20, random_state=0, loss="logistic").fit(x, y)
    plain = FalkonClassifier(n_centers=20, random_state=0, loss="logistic").fit(X, LABELS)
    for method in ("predict", "predict_proba", "decision_function", "predict_log_proba"):
        values = getattr(model, method)(x)
        assert isinstance(values, torch.Tensor)
        assert_array_equal(values.numpy(), getattr(plain, method)(X))
    assert model.predict(x).dtype == torch.int64
    assert model.score(x, y) == plain.score(X, LABELS)


@pytest.mark.devices
@pytest.mark.parametrize(
    "model",
    [
        ExactRegressor(penalty=1e-3, random_state=0),
        ExactClassifier(penalty=1e-3, random_state=0),
        HierarchicalRegressor(leaf_size=20, random_state=0),
        HierarchicalClassifier(leaf_size=20, random_state=0),
        EigenProRegressor(max_iter=2, random_state=0),
        NytroRegressor(n_centers=20, max_iter=5, random_state=0),
        DivideAndConquerRegressor(random_state=0),
        RandomFeaturesRegressor(n_components=16, random_state=0),
        RandomFeaturesClassifier(n_components=16, random_state=0),
        NoveltyDetector(n_centers=20, random_state=0),
    ],
    ids=str,
)
def test_every_model_predicts_tensors_of_tensors(torch, model):
    targets = LABELS if is_classifier(model) else Y
    there = clone(model).fit(torch.tensor(X), torch.tensor(targets))
    predictions = there.predict(torch.tensor(X))
    assert isinstance(predictions, torch.Tensor)
    assert_array_equal(predictions.numpy(), clone(model).fit(X, targets).predict(X))


@pytest.mark.devices
def test_deviations_intervals_and_draws(torch):
    x, y = torch.tensor(X), torch.tensor(Y)
    model = NystromRegressor(n_centers=20, random_state=0, uncertainty=True).fit(x, y)
    results = [*model.predict(x, return_std=True), model.predict_interval(x, 0.8), model.sample_y(x[:5], n_samples=2)]
    expected = [*model.predict(X, return_std=True), model.predict_interval(X, 0.8), model.sample_y(X[:5], n_samples=2)]
    for result, values in zip(results, expected, strict=True):
        assert isinstance(result, torch.Tensor)
        assert_array_equal(result.numpy(), values)
    conformal = ConformalRegressor(FalkonRegressor(n_centers=20), random_state=0).fit(x, y)
    assert isinstance(conformal.predict(x), torch.Tensor)
    assert conformal.predict_interval(x).shape == (120, 2)


@pytest.mark.devices
@pytest.mark.parametrize(
    "transformer",
    [
        KernelPCA(n_components=2, n_centers=20, random_state=0),
        KernelKMeans(n_clusters=3, n_centers=20, random_state=0),
        RandomFeatures(n_components=8, random_state=0),
    ],
    ids=lambda one: type(one).__name__,
)
def test_transformers_and_tables_that_are_asked_for(torch, transformer):
    pandas = pytest.importorskip("pandas")
    x = torch.tensor(X)
    transformer = clone(transformer).fit(x)
    scores = transformer.transform(x)
    assert isinstance(scores, torch.Tensor)
    assert_array_equal(scores.numpy(), transformer.transform(X))
    table = transformer.set_output(transform="pandas").transform(x)
    assert isinstance(table, pandas.DataFrame)
    assert_array_equal(table.to_numpy(), scores.numpy())


@pytest.mark.devices
def test_tables_are_made_of_tensors(torch):
    x, y = torch.tensor(X), torch.tensor(Y)
    model = AutoRegressor(time_budget=2, random_state=0).fit(x, y)
    assert isinstance(model.predict(x), torch.Tensor)
    assert isinstance(model.predict_interval(x), torch.Tensor)


@pytest.mark.devices
def test_host_memory_of_tensors_is_shared(torch):
    for x in (torch.tensor(X), torch.tensor(X).T, torch.tensor(X)[::2], torch.nn.Parameter(torch.tensor(X)).detach()):
        assert to_host(x).ctypes.data == x.data_ptr()
        assert_array_equal(to_host(x), x.numpy())


@pytest.mark.devices
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_short_floats_become_float32(torch, name):
    x = torch.tensor(X).to(getattr(torch, name))
    assert_array_equal(to_host(x), x.float().numpy())
    predictions = FalkonRegressor(n_centers=20, random_state=0).fit(x, torch.tensor(Y)).predict(x)
    assert predictions.dtype == torch.float32


@pytest.mark.devices
def test_gradients_are_refused(torch):
    x = torch.tensor(X, requires_grad=True)
    with pytest.raises(ValueError, match=r"shape \(120, 3\) requires gradients.*give tensor.detach\(\)"):
        FalkonRegressor(n_centers=20).fit(x, Y)
    model = FalkonRegressor(n_centers=20, random_state=0).fit(x.detach(), Y)
    with pytest.raises(ValueError, match="requires gradients"):
        model.predict(x)


@pytest.mark.devices
@pytest.mark.filterwarnings("ignore:Sparse")  # PyTorch calls its CSR tensors beta
@pytest.mark.parametrize("form", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
def test_sparse_tensors(torch, form):
    dense = np.where(X > 0.5, X, 0.0)
    x = getattr(torch.tensor(dense), form)()
    rows = to_host(x)
    assert isinstance(rows, scipy.sparse.csr_array)
    assert_array_equal(rows.toarray(), dense)
    model = FalkonRegressor(n_centers=20, random_state=0).fit(x, torch.tensor(Y))
    plain = FalkonRegressor(n_centers=20, random_state=0).fit(scipy.sparse.csr_array(dense), Y)
    assert_array_equal(model.predict(x).numpy(), plain.predict(scipy.sparse.csr_array(dense)))
    with pytest.raises(TypeError, match="Sparse data was passed"):
        EigenProRegressor().fit(x, torch.tensor(Y))
    with pytest.raises(ValueError, match="rows need two axes"):
        to_host(torch.tensor(Y).to_sparse())


@pytest.mark.devices
def test_other_devices_get_predictions_back(torch, monkeypatch):
    """The meta device stands for one that is not the host: its tensors have no values, only a place."""
    from gyrfalcon.sources import tensors

    given = torch.empty((120, 3), device="meta")
    monkeypatch.setattr(tensors, "_from_torch", lambda tensor: X)
    model = FalkonRegressor(n_centers=20, random_state=0).fit(X, Y)
    predictions = model.predict(given)
    assert predictions.device == given.device
    assert predictions.shape == (120,)


@pytest.mark.devices
def test_nan_and_wrong_width_are_refused_as_for_arrays(torch):
    model = FalkonRegressor(n_centers=20, random_state=0).fit(torch.tensor(X), torch.tensor(Y))
    with pytest.raises(ValueError, match="contains NaN"):
        model.predict(torch.full((2, 3), torch.nan))
    with pytest.raises(ValueError, match="2 features"):
        model.predict(torch.zeros(2, 2))
    with pytest.raises(ValueError, match="Complex data not supported"):
        model.predict(torch.zeros((2, 3), dtype=torch.complex64))
