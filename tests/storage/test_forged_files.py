"""Forged model files and checkpoints, sealed with the right checksum: what they ask for is refused as they are read."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from safetensors import safe_open

import gyrfalcon
from gyrfalcon.storage import models, values
from gyrfalcon.storage.checkpoints import Checkpoint
from gyrfalcon.storage.checkpoints.journal import FORMAT as CHECKPOINT
from gyrfalcon.tables.resuming import _FORMAT as SEARCH

X = np.random.default_rng(0).standard_normal((60, 3))
Y = np.sin(X[:, 0])
LABELS = np.where(Y > 0, "yes", "no")
POSITIONS = [2**31 - 1, 625, -1, -1000, 2**40, 1.5, True, None]


def forge(path, kind, change):
    """Apply a change to the JSON and the arrays of a file, drop arrays that lost their place, and seal it again."""
    with safe_open(path, framework="numpy") as file:
        node = json.loads(file.metadata()[kind.key])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
    before = set(arrays)
    change(node, arrays)
    text = json.dumps(node)
    arrays = {name: array for name, array in arrays.items() if name not in before or json.dumps(name) in text}
    models.write_file(str(path), kind, text, arrays)


def brief(record):
    return record["iteration"] >= 3


@pytest.fixture(scope="module")
def fitted():
    bandit = gyrfalcon.BKB(random_state=0).fit(X)
    return {
        "BKB": bandit.tell(bandit.ask(2), [0.1, 0.2]),
        "FalkonRegressor": gyrfalcon.FalkonRegressor(n_centers=5, random_state=0).fit(X, Y),
        "FalkonClassifier": gyrfalcon.FalkonClassifier(n_centers=5, random_state=0).fit(X, LABELS),
        "ConformalRegressor": gyrfalcon.ConformalRegressor(gyrfalcon.NystromRegressor(n_centers=5)).fit(X, Y),
        "ConformalClassifier": gyrfalcon.ConformalClassifier(gyrfalcon.ExactClassifier()).fit(X, LABELS),
        "HierarchicalRegressor": gyrfalcon.HierarchicalRegressor(
            penalty=1e-3, leaf_size=9, n_trees=2, uncertainty=True, random_state=0
        ).fit(X, Y),
        "TableEncoder": gyrfalcon.TableEncoder().fit(X, Y),
        "AutoRegressor": gyrfalcon.AutoRegressor(families=("kernel",), random_state=0, callbacks=brief).fit(X, Y),
        "AutoClassifier": gyrfalcon.AutoClassifier(families=("kernel",), random_state=0, callbacks=brief).fit(
            X, LABELS
        ),
    }


def refused(model, change, message, path):
    model.save(path) if hasattr(model, "save") else gyrfalcon.save(model, path)
    gyrfalcon.load(path)
    forge(path, models._MODEL, change)
    with pytest.raises(gyrfalcon.ModelFileError, match=message) as caught:
        gyrfalcon.load(path)
    assert str(path) in str(caught.value)


# ---- random states ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", POSITIONS)
def test_position_of_a_bandit(position, fitted, tmp_path):
    def change(node, arrays):
        node["attributes"]["random_state_"]["__tuple__"][2] = position

    refused(fitted["BKB"], change, "position of a random state", tmp_path / "bandit")


@pytest.mark.parametrize(
    "keys", [np.zeros(623, np.uint32), np.zeros(624, np.uint32), np.ones(624, np.int64), np.ones((624, 1), np.uint32)]
)
def test_keys_of_a_bandit(keys, fitted, tmp_path):
    def change(node, arrays):
        arrays[node["attributes"]["random_state_"]["__tuple__"][1]["__tensor__"]] = keys

    refused(fitted["BKB"], change, "keys of a random state", tmp_path / "bandit")


def falkon(folder):
    return gyrfalcon.FalkonRegressor(
        n_centers=5, random_state=0, early_stopping=True, max_iter=4, tol=0.0, checkpoint=Checkpoint(folder, 0)
    )


def kept(folder):
    """Fit with a checkpoint, and return its file."""
    falkon(folder).fit(X, Y)
    falkon(folder).fit(X, Y)  # it is read again
    return folder / "checkpoint.safetensors"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("position", POSITIONS)
def test_position_of_a_checkpoint(position, tmp_path):
    path = kept(tmp_path)
    forge(path, CHECKPOINT, lambda node, _: node["beginning"]["random_state"]["state"].update(pos=position))
    with pytest.raises(gyrfalcon.CheckpointError, match="position of a random state"):
        falkon(tmp_path).fit(X, Y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda node, _: node["progress"]["last"].update(converged=5), "converged"),
        (lambda node, _: node["beginning"].update(budget=True), "budget"),
        (lambda node, _: node["beginning"].update(spare=-1), "spare"),
        (lambda node, _: node["progress"]["patience"].update(waiting=0.5), "patience"),
        (lambda _, arrays: arrays.update({"checkpoint.progress.coef": np.zeros((4, 1))}), "coef has shape"),
        (lambda _, arrays: arrays.update({"checkpoint.progress.coef": np.zeros((5, 2))}), "coef has shape"),
        (lambda _, arrays: arrays.update({"checkpoint.progress.best": np.zeros(5)}), "best has shape"),
        (lambda _, arrays: arrays.update({"checkpoint.progress.last.error": np.zeros(2)}), "error has shape"),
    ],
)
def test_progress_of_another_shape(change, message, tmp_path):
    path = kept(tmp_path)
    forge(path, CHECKPOINT, change)
    with pytest.raises(gyrfalcon.CheckpointError, match=message):
        falkon(tmp_path).fit(X, Y)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_given_centers_of_a_checkpoint_that_are_not_finite(value, tmp_path):
    def model():
        return gyrfalcon.FalkonRegressor(centers=X[:5], random_state=0, checkpoint=tmp_path)

    model().fit(X, Y)

    def change(node, arrays):
        arrays["checkpoint.beginning.selection.points"][0, 0] = value

    forge(tmp_path / "checkpoint.safetensors", CHECKPOINT, change)
    with pytest.raises(gyrfalcon.CheckpointError, match="centers do not belong"):
        model().fit(X, Y)


# ---- what saving leaves out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["checkpoint", "device", "callbacks", "precision"])
@pytest.mark.parametrize("nested", [False, True])
def test_parameters_that_no_file_holds(name, nested, fitted, tmp_path):
    def change(node, arrays):
        models_ = node["attributes"].get("models_")
        owner = models_[0]["__estimator__"] if nested else node
        owner["params"][name] = str(tmp_path / "elsewhere")

    refused(fitted["AutoRegressor"], change, f"it sets '{name}' of", tmp_path / "model")


def test_parameters_that_are_missing(fitted, tmp_path):
    def change(node, arrays):
        del node["attributes"]["calibrations_"][0]["params"]["bend"]

    refused(fitted["AutoClassifier"], change, "Calibration refuses .* missing 1 required, bend", tmp_path / "model")


# ---- attributes ------------------------------------------------------------------------------------------------------


def attribute(name, value):
    return lambda node, arrays: node["attributes"].update({name: value})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("FalkonRegressor", attribute("history_", 5), "history_ must be a list"),
        ("FalkonRegressor", attribute("history_", [1.5]), "history_ must be a list"),
        ("FalkonRegressor", attribute("history_", [{"seconds": "x"}]), "history_ has a record"),
        ("FalkonRegressor", attribute("n_features_in_", True), "n_features_in_"),
        ("FalkonRegressor", attribute("penalty_", "x"), "penalty_"),
        ("FalkonRegressor", attribute("feature_names_in_", ["a"]), "1 feature_names_in_"),
        ("FalkonRegressor", attribute("mean_", ["a", "b", "c"]), "mean_"),
        (
            "FalkonClassifier",
            attribute("classes_", {"__array__": "str", "shape": [1], "values": ["yes"]}),
            "do not fit classes_",
        ),
        ("ConformalRegressor", lambda node, _: node["attributes"].pop("one_column_"), "one_column_"),
        ("ConformalClassifier", attribute("classes_", {"__tuple__": []}), "classes_"),
        ("TableEncoder", lambda _, arrays: arrays.update({"attributes.places_": np.zeros(3)}), "places_"),
        ("AutoRegressor", attribute("encoders_", []), "encoders_ must be a list of length 1"),
        ("AutoRegressor", attribute("encoders_", [1]), "encoders_"),
        ("AutoRegressor", attribute("mixings_", [1]), "mixings_"),
        ("AutoRegressor", attribute("targets_", ["z"]), "must be one of 'y', 'log y'"),
        ("AutoRegressor", attribute("candidates_", [1]), "1 is no record of a search"),
        ("AutoRegressor", attribute("one_column_", 1), "one_column_"),
        ("AutoRegressor", lambda _, arrays: arrays.update({"attributes.weights_": np.zeros(2)}), "weights_"),
        ("AutoRegressor", lambda _, arrays: arrays.update({"attributes.residuals_": np.zeros((0, 1))}), "residuals_"),
        ("AutoClassifier", attribute("calibrations_", [None]), "calibrations_"),
        ("AutoClassifier", attribute("temperature_", 0), "temperature_"),
    ],
)
def test_attributes_that_no_fit_makes(name, change, message, fitted, tmp_path):
    refused(fitted[name], change, message, tmp_path / "model")


@pytest.mark.parametrize("name", ["AutoRegressor", "AutoClassifier"])
def test_models_of_another_class(name, fitted, tmp_path):
    encoder = {"__estimator__": {"class": "Mixing", "params": {"matrix": 0}, "attributes": {}}}

    def change(node, arrays):
        node["attributes"]["models_"] = [encoder]

    refused(fitted[name], change, "a model is a Mixing", tmp_path / "model")


@pytest.mark.parametrize("noise", [1e308, 1e-308])
def test_noise_whose_square_is_no_number(noise):
    with pytest.raises(ValueError, match=r"noise=.*its square"):
        gyrfalcon.BKB(noise=noise).fit(X)


def test_a_sum_of_something_else_than_kernels():
    kernel = gyrfalcon.kernels.Sum(gyrfalcon.kernels.Linear(), 3.0)
    with pytest.raises(ValueError, match=r"k2=3\.0 of a Sum must be a kernel"):
        gyrfalcon.FalkonRegressor(kernel, n_centers=5).fit(X, Y)


# ---- checkpoints of searches -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["AutoRegressor", "AutoClassifier"])
def searched(request, tmp_path_factory):
    """Return the estimator, its targets, and the contents of its checkpoint."""
    folder = tmp_path_factory.mktemp("search")
    model = getattr(gyrfalcon, request.param)(families=("kernel",), random_state=0, callbacks=brief, checkpoint=folder)
    targets = Y if request.param == "AutoRegressor" else LABELS
    model.fit(X, targets).fit(X, targets)
    return model, targets, (folder / "checkpoint.safetensors").read_bytes()


def state(**new):
    return lambda node, _: node["state"].update(new)


def of_first(kind, **new):
    return lambda node, _: node["state"][kind][0].update(new)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(
            (lambda node, _, p=p: node["state"]["beginning"]["state"].update(pos=p), "position")
            for p in (625, 2**31 - 1)
        ),
        *(
            (lambda node, _, p=p: node["state"]["random_state"]["state"].update(pos=p), "position")
            for p in (-1000, 2**31)
        ),
        (lambda node, _: node.update(state=[]), "its state is"),
        (lambda node, _: node["state"].pop("done"), "its done is None"),
        (state(used={"__float__": "inf"}), "used"),
        (state(refined=5), "refined"),
        (state(records=[{}]), "of a record"),
        (state(records=[None]), "None is no record of a search"),
        (state(finalists=[]), "candidate"),
        (state(finalists=[5]), "is no object with"),
        (state(members=[]), "no models of a fit that is done"),
        (of_first("finalists", view=7), "view=7"),
        (of_first("finalists", view=-1), "view=-1"),
        (of_first("finalists", family="Linear"), "family='Linear'"),
        (of_first("finalists", target=None), "is no object with name"),
        (of_first("finalists", mu=0.0), "mu"),
        (of_first("finalists", lengths=[]), "lengths must be a list of length 5"),
        (lambda node, arrays: arrays.update({"checkpoint.state.finalists.0.metric": np.ones(2)}), "metric"),
        (lambda node, arrays: arrays.update({"checkpoint.state.finalists.0.metric": np.zeros(3)}), "metric"),
        (lambda node, arrays: arrays.update({"checkpoint.state.finalists.0.predictions": np.zeros(3)}), "predictions"),
        (of_first("members", candidate=-1), "candidate=-1"),
        (of_first("members", few=None), "few"),
        (of_first("members", seconds="x"), "seconds"),
        (lambda node, arrays: arrays.update({"checkpoint.state.members.0.judged": np.arange(1, 61)}), "judged"),
        (lambda node, arrays: arrays.update({"checkpoint.state.members.0.judged": np.zeros(60, int)}), "judged"),
        (lambda node, arrays: arrays.update({"checkpoint.state.members.0.values": np.zeros((59, 1))}), "values"),
        (lambda node, arrays: arrays.update(extra=np.zeros(1)), "belongs to nothing"),
    ],
)
def test_states_of_searches(change, message, searched, tmp_path):
    model, targets, contents = searched
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(contents)
    forge(path, SEARCH, change)
    model.set_params(checkpoint=tmp_path)
    with pytest.raises(gyrfalcon.CheckpointError, match=message):
        model.fit(X, targets)


def test_a_model_of_another_class_in_a_search(searched, tmp_path):
    model, targets, contents = searched
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(contents)

    def change(node, arrays):
        node["state"]["members"][0]["model"] = {
            "__estimator__": {"class": "Mixing", "params": {"matrix": 0}, "attributes": {}}
        }

    forge(path, SEARCH, change)
    model.set_params(checkpoint=tmp_path)
    with pytest.raises(gyrfalcon.CheckpointError, match="a model is a Mixing"):
        model.fit(X, targets)


# ---- memory and time -------------------------------------------------------------------------------------------------


def bomb(path, value, arrays=None):
    """Write a model with one attribute, given as JSON text."""
    text = '{"class":"FalkonRegressor","params":{},"attributes":{"x_":' + value + "}}"
    models.write_file(str(path), models._MODEL, text, arrays or {})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[" + "[]," * 400_000 + "0]", "400.* lists and objects, more than the 250000 allowed"),
        ("[" + '{"__kernel__":"Linear","params":{}},' * 200_000 + "0]", "values, more than the 1000000 allowed"),
        ("[" + "1," * 1_100_000 + "0]", "values, more than the 1000000 allowed"),
    ],
)
def test_many_small_values_are_refused_before_they_are_parsed(value, message, tmp_path):
    bomb(tmp_path / "model", value)
    size = (tmp_path / "model").stat().st_size
    tracemalloc.start()
    try:
        with pytest.raises(gyrfalcon.ModelFileError, match=message):
            gyrfalcon.load(tmp_path / "model")
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < 3 * size + 2**20  # the header itself, as bytes and as text


def test_escapes_do_not_hide_values(tmp_path, monkeypatch):
    """The header's own JSON may write a bracket as an escape, which is undone before the description is parsed."""
    bomb(tmp_path / "model", "[" + "[]," * 400 + "0]")
    contents = (tmp_path / "model").read_bytes()
    length = int.from_bytes(contents[:8], "little")
    header = contents[8 : 8 + length].replace(b"[],", b"\\u005b],").rstrip()
    (tmp_path / "model").write_bytes(len(header).to_bytes(8, "little") + header)
    monkeypatch.setattr(models, "_MAX_CONTAINERS", 300)
    with pytest.raises(gyrfalcon.ModelFileError, match=r"its model description has 40\d lists and objects"):
        gyrfalcon.load(tmp_path / "model")


def test_a_model_with_too_many_values_is_not_saved(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(models, "_MAX_CONTAINERS", 3)
    with pytest.raises(ValueError, match="lists and objects, more than the 3 a model file may hold"):
        fitted["FalkonRegressor"].save(tmp_path / "model")


def test_arrays_of_strings_share_one_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(values, "_MAX_STRINGS", 1000)
    one = '{"__array__":"str","shape":[2],"values":["' + "x" * 50 + '",""]}'
    bomb(tmp_path / "model", f"[{one},{one},{one}]")
    with pytest.raises(gyrfalcon.ModelFileError, match="2 strings of up to 50 characters, too many"):
        gyrfalcon.load(tmp_path / "model")


def test_keys_with_the_same_hash(tmp_path):
    """Ten times as many of them would take a hundred times as long."""
    pairs = ",".join(f"[{i * (2**61 - 1)},0]" for i in range(1, 20_000))
    bomb(tmp_path / "model", f'{{"__dict__":[{pairs}]}}')
    with pytest.raises(gyrfalcon.ModelFileError, match="19999 keys of the same hash"):
        gyrfalcon.load(tmp_path / "model")


@pytest.mark.parametrize("shape", [(2**40, 0), (0, 2**40)])
def test_empty_arrays_with_long_axes(shape, tmp_path):
    bomb(tmp_path / "model", '{"__tensor__":"a"}', {"a": np.empty(shape)})
    with pytest.raises(gyrfalcon.ModelFileError, match="is empty, and its axes are longer"):
        gyrfalcon.load(tmp_path / "model")


def test_items_of_object_arrays(tmp_path):
    bomb(tmp_path / "model", '{"__array__":"object","shape":[1],"values":[{"__tensor__":"a"}]}', {"a": np.zeros(3)})
    with pytest.raises(gyrfalcon.ModelFileError, match="it holds an array of 'object'"):
        gyrfalcon.load(tmp_path / "model")


@pytest.mark.parametrize("cv", [[[1, 2]], [[[0], [99]]], {"a": 1}, [[[0.5], [1.5]]]])
def test_splits_that_are_no_row_numbers(cv):
    with pytest.raises(ValueError, match="two arrays of row numbers from 0 to 59"):
        gyrfalcon.ExactClassifier(cv=cv).fit(X, LABELS)


# ---- trees -----------------------------------------------------------------------------------------------------------


def of_tree(change, *path):
    """Apply a change to an array of the second tree."""

    def changed(node, arrays):
        place = node["attributes"]["trees_"][1]
        for name in path:
            place = place["params"][name]
        arrays[place["__tensor__"]] = change(arrays[place["__tensor__"]])

    return changed


def put(place, value):
    def change(array):
        array = array.copy()
        array[place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (of_tree(put((0, 0), 0), "tree", "children"), "children do not make a tree"),
        (of_tree(put((1, 1), -1), "tree", "children"), "children do not make a tree"),
        (of_tree(lambda children: children[:-1], "tree", "children"), "directions|starts"),
        (of_tree(put(1, 50), "tree", "starts"), "starts do not increase"),
        (of_tree(put(-1, 59), "tree", "starts"), "have 59 rows"),
        (of_tree(put(0, 60), "order"), "order has numbers outside of 0 to 59"),
        (of_tree(put((0, 0), -1), "pivots"), "pivots has numbers outside"),
        (of_tree(lambda pivots: pivots.astype(float), "pivots"), "pivots"),
        (of_tree(put(0, np.nan), "coef"), "NaN or infinity"),
        (of_tree(lambda coef: np.hstack([coef, coef]), "coef"), "pivot_coef"),
        (of_tree(lambda directions: directions[:, :2].copy(), "tree", "directions"), "do not fit the features"),
        (lambda node, _: node["attributes"]["trees_"].pop(), "posteriors_ do not fit trees_"),
        (lambda node, _: node["attributes"].update(trees_=[]), "trees_ is not a list of trees"),
        (lambda node, _: node["attributes"].update(trees_=[3, 4]), "something else than trees"),
        (lambda node, _: node["attributes"].pop("posteriors_"), "it has only"),
    ],
)  # fmt: skip
def test_trees(change, message, fitted, tmp_path):
    refused(fitted["HierarchicalRegressor"], change, message, tmp_path / "model")
