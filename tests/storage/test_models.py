"""Model files: what goes in comes out, and whatever else is in a file is refused with a message that names it."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import pickle
import resource
import signal
import stat
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from safetensors.numpy import save_file
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from gyrfalcon._utils import registry
from gyrfalcon.kernels import Linear, Sum
from gyrfalcon.storage import ModelFileError, load, models, register, save, values


@register
class ToyGaussian(BaseEstimator):
    def __init__(self, length_scale=1.0):
        self.length_scale = length_scale


@register
class ToySum(BaseEstimator):
    def __init__(self, left, right):
        self.left = left
        self.right = right


@register
class PickyKernel(BaseEstimator):
    def __init__(self, degree=0):
        if degree not in (0, 1):
            raise ValueError(f"degree={degree} must be 0 or 1")
        self.degree = degree


@register
class ToyModel(BaseEstimator):
    def __init__(self, kernel="gaussian", *, centers="uniform", random_state=None, callbacks=None, extra=None):
        self.kernel = kernel
        self.centers = centers
        self.random_state = random_state
        self.callbacks = callbacks
        self.extra = extra

    def fit(self, X=None, y=None, **attributes):
        self.coef_ = np.arange(6.0).reshape(2, 3)
        for name, value in attributes.items():
            setattr(self, name, value)
        return self

    def save(self, path):
        save(self, path)

    @property
    def computed_(self):
        return 1

    def _check_loaded(self):
        if self.coef_.ndim != 2:
            raise ValueError(f"coef_ has {self.coef_.ndim} dimensions")


class Unregistered(ToyModel):
    pass


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.gyrfalcon"


def round_trip(estimator, path):
    assert estimator.save(path) is None
    loaded = load(path)
    assert type(loaded) is type(estimator)
    return loaded


def same(a, b):
    """Equal in value and in type, NaN equal to NaN."""
    if isinstance(a, np.ndarray):
        assert type(b) is np.ndarray
        assert a.dtype.newbyteorder("=") == b.dtype or a.dtype.kind == b.dtype.kind == "U"
        assert a.shape == b.shape
        if a.dtype.kind == "O":
            for x, y in zip(a.ravel(), b.ravel(), strict=True):
                same(x, y)
        else:
            np.testing.assert_array_equal(a, b)
        return
    assert type(a) is type(b)
    if isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, dict):
        same(list(a.items()), list(b.items()))
    elif isinstance(a, float | np.floating) and np.isnan(a):
        assert np.isnan(b)
    elif isinstance(a, BaseEstimator):
        same(a.get_params(deep=False), b.get_params(deep=False))
    else:
        assert a == b


# What goes in comes out -----------------------------------------------------------------------------------------------

VALUES = {
    "none": None,
    "bool": True,
    "int": 2**70,
    "float": 0.1,
    "negative zero": -0.0,
    "inf": math.inf,
    "minus inf": -math.inf,
    "nan": math.nan,
    "str": "Nyström \u2603 \x00 \ud800 'quoted' \"double\"",
    "list": [1, [2.5, "x", None]],
    "tuple": (1, (2, [3])),
    "empty": [(), [], {}],
    "dict": {"a": 1, "b": {"c": [math.inf]}},
    "dict with other keys": {0: 1.0, "x": 2, None: 3, (1, 2): 4, 1.5: 5, np.int64(7): 6},
    "dict that looks like a tag": {"__tensor__": "coef_"},
    "float32": np.float32(0.1),
    "float64": np.float64(1e300),
    "float16 inf": np.float16(np.inf),
    "int8": np.int8(-3),
    "uint64": np.uint64(2**64 - 1),
    "bool_": np.bool_(False),
    "scalar type": np.float32,
    "float type": float,
    "dtype": np.dtype("float64"),
    "kernel": ToyGaussian(np.array([1.0, 2.0, np.inf])),
    "kernels": ToySum(ToyGaussian(0.5), ToySum(ToyGaussian("scale"), PickyKernel(1))),
    "array": np.arange(12, dtype=np.float32).reshape(3, 4),
    "list of arrays": [np.zeros(2), (np.ones(3, dtype=np.uint8),)],
    "0-d": np.array(3.5),
    "empty array": np.zeros((0, 5), dtype=np.int32),
    "other end first": np.arange(5, dtype=">f8"),
    "strided": np.arange(20.0).reshape(4, 5)[::2, ::-2],
    "column-major": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "float16 array": np.array([1, np.nan], dtype=np.float16),
    "bool array": np.array([[True, False]]),
    "longlong array": np.array([1, 2], dtype=np.longlong),
    "strings": np.array([["a", "bcd"], ["", "ü"]]),
    "no strings": np.array([], dtype="U3"),
    "objects": np.array(["x", "yy", None, 3, 2.5, True], dtype=object),
    "names": np.array(["age", "height"], dtype=object),
    "0-d object": np.array("x", dtype=object),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_values_survive_as_parameter_and_as_attribute(value, path):
    loaded = round_trip(ToyModel(extra=value).fit(thing_=value), path)
    same(value, loaded.extra)
    same(value, loaded.thing_)
    same(np.arange(6.0).reshape(2, 3), loaded.coef_)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text()
        | hnp.arrays(
            st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_]),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        ),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_any_nesting_survives(value, path):
    same(value, round_trip(ToyModel(extra=value).fit(), path).extra)


@pytest.mark.parametrize("make", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_sparse_matrices_survive(make, index, path):
    data, indices, indptr = np.array([1.5, -2.0, 3.0], np.float32), np.array([9, 2, 70_000_000]), np.array([0, 1, 1, 3])
    matrix = make((data, indices.astype(index), indptr.astype(index)), shape=(3, 100_000_000))
    loaded = round_trip(ToyModel(extra=[matrix]).fit(thing_=matrix), path)
    for other in (loaded.extra[0], loaded.thing_):
        assert isinstance(other, scipy.sparse.csr_array)
        assert other.shape == matrix.shape
        assert other.dtype == np.float32
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(other, name), getattr(matrix, name))
    assert path.stat().st_size < 10_000


def test_other_sparse_formats_are_refused(path):
    with pytest.raises(TypeError, match="cannot go into a model file"):
        ToyModel(extra=scipy.sparse.eye_array(3, format="csc")).fit().save(path)


def test_names_of_arrays_do_not_collide(path):
    value = {"a.0": np.zeros(2), "a": [np.ones(2)]}
    same(value, round_trip(ToyModel(extra=value).fit(), path).extra)


def test_loaded_arrays_are_writable_and_keep_their_order(path):
    F = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    loaded = round_trip(ToyModel().fit(coef_=F, thing_=F.T), path)
    assert loaded.coef_.flags.f_contiguous
    assert loaded.thing_.flags.c_contiguous
    loaded.coef_[0, 0] = 7
    loaded.thing_[0, 0] = 7


def test_memory_mapped_centers(path, tmp_path):
    centers = np.memmap(tmp_path / "centers", dtype=np.float32, shape=(3, 2), mode="w+")
    centers[:] = np.arange(6).reshape(3, 2)
    loaded = round_trip(ToyModel(centers=centers).fit(), path)
    same(np.arange(6, dtype=np.float32).reshape(3, 2), loaded.centers)


def test_what_is_kept_and_what_is_not(path):
    model = ToyModel(ToyGaussian(2.0), random_state=np.random.RandomState(0), callbacks=[print])
    model.fit(
        kernel_=ToyGaussian(2.0),
        n_features_in_=3,
        feature_names_in_=np.array(["a", "b", "c"], dtype=object),
        classes_=np.array(["no", "yes"]),
        history_=[{"iteration": 1, "residual": np.float64(0.5), "seconds": 0.25, "validation_error": math.nan}],
    )
    model._private_ = object()
    model.public = object()
    loaded = round_trip(model, path)
    assert loaded.callbacks is None
    assert loaded.random_state is None
    assert isinstance(model.random_state, np.random.RandomState), "saving changes nothing"
    attributes = {"coef_", "kernel_", "n_features_in_", "feature_names_in_", "classes_", "history_"}
    assert vars(loaded).keys() == {"kernel", "centers", "random_state", "callbacks", "extra"} | attributes
    for name in ("kernel_", "n_features_in_", "feature_names_in_", "classes_", "history_"):
        same(getattr(model, name), getattr(loaded, name))
    assert ToyModel(random_state=7).fit().random_state == 7
    assert clone(loaded).kernel.length_scale == 2.0


def test_generator_is_dropped_too(path):
    assert round_trip(ToyModel(random_state=np.random.default_rng(0)).fit(), path).random_state is None


def test_estimators_nest(path):
    inner = ToyModel(ToyGaussian(3.0)).fit(coef_=np.ones((1, 2)))
    loaded = round_trip(ToyModel(extra=[inner]).fit(models_=(inner, inner)), path)
    same(inner.coef_, loaded.models_[1].coef_)
    assert loaded.extra[0].kernel.length_scale == 3.0


def test_an_estimator_given_as_a_parameter_is_not_fitted(path):
    loaded = round_trip(ToyModel(extra=ToyModel(kernel=ToyGaussian(2.0))).fit(), path)
    assert loaded.extra.kernel.length_scale == 2.0
    with pytest.raises(NotFittedError):
        check_is_fitted(loaded.extra)


def test_other_tools_can_read_the_file(path):
    ToyModel(ToyGaussian(np.array([1.0, 2.0]))).fit().save(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
        assert sorted(file.keys()) == ["attributes.coef_", "params.kernel.length_scale"]
    assert metadata["format"] == "gyrfalcon-model"
    assert metadata["format_version"] == "1"
    model = json.loads(metadata["model"])
    assert model["class"] == "ToyModel"
    assert model["params"]["kernel"] == {
        "__kernel__": "ToyGaussian",
        "params": {"length_scale": {"__tensor__": "params.kernel.length_scale"}},
    }
    assert model["params"]["centers"] == "uniform"


def test_module_function_and_str_path(path):
    save(ToyModel().fit(), str(path))
    same(load(str(path)).coef_, ToyModel().fit().coef_)


# What cannot be saved -------------------------------------------------------------------------------------------------


def custom_kernel(A, B):
    return A @ B.T


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            ToyModel(custom_kernel).fit(),
            r"cannot save ToyModel: parameter 'kernel' cannot .* Use a named kernel or activation instead, or pickle",
        ),
        (ToyModel(ToySum(ToyGaussian(), custom_kernel)).fit(), r"parameter 'kernel\.right' cannot"),
        (ToyModel().fit(lock_=object()), r"attribute 'lock_' cannot .* of type builtins\.object"),
        (ToyModel(extra=[{"a": {1, 2}}]).fit(), r"parameter 'extra\.0\.a' cannot .* type builtins\.set"),
        (ToyModel(extra=1j).fit(), r"parameter 'extra' cannot .* 1j"),
        (ToyModel(extra=b"x").fit(), r"parameter 'extra' cannot .* b'x'"),
        (ToyModel(extra=np.array([1j])).fit(), r"parameter 'extra' .* array of dtype complex128"),
        (ToyModel(extra=np.zeros(1, dtype=np.longdouble)).fit(), r"parameter 'extra' .* array of dtype"),
        (ToyModel(extra=np.zeros(1, dtype="M8[s]")).fit(), r"parameter 'extra' .* array of dtype datetime64"),
        (ToyModel(extra=np.zeros(1, dtype=[("a", "f4")])).fit(), r"parameter 'extra' .* array of dtype"),
        (ToyModel(extra=np.array([{}], dtype=object)).fit(), r"parameter 'extra' .* object array with \{\} in it"),
        (ToyModel(extra=np.ma.masked_array([1.0], [True])).fit(), r"parameter 'extra' .*MaskedArray"),
        (ToyModel(extra=int).fit(), r"parameter 'extra' .* <class 'int'>"),
    ],
)
def test_unsavable_values_are_named(model, message, path):
    with pytest.raises(TypeError, match=message):
        model.save(path)
    assert list(path.parent.iterdir()) == []
    if model.get_params()["kernel"] is custom_kernel:
        assert pickle.loads(pickle.dumps(model)).kernel is custom_kernel


def test_too_many_strings(path, monkeypatch):
    monkeypatch.setattr(values, "_MAX_STRINGS", 1000)
    with pytest.raises(TypeError, match=r"parameter 'extra' .* strings of 1200 bytes, too large for a header"):
        ToyModel(extra=np.zeros(3, dtype="U100")).fit().save(path)


def test_endless_nesting(path):
    endless = []
    endless.append(endless)
    with pytest.raises(TypeError, match=r"parameter 'extra.*nested more than 50 deep"):
        ToyModel(extra=endless).fit().save(path)


def test_kernels_without_end_and_of_too_many_parts(path):
    endless = Sum(Linear(), Linear())
    endless.k1 = endless
    with pytest.raises(TypeError, match=r"parameter 'extra'.*more than 1000 parts"):
        ToyModel(extra=endless).fit().save(path)
    nested = Linear()
    for _ in range(60):
        nested = Linear() + nested
    with pytest.raises(TypeError, match=r"parameter 'extra.*nested more than 50 deep"):
        ToyModel(extra=nested).fit().save(path)


@pytest.mark.parametrize(
    ("then", "message"),
    [
        ({}, "where parts of a Sum should be"),
        ([{"k2": 1.0}] * 1001, "where parts of a Sum should be"),
        ([1], "parameters of Sum are not a JSON object"),
        ([{"k1": 1.0, "k2": 1.0}], "Sum has no parameter 'k1'"),
        ([{}], "Sum refuses the parameters"),
    ],
)
def test_wrong_parts_of_a_sum(path, then, message):
    forge(path, model_with({"__kernel__": "Sum", "params": {"k1": 1.0, "k2": 2.0}, "then": then}), {"c": C})
    refused(path, message)
    forge(path, model_with({"__kernel__": "Linear", "params": {}, "then": [{}]}), {"c": C})
    refused(path, "where parts of a Linear should be")


def test_unfitted_unregistered_and_kernels(path):
    with pytest.raises(NotFittedError, match="ToyModel instance is not fitted"):
        ToyModel().save(path)
    with pytest.raises(TypeError, match=r"Unregistered is not a registered estimator \(decorate a class of"):
        Unregistered().fit().save(path)
    with pytest.raises(TypeError, match="ToyGaussian is not a registered estimator"):
        save(ToyGaussian(), path)
    assert list(path.parent.iterdir()) == []


def test_too_much_json(path, monkeypatch):
    monkeypatch.setattr(models, "_MAX_JSON", 1000)
    with pytest.raises(ValueError, match=r"more than the 1000 a model file may hold"):
        ToyModel(extra="x" * 1000).fit().save(path)


def test_register():
    assert register(ToyModel) is ToyModel, "again is fine"

    class NoParams:
        pass

    with pytest.raises(TypeError, match="register needs a class with get_params"):
        register(NoParams)
    with pytest.raises(TypeError, match="register needs a class"):
        register(ToyGaussian())
    other = type("ToyModel", (BaseEstimator,), {"__module__": "elsewhere"})
    with pytest.raises(ValueError, match=r"'ToyModel' is already registered, by .*test_models\.ToyModel"):
        register(other)
    assert registry._classes["ToyModel"] is ToyModel


# Writing --------------------------------------------------------------------------------------------------------------


def test_overwrites_whole_and_leaves_nothing_else(path):
    path.write_bytes(b"old")
    ToyModel().fit().save(path)
    assert load(path).coef_.shape == (2, 3)
    assert os.listdir(path.parent) == [path.name]


def test_mode_and_links(path):
    umask = os.umask(0o027)
    try:
        ToyModel().fit().save(path)
    finally:
        os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    link = path.with_name("link")
    link.symlink_to(path)
    ToyModel(extra="new").fit().save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert load(path).extra == "new"


def test_bad_targets(tmp_path):
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        ToyModel().fit().save(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ToyModel().fit().save(tmp_path / "nowhere" / "model")
    assert list(tmp_path.iterdir()) == []


def test_long_names(tmp_path):
    path = tmp_path / ("ü" * 127)
    ToyModel().fit().save(path)
    assert load(path).coef_.shape == (2, 3)


@pytest.mark.parametrize("step", ["save_file", "fsync", "replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_failure_at_any_step_leaves_the_old_file(path, monkeypatch, step, error):
    ToyModel(extra="old").fit().save(path)

    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr({"save_file": "safetensors.numpy.save_file"}.get(step, f"os.{step}"), fail)
    with pytest.raises(error):
        ToyModel(extra="new").fit().save(path)
    monkeypatch.undo()
    assert load(path).extra == "old"
    assert os.listdir(path.parent) == [path.name]


def test_no_room_for_the_file(path):
    """A limit on file sizes fails in the middle of writing, as a full disk does."""
    ToyModel(extra="old").fit().save(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        with pytest.raises(OSError, match="cannot save the model") as info:
            ToyModel(extra="new").fit(coef_=np.zeros((100, 1000))).save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert info.value.errno == errno.EFBIG
    assert info.value.filename == str(path)
    assert load(path).extra == "old"
    assert os.listdir(path.parent) == [path.name]


def test_full_disk(tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("needs the right to mount a small file system")
    try:
        path = tmp_path / "model"
        ToyModel(extra="old").fit().save(path)
        with pytest.raises(OSError, match="No space left") as info:
            ToyModel(extra="new").fit(coef_=np.zeros((100, 1000))).save(path)
        assert info.value.errno == errno.ENOSPC
        assert load(path).extra == "old"
        assert os.listdir(tmp_path) == ["model"]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


# Reading what should not be believed ----------------------------------------------------------------------------------


def refused(path, message):
    with pytest.raises(ModelFileError, match=message) as info:
        load(path)
    assert str(info.value).startswith(f"cannot load {str(path)!r}: ")
    assert isinstance(info.value, ValueError)


def safetensors_bytes(header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def test_no_file(tmp_path):
    refused(tmp_path / "nothing", "there is no such file")
    refused(tmp_path, "it is not a regular file")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "it is not a regular file")


def test_unreadable_file(path, monkeypatch):
    ToyModel().fit().save(path)

    def deny(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("safetensors.safe_open", deny)
    refused(path, r"it cannot be read \(.*Permission denied")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x",
        b"a,b\n1,2\n" * 100,
        pickle.dumps({"a": 1}),
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 100_000_001) + b"{" + b" " * 1000,
        safetensors_bytes(b"[" * 100_000),
        safetensors_bytes({"__metadata__": {"format": 1}}),
        safetensors_bytes({"a": {"dtype": "F32", "shape": [2**62], "data_offsets": [0, 4]}}, b"abcd"),
        safetensors_bytes({"a": {"dtype": "F32", "shape": [2**30], "data_offsets": [0, 2**32]}}, b"abcd"),
    ],
)
def test_not_safetensors(path, content):
    path.write_bytes(content)
    refused(path, "it is not a safetensors file, or is damaged")


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"model": "{}"}])
def test_foreign_safetensors(path, metadata):
    save_file({"weight": np.zeros(3)}, path, metadata=metadata)
    refused(path, "it is a safetensors file, but not one written by gyrfalcon")


def forge(path, model, tensors=None, metadata=None):
    """A file whose checksum is right, as a hostile author would write it."""
    text = model if isinstance(model, str) else json.dumps(model)
    tensors = {} if tensors is None else tensors
    header = {
        "format": models.FORMAT,
        "format_version": "1",
        "gyrfalcon_version": "9.9",
        "model": text,
        "sha256": models._digest(text, tensors),
    } | (metadata or {})
    save_file(tensors, path, metadata={key: value for key, value in header.items() if value is not None})


def model_with(value):
    return {"class": "ToyModel", "params": {"extra": value}, "attributes": {"coef_": {"__tensor__": "c"}}}


C = np.zeros((1, 1))


def test_forgery_by_itself_is_believed(path):
    forge(path, model_with(5), {"c": C})
    assert load(path).extra == 5


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"format_version": "2"}, r"format version 2, written by gyrfalcon '9\.9'; .* upgrade gyrfalcon"),
        ({"format_version": "1e3"}, "its format version '1e3' is not a number"),
        ({"format_version": None}, "its format version '' is not a number"),
        ({"model": None}, "lacks the model or the checksum"),
        ({"sha256": None}, "lacks the model or the checksum"),
        ({"sha256": "0" * 64}, "it is damaged: its contents do not match its checksum"),
    ],
)
def test_headers(path, metadata, message):
    forge(path, model_with(5), {"c": C}, metadata)
    refused(path, message)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("", "its model description is not valid JSON"),
        ("{", "its model description is not valid JSON"),
        ("[" * 200_000, "its model description is not valid JSON"),
        ("[NaN]", "NaN is not JSON"),
        ("1" * 5000, "its model description is not valid JSON"),
        ([], r"it holds \[\] where an object with class, params, attributes should be"),
        ({"class": "ToyModel"}, "where an object with class, params, attributes should be"),
        ({**model_with(1), "more": 1}, "where an object with class, params, attributes should be"),
        ({**model_with(1), "class": "os.system"}, r"unknown estimator 'os\.system' \(a class of your own must be"),
        ({**model_with(1), "class": "ToyGaussian"}, "unknown estimator 'ToyGaussian'"),
        ({**model_with(1), "class": ["ToyModel"]}, r"unknown estimator \['ToyModel'\]"),
        ({**model_with(1), "params": []}, "the parameters of ToyModel are not a JSON object"),
        ({**model_with(1), "params": {"nope": 1}}, "ToyModel has no parameter 'nope' in gyrfalcon"),
        ({**model_with(1), "attributes": 3}, "the attributes of ToyModel are not a JSON object"),
        ({**model_with(1), "attributes": {}}, "it holds a ToyModel that is not fitted"),
        *(
            ({**model_with(1), "attributes": {name: 1}}, f"ToyModel has no attribute '{name}' that can be set")
            for name in ("__class__", "fit", "computed_", "_private_", "coef", "a b_", "__init__", "")
        ),
        (
            {**model_with(1), "attributes": {"coef_": {"__tensor__": "c", "order": "F"}, "x_": {"__tensor__": "c"}}},
            "twice",
        ),
        (
            {**model_with(1), "attributes": {"coef_": 1.0}},
            "inconsistent ToyModel: 'float' object has no attribute 'ndim'",
        ),
        (model_with({"__tensor__": "missing"}), "the array 'missing' is missing, or used twice"),
        (model_with({"__tensor__": ["c"]}), r"the array \['c'\] is missing"),
        (model_with({"__tensor__": "c", "order": "X"}), "the array 'c' has an unknown order 'X'"),
        (model_with({"__tensor__": "c", "more": "X"}), "unexpected keyword argument 'more'"),
        (model_with({"__reduce__": "x"}), "a value of an unknown kind '__reduce__'"),
        (model_with({"__tuple__": 3}), "it holds 3 where a list should be"),
        (model_with({"__tuple__": [], "__dict__": []}), "unexpected keyword argument '__dict__'"),
        (model_with({"__dict__": [[1]]}), "it holds a malformed value"),
        (model_with({"__dict__": [[[1], 2]]}), "malformed value .* unhashable"),
        (model_with({"__dict__": [5]}), "it holds a malformed value"),
        (model_with({"__float__": "1e5"}), "it holds '1e5' where inf, -inf or nan should be"),
        (model_with({"__float__": [1]}), r"it holds \[1\] where inf, -inf or nan should be"),
        (model_with({"__scalar__": "int8", "value": 1000}), "malformed value"),
        (model_with({"__scalar__": "int8", "value": 1.5}), "it holds 1.5 where an int8 should be"),
        (model_with({"__scalar__": "object", "value": 1}), "it holds an unknown type 'object'"),
        (model_with({"__scalar__": {}, "value": 1}), r"it holds an unknown type \{\}"),
        (model_with({"__dtype__": "V10000000000"}), "it holds an unknown type 'V10000000000'"),
        (model_with({"__type__": "type"}), "it holds an unknown type 'type'"),
        (model_with({"__kernel__": "ToyModel", "params": {}}), "unknown kernel 'ToyModel'"),
        (model_with({"__kernel__": "Popen", "params": {}}), "unknown kernel 'Popen'"),
        (model_with({"__kernel__": "ToyGaussian", "params": {"x": 1}}), "ToyGaussian has no parameter 'x'"),
        (
            model_with({"__kernel__": "ToySum", "params": {}}),
            "ToySum refuses the parameters in it: .*missing 2 required",
        ),
        (
            model_with({"__kernel__": "PickyKernel", "params": {"degree": 7}}),
            "PickyKernel refuses the parameters in it: degree=7 must be 0 or 1",
        ),
        (model_with({"__estimator__": {}}), "where an object with class, params, attributes should be"),
        (model_with({"__array__": "str", "shape": [2], "values": ["a"]}), r"1 values for an array of shape \[2\]"),
        (
            model_with({"__array__": "str", "shape": [-1], "values": ["a"]}),
            r"\[-1\] where the shape of an array should be",
        ),
        (model_with({"__array__": "str", "shape": [1.0], "values": ["a"]}), "where the shape of an array should be"),
        (model_with({"__array__": "str", "shape": [1], "values": [3]}), r"an array of 'str' with \[3\]"),
        (model_with({"__array__": "f8", "shape": [1], "values": [3]}), r"an array of 'f8' with \[3\]"),
        (model_with({"__array__": "object", "shape": [1], "values": [[3]]}), r"an array of 'object' with \[\[3\]\]"),
        (model_with({"__array__": "str", "shape": [0, 2**62, 9], "values": []}), "malformed value"),
        (model_with({"__array__": "str", "shape": [1] * 99, "values": ["a"]}), "malformed value"),
        (
            model_with({"__array__": "str", "shape": [1000], "values": ["a" * 100_000] + ["b"] * 999}),
            "1000 strings of up to 100000 characters, too many",
        ),
    ],
)
def test_hostile_models(path, model, message):
    forge(path, model, {"c": C})
    refused(path, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, None),
        ({"__csr__": [2]}, "where the shape of a sparse matrix should be"),
        ({"__csr__": [2, -3]}, "where the shape of a sparse matrix should be"),
        ({"__csr__": [2.0, 3]}, "where the shape of a sparse matrix should be"),
        ({"__csr__": None}, "where the shape of a sparse matrix should be"),
        ({"__csr__": [3, 3]}, "whose rows do not fit"),
        ({"__csr__": [2, 2]}, "indices outside its 2 columns"),
        ({"__csr__": [2, 2**70]}, "malformed value"),
        ({"data": 3}, "whose parts are not arrays"),
        ({"data": np.ones((2, 1))}, "whose parts are not arrays"),
        ({"data": np.ones(3)}, "whose rows do not fit"),
        ({"indices": np.array([0, -1])}, "indices outside its 3 columns"),
        ({"indices": np.array([0, 2**40])}, "indices outside its 3 columns"),
        ({"indices": np.array([0.0, 1.0])}, "of the wrong types"),
        ({"indices": np.array([0, 1], dtype=np.int32)}, "of the wrong types"),
        ({"indptr": np.array([0, 5, 2])}, "whose rows do not fit"),
        ({"indptr": np.array([-1, 1, 2])}, "whose rows do not fit"),
        ({"indptr": np.array([0, 1, 9])}, "whose rows do not fit"),
        ({"indptr": np.array([0, 2])}, "whose rows do not fit"),
        ({"more": 1}, "unexpected keyword argument 'more'"),
    ],
    ids=repr,
)
def test_hostile_sparse_matrices(change, message, path):
    """Compiled code follows these indices, so none may lead outside."""
    node = {"__csr__": [2, 3], "data": np.ones(2), "indices": np.array([0, 2]), "indptr": np.array([0, 1, 2])} | change
    tensors = {name: part for name, part in node.items() if isinstance(part, np.ndarray)}
    forge(path, model_with(node | {name: {"__tensor__": name} for name in tensors}), {"c": C} | tensors)
    if message is None:
        np.testing.assert_array_equal(load(path).extra.toarray(), [[1, 0, 0], [0, 0, 1]])
    else:
        refused(path, message)


def test_deep_values(path):
    value = []
    for _ in range(60):
        value = [value]
    forge(path, model_with(value), {"c": C})
    refused(path, "its values are nested more than 50 deep")


def test_long_model(path, monkeypatch):
    forge(path, model_with("x" * 1000), {"c": C})
    monkeypatch.setattr(models, "_MAX_JSON", 1000)
    refused(path, r"its model description has \d+ characters, more than the 1000 allowed")


def test_hostile_tensors(path):
    forge(path, model_with(1), {"c": C, "stray": C})
    refused(path, "it holds an array that belongs to nothing: 'stray'")
    forge(path, model_with(1), {"c": np.zeros(3)})
    refused(path, "it holds an inconsistent ToyModel: coef_ has 1 dimensions")
    forge(path, model_with(1), {"c": np.zeros((1, 1), dtype=np.complex64)})
    refused(path, "the array 'c' has dtype C64, which no model has")
    metadata = {"format": models.FORMAT, "format_version": "1", "model": "{}", "sha256": ""}
    for dtype, shape, size, message in [
        ("BF16", [2], 4, "the array 'c' has dtype BF16, which no model has"),
        ("BOOL", [4], 4, "the array 'c' holds booleans that are neither true nor false"),
        ("F32", [0, 2**62], 0, "the array 'c' cannot be read"),
        ("F32", [1] * 99, 4, "the array 'c' cannot be read"),
    ]:
        header = {"__metadata__": metadata, "c": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}
        path.write_bytes(safetensors_bytes(header, b"abcd"[:size]))
        refused(path, message)


def reference_model():
    rng = np.random.default_rng(0)
    return ToyModel(ToySum(ToyGaussian(np.array([1.0, 2.0])), ToyGaussian(0.5)), extra={0: math.inf}).fit(
        coef_=rng.normal(size=(5, 2)),
        classes_=np.array(["a", "b"]),
        mask_=np.array([True, False]),
        history_=[{"iteration": 1, "residual": 0.5}],
        n_features_in_=2,
    )


def loads_or_refuses(path, content):
    path.write_bytes(content)
    with contextlib.suppress(ModelFileError):
        return load(path)


def test_truncated_anywhere(path):
    reference_model().save(path)
    content = path.read_bytes()
    for end in range(len(content)):
        assert loads_or_refuses(path, content[:end]) is None
    assert loads_or_refuses(path, content + b"\0") is None


def test_any_changed_byte_is_noticed(path):
    """Only the version of gyrfalcon that wrote the file, and blanks, are outside the checksum."""
    model = reference_model()
    model.save(path)
    content = path.read_bytes()
    rng = np.random.default_rng(1)
    tracemalloc.start()
    try:
        for position in range(len(content)):
            changed = bytearray(content)
            changed[position] ^= 1 << rng.integers(8)
            loaded = loads_or_refuses(path, bytes(changed))
            if loaded is not None:
                same(model.get_params(deep=False), loaded.get_params(deep=False))
                same(model.coef_, loaded.coef_)
                same(model.history_, loaded.history_)
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_models_behind_a_right_checksum(path, data):
    """The decoder alone against damage: without the checksum, most changes would get this far."""
    reference_model().save(path)
    with safe_open(path, framework="numpy") as file:
        text, tensors = file.metadata()["model"], {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 12)))
    inserted = data.draw(
        st.text(max_size=3)
        | st.sampled_from(["null", "[]", "{}", "-1", "1e999", "true", '"__tuple__":', '"__tensor__"'])
    )
    try:
        (text[:start] + inserted + text[end:]).encode()
    except UnicodeEncodeError:
        return
    forge(path, text[:start] + inserted + text[end:], tensors)
    with contextlib.suppress(ModelFileError):
        assert type(load(path)) is ToyModel


def test_loading_imports_nothing_and_calls_nothing(path):
    """In a fresh interpreter, a file that names a class that exists but is not registered does not get it imported."""
    forge(path, {"class": "mailbox.Mailbox", "params": {}, "attributes": {}}, {})
    code = (
        "import sys, gyrfalcon.storage.models as p\n"
        "assert 'mailbox' not in sys.modules\n"
        f"try: p.load({str(path)!r})\n"
        "except p.ModelFileError: print('mailbox' in sys.modules)\n"
    )
    source = str(Path(models.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert run.stdout == "False\n"
