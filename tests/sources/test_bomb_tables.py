"""Tables that would fill memory are refused by `open` and by the commands; those that are merely uniform are read."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from pyarrow import feather, ipc, parquet

import gyrfalcon

RUN = """
import contextlib, io, json, sys
import pyarrow.csv, pyarrow.parquet  # before memory is measured
import gyrfalcon
from gyrfalcon.cli import _fit_auto, _fit_falkon, main

def kilobytes(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

def opened(path):
    try:
        data = gyrfalcon.open(path, target="y")
        return f"{len(data.y)} {sum(map(len, data.X.blocks(1000)))}"
    except Exception as error:
        return f"{type(error).__name__} {error}"

def fitted(path):
    out = io.StringIO()
    with contextlib.redirect_stderr(out), contextlib.redirect_stdout(out):
        try:
            main.main(["fit", path, "--target", "y", "-o", path + ".gyr"])
        except SystemExit as error:
            print(error.code)
    return out.getvalue()

before = kilobytes("VmRSS")
said = [[opened(path), fitted(path)] for path in json.load(sys.stdin)]
print(json.dumps([said, kilobytes("VmHWM") - before]))
"""
ZEROS = np.zeros(20_000_000)
LARGE_PAGES = {
    "use_dictionary": False,
    "data_page_size": 1 << 30,
    "write_batch_size": 1 << 30,
    "row_group_size": 1 << 30,
    "compression": "zstd",
}


def write_stream(path, table, rows):
    with ipc.new_stream(path, table.schema, options=ipc.IpcWriteOptions(compression="zstd")) as file:
        file.write_table(table, max_chunksize=rows)


def write_gzip(path, text, times):
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"a,y\n")
        for _ in range(times):
            file.write(text)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is measured on Linux")
def test_tables_that_would_fill_memory(tmp_path):
    table = pa.table({"a": ZEROS, "y": ZEROS})
    feather.write_feather(table, tmp_path / "batch.feather", compression="zstd", chunksize=1 << 30)
    write_stream(tmp_path / "stream.arrow", table, 1 << 30)
    write_stream(tmp_path / "batches.arrow", table, 100_000)
    label = pa.DictionaryArray.from_arrays(pa.array(np.zeros(9, np.int32)), pa.array(["x" * 100_000_000]))
    feather.write_feather(pa.table({"a": ZEROS[:9], "y": label}), tmp_path / "dictionary.feather", compression="zstd")
    write_gzip(tmp_path / "rows.csv.gz", b"0,1\n" * (1 << 20), 40)
    texts = pa.table({"a": ZEROS[:1000], "y": ["x" * 100_000] * 1000})
    coding = {"a": "PLAIN", "y": "DELTA_BYTE_ARRAY"}
    parquet.write_table(texts, tmp_path / "texts.parquet", use_dictionary=False, column_encoding=coding)
    batch, whole = "a record batch decodes to 320 MB", "20000000 rows of "
    cases = {
        "batch.feather": (batch, batch),
        "stream.arrow": (batch, batch),
        "batches.arrow": (whole, whole),
        "dictionary.feather": ("its dictionaries decode to 100 MB",) * 2,
        "rows.csv.gz": ("41943040 rows of ['y'] take 336 MB", "its text and the table that it makes take more than"),
        "texts.parquet": ("1000 1000", "labels of up to 100000 characters take"),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps([str(tmp_path / name) for name in cases]),
        env=os.environ | {"PYTHONPATH": str(Path(gyrfalcon.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    said, peak = json.loads(done.stdout)
    for (name, expected), found in zip(cases.items(), said, strict=True):
        for part, text in zip(expected, found, strict=True):
            assert part in text, (name, text)
            assert text == part or (name in text and "out of proportion to the file" in text)
    assert peak < 200_000  # kilobytes


def test_a_large_page_is_refused_and_a_large_group_is_read(tmp_path):
    """What counts is what is decoded at once: a page, and not all pages of a group of rows."""
    table = pa.table({"a": ZEROS[:10_000_000]})
    path = tmp_path / "group.parquet"
    parquet.write_table(table, path, **{**LARGE_PAGES, "data_page_size": 1 << 20, "write_batch_size": 1000})
    data = gyrfalcon.open(path)
    assert os.path.getsize(path) < 10**6
    assert sum(map(len, data.X.blocks(100_000))) == 10_000_000
    path = tmp_path / "page.parquet"
    texts = pa.table({"a": [1.0], "y": ["x" * 100_000_000]})  # a value is not divided between pages
    parquet.write_table(texts, path, **LARGE_PAGES)
    with pytest.raises(ValueError, match=r"page\.parquet: pages of \['y'\] decode to 100 MB of memory, out of"):
        _ = gyrfalcon.open(path, target="y").y


def test_a_page_that_is_larger_than_the_footer_says(tmp_path):
    """The decoder goes by the header of a page, whatever the footer says."""
    path = tmp_path / "page.parquet"
    size = 100_000_000
    parquet.write_table(pa.table({"a": [1.0], "y": ["x" * size]}), path, **LARGE_PAGES, write_statistics=False)
    contents = path.read_bytes()
    length = int.from_bytes(contents[-8:-4], "little")
    footer = contents[-8 - length :]

    def varint(value):
        out = b""
        while value > 127:
            value, out = value >> 7, out + bytes([value & 127 | 128])
        return out + bytes([value])

    column = parquet.read_metadata(path).row_group(0)
    for known in (column.column(1).total_uncompressed_size, column.total_byte_size):
        coded = varint(2 * known)
        assert coded in footer
        footer = footer.replace(coded, varint(2 * 999))
    other = footer[:-8]
    path.write_bytes(contents[: -8 - length] + other + len(other).to_bytes(4, "little") + b"PAR1")
    assert parquet.read_metadata(path).row_group(0).column(1).total_uncompressed_size == 999
    with pytest.raises(ValueError, match=r"page\.parquet: pages of \['y'\] decode to 100 MB of memory, out of"):
        _ = gyrfalcon.open(path, target="y").y


@pytest.mark.parametrize("compression", ["zstd", "lz4", "uncompressed"])
def test_uniform_arrow_files_are_read(tmp_path, compression):
    n = 1_000_000
    path = tmp_path / "rows.feather"
    columns = {
        "a": np.zeros(n),
        "b": np.zeros(n, dtype=bool),
        "y": pa.array(["no", "yes"] * (n // 2)).dictionary_encode(),
    }
    feather.write_feather(pa.table(columns), path, compression=compression)
    data = gyrfalcon.open(path, target="y")
    assert_array_equal(data.y[:3], ["no", "yes", "no"])
    assert sum(map(len, data.X.blocks(10_000))) == n
    assert not data.X.take(np.arange(10)).any()


def test_very_many_columns_of_parquet_are_read_in_parts(tmp_path):
    values = np.arange(3 * 4001.0).reshape(3, 4001)
    path = tmp_path / "wide.parquet"
    parquet.write_table(pa.table({f"c{j}": values[:, j] for j in range(4001)}), path)
    assert_array_equal(np.concatenate(list(gyrfalcon.open(path).X.blocks(2))), values)
    long = np.arange(600 * 2001.0).reshape(600, 2001)
    parquet.write_table(pa.table({f"c{j}": long[:, j] for j in range(2001)}), path)
    assert_array_equal(np.concatenate(list(gyrfalcon.open(path).X.blocks(250))), long)


def test_more_columns_of_parquet_than_the_size_explains(tmp_path):
    """Each column takes memory to describe and to decode; those that are not read are not counted."""
    path = tmp_path / "wide.parquet"
    value = np.zeros(1)
    parquet.write_table(pa.table({f"c{j}": value for j in range(16_000)}), path, write_statistics=False)
    with pytest.raises(ValueError, match=r"wide\.parquet: its 16000 columns take 240 MB of memory, out of proportion"):
        list(gyrfalcon.open(path).X.blocks(1))
    assert_array_equal(gyrfalcon.open(path, features=["c7", "c9"]).X.take(np.array([0])), [[0, 0]])


def test_damaged_headers_of_messages_and_pages_name_the_file(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({"a": rng.standard_normal(300), "y": rng.standard_normal(300)})
    feather.write_feather(table, tmp_path / "rows.feather")
    parquet.write_table(table, tmp_path / "rows.parquet")
    write_stream(tmp_path / "rows.arrow", table, 100)
    for name in ("rows.feather", "rows.parquet", "rows.arrow"):
        contents = (tmp_path / name).read_bytes()
        for at in range(8, len(contents), 97):
            path = tmp_path / f"damaged-{name}"
            path.write_bytes(contents[:at] + bytes([contents[at] ^ 0xFF]) * 4 + contents[at + 4 :])
            try:
                data = gyrfalcon.open(path, target="y")
                _ = data.y, list(data.X.blocks(100))
            except (ValueError, OSError, MemoryError) as error:
                assert f"damaged-{name}" in str(error)  # noqa: PT017
