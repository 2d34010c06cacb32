"""A fit that is killed and started again ends as if nothing had happened, bit for bit; one that differs is refused."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from killed_fits import rare_rows
from numpy.testing import assert_array_equal
from plain import plain
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

import gyrfalcon
from gyrfalcon import FalkonClassifier, FalkonRegressor
from gyrfalcon.callbacks import TimeLimit
from gyrfalcon.kernels import Gaussian, Linear
from gyrfalcon.storage.checkpoints import Checkpoint, CheckpointError

pytestmark = [
    pytest.mark.filterwarnings("error"),
    pytest.mark.filterwarnings("ignore:predictions are still off"),  # of fits that are cut short on purpose
    pytest.mark.filterwarnings("ignore:another Newton step would still lower"),
    pytest.mark.filterwarnings("ignore:rounding in float32"),  # which one of them asks for where it is not enough
]


class InterruptError(Exception):
    pass


def stop_at(iteration):
    def callback(record):
        if record["iteration"] == iteration:
            raise InterruptError

    return callback


def interrupted(model, at, folder, *data, every=0, **more):
    """The fit of a copy of the model that fails in an iteration, in another copy gone on with."""
    checkpoint = Checkpoint(folder, every)
    with pytest.raises(InterruptError):
        clone(model).set_params(checkpoint=checkpoint, callbacks=stop_at(at)).fit(*data, **more)
    return clone(model).set_params(checkpoint=checkpoint).fit(*data, **more)


def without_seconds(model):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in model.history_]


def assert_same(model, other):
    assert_array_equal(model.dual_coef_, other.dual_coef_, strict=True)
    assert model.n_iter_ == other.n_iter_
    assert repr(without_seconds(model)) == repr(without_seconds(other))
    seconds = [record["seconds"] for record in model.history_]
    assert seconds == sorted(seconds)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("case", ["cg", "switch", "logistic", "trees"])
def test_kill_points(case, tmp_path):
    script = Path(__file__).with_name("killed_fits.py")
    paths = os.pathsep.join([str(Path(gyrfalcon.__file__).parents[1]), str(script.parents[1])])
    done = subprocess.run(
        [sys.executable, str(script), case, "7", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"},  # as many threads as the work is worth
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert len(results) == 8
    for result in results:
        assert (result["ended"], result["same"]) == (0, True), (result, done.stderr)
        if "step" in result["point"]:
            assert -9 in result["killed"], result
            assert result["files"] == ["checkpoint.safetensors", "lock"]


X, y = rare_rows(1200)
CLASSES = np.digitize(y, [0.5, 1.2])
SQUARED = plain(FalkonRegressor, n_centers=80, penalty=1e-7, random_state=0)


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (clone(SQUARED).set_params(memory_budget=0), (X, y)),
        (clone(SQUARED).set_params(dtype="float32", scale=True), (X, np.stack([y, -y, y**2], axis=1))),
        (clone(SQUARED).set_params(preconditioner="krill"), (X, y, np.linspace(0, 2, len(X)))),
        (clone(SQUARED).set_params(centers="rpcholesky"), (X, y)),
        (clone(SQUARED).set_params(centers=X[::20], preconditioner="falkon"), (X, y)),
        (plain(FalkonRegressor, Gaussian(1.0), n_centers=120, penalty=1e-6, random_state=0), (X, y)),
        (clone(SQUARED).set_params(loss="huber"), (X, y, np.linspace(0, 2, len(X)))),
        (clone(SQUARED).set_params(loss="quantile", quantiles=[0.1, 0.9]), (X, y)),
        (clone(SQUARED).set_params(loss="poisson", penalty_path=[0.1, 1e-3]), (X, np.exp(y))),
        (plain(FalkonClassifier, n_centers=80, class_weight="balanced", random_state=0), (X, CLASSES)),
        (
            plain(FalkonClassifier, n_centers=80, penalty=1e-4, loss="logistic", multi_class="ovr", random_state=0),
            (X, CLASSES),
        ),
        (plain(FalkonClassifier, n_centers=80, loss="squared_hinge", random_state=0), (X, CLASSES)),
        (plain(FalkonClassifier, n_centers=80, loss="hinge", penalty=1e-3, random_state=0), (X, CLASSES)),
        (plain(FalkonRegressor, Linear(), n_centers=30, random_state=0), (scipy.sparse.csr_array(X), y)),
    ],
    ids=lambda value: repr(value) if isinstance(value, BaseEstimator) else "",
)
def test_every_kind_of_fit(model, data, tmp_path):
    whole = clone(model).fit(*data)
    for at in (2, 5):
        if at <= whole.n_iter_:
            assert_same(interrupted(model, at, tmp_path / str(at), *data), whole)


def test_rows_in_files(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "rows"
    folder.mkdir()

    def write(first):
        table = arrow.table(
            {"a": X[first : first + 600, 0], "b": X[first : first + 600, 1], "y": y[first : first + 600]}
        )
        parquet.write_table(table, folder / f"{first}.parquet")

    write(0)
    write(600)
    data = gyrfalcon.open(folder, target="y")
    assert_same(interrupted(SQUARED, 5, tmp_path / "state", data.X, data.y), clone(SQUARED).fit(X, y))
    (folder / "600.parquet").rename(tmp_path / "elsewhere")
    write(599)
    changed = gyrfalcon.open(folder, target="y")
    with pytest.raises(CheckpointError, match=r"X was float64 \(1200, 2\), .* and is float64 \(1200, 2\), .*; y was"):
        clone(SQUARED).set_params(checkpoint=tmp_path / "state").fit(changed.X, changed.y)


def test_a_file_that_is_written_again(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    for attempt in range(2):
        parquet.write_table(arrow.table({"a": X[:, 0], "b": X[:, 1], "y": y}), path)
        os.utime(path, ns=(10**18, 10**18 + attempt * 10**9))
        data = gyrfalcon.open(path, target="y")
        model = clone(SQUARED).set_params(checkpoint=tmp_path / "state", max_iter=2)
        if attempt == 0:
            model.fit(data.X, data.y)
    said = r"float64 \(1200, 2\), 1 file of \d+ bytes, last written 2001-09-\d\d [\d:.]+ \(\w{16}\)"
    with pytest.raises(CheckpointError, match=rf"fit: X was {said} and is {said}\. Files that are rewritten count"):
        model.fit(data.X, data.y)


def test_the_switch_to_krill_is_among_them():
    model = plain(FalkonRegressor, Gaussian(1.0), n_centers=120, penalty=1e-6, random_state=0).fit(X, y)
    assert [record["passes"] for record in model.history_[:6]] == [2, 3, 4, 5, 8, 9]


@pytest.mark.parametrize("random_state", [0, None, np.random.RandomState(3)], ids=["int", "None", "RandomState"])
@pytest.mark.parametrize("at", [3, 7])
def test_early_stopping_goes_on_with_its_rows_its_best_and_its_patience(random_state, at, tmp_path):
    np.random.seed(0)  # noqa: NPY002  (what None draws from: one seed in fifteen does not stop before 60 iterations)
    model = plain(
        FalkonRegressor,
        n_centers=40,
        penalty=1e-9,
        max_iter=60,
        early_stopping=True,
        n_iter_no_change=6,
        random_state=random_state,
    )
    resumed = interrupted(model, at, tmp_path, X, y)
    if random_state is None:
        # what the fit would have been: the generator of the first start is in the checkpoint
        with_generator = Checkpoint(tmp_path, 0)
        assert_same(clone(model).set_params(checkpoint=with_generator).fit(X, y), resumed)
    else:
        # the clones share no generator, so this one draws what the interrupted one drew
        assert_same(clone(model).fit(X, y), resumed)
    assert resumed.n_iter_ < 60
    errors = [record["validation_error"] for record in resumed.history_]
    assert np.argmin(errors) < len(errors) - 1


def test_the_centers_are_kept_from_the_start(tmp_path):
    with pytest.raises(InterruptError):
        plain(FalkonRegressor, n_centers=50, checkpoint=tmp_path, callbacks=stop_at(1)).fit(X, y)
    first, second = (plain(FalkonRegressor, n_centers=50, checkpoint=tmp_path).fit(X, y) for _ in range(2))
    assert_same(first, second)
    assert_array_equal(first.centers_, second.centers_)
    assert not np.array_equal(plain(FalkonRegressor, n_centers=50).fit(X, y).centers_, first.centers_)


def test_validation_rows_are_given(tmp_path):
    held = {"X_val": X[::3], "y_val": y[::3]}
    resumed = interrupted(SQUARED, 4, tmp_path, X, y, **held)
    assert_same(resumed, clone(SQUARED).fit(X, y, **held))
    with pytest.raises(CheckpointError, match=r"X_val was float64 \(400, 2\) \w+ and is None; y_val was"):
        clone(SQUARED).set_params(checkpoint=tmp_path).fit(X, y)


def test_warm_start(tmp_path):
    def begun():
        return plain(FalkonRegressor, n_centers=60, max_iter=3, random_state=0, warm_start=True).fit(X, y)

    whole = begun().set_params(max_iter=8).fit(X, y + 0.1)
    model = begun().set_params(max_iter=8, checkpoint=Checkpoint(tmp_path, 0), callbacks=stop_at(4))
    before = model.dual_coef_
    with pytest.raises(InterruptError):
        model.fit(X, y + 0.1)
    assert model.dual_coef_ is before
    assert_same(model.set_params(callbacks=None).fit(X, y + 0.1), whole)
    cold = plain(FalkonRegressor, n_centers=60, max_iter=8, random_state=0, warm_start=True, checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match=r"the coefficients to start from was float64 \(60,\) \w+ and is None"):
        cold.fit(X, y + 0.1)


def test_a_second_warm_fit_is_another_one(tmp_path):
    model = plain(FalkonRegressor, n_centers=60, max_iter=3, random_state=0, warm_start=True, checkpoint=tmp_path / "a")
    model.fit(X, y)
    with pytest.raises(CheckpointError, match=r"start from was None and is .*With warm_start=True .* another folder"):
        model.fit(X, y)
    first = model.dual_coef_
    model.set_params(checkpoint=tmp_path / "b").fit(X, y)
    assert not np.array_equal(model.dual_coef_, first)


def test_fits_must_not_share_a_folder(tmp_path):
    model = clone(SQUARED).set_params(checkpoint=tmp_path, max_iter=2)
    with pytest.raises(ValueError, match=r"Fits must not share a folder: each fit of a search, of a cross-validation"):
        cross_val_score(model, X, y, cv=3, error_score="raise")


def test_a_finished_fit_passes_over_no_rows(tmp_path, monkeypatch):
    model = clone(SQUARED).set_params(tol=1e-12, max_iter=7, checkpoint=str(tmp_path))
    with pytest.warns(ConvergenceWarning, match="after 7 iterations"):
        first = clone(model).fit(X, y)
    monkeypatch.setattr(gyrfalcon.KernelOperator, "sandwich", None)
    monkeypatch.setattr(gyrfalcon.KernelOperator, "rmatmat", None)
    with pytest.warns(ConvergenceWarning, match="after 7 iterations"):
        again = clone(model).fit(X, y)
    assert_same(again, first)
    assert_array_equal(again.predict(X), first.predict(X))


def test_max_iter_may_grow_but_not_below_what_is_done(tmp_path):
    model = clone(SQUARED).set_params(checkpoint=tmp_path)
    clone(model).set_params(max_iter=6).fit(X, y)
    assert_same(clone(model).set_params(max_iter=11).fit(X, y), clone(SQUARED).set_params(max_iter=11).fit(X, y))
    with pytest.raises(CheckpointError, match="11 iterations are done and max_iter is 10"):
        clone(model).set_params(max_iter=10).fit(X, y)


def test_a_larger_max_iter_keeps_no_more_of_k(tmp_path, monkeypatch):
    """A few passes are not worth the memory of a large K, and more would be; the fit goes on as it began."""
    monkeypatch.setattr("gyrfalcon.operators.keeping._SMALL", 0)
    monkeypatch.setattr(
        "gyrfalcon.operators.keeping.is_worth_keeping", lambda cost, entries, itemsize, passes: passes > 12
    )
    model = clone(SQUARED).set_params(checkpoint=tmp_path)
    clone(model).set_params(max_iter=10).fit(X, y)
    again = clone(model).set_params(max_iter=15).fit(X, y)
    assert again.n_iter_ > 10
    assert_same(again, clone(SQUARED).set_params(max_iter=15, memory_budget=0).fit(X, y))


def test_what_a_callback_stopped_goes_on(tmp_path):
    model = clone(SQUARED).set_params(checkpoint=tmp_path)
    part = clone(model).set_params(callbacks=TimeLimit(1e-9)).fit(X, y)
    assert part.n_iter_ == 1
    assert_same(clone(model).fit(X, y), clone(SQUARED).fit(X, y))


def test_interval(tmp_path):
    """Within it nothing is written between the start and the end."""
    with pytest.raises(InterruptError):
        clone(SQUARED).set_params(checkpoint=Checkpoint(tmp_path, 1000), callbacks=stop_at(9)).fit(X, y)
    seen = []
    model = clone(SQUARED).set_params(checkpoint=tmp_path, callbacks=lambda record: seen.append(record["iteration"]))
    model.fit(X, y)
    assert seen == list(range(1, model.n_iter_ + 1))


def test_callbacks_may_add_what_is_not_data(tmp_path):
    def add(record):
        record["note"], record["function"] = "a word", add

    resumed = interrupted(clone(SQUARED), 5, tmp_path, X, y)
    checkpoint = Checkpoint(tmp_path / "other", 0)
    with pytest.raises(InterruptError):
        clone(SQUARED).set_params(checkpoint=checkpoint, callbacks=[add, stop_at(5)]).fit(X, y)
    model = clone(SQUARED).set_params(checkpoint=checkpoint).fit(X, y)
    assert_array_equal(model.dual_coef_, resumed.dual_coef_)
    assert [record.get("note") for record in model.history_[:5]] == ["a word"] * 4 + [None]
    assert not any("function" in record for record in model.history_)


CHANGES = [
    ({"penalty": 1e-6}, "penalty was 1e-07 and is 1e-06"),
    ({"n_centers": 81}, "n_centers was 80 and is 81"),
    ({"random_state": 1}, "random_state was 0 and is 1"),
    ({"kernel": Gaussian(2.0)}, r"kernel was Gaussian\(.*\) and is Gaussian\("),
    ({"kernel": lambda A, B: A @ B.T}, r"kernel was Gaussian\(.*\) and is test_checkpointed_fit.<lambda>"),
    ({"centers": X[:80]}, r"centers was 'uniform' and is float64 \(80, 2\) \w{32}"),
    ({"dtype": "float32"}, r"dtype was 'auto' and is 'float32'; X was float64 \(1200, 2\) \w+ and is float32"),
    ({"loss": "huber"}, "loss was 'squared' and is 'huber'"),
    ({"early_stopping": True}, "early_stopping was False and is True"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES, ids=lambda value: next(iter(value)) if value else None)
def test_another_parameter_is_refused(change, message, tmp_path):
    model = clone(SQUARED).set_params(kernel=Gaussian(1.0), checkpoint=tmp_path, max_iter=2).fit(X, y)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match=f"belongs to another fit: .*{message}"):
        clone(model).set_params(**change).fit(X, y)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before


def test_other_data_are_refused(tmp_path):
    model = clone(SQUARED).set_params(checkpoint=tmp_path, max_iter=2)
    clone(model).fit(X, y)
    other = X.copy()
    other[700, 1] = np.nextafter(other[700, 1], 1)
    for data, message in [
        ((other, y), r"X was float64 \(1200, 2\) \w+ and is float64 \(1200, 2\) \w+\. "),
        ((X[:-1], y[:-1]), r"X was float64 \(1200, 2\) \w+ and is float64 \(1199, 2\) \w+; y was"),
        ((X, y + 1), r"fit: y was float64 \(1200, 1\) \w+ and is float64 \(1200, 1\) \w+\. "),
        ((X, y, 1 + np.arange(1200.0)), r"fit: sample_weight was None and is float64 \(1200,\)"),
    ]:
        with pytest.raises(CheckpointError, match=message):
            clone(model).fit(*data)
    classes = plain(FalkonClassifier, n_centers=80, penalty=1e-7, random_state=0, checkpoint=tmp_path, max_iter=2)
    with pytest.raises(CheckpointError, match="estimator was FalkonRegressor and is FalkonClassifier"):
        classes.fit(X, CLASSES)


def test_another_version_or_computer_is_refused(tmp_path, monkeypatch):
    model = clone(SQUARED).set_params(checkpoint=tmp_path, max_iter=2).fit(X, y)
    with monkeypatch.context() as patch:
        patch.setattr("gyrfalcon.storage.checkpoints.identity.package_version", lambda: "0.0.1")
        with pytest.raises(CheckpointError, match=r"gyrfalcon was .* and is 0\.0\.1"):
            clone(model).fit(X, y)
    with monkeypatch.context() as patch:
        patch.setenv("GYRFALCON_ISA", "baseline")
        with pytest.raises(CheckpointError, match=r"the instruction set was auto .* and is auto baseline"):
            clone(model).fit(X, y)


def test_how_the_work_is_done_may_change(tmp_path):
    model = clone(SQUARED).set_params(memory_budget=0, n_jobs=1)
    whole = clone(model).fit(X, y)
    with pytest.raises(InterruptError):
        clone(model).set_params(checkpoint=Checkpoint(tmp_path, 0), callbacks=stop_at(5)).fit(X, y)
    # more memory than the first had: K must not be kept now, or products would end in other bits
    assert_same(clone(model).set_params(checkpoint=tmp_path, memory_budget="auto", n_jobs=2).fit(X, y), whole)


def test_memory_that_the_first_start_had_and_this_one_has_not(tmp_path):
    with pytest.raises(InterruptError):
        clone(SQUARED).set_params(checkpoint=tmp_path, callbacks=stop_at(5)).fit(X, y)
    with pytest.raises(CheckpointError, match=r"shape \(1200, 80\) that is kept in memory, .* raise memory_budget=0"):
        clone(SQUARED).set_params(checkpoint=tmp_path, memory_budget=0).fit(X, y)


def falkon_with_spare(monkeypatch, spare):
    """The switch to KRILL needs 3 M^2 numbers; a budget that leaves few would also refuse the factors."""
    monkeypatch.setattr("gyrfalcon.fitting.plan.Plan.spare", lambda self, M: spare)


@pytest.mark.parametrize("at", [2, 6])
def test_other_memory_does_not_change_the_preconditioner(at, tmp_path, monkeypatch):
    model = plain(FalkonRegressor, Gaussian(1.0), n_centers=120, penalty=1e-6, random_state=0, memory_budget="100MB")
    K, krill = 8 * len(X) * 120, 3 * 8 * 120**2
    with monkeypatch.context() as patch:
        falkon_with_spare(patch, K + krill - 1)
        without = clone(model).fit(X, y)
    assert [record["passes"] for record in without.history_[3:6]] == [5, 6, 7]  # no switch
    for spare, folder in [(K + krill - 1, "without"), (K + krill, "with")]:
        checkpoint = Checkpoint(tmp_path / folder, 0)
        with monkeypatch.context() as patch:
            falkon_with_spare(patch, spare)
            with pytest.raises(InterruptError):
                clone(model).set_params(checkpoint=checkpoint, callbacks=stop_at(at)).fit(X, y)
    # more memory than the first start had
    assert_same(clone(model).set_params(checkpoint=tmp_path / "without").fit(X, y), without)
    # less than that
    with monkeypatch.context() as patch:
        falkon_with_spare(patch, K + krill - 1)
        with pytest.raises(CheckpointError, match=r"room for 345,600 bytes .* there are 345,599: raise memory_budget="):
            clone(model).set_params(checkpoint=tmp_path / "with").fit(X, y)
    assert_same(clone(model).set_params(checkpoint=tmp_path / "with").fit(X, y), clone(model).fit(X, y))


WIDE = scipy.sparse.random(2000, 3000, density=0.01, format="csr", random_state=1)


@pytest.mark.parametrize("first", [0, "500KB", "100MB"], ids=["rows", "seen rows", "sparse K"])
def test_other_memory_does_not_change_sparse_products(first, tmp_path):
    targets = np.sin(np.arange(2000))
    model = plain(FalkonRegressor, Linear(), n_centers=12, penalty=1e-6, random_state=0, tol=0)
    whole = {budget: clone(model).set_params(memory_budget=budget).fit(WIDE, targets) for budget in (0, first, "100MB")}
    assert not np.array_equal(whole[0].dual_coef_, whole["100MB"].dual_coef_)
    checkpoint = Checkpoint(tmp_path, 0)
    with pytest.raises(InterruptError):
        model.set_params(memory_budget=first, checkpoint=checkpoint, callbacks=stop_at(3)).fit(WIDE, targets)
    for budget in (0, "100MB"):
        # each from the same checkpoint, whether the one before has ended or not
        shutil.copytree(tmp_path, tmp_path / str(budget), ignore=shutil.ignore_patterns("0", "lock"))
        again = clone(model).set_params(memory_budget=budget, checkpoint=tmp_path / str(budget), callbacks=None)
        if first == "100MB" and budget == 0:
            with pytest.raises(CheckpointError, match="kept as a sparse matrix, and now it would be made again"):
                again.fit(WIDE, targets)
        else:
            assert_same(again.fit(WIDE, targets), whole[first])


def test_two_lambdas_are_two_kernels(tmp_path):
    model = clone(SQUARED).set_params(checkpoint=tmp_path, max_iter=2)
    clone(model).set_params(kernel=lambda A, B: (A @ B.T + 1) ** 2).fit(X, y)
    clone(model).set_params(kernel=lambda A, B: (A @ B.T + 1) ** 2).fit(X, y)
    with pytest.raises(CheckpointError, match=r"fit: kernel was \S*<lambda> \w{32} and is \S*<lambda> \w{32}\. "):
        clone(model).set_params(kernel=lambda A, B: (A @ B.T + 2) ** 2).fit(X, y)


def test_the_estimator_stays_a_good_one(tmp_path):
    model = clone(SQUARED).set_params(checkpoint=Checkpoint(tmp_path / "a", every=5)).fit(X, y)
    assert clone(model).checkpoint == model.checkpoint
    assert "checkpoint=Checkpoint(folder=" in repr(model)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    model.save(tmp_path / "model.gyr")
    loaded = gyrfalcon.load(tmp_path / "model.gyr")
    assert loaded.checkpoint is None
    assert_array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.parametrize("value", [3, ["folder"], Checkpoint])
def test_what_is_no_checkpoint(value):
    with pytest.raises(TypeError, match="must be None, the name of a folder, or a Checkpoint"):
        plain(FalkonRegressor, checkpoint=value).fit(X, y)
