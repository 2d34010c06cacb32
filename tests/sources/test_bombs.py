"""Small files that ask for much memory are refused before it is taken; large ones that are compressed well are read."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pytest
import zarr
from numpy.testing import assert_array_equal
from pyarrow import parquet

import gyrfalcon
from gyrfalcon.sources.limits import allowance, decodes_to_more

READER = """
import json, sys
import h5py, pyarrow.csv, pyarrow.parquet, zarr  # before memory is measured
import gyrfalcon

def kilobytes(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

def read(path, options):
    try:
        data = gyrfalcon.open(path, **options)
        return f"{None if data.y is None else len(data.y)} {sum(map(len, data.X.blocks(1000)))}"
    except Exception as error:
        return f"{type(error).__name__} {error}"

before = kilobytes("VmRSS")
said = [read(*case) for case in json.load(sys.stdin)]
print(json.dumps([said, kilobytes("VmHWM") - before]))
"""
MOST = 200_000  # kilobytes


def read_measured(*cases):
    """Read files one after the other in a process of their own; return what came of each, once memory is checked."""
    done = subprocess.run(
        [sys.executable, "-c", READER],
        input=json.dumps([(str(path), options) for path, options in cases]),
        env=os.environ | {"PYTHONPATH": str(Path(gyrfalcon.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    said, peak = json.loads(done.stdout)
    assert peak < MOST, (peak, said)
    return said


def zeros(size, wbits):
    """Compress zeros, a thousand to one."""
    coder = zlib.compressobj(9, wbits=wbits)
    piece = bytes(1 << 22)
    return b"".join([*(coder.compress(piece) for _ in range(size >> 22)), coder.flush()])


def write_zarr(folder, shape, chunks, compressor=None, first=None):
    (folder / "X").mkdir(parents=True)
    about = {"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": "<f8", "compressor": compressor}
    (folder / "X" / ".zarray").write_text(json.dumps({**about, "fill_value": 0.0, "filters": None, "order": "C"}))
    if first is not None:
        (folder / "X" / "0.0").write_bytes(first)
    return folder


def write_hdf5(path, shape, chunks, first, compression="gzip"):
    with h5py.File(path, "w") as file:
        file.create_dataset("X", shape, chunks=chunks, dtype="f8", compression=compression)
        file["X"].id.write_direct_chunk((0, 0), first)
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is measured on Linux")
def test_files_that_would_fill_memory(tmp_path):
    size = 1 << 30
    packed = zeros(size, 15)
    rows = size // 16
    coded = {"id": "gzip", "level": 9}
    lzf = b"\x1f" + bytes(32) + b"\xff\xf7\x00" * 400_000  # a run of zeros, and copies of 264 bytes
    with h5py.File(tmp_path / "target.h5", "w") as file:
        file.create_dataset("X", (10**8, 2), chunks=(1000, 2), dtype="f8")
        file.create_dataset("y", (10**8,), chunks=(1000,), dtype="f8")
    with h5py.File(tmp_path / "text.h5", "w") as file:
        file["X"] = np.zeros((2_000, 2))
        labels = ["long " * 10**5] + ["a"] * 1_999  # an array of text has the width of its longest
        file.create_dataset("y", dtype=h5py.string_dtype(), compression="gzip", data=labels)
    wide = ",".join(f"c{j}" for j in range(300_000)) + ("\n" + ",".join(["1"] * 300_000)) * 2
    (tmp_path / "wide.csv").write_text(wide)
    n = 100_000
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array(["x" * 200_000]))
    parquet.write_table(pa.table({"a": np.zeros(n, np.float32), "y": text}), tmp_path / "dictionary.parquet")
    short = pa.table({"a": np.zeros(1000), "y": ["x" * 10**6] * 1000})
    parquet.write_table(short, tmp_path / "text.parquet")
    long = pa.table({"y": np.zeros(40_000_000)})
    parquet.write_table(long.append_column("a", long["y"]), tmp_path / "rows.parquet")
    cases = {
        write_zarr(
            tmp_path / "longer.zarr", [100, 2], [100, 2], coded, zeros(size, 31)
        ): "decodes to more than the 1.6 kB",
        write_zarr(
            tmp_path / "large.zarr", [rows, 2], [rows, 2], coded, zeros(size, 31)
        ): "out of proportion to the file",
        write_zarr(tmp_path / "tiny.zarr", [10**5, 100], [1, 1]): "has 10000000 chunks of 1 x 1 values",
        write_zarr(tmp_path / "columns.zarr", [10, 2000], [1, 1]): "None 10",
        write_zarr(tmp_path / "nothing.zarr", [10**12, 2], [10**6, 2]): "almost none can be there",
        write_hdf5(tmp_path / "longer.h5", (100, 2), (100, 2), packed): "decodes to more than the 1.6 kB",
        write_hdf5(tmp_path / "large.h5", (rows, 2), (rows, 2), packed): "out of proportion to the file",
        write_hdf5(tmp_path / "lzf.h5", (100, 2), (100, 2), lzf, "lzf"): "decodes to more than the 1.6 kB",
        tmp_path / "target.h5": "'y': it takes 800 MB of memory, out of proportion",
        tmp_path / "text.h5": "labels of up to 500000 characters take 4 GB of memory, out of proportion",
        tmp_path / "wide.csv": "its 300000 columns take 3 GB of memory, out of proportion",
        tmp_path / "dictionary.parquet": f"{n} {n}",
        tmp_path / "text.parquet": "1000 1000",
        tmp_path / "rows.parquet": "40000000 rows of ['y'] take 320 MB of memory, out of proportion",
    }
    targets = {"target.h5", "text.h5", "dictionary.parquet", "text.parquet", "rows.parquet"}
    options = [{"target": "y"} if path.name in targets else {} for path in cases]
    for path, said in zip(cases, read_measured(*zip(cases, options, strict=True)), strict=True):
        assert cases[path] in said, (path.name, said)
        assert said == cases[path] or path.name in said


def test_large_chunks_of_data_are_read(tmp_path):
    """Chunks of 160 MB, compressed as data is."""
    X = np.random.default_rng(0).integers(0, 50, size=(2_500_000, 8)).astype(np.float64)
    path = tmp_path / "rows.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=X, chunks=X.shape, compression="gzip", compression_opts=1, shuffle=True)
    store = zarr.open_group(tmp_path / "rows.zarr", mode="w")
    store.create_array("X", data=X, chunks=X.shape)
    for name in (path, tmp_path / "rows.zarr"):
        data = gyrfalcon.open(name)
        assert allowance(os.path.getsize(path)) > X.nbytes
        assert_array_equal(data.X.take(np.array([0, 2_499_999])), X[[0, -1]])


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("codec", ["gzip", "zstd", "blosc", "shards"])
def test_codecs_are_read_and_measured(tmp_path, zarr_format, codec):
    from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

    X = np.random.default_rng(0).integers(0, 9, size=(500, 4)).astype(np.float64)
    made = {"gzip": GzipCodec(), "zstd": ZstdCodec(), "blosc": BloscCodec(), "shards": ZstdCodec()}[codec]
    if zarr_format == 2:
        if codec == "shards":
            pytest.skip("zarr 2 has no shards")
        import numcodecs

        made = {"gzip": numcodecs.GZip(), "zstd": numcodecs.Zstd(), "blosc": numcodecs.Blosc()}[codec]
    shards = {"shards": (200, 4)} if codec == "shards" else {}
    group = zarr.open_group(tmp_path / "rows.zarr", mode="w", zarr_format=zarr_format)
    group.create_array("X", data=X, chunks=(100, 2), compressors=made, **shards)
    data = gyrfalcon.open(tmp_path / "rows.zarr")
    assert_array_equal(np.concatenate(list(data.X.blocks(64))), X)
    # a chunk of a larger array in the place of one
    group.create_array("Y", shape=(4000, 4), chunks=(1000, 2), dtype=X.dtype, compressors=made, fill_value=1)
    group["Y"][:] = 0
    key = group["X"].metadata.encode_chunk_key((1, 0))
    larger = (tmp_path / "rows.zarr" / "Y" / group["Y"].metadata.encode_chunk_key((0, 0))).read_bytes()
    if codec == "shards":
        index = np.full(2 * 4, 2**64 - 1, dtype="<u8")
        index[:2] = 0, len(larger)
        larger += index.tobytes() + bytes(4)
    (tmp_path / "rows.zarr" / "X" / key).write_bytes(larger)
    with pytest.raises(ValueError, match=r"decodes to more than the 1\.6 kB that it can hold"):
        list(gyrfalcon.open(tmp_path / "rows.zarr").X.blocks(64))


def test_streams_are_measured():
    import bz2
    import lzma

    data = np.random.default_rng(0).bytes(3000)
    packed = {
        "zlib": zlib.compress(data),
        "gzip": gzip.compress(data),
        "bz2": bz2.compress(data),
        "lzma": lzma.compress(data),
    }
    packed["gzip"] = gzip.compress(data[:1000]) + gzip.compress(data[1000:])  # two members
    for codec, stream in packed.items():
        assert not decodes_to_more(codec, stream, 3000)
        assert decodes_to_more(codec, stream, 2999)
        assert not decodes_to_more(codec, b"no stream", 1)
    sized = pa.compress(bytes(3000), codec="zstd", asbytes=True)
    assert decodes_to_more("zstd", sized, 2999)
    assert not decodes_to_more("zstd", sized, 3000)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:  # does not know the size when it begins
        out.write(bytes(3000))
    unsized = sink.getvalue().to_pybytes()
    assert decodes_to_more("zstd", unsized, 2999)
    assert not decodes_to_more("zstd", unsized, 3000)


def test_labels_of_a_dictionary_with_a_missing_value(tmp_path):
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0], pa.int32()), pa.array(["a", None, "b"]))
    for name, column in [("labels", values), ("numbers", pa.array([1.0, None, 2.0, 1.0]))]:
        path = tmp_path / f"{name}.feather"
        from pyarrow import feather

        feather.write_feather(pa.table({"x": np.arange(4.0), "y": column}), path)
        with pytest.raises(ValueError, match=r"column 'y' has no value in row 1"):
            _ = gyrfalcon.open(path, target="y").y
