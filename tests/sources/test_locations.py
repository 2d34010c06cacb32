"""Files on filesystems of pyarrow and fsspec, compressed text, and names of folders that are columns."""

from __future__ import annotations

import gzip
import os
import pickle

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, feather, fs, parquet

import gyrfalcon
from gyrfalcon import FalkonRegressor

VALUES = np.random.default_rng(0).standard_normal((60, 3))
TABLE = pa.table({name: VALUES[:, j] for j, name in enumerate("abc")} | {"y": VALUES[:, 0] - VALUES[:, 1]})


def all_of(rows, size=7):
    return np.concatenate(list(rows.blocks(size)))


def write_csv(table, path, compression):
    with pa.output_stream(path, compression=compression) as file:
        csv.write_csv(table, file)


WRITERS = {
    "parquet": lambda table, path: parquet.write_table(table, path, row_group_size=20),
    "arrow": lambda table, path: feather.write_feather(table, path, chunksize=20),
    "csv": lambda table, path: write_csv(table, path, None),
    "csv.gz": lambda table, path: write_csv(table, path, "gzip"),
    "csv.zst": lambda table, path: write_csv(table, path, "zstd"),
}


def write_folders(folder, suffix="parquet", values=("2023", "2024"), name="year"):
    """Write one third of the rows to each folder but the last, which has the rest."""
    for number, value in enumerate(values):
        place = folder / f"{name}={value}"
        place.mkdir(parents=True)
        part = TABLE.slice(20 * number, None if number == len(values) - 1 else 20)
        WRITERS[suffix](part, str(place / f"part.{suffix}"))
    return folder


FILESYSTEMS = {
    "local": lambda folder: (fs.LocalFileSystem(), str(folder)),
    "subtree": lambda folder: (fs.SubTreeFileSystem(str(folder.parent), fs.LocalFileSystem()), folder.name),
    "fsspec": lambda folder: (pytest.importorskip("fsspec").filesystem("file"), str(folder)),
}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("kind", FILESYSTEMS)
def test_the_same_rows_as_without_a_filesystem(tmp_path, kind, suffix):
    folder = write_folders(tmp_path / "rows", suffix)
    filesystem, path = FILESYSTEMS[kind](folder)
    expected = gyrfalcon.open(folder, target="y")
    for place in (path, f"{path}/year=*/*.{suffix}", f"{path}/**/part.{suffix}"):
        data = gyrfalcon.open(place, target="y", filesystem=filesystem)
        assert data.feature_names == ["a", "b", "c", "year"]
        np.testing.assert_array_equal(all_of(data.X), all_of(expected.X))
        np.testing.assert_array_equal(data.y, expected.y)
        assert data.table().equals(expected.table())
    again = pickle.loads(pickle.dumps(data))
    np.testing.assert_array_equal(again.X.take([59, 0]), all_of(expected.X)[[59, 0]])


def test_fits_are_the_same_with_a_filesystem(tmp_path):
    folder = write_folders(tmp_path)
    model = FalkonRegressor(n_centers=20, random_state=0)
    expected = model.fit(gyrfalcon.open(folder, target="y")).dual_coef_
    subtree = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    np.testing.assert_array_equal(model.fit(gyrfalcon.open("", target="y", filesystem=subtree)).dual_coef_, expected)


CHANGES = {
    "grows": lambda path: os.truncate(path, 100_000),
    "shrinks": lambda path: os.truncate(path, 500),
    "is written again": lambda path: parquet.write_table(TABLE.slice(7), path),
    "vanishes": os.unlink,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", FILESYSTEMS)
def test_a_file_that_changes_in_a_pass(tmp_path, kind, change):
    """The file is named, and the rows before it were given."""
    folder = write_folders(tmp_path / "rows", values=("1", "2", "3"))
    filesystem, path = FILESYSTEMS[kind](folder)
    rows = gyrfalcon.open(path, filesystem=filesystem).X
    reader = rows._blocks(20)  # the generator itself, without a thread that reads ahead
    np.testing.assert_array_equal(next(reader)[:, :3], VALUES[:20])
    CHANGES[change](folder / "year=2" / "part.parquet")
    with pytest.raises(OSError, match=r"year=2.part\.parquet (is gone|has changed since it was opened)"):
        list(reader)


@pytest.mark.parametrize("at", ["header", "values"])
def test_a_damaged_row_group(tmp_path, at):
    """It raises an error with the name of the file; other row groups can be read. Values need checksums for that."""
    path = tmp_path / "rows.parquet"
    parquet.write_table(TABLE, path, row_group_size=20, use_dictionary=False, write_page_checksum=True)
    column = parquet.ParquetFile(path).metadata.row_group(1).column(0)
    with open(path, "r+b") as file:
        file.seek(column.data_page_offset + (0 if at == "header" else column.total_compressed_size - 40))
        file.write(bytes(40))
    rows = gyrfalcon.open("rows.parquet", filesystem=fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())).X
    with pytest.raises((OSError, ValueError), match=r"rows\.parquet cannot be read, is it damaged"):
        all_of(rows)
    np.testing.assert_array_equal(rows.take([0, 45])[:, :3], VALUES[[0, 45]])


def test_files_whose_schema_changes(tmp_path):
    folder = write_folders(tmp_path)
    parquet.write_table(TABLE.rename_columns(["a", "b", "d", "y"]), folder / "year=2024" / "more.parquet")
    with pytest.raises(ValueError, match=r"year=2024.more\.parquet has a column 'd' that .*year=2023.part\.parquet"):
        gyrfalcon.open("", filesystem=fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem()))


def test_errors_of_filesystems(tmp_path):
    WRITERS["parquet"](TABLE, tmp_path / "rows.parquet")
    local = fs.LocalFileSystem()
    for message, kind, path, filesystem in (
        (r"filesystem=str must be a pyarrow\.fs", TypeError, "rows.parquet", "s3"),
        (r"nothing\.parquet does not exist on local", FileNotFoundError, str(tmp_path / "nothing.parquet"), local),
        (r"no file matches", FileNotFoundError, str(tmp_path / "*.csv"), local),
        (
            r"filesystem=pyarrow\.fs\.S3FileSystem\(\) and path='bucket/rows\.parquet'",
            ValueError,
            "s3://bucket/rows.parquet",
            None,
        ),
    ):
        with pytest.raises(kind, match=message):
            gyrfalcon.open(path, filesystem=filesystem)
    np.save(tmp_path / "rows.npy", VALUES)
    with pytest.raises(ValueError, match=r"filesystem= is for Parquet, Arrow, CSV, and .*rows\.npy is npy"):
        gyrfalcon.open(str(tmp_path / "rows.npy"), filesystem=local)
    (tmp_path / "empty.csv").touch()
    with pytest.raises(ValueError, match=r"empty\.csv is empty"):
        gyrfalcon.open(str(tmp_path / "*.csv"), filesystem=local)


def test_compressed_text_that_is_cut_short_or_decompresses_to_too_much(tmp_path):
    path = tmp_path / "rows.csv.zst"
    WRITERS["csv.zst"](TABLE, str(path))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises((OSError, ValueError), match=r"rows\.csv\.zst cannot be read"):
        all_of(gyrfalcon.open(path).X)
    with pa.output_stream(str(path), compression="zstd") as file:
        file.write(b"a,b\n")
        for _ in range(100):
            file.write(b"x,1\n" * 250_000)
    with pytest.raises(ValueError, match=r"rows\.csv\.zst.*decompress the file"):
        gyrfalcon.open(path).table()


def test_the_line_of_a_null_in_compressed_text(tmp_path):
    with gzip.open(tmp_path / "rows.csv.gz", "wt") as file:
        file.write("a,b\n1,2\n\n3,\n")
    with pytest.raises(ValueError, match=r"column 'b' has no value in row 1.*line 4 of the file"):
        all_of(gyrfalcon.open(tmp_path).X)


@pytest.mark.parametrize(
    ("values", "expected", "dtype"),
    [
        (("2023", "2024"), [2023, 2024], np.float32),
        (("01", "12"), [1, 12], np.float32),
        (("-0.5", "1"), [-0.5, 1.0], np.float32),
        (("0.1", "1e3"), ["0.1", "1e3"], None),
        (("123456789", "1"), [123456789, 1], np.float64),
        (("new%20york", "rome"), ["new york", "rome"], None),
        (("2024-01-05", "2024-01-06"), ["2024-01-05", "2024-01-06"], None),
        (("7", "__HIVE_DEFAULT_PARTITION__"), [7, None], np.float32),
    ],
)
def test_values_of_folders(tmp_path, values, expected, dtype):
    narrow = pa.schema([(name, pa.float32()) for name in TABLE.schema.names])
    for value in values:
        (tmp_path / f"place={value}").mkdir()
        parquet.write_table(TABLE.slice(0, 20).cast(narrow), tmp_path / f"place={value}" / "rows.parquet")
    data = gyrfalcon.open(tmp_path, target="y")
    order = [expected[at] for at in np.argsort([f"place={value}" for value in values])]
    assert data.table()["place"].to_pylist() == [value for value in order for _ in range(20)]
    assert data.X.is_numeric() == (dtype is not None)
    if None in expected:
        with pytest.raises(ValueError, match="column 'place' has no value"):
            all_of(data.X)
    elif dtype is not None:
        assert data.X.dtype == dtype
        np.testing.assert_array_equal(all_of(data.X)[:, 3], np.repeat(np.array(order, dtype=dtype), 20))


def test_which_folders_are_columns(tmp_path):
    """Those below what was opened; others if they are asked for. A column of the files comes first."""
    base = tmp_path / "run=5" / "rows"
    write_folders(base / "country=it")
    (tmp_path / "run=6").mkdir()
    assert gyrfalcon.open(base, target="y").feature_names == ["a", "b", "c", "country", "year"]
    assert gyrfalcon.open(base / "*" / "*" / "*.parquet").feature_names[4:] == ["country", "year"]
    both = [base / "country=it" / f"year={year}" / "part.parquet" for year in (2023, 2024)]
    assert gyrfalcon.open(both, target="y").feature_names == ["a", "b", "c", "year"]
    one = gyrfalcon.open(both[0], target="y")
    assert one.feature_names == ["a", "b", "c"]
    assert one.X.shape == (20, 3)
    asked = gyrfalcon.open(both[0], features=["run", "a", "year"])
    np.testing.assert_array_equal(asked.X.take([3]), [[5.0, VALUES[3, 0], 2023.0]])
    only = gyrfalcon.open(base, features=["year"], target="run")
    np.testing.assert_array_equal(all_of(only.X)[:, 0], np.repeat([2023, 2024], [20, 40]))
    np.testing.assert_array_equal(only.y, np.full(60, 5))
    inside = TABLE.append_column("year", pa.array(np.arange(60.0)))
    parquet.write_table(inside.slice(0, 20), both[0])
    parquet.write_table(inside.slice(20), both[1])
    np.testing.assert_array_equal(all_of(gyrfalcon.open(base, features=["year"]).X)[:, 0], np.arange(60.0))


def test_renamed_folders_are_other_data(tmp_path):
    rows = gyrfalcon.open(write_folders(tmp_path / "rows")).X
    os.rename(tmp_path / "rows", tmp_path / "moved")
    assert gyrfalcon.open(tmp_path / "moved").X.fingerprint() == rows.fingerprint()
    os.rename(tmp_path / "moved" / "year=2024", tmp_path / "moved" / "year=2025")
    assert gyrfalcon.open(tmp_path / "moved").X.fingerprint() != rows.fingerprint()


def test_a_command_takes_folders_as_columns(tmp_path, capsys):
    """A model of a folder predicts for a single file in it, whose folder tells the missing column."""
    from gyrfalcon.cli.main import main

    folder = write_folders(tmp_path / "rows")
    model = FalkonRegressor(n_centers=20, random_state=0).fit(gyrfalcon.open(folder, target="y"))
    model.save(tmp_path / "model.gyr")
    expected = model.predict(gyrfalcon.open(folder, target="y").X)[:20]
    found = tmp_path / "found.parquet"
    assert main(["predict", str(tmp_path / "model.gyr"), str(folder / "year=2023"), "-o", str(found)]) == 0
    np.testing.assert_array_equal(parquet.read_table(found)["prediction"], expected)
