"""Checkpoint files: written whole or not at all, read with care, by one process at a time."""

from __future__ import annotations

import errno
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal
from safetensors import safe_open
from safetensors.numpy import save_file
from sklearn.base import clone

import gyrfalcon
from gyrfalcon import FalkonRegressor
from gyrfalcon._utils.atomic import replacing
from gyrfalcon.centers import Selection
from gyrfalcon.kernels import Gaussian
from gyrfalcon.preconditioners import Preconditioner
from gyrfalcon.solvers import conjugate_gradient, gradient_descent
from gyrfalcon.sources import ArrayRows
from gyrfalcon.sources.sparse import SparseRows
from gyrfalcon.storage.checkpoints import (
    Beginning,
    Checkpoint,
    CheckpointError,
    Journal,
    Progress,
    decode_selection,
    encode_selection,
    peek,
)
from gyrfalcon.storage.checkpoints.journal import FORMAT
from gyrfalcon.storage.describe import describe
from gyrfalcon.storage.models import write_file

NAME = "checkpoint.safetensors"
X = np.random.default_rng(0).uniform(-3, 3, size=(400, 1))
y = np.sin(2 * X[:, 0])


def model(folder, **parameters):
    checkpoint = Checkpoint(folder, 0)
    return FalkonRegressor(**{"n_centers": 30, "random_state": 0, "checkpoint": checkpoint} | parameters)


# ---- replacing -------------------------------------------------------------------------------------------------------


def test_replacing_is_all_or_nothing(tmp_path):
    path = tmp_path / "numbers"
    with replacing(path) as partial:
        Path(partial).write_text("old")
        assert not path.exists()
    path.chmod(0o640)
    with pytest.raises(ZeroDivisionError), replacing(path) as partial:
        Path(partial).write_text("half" * (Path(partial).write_text("half") // 0))
    assert path.read_text() == "old"
    with replacing(path) as partial:
        Path(partial).write_text("new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["numbers"]


def test_replacing_what_a_link_points_to(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    with replacing(tmp_path / "link") as partial:
        Path(partial).write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_replacing_in_a_folder_that_is_not_there(tmp_path):
    path = tmp_path / "nowhere" / "numbers"
    with pytest.raises(FileNotFoundError) as caught, replacing(path):
        pass
    assert caught.value.filename == str(path)


# ---- the parameter ---------------------------------------------------------------------------------------------------


def test_checkpoint_values():
    assert repr(Checkpoint("folder", every=5)) == "Checkpoint(folder='folder', every=5)"
    assert Checkpoint("folder") == clone(Checkpoint("folder"), safe=False)
    with pytest.raises(TypeError, match="folder=3 must be the name of a folder"):
        Checkpoint(3)
    with pytest.raises(TypeError, match="folder='' must be"):
        Checkpoint("")
    for every in (-1, float("nan"), float("inf"), "5", True):
        with pytest.raises(ValueError, match="must be a finite number of seconds, not negative"):
            Checkpoint("folder", every)


# ---- the folder ------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="it exists and is not a folder: choose another") as caught:
        model(tmp_path / "file").fit(X, y)
    assert caught.value.filename == str(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="checkpoints cannot be written to this folder"):
        model(tmp_path).fit(X, y)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder in which nobody can make files")
def test_an_unwritable_folder_is_found_before_work_starts(monkeypatch):
    monkeypatch.setattr(gyrfalcon.KernelOperator, "__init__", None)
    with pytest.raises(OSError, match="checkpoints cannot be written to this folder") as caught:
        model("/proc/self").fit(X, y)
    assert caught.value.filename == "/proc/self"


def test_one_fit_at_a_time(tmp_path):
    with Journal(Checkpoint(tmp_path)), pytest.raises(CheckpointError, match=f"in use by process {os.getpid()}: wait"):
        model(tmp_path).fit(X, y)
    with (
        Journal(Checkpoint(tmp_path)),
        pytest.raises(CheckpointError, match="each fit of a search, of a cross-validation"),
    ):
        model(tmp_path).fit(X, y)
    model(tmp_path).fit(X, y)


KILLED = """
import os, signal, sys
from gyrfalcon._utils.atomic import replacing

with replacing(sys.argv[1]) as partial:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_leftovers_are_cleared_and_other_files_are_not(tmp_path):
    killed = [sys.executable, "-c", KILLED, str(tmp_path / NAME)]
    subprocess.run(killed, env=os.environ | {"PYTHONPATH": str(Path(gyrfalcon.__file__).parents[1])}, check=False)
    assert [name.endswith(".partial") for name in os.listdir(tmp_path)] == [True]
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".predictions.npy.0123456789abcdef.partial").write_text("of another process")
    model(tmp_path / "..." / "deep").fit(X, y)
    model(tmp_path).fit(X, y)
    left = ["...", ".predictions.npy.0123456789abcdef.partial", NAME, "lock", "notes.txt"]
    assert sorted(os.listdir(tmp_path)) == left


# ---- the file --------------------------------------------------------------------------------------------------------


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / NAME
    model(tmp_path).fit(X, y)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-20] ^= 1
    for damaged in (b"", whole[: len(whole) // 2], whole[:-1], bytes(flipped), b"not a checkpoint" * 100):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"cannot resume from '.*': it is .*damaged.* Delete the folder") as e:
            model(tmp_path).fit(X, y)
        assert str(path) in str(e.value)
        assert path.read_bytes() == damaged
    path.write_bytes(whole)
    model(tmp_path).fit(X, y)


def test_how_far_a_fit_has_come(tmp_path):
    assert peek(tmp_path) is None
    assert peek(tmp_path / "nowhere") is None
    seen = []
    model(tmp_path, max_iter=6, tol=0.0, callbacks=lambda record: seen.append(peek(tmp_path))).fit(X, y)
    assert seen == [0, 1, 2, 3, 4, 5]  # a record comes before its state is written
    assert peek(tmp_path) == 6
    assert sorted(os.listdir(tmp_path)) == [NAME, "lock"]
    (tmp_path / NAME).write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="Delete the folder"):
        peek(tmp_path)


def test_a_foreign_file_is_refused(tmp_path):
    fitted = FalkonRegressor(n_centers=30, random_state=0).fit(X, y)
    fitted.save(tmp_path / NAME)
    with pytest.raises(CheckpointError, match="not one written by gyrfalcon"):
        model(tmp_path).fit(X, y)
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).mkdir()
    with pytest.raises(CheckpointError, match="it is not a regular file"):
        model(tmp_path).fit(X, y)


def rewritten(path, change=lambda node: None, change_tensors=lambda tensors: None):
    """Put a changed description or changed arrays into a checkpoint, with the digest that goes with it."""
    with safe_open(path, framework="numpy") as file:
        node, tensors = json.loads(file.metadata()["checkpoint"]), {n: file.get_tensor(n) for n in file.keys()}  # noqa: SIM118
    change(node)
    change_tensors(tensors)
    write_file(str(path), FORMAT, json.dumps(node), tensors)


@pytest.mark.parametrize(
    "change",
    [
        lambda node: node.pop("identity"),
        lambda node: node.update(beginning=[]),
        lambda node: node["beginning"].pop("budget"),
        lambda node: node["progress"].update(history="none"),
        lambda node: node["progress"]["last"].pop("iteration"),
        lambda node: node["progress"].update(best={"__estimator__": {}}),
    ],
)
def test_a_forged_file_is_refused(change, tmp_path):
    model(tmp_path).fit(X, y)
    rewritten(tmp_path / NAME, change)
    with pytest.raises(CheckpointError, match="cannot resume from"):
        model(tmp_path).fit(X, y)


@pytest.mark.parametrize(
    "change",
    [
        lambda node: node["beginning"].update(factors="object"),
        lambda node: node["beginning"]["random_state"].pop("state"),
        lambda node: node["beginning"]["selection"].pop("sampled"),
        lambda node: node["beginning"]["selection"].update(D=0.5),
        lambda node: node["beginning"]["selection"].update(weight=[1]),
        lambda node: node["progress"].update(history=[None]),
        lambda node: node["progress"].update(patience=3),
        lambda node: node["progress"]["last"].update(residual=None),
        lambda node: node["progress"]["state"].pop("seconds"),
        lambda node: node["progress"]["state"].update(passes=[]),
    ],
)
def test_forged_values_are_refused_where_they_are_used(change, tmp_path):
    """By going on for some more iterations, so that the state is needed."""
    model(tmp_path, max_iter=3, tol=0.0).fit(X, y)
    rewritten(tmp_path / NAME, change)
    with pytest.raises(CheckpointError, match=r"[Dd]elete (the|its) folder"):
        model(tmp_path, max_iter=6, tol=0.0).fit(X, y)


@pytest.mark.parametrize("indices", [np.array([0, 400]), np.array([-1, 3]), np.zeros(2), np.zeros((2, 1), dtype=int)])
def test_centers_that_are_no_rows(indices):
    values = encode_selection(Selection(X[:2], np.arange(2)), None) | {"indices": indices}
    with pytest.raises(CheckpointError, match="centers do not belong to these rows"):
        decode_selection(values, ArrayRows(X))


@pytest.mark.parametrize("n_draws", [0, -1, True, 2**63, 2.0])
def test_numbers_of_draws_that_nobody_makes(n_draws):
    values = encode_selection(Selection(X[:2], np.arange(2)), None) | {"n_draws": n_draws}
    with pytest.raises(CheckpointError, match="centers do not belong to these rows"):
        decode_selection(values, ArrayRows(X))


def test_sparse_centers_with_indices_that_lead_elsewhere(tmp_path):
    selection = encode_selection(Selection(scipy.sparse.csr_array(np.eye(3, 2)), None), None)
    with Journal(Checkpoint(tmp_path)) as journal:
        journal.check({}, 1)
        journal.begin(Beginning({}, selection, 0, 0, "kept", "float64", 1e-6))
    assert peek(tmp_path) == 0

    def lead_elsewhere(tensors):
        tensors["checkpoint.beginning.selection.points.indices"] += 2**20

    rewritten(tmp_path / NAME, change_tensors=lead_elsewhere)
    with pytest.raises(CheckpointError, match="indices outside its 2 columns"):
        peek(tmp_path)


@pytest.mark.parametrize("points", [np.eye(3, 5), np.eye(3, 2, dtype=int), np.ones(3), np.ones((0, 2)), None, "rows"])
def test_points_that_are_no_centers(points):
    values = encode_selection(Selection(np.eye(3, 2), None), None) | {"points": points}
    with pytest.raises(CheckpointError, match="centers do not belong to these rows"):
        decode_selection(values, ArrayRows(np.zeros((5, 2))))


def test_a_file_of_a_newer_format_is_refused(tmp_path):
    save_file(
        {"a": np.zeros(1)},
        tmp_path / NAME,
        metadata={"format": "gyrfalcon-checkpoint", "format_version": "2", "gyrfalcon_version": "99"},
    )
    with pytest.raises(CheckpointError, match="format version 2, written by gyrfalcon '99'"):
        model(tmp_path).fit(X, y)


FULL_DISK = """
import resource, sys
import numpy as np
from gyrfalcon import FalkonRegressor
from gyrfalcon.storage.checkpoints import Checkpoint

X = np.random.default_rng(0).uniform(-3, 3, size=(400, 1))
y = np.sin(2 * X[:, 0])

def fill(record):
    if record["iteration"] == int(sys.argv[2]):
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

try:
    model = FalkonRegressor(n_centers=30, random_state=0, checkpoint=Checkpoint(sys.argv[1], 0), callbacks=fill)
    model.fit(X, y)
except OSError as error:
    print(error.errno, error)
"""


def test_no_room_for_a_checkpoint(tmp_path):
    """The limit on the size of files is to a process what a full disk is."""
    package = str(Path(gyrfalcon.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path), "3"],
        env=os.environ | {"PYTHONPATH": package, "OPENBLAS_NUM_THREADS": "1"},  # the fit is the same
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.startswith(str(errno.EFBIG))
    assert "the previous checkpoint is intact, and running the fit again resumes from it" in done.stdout
    assert str(tmp_path / NAME) in done.stdout
    assert sorted(os.listdir(tmp_path)) == [NAME, "lock"]
    seen = []
    resumed = model(tmp_path, callbacks=lambda record: seen.append(record["iteration"])).fit(X, y)
    assert seen[0] == 3
    assert_array_equal(resumed.dual_coef_, model(tmp_path, checkpoint=None).fit(X, y).dual_coef_)


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="needs mount")
def test_a_full_disk(small_disk):
    def fill_disk(record):
        if record["iteration"] == 3:
            with (small_disk / "other").open("wb") as file:
                while True:
                    file.write(bytes(1024))
                    file.flush()

    with pytest.raises(OSError, match="No space left"):
        model(small_disk, callbacks=fill_disk).fit(X, y)
    # the disk is full now, and the checkpoint of iteration 2 is there
    before = (small_disk / NAME).read_bytes()
    with pytest.raises(OSError, match="the previous checkpoint is intact") as caught:
        model(small_disk).fit(X, y)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(small_disk / NAME))
    assert (small_disk / NAME).read_bytes() == before
    (small_disk / "other").unlink()
    resumed = model(small_disk).fit(X, y)
    assert_array_equal(resumed.dual_coef_, model(small_disk, checkpoint=None).fit(X, y).dual_coef_)


# ---- when to write ---------------------------------------------------------------------------------------------------


def test_due(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    journal = Journal(Checkpoint("unused", every=30))
    assert not journal.due
    now[0] += 30
    assert journal.due
    journal._pace._took = 2.0  # a slow disk: not more than 2% of the time
    assert not journal.due
    now[0] += 70
    assert journal.due
    assert Journal(Checkpoint("unused", every=0)).due


def test_over():
    progress = Progress({}, {"iteration": 5}, [])
    assert not progress.is_over(5)
    progress.coef = np.ones(3)
    assert progress.is_over(9)
    progress.may_go_on = True
    assert progress.is_over(5)
    assert not progress.is_over(6)


# ---- what is in it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("points", [np.arange(6.0).reshape(3, 2), scipy.sparse.csr_array(np.eye(3, 2))], ids=type)
def test_selections(points):
    rows = ArrayRows(np.arange(20.0).reshape(10, 2))
    selection = Selection(points, D=np.ones(3), n_draws=4, sampled=False)
    again, weight = decode_selection(encode_selection(selection, np.arange(3.0)), rows)
    assert type(again.points) is type(points)
    dense = [p.toarray() if scipy.sparse.issparse(p) else p for p in (again.points, points)]
    assert_array_equal(*dense, strict=True)
    assert_array_equal(weight, np.arange(3.0))
    assert (again.n_draws, again.sampled, again.indices) == (4, False, None)
    indices = np.array([7, 1])
    again, weight = decode_selection(encode_selection(Selection(rows.take(indices), indices), None), rows)
    assert_array_equal(again.points, rows.take(indices))
    assert weight is None


def test_descriptions_differ_where_values_do():
    a, b = np.arange(5.0), np.arange(5.0)
    b[3] = np.nextafter(3, 4)
    values = [a, b, a.astype(np.float32), list(a), list(b), {0: 1.0}, {0: 2.0}, Gaussian(1.0), Gaussian(a + 1)]
    values += [Gaussian(b + 2), "gaussian", None, 0.1, np.float64(0.1), ArrayRows(a[:, None]), ArrayRows(b[:, None])]
    values += [scipy.sparse.csr_array(a[:, None]), scipy.sparse.csr_array(b[:, None]), describe, lambda A, B: A]
    words = [describe(value) for value in values]
    assert len(set(words)) == len(words)
    assert words == [describe(value) for value in values]
    assert max(map(len, words)) < 200


def test_descriptions_of_sparse_matrices_know_their_numbers_only():
    small = scipy.sparse.csr_array(np.eye(4, 3))
    large = small.copy()
    large.indices, large.indptr = small.indices.astype(np.int64), small.indptr.astype(np.int64)
    assert large.indices.dtype != small.indices.dtype
    assert describe(large) == describe(small) == describe(small.tocsc())
    assert describe(SparseRows(large)) == describe(SparseRows(small))
    assert describe(small) != describe(2 * small)


def scaled_by(factor):
    return lambda A, B: factor * (A @ B.T)


class Times:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, A, B):
        return self.factor * (A @ B.T)

    def plain(self, A, B):
        return A @ B.T


def test_functions_are_known_by_their_code_and_what_it_refers_to():
    functions = [
        lambda A, B: A @ B.T,
        lambda A, B: (A @ B.T) ** 2,
        lambda A, B: (A @ B.T) ** 3,
        lambda A, B: np.exp(A @ B.T),
        lambda A, B: np.sin(A @ B.T),
        lambda A, B, c=1.0: c * (A @ B.T),
        lambda A, B, c=2.0: c * (A @ B.T),
        lambda A, B, *, c=2.0: c * (A @ B.T),
        lambda A, B: np.array([[a @ b for b in B] for a in A]),
        lambda A, B: np.array([[a @ b + 1 for b in B] for a in A]),
        scaled_by(1.0),
        scaled_by(2.0),
        scaled_by(np.arange(3.0)),
        functools.partial(Times.__call__, 3),
        functools.partial(Times.__call__, 4),
        Times(1.0),
        Times(2.0),
        Times(scaled_by(2.0)),
        functools.lru_cache(scaled_by(1.0)),
        functools.lru_cache(scaled_by(2.0)),
        Times(1.0).plain,
        Times(1.0).__call__,
        [scaled_by(1.0)],
        {"a": scaled_by(2.0)},
        len,
        np.exp,
        np.random.default_rng,
    ]
    words = [describe(function) for function in functions]
    assert len(set(words)) == len(words)
    assert max(map(len, words)) < 200
    assert describe(scaled_by(2.0)) == describe(scaled_by(2.0))
    assert describe(Times(1.0)) == describe(Times(1.0))


PROGRAM = """
import sys
import numpy as np
from gyrfalcon.storage.describe import describe
from gyrfalcon.kernels import Kernel

gamma = {gamma}

def helper(D):
    return np.exp(-gamma * D) if "a" in {{"a", "b", "c"}} else helper(D)

def kernel(A, B):
    return helper({body})

class Mine(Kernel):
    def __init__(self, kernel): self.kernel = kernel
    def {method}(self, A, B): return kernel(A, B)

print(describe(kernel), describe(lambda A, B: kernel(A, B)), describe(Mine(kernel)), describe(Mine(3)), sep="|")
"""


@pytest.mark.slow
def test_a_description_holds_for_other_processes():
    changes = [{}, {"gamma": "3.0"}, {"body": "A @ B.T * 2"}, {"method": "other"}]
    programs = [
        PROGRAM.format(**{"gamma": "2.0", "body": "A @ B.T", "method": "function"} | change) for change in changes
    ]

    def said(order):
        """What a process says that runs the programs one after the other, by their numbers."""
        runs = f"for n in {order}: exec({programs!r}[n], {{'__name__': '__main__'}})"
        env = os.environ | {"PYTHONPATH": str(Path(gyrfalcon.__file__).parents[1])}
        run = subprocess.run(
            [sys.executable, "-c", runs], env=env, capture_output=True, text=True, timeout=100, check=True
        )
        return {n: line.split("|") for n, line in zip(order, run.stdout.splitlines(), strict=True)}

    found = said([0, 1, 2, 3])
    first, gamma, body, method = found.values()
    assert [words.split()[0] for words in first] == ["__main__.kernel", "__main__.<lambda>"] + ["__main__.Mine"] * 2
    assert said([3, 2, 1, 0]) == found  # whatever the hashes of strings in it are
    assert not set(gamma) & set(first)
    assert not set(body) & set(first)
    assert method[:2] == first[:2]
    assert not set(method[2:]) & set(first[2:])


def test_what_cannot_be_described_is_refused(tmp_path):
    class Closed:
        __slots__ = ("factor",)

        def __call__(self, A, B):
            return A @ B.T

    with pytest.raises(CheckpointError, match=r"kernel=<.*> cannot be used with a checkpoint, .*Closed cannot be told"):
        model(tmp_path, kernel=Closed()).fit(X, y)
    for function in (np.eye(2).dot, np.frompyfunc(lambda a, b: a * b, 2, 1)):
        with pytest.raises(
            CheckpointError, match=r"cannot be used with a checkpoint, .* Give a Python function or an obj"
        ):
            model(tmp_path, kernel=function).fit(X, y)
    assert os.listdir(tmp_path) == ["lock"]
    model(tmp_path, kernel=Closed(), checkpoint=None, max_iter=1).fit(X, y)


# ---- solvers ---------------------------------------------------------------------------------------------------------


def test_conjugate_gradient_resumes_from_every_iterate():
    K = gyrfalcon.KernelOperator(Gaussian(0.5), X, X[:40], memory_budget=0)
    B = Preconditioner(K.centers_gram(), 1e-8, 400)
    Y = np.stack([y, np.zeros(400), y**3], axis=1)

    def solve(**more):
        return conjugate_gradient(K, Y, B, 1e-8, max_iter=9, tol=1e-12, **more)

    whole = list(solve())
    states = [iterate.state() for iterate in whole]  # asked for late, when the solver has gone on
    for at, state in enumerate(states):
        before = K.passes
        rest = list(solve(resume=state))
        assert K.passes - before == len(rest) - 1
        assert [iterate.iteration for iterate in rest] == list(range(at + 1, len(whole) + 1))
        for one, other in zip(rest, whole[at:], strict=True):
            assert_array_equal(one.coef(), other.coef())
            assert_array_equal(one.residuals, other.residuals)
            assert (one.passes, one.condition_number) == (other.passes, other.condition_number)
            assert one.converged == other.converged
    with pytest.raises(ValueError, match=r"beta must be .* of shape \(40, 3\), not .* \(30, 3\)"):
        next(solve(resume=states[0] | {"beta": np.zeros((30, 3))}))
    with pytest.raises(ValueError, match=r"has no 'p'"):
        next(solve(resume={name: value for name, value in states[0].items() if name != "p"}))


def test_a_solver_that_cannot_be_resumed_says_so():
    K = gyrfalcon.KernelOperator(Gaussian(0.5), X, X[:40])
    iterate = next(gradient_descent(K, y, Preconditioner(K.centers_gram(), 1e-6, 400), 1e-6, step=0.5, max_iter=2))
    with pytest.raises(NotImplementedError, match="cannot be resumed"):
        iterate.state()
