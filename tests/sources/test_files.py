"""Files as rows: what comes out of them, what is said of bad ones, and what is left behind."""

from __future__ import annotations

import gzip
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from decimal import Decimal
from pathlib import Path

import h5py
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import zarr
from pyarrow import feather, ipc, parquet

import gyrfalcon
from gyrfalcon import FalkonClassifier, FalkonRegressor, KernelOperator
from gyrfalcon.kernels import Gaussian
from gyrfalcon.sources import as_source
from gyrfalcon.sources._prefetch import prefetch

N = 500
VALUES = np.random.default_rng(0).standard_normal((N, 3))


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("gyrfalcon")] == []


def table(values=VALUES, **more):
    return pa.table({**{name: values[:, j] for j, name in enumerate("abc")}, **more})


def write(folder, *tables, suffix="parquet"):
    for number, part in enumerate(tables):
        parquet.write_table(part, folder / f"part{number}.{suffix}", row_group_size=100)
    return folder


def all_of(rows, size=64):
    return np.concatenate(list(rows.blocks(size)))


# ---- which files, in which order -------------------------------------------------------------------------------------


def test_a_folder_is_its_files_sorted_by_name(tmp_path):
    (tmp_path / "2024").mkdir()
    order = ["2024/b.parquet", "a.parquet", "c.pq"]
    for number in (2, 0, 1):
        parquet.write_table(table(VALUES + number), tmp_path / order[number])
    for name in ("notes.txt", "_SUCCESS", ".hidden.parquet"):
        (tmp_path / name).write_text("nothing")
    data = gyrfalcon.open(tmp_path)
    assert data.files == [str(tmp_path / name) for name in order]
    assert data.n_rows == 3 * N
    np.testing.assert_array_equal(all_of(data.X), np.concatenate([VALUES, VALUES + 1, VALUES + 2]))


def test_a_pattern_and_a_list(tmp_path, monkeypatch):
    write(tmp_path, table(), table(VALUES + 1), table(VALUES + 2))
    pattern = gyrfalcon.open(f"{tmp_path}/part[12].parquet")
    np.testing.assert_array_equal(all_of(pattern.X), np.concatenate([VALUES + 1, VALUES + 2]))
    listed = gyrfalcon.open([tmp_path / "part2.parquet", str(tmp_path / "part0.parquet")])
    np.testing.assert_array_equal(all_of(listed.X), np.concatenate([VALUES + 2, VALUES]))
    monkeypatch.chdir(tmp_path)
    relative = gyrfalcon.open("part0.parquet")
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(all_of(relative.X), VALUES)


def test_says_what_it_is(tmp_path):
    data = gyrfalcon.open(write(tmp_path, table(y=VALUES[:, 0]), table(y=VALUES[:, 0])), target="y")
    assert re.fullmatch(
        r"<Dataset: 1,000 rows of 3 features in float64, target 'y'; 2 Parquet files, [\d.]+ kB>", repr(data)
    )
    assert repr(data.X) == "<1,000 rows of 3 features in float64, 2 files>"
    assert data.feature_names == data.X.feature_names == ["a", "b", "c"]
    assert data.weight is None
    assert data.X.buffer_bytes > 0


# ---- what columns become ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["float32", "float32"], "float32"),
        (["float16", "float32"], "float32"),
        (["float32", "float64"], "float64"),
        (["float32", "int8"], "float64"),
    ],
)
def test_precision(tmp_path, types, expected):
    columns = {name: np.arange(5).astype(type_) for name, type_ in zip("ab", types, strict=True)}
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    rows = gyrfalcon.open(tmp_path).X
    assert rows.dtype == expected
    np.testing.assert_array_equal(all_of(rows), np.repeat(np.arange(5.0)[:, None], 2, axis=1))
    assert all_of(gyrfalcon.open(tmp_path, dtype="float32").X).dtype == np.float32


def test_every_type_of_number(tmp_path):
    columns = {
        "int": pa.array([1, 2, 3], pa.int64()),
        "unsigned": pa.array([1, 2, 255], pa.uint8()),
        "bool": pa.array([True, False, True]),
        "half": pa.array(np.array([0.5, 1, 2], dtype=np.float16)),
        "decimal": pa.array([Decimal("1.25"), Decimal("-2.50"), Decimal("0.00")]),
        "dictionary": pa.array([7.0, 7.0, 8.0]).dictionary_encode(),
    }
    expected = np.array([[1, 1, 1, 0.5, 1.25, 7], [2, 2, 0, 1, -2.5, 7], [3, 255, 1, 2, 0, 8]])
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    feather.write_feather(pa.table(columns), tmp_path / "rows.feather")
    for name in ("rows.parquet", "rows.feather"):
        rows = gyrfalcon.open(tmp_path / name).X
        np.testing.assert_array_equal(all_of(rows), expected)
        np.testing.assert_array_equal(rows.take(np.array([2, 0])), expected[[2, 0]])


def test_target_and_weight(tmp_path):
    labels = np.array(["yes", "no", "maybe"], dtype=object)[np.arange(N) % 3]
    more = {
        "float": VALUES[:, 0].astype(np.float32),
        "int": np.arange(N),
        "flag": np.arange(N) % 2 == 0,
        "label": pa.array(labels),
        "category": pa.array(labels).dictionary_encode(),
        "weight": np.arange(N, dtype=np.int32),
    }
    names = ["float", "int", "flag", "label", "category"]
    write(tmp_path, table(**more), table(**more))
    for name in names:
        data = gyrfalcon.open(tmp_path, target=name, features=["a", "b", "c"], weight="weight")
        expected = np.tile(labels if name == "category" else np.asarray(more[name]), 2)
        np.testing.assert_array_equal(data.y, expected)
        assert data.y.dtype == expected.dtype
        assert data.y is data.y
        np.testing.assert_array_equal(data.weight, np.tile(np.arange(N), 2))
        assert data.weight.dtype == np.float64
    several = gyrfalcon.open(tmp_path, target=["int", "float"], features=["a"])
    np.testing.assert_array_equal(several.y, np.tile(np.column_stack([more["int"], more["float"]]), (2, 1)))
    with pytest.raises(ValueError, match="several targets must be numbers"):
        _ = gyrfalcon.open(tmp_path, target=["int", "label"], features=["a"]).y
    with pytest.raises(ValueError, match="weight='label' must be one number a row"):
        _ = gyrfalcon.open(tmp_path, weight="label", features=["a"]).weight
    assert gyrfalcon.open(tmp_path, features=["a"]).y is None


def test_files_of_other_writers(tmp_path):
    """polars and pandas have types of their own for text and categories."""
    words = ["x", "y", "x"]
    frame = pl.DataFrame({"a": [1.0, 2.0, 3.0], "text": words}).with_columns(
        pl.col("text").cast(pl.Categorical).alias("category"), pl.col("text").cast(pl.Enum(["x", "y"])).alias("enum")
    )
    frame.write_parquet(tmp_path / "polars.parquet")
    frame.write_ipc(tmp_path / "polars.arrow")
    frame.select("a", "text").write_csv(tmp_path / "polars.csv")
    frame.to_pandas().to_parquet(tmp_path / "pandas.parquet")
    frame.to_pandas().to_feather(tmp_path / "pandas.feather")
    for path in sorted(tmp_path.iterdir()):
        for target in ["text"] if path.suffix == ".csv" else ["text", "category", "enum"]:
            data = gyrfalcon.open(path, features=["a"], target=target)
            np.testing.assert_array_equal(data.y, np.array(words, dtype=object))
            np.testing.assert_array_equal(all_of(data.X), [[1], [2], [3]])


def test_numbers_of_a_text(tmp_path):
    """Types are guessed from the first lines; a point that comes later does not matter."""
    with open(tmp_path / "rows.csv", "w") as file:
        file.write("a,b,whole,later,label,flag\n")
        for i in range(200_000):
            file.write(f"{i},{i / 2},{i % 3},{i if i < 199_990 else i + 0.5},{'NA' if i % 2 else 'x'},{i % 2 == 0}\n")
    for target, first, kind in [("whole", 0, "i"), ("later", 0, "f"), ("flag", True, "b"), ("label", "x", "O")]:
        features = [name for name in ("a", "b", "later") if name != target]
        data = gyrfalcon.open(tmp_path / "rows.csv", target=target, features=features)
        assert data.y.dtype.kind == kind
        assert data.y[0] == first
    assert data.y[1] == "NA"
    whole = all_of(data.X, 10_000)
    assert whole.shape == (200_000, 3)
    np.testing.assert_array_equal(whole[[7, 199_999]], [[7, 3.5, 7], [199_999, 99_999.5, 199_999.5]])
    np.testing.assert_array_equal(data.X.take(np.array([199_999, 7])), whole[[199_999, 7]])


def test_arrays_in_files(tmp_path):
    y = np.arange(N) % 2
    names = np.array(["no", "yes"])[y]
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["data/rows"], file["data/y"], file["w"] = VALUES, y, np.ones(N)
        file["names"] = names.astype("S3")
        file["words"] = names.astype(object)
    data = gyrfalcon.open(tmp_path / "rows.h5", features="data/rows", target="data/y", weight="w")
    np.testing.assert_array_equal(all_of(data.X), VALUES)
    np.testing.assert_array_equal(data.y, y)
    np.testing.assert_array_equal(data.weight, np.ones(N))
    assert gyrfalcon.open(tmp_path / "rows.h5", target="data/y").X.shape == (N, 3)  # the only 2-D one
    for name in ("names", "words"):
        np.testing.assert_array_equal(gyrfalcon.open(tmp_path / "rows.h5", target=name).y, names)

    group = zarr.open_group(str(tmp_path / "rows.zarr"), mode="w")
    for name, values in {"X": VALUES, "Y": np.column_stack([y, y])}.items():
        group.create_array(name, shape=values.shape, dtype=values.dtype, chunks=(7, 2))[:] = values
    data = gyrfalcon.open(tmp_path / "rows.zarr", target="Y")
    np.testing.assert_array_equal(all_of(data.X), VALUES)
    np.testing.assert_array_equal(data.y, np.column_stack([y, y]))

    np.save(tmp_path / "X.npy", VALUES)
    np.save(tmp_path / "y.npy", names)
    data = gyrfalcon.open(tmp_path / "X.npy", target=str(tmp_path / "y.npy"), weight=1, features=[2, 0])
    np.testing.assert_array_equal(all_of(data.X), VALUES[:, [2, 0]])
    np.testing.assert_array_equal(data.y, names)
    np.testing.assert_array_equal(data.weight, VALUES[:, 1])


def test_open_objects_are_sources_and_others_are_not(tmp_path):
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["X"], file["y"] = VALUES, VALUES[:, 0]
        rows = as_source(file["X"])
        first = rows.fingerprint()
        np.testing.assert_array_equal(all_of(rows), VALUES)
        file["X"][3, 1] += 1
        assert rows.fingerprint() != first
        with pytest.raises(ValueError, match="2-D"):
            as_source(file["y"])
        assert as_source(file) is None
    assert as_source(VALUES) is None


# ---- rows ------------------------------------------------------------------------------------------------------------


def test_take_reads_only_the_groups_it_needs(tmp_path):
    write(tmp_path, table(), table(VALUES + 1))
    rows = gyrfalcon.open(tmp_path).X
    first = parquet.ParquetFile(tmp_path / "part0.parquet").metadata
    at = first.row_group(3).column(0).data_page_offset
    status = os.stat(tmp_path / "part0.parquet")
    with open(tmp_path / "part0.parquet", "r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 200)
    os.utime(tmp_path / "part0.parquet", ns=(status.st_atime_ns, status.st_mtime_ns))
    indices = np.array([N + 5, 0, 199, 0])
    np.testing.assert_array_equal(rows.take(indices), np.concatenate([VALUES, VALUES + 1])[indices])
    for read in (lambda: rows.take(np.array([350])), lambda: all_of(rows)):
        with pytest.raises((OSError, ValueError), match=r"part0\.parquet cannot be read, is it damaged"):
            read()


def test_rows_that_are_not_there(tmp_path):
    rows = gyrfalcon.open(write(tmp_path, table())).X
    np.testing.assert_array_equal(rows.take(np.array([-1])), VALUES[-1:])
    for wrong in (N, -N - 1):
        with pytest.raises(IndexError, match=f"row {wrong} was requested, and there are {N} rows"):
            rows.take(np.array([0, wrong]))


def test_can_be_sent_to_another_process(tmp_path):
    write(tmp_path, table(y=VALUES[:, 0]))
    np.save(tmp_path / "rows.npy", VALUES)
    for data in (gyrfalcon.open(tmp_path / "part0.parquet", target="y"), gyrfalcon.open(tmp_path / "rows.npy")):
        again = pickle.loads(pickle.dumps(data))
        np.testing.assert_array_equal(all_of(again.X), VALUES)
        assert again.X.fingerprint() == data.X.fingerprint()
        if again.y is not None:
            np.testing.assert_array_equal(again.y, VALUES[:, 0])


def test_fingerprint(tmp_path):
    write(tmp_path, table())
    seen = {
        gyrfalcon.open(tmp_path).X.fingerprint(),
        gyrfalcon.open(tmp_path, dtype="float32").X.fingerprint(),
        gyrfalcon.open(tmp_path, features=["a", "b"]).X.fingerprint(),
        gyrfalcon.open(tmp_path, features=["b", "a"]).X.fingerprint(),
    }
    assert len(seen) == 4
    assert gyrfalcon.open(tmp_path / "*.parquet").X.fingerprint() in seen
    os.utime(tmp_path / "part0.parquet", ns=(1, 1))
    assert gyrfalcon.open(tmp_path).X.fingerprint() not in seen


def test_fits_are_those_of_arrays(tmp_path):
    X = VALUES.astype(np.float32)
    y = np.sin(X[:, 0])
    write(tmp_path, table(X[:203], y=y[:203]), table(X[203:], y=y[203:]))
    data = gyrfalcon.open(tmp_path, target="y")
    model = FalkonRegressor(n_centers=40, random_state=0).fit(data.X, data.y)
    same = FalkonRegressor(n_centers=40, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.dual_coef_, same.dual_coef_)
    np.testing.assert_array_equal(model.predict(data.X), same.predict(X))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    labels = np.where(y > 0, "up", "down")
    write(tmp_path, table(X[:203], y=labels[:203]), table(X[203:], y=labels[203:]))
    data = gyrfalcon.open(tmp_path, target="y")
    model = FalkonClassifier(n_centers=40, random_state=0).fit(data.X, data.y)
    assert model.score(data.X, data.y) > 0.9


# ---- memory and threads ----------------------------------------------------------------------------------------------

MEASURE = """
import sys
import numpy as np
import gyrfalcon
from pathlib import Path

def peak():
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024

small, large = sys.argv[1:4], sys.argv[4:]
for name in small:
    gyrfalcon.open(name).X.take(np.array([0]))  # what is imported and allocated once does not count
before = peak()
for name in large:
    rows = gyrfalcon.open(name).X
    total = 0.0
    for block in rows.blocks(4000):
        total += block[:, 0].sum()
    assert abs(total - rows.shape[0]) < 1
    print(peak() - before, rows.buffer_bytes)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is measured on Linux")
def test_whole_numbers_that_text_cannot_tell_apart(tmp_path):
    path = tmp_path / "ids.csv"
    path.write_text("a,id\n1.0,9007199254740992\n2.0,9007199254740993\n")
    with pytest.raises(ValueError, match="column 'id' has whole numbers beyond 2\\^53"):
        _ = gyrfalcon.open(path, target="id").y
    columns = pa.table({"a": [1.0, 2.0], "id": [9007199254740992, 9007199254740993]})
    parquet.write_table(columns, tmp_path / "ids.parquet")
    assert len(set(gyrfalcon.open(tmp_path / "ids.parquet", target="id").y.tolist())) == 2


@pytest.mark.slow
def test_memory_is_bounded_however_large_the_file(tmp_path):
    """Each 96 MB; of Parquet in one group of rows, of HDF5 in one piece."""
    names = []
    for n in (10, 4_000_000):
        X = np.ones((n, 3))
        names += [str(tmp_path / f"{n}.{suffix}") for suffix in ("npy", "h5", "parquet")]
        np.save(names[-3], X)
        with h5py.File(names[-2], "w") as file:
            file["X"] = X
        columns = pa.table({str(j): X[:, j] for j in range(3)})
        parquet.write_table(columns, names[-1], row_group_size=n, use_dictionary=False, compression="none")
    done = subprocess.run([sys.executable, "-c", MEASURE, *names], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        held, said = map(int, line.split())
        assert said < 60e6
        assert held < said + 70e6  # by what Arrow keeps beside its buffers; the rest of a file would be 96e6


def test_a_reader_that_is_let_go_of_leaves_no_thread(tmp_path, monkeypatch):
    monkeypatch.setattr("gyrfalcon.sources.stored.AHEAD", 0)  # or the thread could be done before it is looked for
    rows = gyrfalcon.open(write(tmp_path, table())).X
    reader = rows.blocks(10)
    next(reader)
    assert any(thread.name == "gyrfalcon-read" for thread in threading.enumerate())
    reader.close()
    assert not any(thread.name == "gyrfalcon-read" for thread in threading.enumerate())
    reader = rows.blocks(10)
    next(reader)
    del reader
    assert not any(thread.name == "gyrfalcon-read" for thread in threading.enumerate())
    rows.blocks(10)  # never read: never started


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_in_a_pass_leaves_no_thread(tmp_path, n_jobs):
    rows = gyrfalcon.open(write(tmp_path, *[table()] * 20)).X
    operator = KernelOperator(Gaussian(1.0), rows, VALUES[:5], memory_budget=0, n_jobs=n_jobs)

    def fails(at, T):
        if at.start > 1000:
            raise RuntimeError("enough")
        return T

    with pytest.raises(RuntimeError, match="enough") as caught:
        operator.sandwich(np.ones(5), fails)
    assert not any(thread.name.startswith("gyrfalcon") for thread in threading.enumerate())
    assert caught.value.__traceback__ is not None  # it holds on to the frames of the pass


INTERRUPTED = """
import sys, threading, time
import numpy as np
import gyrfalcon
rows = gyrfalcon.open(sys.argv[1]).X
K = gyrfalcon.KernelOperator("gaussian", rows, rows.take(np.arange(5)), memory_budget=0)
def slow(at, T):
    time.sleep(0.05)
    return T
print("reading", flush=True)
try:
    K.sandwich(np.ones(5), slow)
except KeyboardInterrupt:
    print("left", [t.name for t in threading.enumerate() if t.name.startswith("gyrfalcon")], flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_leaves_no_thread(tmp_path):
    write(tmp_path, *[table()] * 40)
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "reading\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert out == "left []\n"
    assert process.returncode == 0


def test_prefetch_holds_no_more_than_it_may():
    made = []

    def blocks():
        for i in range(100):
            made.append(i)
            yield np.full(1000, i, dtype=np.float64)

    reader = prefetch(blocks(), limit=5 * 8000)
    for i in range(20):
        assert next(reader)[0] == i
        time.sleep(0.002)
        assert len(made) <= i + 1 + 5 + 1  # given, waiting, and one in the making
    reader.close()
    assert len(made) < 30
    assert [block[0] for block in prefetch(blocks(), limit=0)] == list(range(100))  # one may always wait


def test_prefetch_passes_errors_on_after_the_blocks_before():
    def blocks():
        yield np.zeros(3)
        raise OSError("no more")

    reader = prefetch(blocks(), limit=1000)
    np.testing.assert_array_equal(next(reader), np.zeros(3))
    with pytest.raises(OSError, match="no more"):
        next(reader)


# ---- files that are not as they should be ----------------------------------------------------------------------------


def refuse(error, match, path, **options):
    with pytest.raises(error, match=match):
        gyrfalcon.open(path, **options)


def refuse_numbers(match, path, **options):
    """The file is opened, and reading its rows as numbers is an error."""
    data = gyrfalcon.open(path, **options)
    assert not data.X.is_numeric()
    for read in (lambda: next(data.X.blocks(10)), lambda: data.X.take(np.array([0])), data.X.moments):
        with pytest.raises(ValueError, match=match):
            read()


def test_paths_that_lead_nowhere(tmp_path):
    refuse(FileNotFoundError, "nowhere.parquet does not exist", tmp_path / "nowhere.parquet")
    refuse(FileNotFoundError, r"no file matches '.*\*\.csv'", tmp_path / "*.csv")
    refuse(ValueError, r"the folder .* has no file to read \(it is empty\): files that can be read end in", tmp_path)
    (tmp_path / "rows.xlsx").write_text("a")
    refuse(ValueError, r"it holds 'rows.xlsx'\).*\.parquet.*\.npy", tmp_path)
    refuse(
        ValueError,
        r"rows.xlsx is not of a known format: files that can be read end in \.parquet",
        tmp_path / "rows.xlsx",
    )
    (tmp_path / "rows.npz").write_text("a")
    refuse(ValueError, r"rows.npz is an archive.*\.npy", tmp_path / "rows.npz")
    (tmp_path / "rows.parquet").touch()
    refuse(ValueError, "rows.parquet is empty: it has 0 bytes", tmp_path / "rows.parquet")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "gone.parquet")
    refuse(FileNotFoundError, "link.parquet is a link to a file that does not exist", tmp_path / "link.parquet")
    refuse(ValueError, "not on this machine", "s3://bucket/rows.parquet")
    refuse(ValueError, r"path=\[\] names no file", [])
    refuse(TypeError, "path=3 must be a path or a list of paths", 3)


def test_kinds_that_do_not_mix(tmp_path):
    write(tmp_path, table())
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    refuse(ValueError, "part0.parquet is Parquet and .*rows.csv is CSV: give files of one kind", tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path):
    write(tmp_path, table())
    (tmp_path / "part0.parquet").chmod(0)
    refuse(PermissionError, "part0.parquet cannot be read: no permission", tmp_path)


@pytest.mark.parametrize("suffix", ["parquet", "feather", "h5", "npy", "csv.gz"])
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.999])
def test_a_file_that_is_cut_short(tmp_path, suffix, keep):
    name = tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        parquet.write_table(table(), name)
    elif suffix == "feather":
        feather.write_feather(table(), name, chunksize=50)
    elif suffix == "h5":
        with h5py.File(name, "w") as file:
            file["X"] = VALUES
    elif suffix == "npy":
        np.save(name, VALUES)
    else:
        with gzip.open(name, "wt") as file:
            np.savetxt(file, VALUES, delimiter=",", header="a,b,c", comments="")
    contents = name.read_bytes()
    name.write_bytes(contents[: max(4, int(keep * len(contents)))])
    with pytest.raises((OSError, ValueError), match=re.escape(name.name)):
        all_of(gyrfalcon.open(name).X)


def test_something_else_under_the_name(tmp_path):
    for suffix, format in [
        ("parquet", "Parquet"), ("feather", "Arrow"), ("h5", "HDF5"), ("npy", "npy"), ("csv.gz", "CSV")
    ]:  # fmt: skip
        (tmp_path / f"rows.{suffix}").write_bytes(b"this is none of these formats" * 10)
        refuse(ValueError, f"rows.{suffix} cannot be read as {format}", tmp_path / f"rows.{suffix}")
    (tmp_path / "rows.zarr").mkdir()
    refuse((ValueError, FileNotFoundError), "rows.zarr", tmp_path / "rows.zarr")


CHANGES = {
    "written again": lambda path: parquet.write_table(table(VALUES + 1), path),
    "touched": lambda path: os.utime(path, ns=(1, 1)),
    "cut short": lambda path: os.truncate(path, 2000),
    "replaced": lambda path: os.replace(write(path.parent / "other", table()) / "part0.parquet", path),
    "gone": os.unlink,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("when", ["before the pass", "before its turn", "while it is read"])
def test_a_file_that_changes(tmp_path, change, when, monkeypatch):
    monkeypatch.setattr("gyrfalcon.sources.stored.AHEAD", 100_000)
    (tmp_path / "rows" / "other").mkdir(parents=True)
    path = tmp_path / "rows" / "part1.parquet"
    for number in range(3):
        parquet.write_table(table(np.tile(VALUES, (100, 1))), path.with_name(f"part{number}.parquet"))
    rows = gyrfalcon.open(tmp_path / "rows" / "*.parquet").X
    # 50,000 rows a file, of which 4,000 may be read ahead
    read = {"before the pass": None, "before its turn": 0, "while it is read": 60_000}[when]
    reader = rows.blocks(1_000)
    given = 0
    if read is not None:
        while given <= read:
            given += len(next(reader))
        time.sleep(0.3)  # the thread is as far ahead as it may be
    CHANGES[change](path)
    error = FileNotFoundError if change == "gone" else OSError
    with pytest.raises(error, match=r"part1\.parquet (is gone|has changed since it was opened)"):
        given += sum(map(len, reader))
    if change == "gone" or when == "before the pass":
        with pytest.raises(OSError, match=r"part1\.parquet"):
            rows.take(np.array([75_000]))


def test_a_file_that_changes_during_a_fit(tmp_path):
    write(tmp_path, *[table(y=VALUES[:, 0])] * 3)
    data = gyrfalcon.open(tmp_path, target="y")

    def change(record):
        if record["iteration"] == 3:
            write(tmp_path, table(VALUES * 2, y=VALUES[:, 0]))

    model = FalkonRegressor(n_centers=100, max_iter=10, tol=0, memory_budget=10**6, callbacks=[change], random_state=0)
    model.kernel = Gaussian(0.3)
    with pytest.raises(OSError, match=r"part0\.parquet has changed since it was opened"):
        model.fit(data.X, data.y)
    assert not hasattr(model, "dual_coef_")


def test_files_that_do_not_fit_together(tmp_path):
    write(tmp_path, table(), table().rename_columns(["a", "b", "d"]))
    refuse(ValueError, r"part1\.parquet has a column 'd' that .*part0\.parquet has not", tmp_path)
    refuse(ValueError, r"part1\.parquet has no column 'c', which .*part0", tmp_path, features=["a", "c"])
    assert gyrfalcon.open(tmp_path, features=["b", "a"]).X.shape == (2 * N, 2)
    write(tmp_path, table(), table(VALUES.astype(np.float32)))
    refuse_numbers(r"part1\.parquet: column 'a' is float, and double in .*part0\.parquet", tmp_path)
    assert gyrfalcon.open(tmp_path).table().num_rows == 2 * N
    write(tmp_path, table(), table().select(["c", "a", "b"]))  # the order of columns is not the schema
    np.testing.assert_array_equal(all_of(gyrfalcon.open(tmp_path).X), np.tile(VALUES, (2, 1)))
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text("a,b\n1,x\n")
    refuse_numbers(r"b\.csv: column 'b' is string, and int64 in .*a\.csv", tmp_path / "*.csv")
    refuse(ValueError, r"b\.csv: column 'b' is string, and int64 in .*a\.csv", tmp_path / "*.csv", target="b")
    with pytest.raises(ValueError, match=r"column 'b' is int64 in .*a\.csv and string in .*b\.csv: make them the same"):
        gyrfalcon.open(tmp_path / "*.csv").table()
    np.save(tmp_path / "a.npy", VALUES)
    np.save(tmp_path / "b.npy", VALUES[:, :2])
    refuse(ValueError, r"b\.npy has 2 columns, and .*a\.npy has 3", tmp_path / "*.npy")
    np.save(tmp_path / "b.npy", VALUES.astype(np.float32))
    refuse(ValueError, r"b\.npy holds float32, and .*a\.npy holds float64", tmp_path / "*.npy")


def test_columns_that_are_missing(tmp_path):
    write(tmp_path, table(price=VALUES[:, 0]))
    first = r"part0\.parquet has no column 'prize' for {}: the columns are \['price', 'a', 'b', 'c'\]"
    refuse(ValueError, first.format("target"), tmp_path, target="prize")
    refuse(ValueError, first.format("weight"), tmp_path, weight="prize")
    refuse(ValueError, first.format("features"), tmp_path, features=["a", "prize"])
    refuse(
        ValueError, "'a' cannot be a feature and at the same time the target", tmp_path, target="a", features=["a", "b"]
    )
    refuse(ValueError, "names a column twice", tmp_path, features=["a", "a"])
    refuse(ValueError, "no column left for features", tmp_path, features=[])
    refuse(ValueError, r"target=\[\] names no column", tmp_path, target=[])
    refuse(TypeError, "3 must be the name of a column", tmp_path, target=3)
    refuse(TypeError, "must be names of columns", tmp_path, features=[1])
    refuse(ValueError, "dtype='int32' must be float32 or float64", tmp_path, dtype="int32")


def test_arrays_that_are_missing_or_do_not_fit(tmp_path):
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["left"], file["right"], file["short"], file["text"] = VALUES, VALUES, np.ones(3), VALUES.astype("S8")
    name = tmp_path / "rows.h5"
    refuse(ValueError, r"which array holds the rows\? .*'left' \(500, 3\), 'right'", name)
    refuse(ValueError, r"rows.h5 has no array 'lift': its arrays are 'left' \(500, 3\)", name, features="lift")
    refuse(ValueError, r"no array 'y'", name, features="left", target="y")
    refuse(TypeError, "must be the name of the 2-D array", name, features=["left", "right"])
    refuse(ValueError, r"'short': rows must be a 2-D array, not one of shape \(3,\)", name, features="short")
    refuse(ValueError, "'text': rows of type .S8 are not numbers", name, features="text")
    with pytest.raises(ValueError, match=r"'short' has shape \(3,\), where one number for each of the 500 rows"):
        _ = gyrfalcon.open(name, features="left", target="short").y
    np.save(tmp_path / "rows.npy", VALUES)
    name = tmp_path / "rows.npy"
    refuse(ValueError, "has no column 3: there are 3, from 0 to 2", name, target=3)
    refuse(TypeError, "have no names, give their numbers", name, features="a")
    refuse(ValueError, r"features=\[0, 1\] contains the target or the weight.* leave", name, features=[0, 1], target=1)
    np.save(tmp_path / "objects.npy", np.array([[object()]]), allow_pickle=True)
    refuse(ValueError, "objects.npy: rows of type object are not numbers", tmp_path / "objects.npy")


def test_columns_that_are_not_numbers(tmp_path):
    day = pa.array(np.arange(N), pa.timestamp("us"))
    write(tmp_path, table(day=day, carrier=pa.array(["AA"] * N), kind=pa.array(["x"] * N).dictionary_encode()))
    refuse_numbers(
        r"part0\.parquet: features must be numbers, and these columns are not: 'day' \(timestamp\[us\]\), 'carrier' "
        r"\(string\), 'kind' \(dictionary.*features=\['a', 'b', 'c'\]",
        tmp_path,
    )
    with pytest.raises(ValueError, match=r"part0\.parquet: column 'day' is timestamp\[us\], neither numbers nor"):
        _ = gyrfalcon.open(tmp_path, target="day", features=["a"]).y


@pytest.mark.parametrize("suffix", ["parquet", "feather", "csv"])
def test_nulls(tmp_path, suffix):
    values = [None if i == 321 else float(i) for i in range(N)]
    labels = [None if i == 44 else "x" for i in range(N)]
    holes = table(d=pa.array(values, pa.float64()), label=labels)
    name = tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        parquet.write_table(holes, name, row_group_size=100)
    elif suffix == "feather":
        feather.write_feather(holes, name, chunksize=100)
    else:
        from pyarrow import csv

        csv.write_csv(holes, name)
    said = rf"rows\.{suffix}: column 'd' has no value in row 321 \(counted from 0\)"
    rows = gyrfalcon.open(name, features=["a", "d"]).X
    with pytest.raises(ValueError, match=said):
        all_of(rows)
    with pytest.raises(ValueError, match=said):
        rows.take(np.array([321]))
    with pytest.raises(ValueError, match=said):
        _ = gyrfalcon.open(name, features=["a"], target="d").y
    with pytest.raises(ValueError, match=rf"rows\.{suffix}: column 'label' has no value in row 44"):
        _ = gyrfalcon.open(name, features=["a"], target="label").y
    np.testing.assert_array_equal(all_of(gyrfalcon.open(name, features=["a"]).X)[:, 0], VALUES[:, 0])


def test_the_line_of_a_null(tmp_path):
    """Row 2 is on the fifth line that has text, after an empty line and one within quotes."""
    content = '"a","note",b\n1,x,1\n\n2,"two\nlines",2\n3,y,\n4,z,4\n'
    for name, write_text in (("rows.csv", open), ("rows.csv.gz", gzip.open)):
        with write_text(tmp_path / name, "wt") as file:
            file.write(content)
        rows = gyrfalcon.open(tmp_path / name, features=["a", "b"]).X
        with pytest.raises(ValueError, match=r"row 2 \(counted from 0\), line 6 of the file: .*features=") as caught:
            all_of(rows)
        again = pickle.loads(pickle.dumps(caught.value))
        assert str(again) == str(caught.value)
        with pytest.raises(ValueError, match=r"line 6 of the file: remove such rows or fill them in$"):
            _ = gyrfalcon.open(tmp_path / name, features=["a"], target="b").y


def test_separators_of_a_text(tmp_path):
    name = tmp_path / "rows.csv"
    name.write_text("a;b;label\n1;2;x,y\n3;4;z\n")
    for options in ({}, {"delimiter": ";"}):
        data = gyrfalcon.open(name, target="label", **options)
        np.testing.assert_array_equal(all_of(data.X), [[1, 2], [3, 4]])
        np.testing.assert_array_equal(data.X.take(np.array([1])), [[3, 4]])
        assert data.y.tolist() == ["x,y", "z"]
    name.write_text("a|b\n1\n2\n")
    np.testing.assert_array_equal(all_of(gyrfalcon.open(name, delimiter=",").X), [[1], [2]])  # if it is meant
    for wrong in ("", ";;", "\n", "é", 3):
        refuse(ValueError, "must be one character", name, delimiter=wrong)
    write(tmp_path, table())
    refuse(ValueError, "is for CSV files", tmp_path / "part0.parquet", delimiter=";")


def test_decimal_commas_and_thousands(tmp_path):
    name = tmp_path / "rows.csv"
    name.write_text("a;b\n1,5;2\n-2,25;3\n")
    np.testing.assert_array_equal(all_of(gyrfalcon.open(name).X), [[1.5, 2], [-2.25, 3]])
    refuse_numbers(r"'a' \(string\). Convert them \(decimal=',' and thousands", name, decimal=".")
    name.write_text("a;b\n1.234,5;2\n-2,25;3.000.000\n")
    refuse_numbers("thousands='.' say how numbers are written.*TableEncoder", name)
    data = gyrfalcon.open(name, thousands=".", target="b")
    np.testing.assert_array_equal(all_of(data.X), [[1234.5], [-2.25]])
    np.testing.assert_array_equal(data.y, [2, 3e6])
    name.write_text('a,b\n"1,234.5",x\n7,y\n')
    np.testing.assert_array_equal(all_of(gyrfalcon.open(name, thousands=",", target="b").X), [[1234.5], [7]])
    lines = "".join(f'"{at % 900 + 1},000.5"\n' for at in range(1, 400_000))
    name.write_text(f"a\n{lines}oops\n")  # beyond the lines that types are inferred from
    with pytest.raises(ValueError, match=r"column 'a' after row .* no number with thousands=','"):
        all_of(gyrfalcon.open(name, thousands=",").X)
    refuse(ValueError, "decimal=';' must be", name, decimal=";")
    refuse(ValueError, "thousands='x' must be one of", name, thousands="x")
    refuse(ValueError, "cannot be the decimal point as well", name, thousands=",", decimal=",")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be with mark", "latin-1", "cp1252"])
def test_encodings_of_a_text(tmp_path, encoding):
    name = tmp_path / "rows.csv"
    text = "città,label\n1,Málaga\n2,Köln\n"
    data = b"\xfe\xff" + text.encode("utf-16-be") if "mark" in encoding else text.encode(encoding)
    name.write_bytes(data)
    options = {"encoding": encoding} if encoding in ("latin-1", "cp1252") else {}
    data = gyrfalcon.open(name, target="label", **options)
    assert data.feature_names == ["città"]
    assert data.y.tolist() == ["Málaga", "Köln"]


def test_text_that_is_not_utf8_is_refused(tmp_path):
    name = tmp_path / "rows.csv"
    remedy = "rows.csv is not text in UTF-8: see line {}. .* encoding='latin-1'"
    name.write_bytes("città,y\n1,2\n".encode("latin-1"))
    refuse(ValueError, remedy.format(1), name)
    name.write_bytes("a,y\n1,Roma\n2,Málaga\n".encode("latin-1"))
    refuse(ValueError, remedy.format(3), name, target="y")
    with gzip.open(tmp_path / "rows.csv.gz", "wb") as file:
        file.write(b"a,y\n" + b"1,Roma\n" * 700_000 + "2,Málaga\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"is not text in UTF-8: see line 700002. .* encoding='latin-1'"):
        _ = gyrfalcon.open(tmp_path / "rows.csv.gz", target="y").y
    refuse(ValueError, "encoding='klingon' is not known", name, encoding="klingon")


def test_a_text_without_names(tmp_path):
    name = tmp_path / "rows.csv"
    name.write_text("1.5,2,-1e3\n1,2,3\n")
    refuse(
        ValueError,
        "no column 'y' for target: .*the first line of the file must be the columns' names",
        name,
        target="y",
    )
    with pytest.warns(UserWarning, match="'1.5', '2', '-1e3'.*look like a row of numbers"):
        gyrfalcon.open(name)
    name.write_text("1.5,1.5\n1,2\n")
    refuse(ValueError, "two columns named '1.5'.*the first line", name)
    name.write_text("0,1\n1,2\n")  # as pandas names the columns of an array
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gyrfalcon.open(name)


def test_row_numbers_among_the_features(tmp_path):
    frame = table().to_pandas()
    frame.to_csv(tmp_path / "rows.csv")
    frame[frame["a"] > 0].to_parquet(tmp_path / "rows.parquet")
    for name, column in (("rows.csv", ""), ("rows.parquet", "__index_level_0__")):
        said = rf"{name}: the column '{column}' looks like row numbers.*index=False, or .*features="
        with pytest.warns(UserWarning, match=said) as caught:
            gyrfalcon.open(tmp_path / name)
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gyrfalcon.open(tmp_path / name, features=["a", "b"])


def test_nan_is_named_by_the_fit(tmp_path):
    X = VALUES.copy()
    X[250, 1] = np.nan
    data = gyrfalcon.open(write(tmp_path, table(X, y=VALUES[:, 0])), target="y")
    with pytest.raises(ValueError, match="NaN"):
        FalkonRegressor(n_centers=10, random_state=0).fit(data.X, data.y)


def test_a_dataset_is_not_rows(tmp_path):
    data = gyrfalcon.open(write(tmp_path, table(y=VALUES[:, 0])), target="y")
    with pytest.raises(TypeError, match=r"a Dataset is rows, a target and weights: take the rows alone, data.X"):
        np.asarray(data)


def test_a_text_without_lines_says_nothing_of_types(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n")
    (tmp_path / "b.csv").write_text("a,b\n1,x\n2,y\n")
    data = gyrfalcon.open(tmp_path, target="b")
    np.testing.assert_array_equal(data.y, ["x", "y"])
    np.testing.assert_array_equal(all_of(data.X), [[1], [2]])
    refuse_numbers(r"b\.csv: features must be numbers, and these columns are not: 'b' \(string\)", tmp_path)


def test_text_that_is_no_number(tmp_path):
    lines = [f"{i},{i}" for i in range(400_000)]
    lines[399_000] = "7,seven"
    (tmp_path / "rows.csv").write_text("\n".join(["a,b", *lines, ""]))
    data = gyrfalcon.open(tmp_path / "rows.csv", target="b")
    with pytest.raises(ValueError, match=r"rows\.csv: column 'b' after row \d+: .*'seven'"):
        _ = data.y
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3\n")
    refuse(ValueError, r"rows\.csv cannot be read as CSV.*Expected 2 columns, got 1", tmp_path / "rows.csv")


def test_no_rows_and_no_columns(tmp_path):
    write(tmp_path, table(VALUES[:0]))
    refuse(ValueError, "there are no rows in .*part0.parquet", tmp_path)
    (tmp_path / "rows.csv").write_text("a,b\n")
    refuse(ValueError, "there are no rows in .*rows.csv", tmp_path / "rows.csv")
    np.save(tmp_path / "rows.npy", VALUES[:0])
    refuse(ValueError, "there are no rows in .*rows.npy", tmp_path / "rows.npy")
    (tmp_path / "rows.csv").write_text("a,a\n1,2\n")
    refuse(ValueError, "rows.csv has two columns named 'a'", tmp_path / "rows.csv")
    with pa.OSFile(str(tmp_path / "rows.arrow"), "wb") as file, ipc.new_file(file, pa.schema([])):
        pass
    refuse(ValueError, "rows.arrow has no columns", tmp_path / "rows.arrow")


def test_numbers_too_large_for_float32_are_refused_as_infinite(tmp_path):
    X = VALUES.copy()
    X[7, 1] = 1e300
    data = gyrfalcon.open(write(tmp_path, table(X, y=VALUES[:, 0])), target="y", dtype="float32")
    with pytest.raises(ValueError, match="infinity"):
        FalkonRegressor(n_centers=10, random_state=0).fit(data.X, data.y)


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_what_to_install_for_tables(tmp_path, monkeypatch, name):
    (tmp_path / name).write_text("x,y\n1,2\n")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="pip install pyarrow"):
        gyrfalcon.open(tmp_path / name, target="y")
