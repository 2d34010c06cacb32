"""Rows that differ from one reading to the next are refused, whatever they are read from."""

from __future__ import annotations

import os
import pickle
import threading

import h5py
import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
import zarr
from numpy.testing import assert_array_equal
from pyarrow import feather, parquet

import gyrfalcon
from gyrfalcon import (
    ConformalRegressor,
    FalkonClassifier,
    FalkonRegressor,
    KernelKMeans,
    KernelPCA,
    NoveltyDetector,
    NystromRegressor,
)
from gyrfalcon.kernels import Gaussian
from gyrfalcon.sources import ArrayRows, as_rows
from gyrfalcon.sources.rereading import (
    CheckedRows,
    RowsChangedError,
    _multipliers,
    checked_rows,
    hash_rows,
    hash_words,
)
from gyrfalcon.sources.scratch import Scratch
from gyrfalcon.sources.stored import FileState

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((600, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1]


class Stream:
    """Rows of an array, whose order a test can change between two readings."""

    dtype = np.dtype(np.float64)

    def __init__(self, X=X):
        self.X = X
        self.shape = X.shape

    def blocks(self, size):
        for start in range(0, len(self.X), size):
            yield self.X[start : start + size].copy()

    def take(self, indices):
        return self.X[indices]


class Shuffled(Stream):
    """Rows that come in another order in every pass."""

    def blocks(self, size):
        self.X = np.random.default_rng(int(abs(self.X[0, 0]) * 1e6)).permutation(self.X)
        yield from super().blocks(size)


# ---- hashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 3, 4, 1001])
def test_the_native_core_and_numpy_have_the_same_hashes(dtype, d):
    block = RNG.standard_normal((57, d)).astype(dtype)
    words = block.view(np.uint32).astype(object)
    multipliers = _multipliers(np.arange(words.shape[1], dtype=np.uint64))
    exact = [max(1, sum(w * int(m) for w, m in zip(row, multipliers, strict=True)) % 2**64 >> 32) for row in words]
    out = np.empty(57, dtype=np.uint32)
    hash_words(block.view(np.uint32), multipliers, out)
    assert_array_equal(out, exact)
    assert_array_equal(hash_rows(block), exact)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_hashes_of_sparse_rows_are_those_of_dense_ones(dtype):
    dense = np.where(RNG.uniform(size=(80, 7)) < 0.3, RNG.standard_normal((80, 7)), 0.0).astype(dtype)
    dense[[0, 40, 79]] = 0.0
    block = scipy.sparse.csr_array(dense)
    assert_array_equal(hash_rows(block), hash_rows(dense))
    row = scipy.sparse.csr_array(RNG.standard_normal((1, 7)).astype(dtype))
    reverse = scipy.sparse.csr_array((row.data[::-1].copy(), row.indices[::-1].copy(), row.indptr), shape=row.shape)
    assert_array_equal(hash_rows(reverse), hash_rows(row))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_changes_that_weak_sums_do_not_see(dtype):
    rows = np.array([[1, 2, 3, 4], [-1, -2, 3, 4], [2, 1, 3, 4], [-1, 2, 3, -4], [0, 0, 0, 0], [0, -0.0, 0, 0]], dtype)
    assert len(np.unique(hash_rows(rows))) == len(rows)
    counts = np.array(np.meshgrid(range(16), range(16), range(16))).reshape(3, -1).T.astype(dtype)
    # 2^-32 for each of 8 million pairs
    assert len(np.unique(hash_rows(counts))) >= len(counts) - 2


def test_blocks_of_other_types_are_hashed_as_they_are_converted():
    whole = np.arange(12).reshape(4, 3)
    expected = hash_rows(whole.astype(np.float64))
    others = whole, whole.astype(np.int8), np.asfortranarray(whole, dtype=np.float64), scipy.sparse.csc_array(whole)
    for block in others:
        assert_array_equal(hash_rows(block), expected)
    assert hash_rows(np.empty((0, 3))).shape == (0,)


# ---- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array])
def test_readings_of_all_sizes_agree(kind):
    rows = CheckedRows(as_rows(Stream(kind(X))) if kind is np.asarray else as_rows(kind(X)))
    for size in (7, 1000, 64):
        assert sum(block.shape[0] for block in rows.blocks(size)) == len(X)
        rows.take(np.array([5, 599, 0, 5, -1]))
        part = rows.subset(np.array([3, 8, 500]))
        assert len(list(part.blocks(2))) == 2
        assert_array_equal(np.asarray(part.take(np.array([2])).sum()), X[500].sum())
    assert rows.is_sparse == (kind is not np.asarray)
    assert rows.moments().mean == pytest.approx(X.mean(axis=0), abs=1e-14)


def test_a_row_that_changes_is_named():
    stream = Stream(X.copy())
    rows = checked_rows(as_rows(stream))
    reading = rows.blocks(100)
    next(reading)
    reading.close()  # rows 0 to 99 are known
    stream.X[[150, 40, 60]] *= -1
    with pytest.raises(RowsChangedError, match=r"row 40 of Stream is not the one .* \(nor are 1 more of 600\)"):
        list(rows.blocks(1000))
    assert len(rows.take(np.array([150, 99]))) == 2
    with pytest.raises(RowsChangedError, match=r"row 60 of Stream .* gyrfalcon.testing.check_rows"):
        rows.take(np.array([3, 60, 4]))
    with pytest.raises(RowsChangedError, match="row 1 of Stream"):
        rows.subset(np.array([3, 60])).take(np.array([1]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_that_are_computed_may_be_rounded_differently(dtype):
    class Rounded(Stream):
        """Rows times a number that differs from 1 by rounding, not the same one in each reading."""

        readings = 0

        def blocks(self, size):
            self.readings += 1
            factor = 1 + 8 * (self.readings % 3) * np.finfo(dtype).eps
            for block in super().blocks(size):
                yield (block * factor).astype(dtype)

        def take(self, indices):
            return super().take(indices).astype(dtype)

    source = Rounded()
    source.dtype = np.dtype(dtype)
    model = FalkonRegressor(n_centers=100, penalty=1e-5, memory_budget=0, scale=True, random_state=0).fit(source, Y)
    assert source.readings > 2
    assert model.score(X, Y) > 0.99
    wild = X.copy()
    wild[::2] = np.inf
    rows = checked_rows(as_rows(Stream(wild)))  # rows that are not finite are refused by others
    assert len(list(rows.blocks(100))) == len(list(rows.blocks(100)))


def test_rows_that_are_taken_first_count():
    stream = Stream(X.copy())
    rows = checked_rows(as_rows(stream))
    rows.take(np.array([500, 2]))
    stream.X[500] = 0.0
    with pytest.raises(RowsChangedError, match="row 500 of Stream"):
        list(rows.blocks(64))


def test_a_source_that_ends_early():
    stream = Stream()
    rows = checked_rows(as_rows(stream))
    stream.X = X[:100]
    with pytest.raises(RowsChangedError, match="Stream gave 100 rows where its shape says 600: did it change"):
        list(rows.blocks(64))


def test_readings_on_several_threads():
    rows = checked_rows(as_rows(Stream()))
    errors = []

    def read(size):
        try:
            assert sum(map(len, rows.blocks(size))) == len(X)
        except Exception as error:  # told by the test
            errors.append(error)

    threads = [threading.Thread(target=read, args=(size,)) for size in (1, 7, 100, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_rows_in_memory_are_not_hashed():
    rows = ArrayRows(X)
    assert checked_rows(rows) is rows
    checked = checked_rows(as_rows(Stream()))
    assert checked_rows(checked) is checked
    assert checked_rows(checked.subset(np.arange(3))).checked


def test_hashes_are_sent_to_other_processes():
    rows = checked_rows(as_rows(Stream()))
    list(rows.blocks(100))
    other = pickle.loads(pickle.dumps(rows))
    other.rows.source.X = X[::-1]
    with pytest.raises(RowsChangedError):
        other.take(np.array([0]))


# ---- fits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        FalkonRegressor(n_centers=50, memory_budget=0),
        FalkonRegressor(n_centers=50, memory_budget=0, scale=True),
        FalkonClassifier(n_centers=50, memory_budget=0),
        NystromRegressor(n_centers=50, memory_budget=0),
        KernelPCA(n_components=2, n_centers=50, memory_budget=0),
        KernelKMeans(n_clusters=3, n_centers=50, memory_budget=0, random_state=0),
        NoveltyDetector(n_centers=50, memory_budget=0),
        ConformalRegressor(FalkonRegressor(n_centers=50)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_source_that_is_shuffled_in_every_pass(model):
    y = Y > 0 if isinstance(model, FalkonClassifier) else Y
    with pytest.raises(RowsChangedError, match="of Shuffled is not the one that was read before"):
        model.fit(Shuffled(), y)
    assert not [name for name in vars(model) if name.endswith("_")]


def test_centers_that_are_other_rows():
    class Wrong(Stream):
        def take(self, indices):
            return super().take(indices) + 1.0

    with pytest.raises(RowsChangedError, match="of Wrong is not the one that was read before"):
        FalkonRegressor(n_centers=20, memory_budget=0).fit(Wrong(), Y)


def test_validation_rows_that_change():
    with pytest.raises(RowsChangedError, match="of Shuffled is not the one"):
        FalkonRegressor(n_centers=20, memory_budget=0).fit(X, Y, X_val=Shuffled(), y_val=Y)


def test_predictions_that_read_twice():
    model = FalkonRegressor(n_centers=20, uncertainty=True).fit(X, Y)
    with pytest.raises(RowsChangedError):
        model.predict(Shuffled(), return_std=True)
    with pytest.raises(RowsChangedError):
        model.predict_interval(Shuffled())
    assert len(model.predict(Shuffled())) == len(X)


# ---- files -----------------------------------------------------------------------------------------------------------


def write_npy(path, values):
    np.save(path, values)


def write_parquet(path, values):
    table = pa.table({f"x{j}": column for j, column in enumerate(values.T)})
    parquet.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)


def write_arrow(path, values):
    feather.write_feather(pa.table({f"x{j}": column for j, column in enumerate(values.T)}), path, "uncompressed")


def write_csv(path, values):
    np.savetxt(path, values, delimiter=",", header="x0,x1,x2", comments="", fmt="%+.16e")


def write_hdf5(path, values):
    with h5py.File(path, "w") as file:
        file["X"] = values


def write_zarr(path, values):
    zarr.save_array(str(path), values, zarr_format=2, compressor=None)


WRITERS = {
    "npy": write_npy,
    "parquet": write_parquet,
    "arrow": write_arrow,
    "csv": write_csv,
    "h5": write_hdf5,
    "zarr": write_zarr,
}


def files_of(path):
    return [path] if path.is_file() else sorted(part for part in path.rglob("*") if part.is_file())


def rewrite_in_place(path, other):
    """Write the bytes of a file as long into another one, and give it the time of the first: nothing tells but rows."""
    before = FileState.of(str(path))
    for part, new in zip(files_of(path), files_of(other), strict=True):
        state = part.stat()
        assert state.st_size == new.stat().st_size
        with part.open("r+b") as file:
            file.write(new.read_bytes())
        os.utime(part, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert FileState.of(str(path)) == before


def fitted(data, **parameters):
    model = FalkonRegressor(
        n_centers=40, max_iter=6, tol=0, penalty=1e-6, memory_budget=0, random_state=0, kernel=Gaussian(1.0)
    )
    return model.set_params(**parameters).fit(data, Y)


@pytest.mark.parametrize("suffix", WRITERS)
def test_files_that_are_rewritten_in_place(tmp_path, suffix):
    path, other = tmp_path / f"rows.{suffix}", tmp_path / f"other.{suffix}"
    WRITERS[suffix](path, X)
    WRITERS[suffix](other, X[::-1])
    expected = fitted(gyrfalcon.open(path).X)

    def rewrite(record):
        if record["iteration"] == 2:
            rewrite_in_place(path, other)

    rows = gyrfalcon.open(path).X
    if suffix == "csv":  # its numbers were read once, and are in a temporary file
        assert_array_equal(fitted(rows, callbacks=rewrite).dual_coef_, expected.dual_coef_)
        return
    with pytest.raises(RowsChangedError, match=rf"row 0 of .*rows\.{suffix} is not the one .* open them again"):
        fitted(rows, callbacks=rewrite)


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("change", ["replaced", "appended to", "truncated", "rewritten"])
def test_files_that_change(tmp_path, suffix, change):
    path, other = tmp_path / f"rows.{suffix}", tmp_path / f"other.{suffix}"
    WRITERS[suffix](path, X)
    WRITERS[suffix](other, X[::-1])
    data = gyrfalcon.open(path)
    values, news = files_of(path)[-1], files_of(other)[-1]

    def write():
        if change == "replaced":
            os.replace(news, values)
        elif change == "appended to":
            values.write_bytes(values.read_bytes() + b"0,0,0\n")
        elif change == "truncated":
            os.truncate(values, values.stat().st_size // 2)
        else:
            values.write_bytes(news.read_bytes())

    def meanwhile(record):
        if record["iteration"] == 2:
            write()

    if suffix == "csv":  # which is read once
        write()
        meanwhile = None
    with pytest.raises(RowsChangedError, match=rf"rows\.{suffix} has changed since it was opened"):
        fitted(data.X, callbacks=meanwhile)


def test_a_chunk_that_is_replaced_by_an_older_one(tmp_path):
    path, other = tmp_path / "rows.zarr", tmp_path / "other.zarr"
    write_zarr(path, X)
    write_zarr(other, X[::-1])
    chunk, new = files_of(path)[-1], files_of(other)[-1]
    state = path.stat()
    rows = gyrfalcon.open(path).X
    os.utime(new, ns=(0, chunk.stat().st_mtime_ns - 10**9))
    os.replace(new, chunk)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(RowsChangedError, match=r"rows\.zarr has changed since it was opened"):
        rows.take(np.array([0]))


def test_open_arrays_that_are_written_to(tmp_path):
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["X"] = X

        def write(record):
            file["X"][100] = 0.0

        with pytest.raises(RowsChangedError, match="row 100 of <HDF5 dataset"):
            fitted(file["X"], callbacks=write)


def test_hashes_are_part_of_the_memory():
    rows = as_rows(Stream())
    scratch = Scratch()
    assert scratch.rows(rows).buffer_bytes == rows.buffer_bytes + 4 * len(X)
    scratch.close()
