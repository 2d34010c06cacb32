"""Files that say what is not so: no code is run, no foreign memory is read, and no memory is taken on their word."""

from __future__ import annotations

import base64
import json
import os
import pickle
import re
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pytest
import zarr
from numpy.testing import assert_array_equal
from pyarrow import feather, ipc, parquet

import gyrfalcon
from gyrfalcon.sources import as_source

N = 500
VALUES = np.random.default_rng(0).standard_normal((N, 2))
LABELS = np.array(["no", "yes"])[np.arange(N) % 2]


READER = """
import json, os, resource, signal, sys
import h5py, numpy, pyarrow.parquet, zarr  # before the limit
import gyrfalcon

def read(paths, options):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + 2**30, now + 2**30))
    for path in paths:
        try:
            data = gyrfalcon.open(path, **options)
            said = f"{sum(len(block) for block in data.X.blocks(100))} {None if data.y is None else len(data.y)}"
        except Exception as error:
            said = f"{type(error).__name__} {error}".replace(path, "FILE").replace("\\n", " ")
        print(said, flush=True)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        signal.alarm(100)
        status = 1
        try:
            read(*json.loads(line))
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    print(f"status {status}", flush=True)
"""


@pytest.fixture(scope="module")
def read_all():
    """A function that gives what comes of reading all of some files, in a process of its own: it may crash or hang, and
    has 1 GiB. They are forks of one that has imported everything."""
    with subprocess.Popen(
        [sys.executable, "-c", READER],
        env=os.environ | {"PYTHONPATH": str(Path(gyrfalcon.__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:

        def read(*paths, **options):
            reader.stdin.write(json.dumps([[str(path) for path in paths], options]) + "\n")
            reader.stdin.flush()
            said = []
            for line in reader.stdout:
                if line.startswith("status "):
                    assert line == "status 0\n", (line, said)
                    return said
                said.append(line.removesuffix("\n"))
            raise AssertionError("the process that forks is gone")

        yield read


# ---- Arrow and Parquet -----------------------------------------------------------------------------------------------


def changed(path, old, new):
    """Put other bytes in all places of a file that hold these ones."""
    contents = Path(path).read_bytes()
    assert old in contents
    Path(path).write_bytes(contents.replace(old, new))


def write_arrow(path, compression="uncompressed", **more):
    columns = {"a": VALUES[:, 0], "b": VALUES[:, 1], "y": pa.array(LABELS), **more}
    feather.write_feather(pa.table(columns), path, compression=compression)
    return path


def test_an_arrow_file_that_says_it_has_more_rows(tmp_path, read_all):
    paths = []
    for compression in ("uncompressed", "lz4", "zstd"):
        for rows in (N + 1, 10**7, 2**62, -1):
            paths.append(write_arrow(tmp_path / f"{compression}{rows}.feather", compression))
            changed(paths[-1], struct.pack("<q", N), struct.pack("<q", rows))
    for said in read_all(*paths, features=["a", "b"], target="y"):
        assert said.startswith("ValueError FILE cannot be read as Arrow: is it damaged"), said


def test_an_arrow_file_whose_rows_take_no_room(tmp_path, read_all):
    """A column of nulls has any number of rows in no bytes."""
    path = tmp_path / "rows.arrow"
    columns = pa.record_batch({"none": pa.nulls(N), "a": VALUES[:, 0]})
    with pa.OSFile(str(path), "wb") as file, ipc.new_file(file, columns.schema) as out:
        out.write_batch(columns)
    assert read_all(path, features=["a"]) == [f"{N} None"]
    changed(path, struct.pack("<q", N), struct.pack("<q", 10**10))
    (said,) = read_all(path, features=["a"])
    assert said.startswith("ValueError FILE cannot be read as Arrow: is it damaged"), said


def test_an_arrow_file_whose_text_begins_elsewhere(tmp_path, read_all):
    file, stream = write_arrow(tmp_path / "file.arrow", y=pa.array(["x" * 7] * N)), tmp_path / "stream.arrow"
    table = feather.read_table(file)
    with pa.OSFile(str(stream), "wb") as out, ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    for path in (file, stream):
        changed(path, struct.pack("<iii", 77, 84, 91), struct.pack("<iii", 77, 2**30, 91))
    for said in read_all(file, stream, features=["a", "b"], target="y"):
        assert said.startswith("ValueError FILE cannot be read, is it damaged"), said


def test_an_arrow_file_with_numbers_beyond_its_dictionary(tmp_path, read_all):
    paths = []
    codes = pa.array(np.arange(N, dtype=np.int32) % 2)
    for number, values in enumerate((pa.array(["no", "yes"]), pa.array([0.5, 1.5]))):
        y = pa.DictionaryArray.from_arrays(codes, values)
        paths.append(write_arrow(tmp_path / f"{number}.feather", y=y))
        changed(paths[-1], struct.pack("<6i", 0, 1, 0, 1, 0, 1), struct.pack("<6i", 0, 1, 10**9, 1, 0, -5))
    for said in read_all(*paths, features=["a", "b"], target="y"):
        assert re.match(r"ValueError FILE cannot be read, is it damaged .*[Dd]ictionary", said), said


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is one of Linux")
def test_a_compressed_arrow_file_that_asks_for_much_memory(tmp_path, read_all):
    path = write_arrow(tmp_path / "rows.feather", "zstd")
    changed(path, struct.pack("<q", 8 * N), struct.pack("<q", 2**45))
    (said,) = read_all(path, features=["a", "b"], target="y")
    assert said.startswith("ContentsError FILE: a record batch decodes to 70.4 TB of memory, out of proportion"), said


def test_a_parquet_file_that_says_it_has_more_rows(tmp_path, read_all):
    """The number of rows is written as a varint: three times, and once more with the values of each column."""

    def varint(value):
        zigzag, out = 2 * value, b""
        while zigzag > 127:
            zigzag, out = zigzag >> 7, out + bytes([zigzag & 127 | 128])
        return out + bytes([zigzag])

    path, n = tmp_path / "rows.parquet", 1_034_567
    parquet.write_table(pa.table({"a": np.zeros(n), "y": np.zeros(n)}), path)
    contents = path.read_bytes()
    footer = struct.unpack("<i", contents[-8:-4])[0]
    data, meta = contents[: -8 - footer], contents[-8 - footer : -8]
    paths = []
    for rows in (2_000_000, 2**39):
        other = meta.replace(varint(n), varint(rows))
        paths.append(tmp_path / f"{rows}.parquet")
        paths[-1].write_bytes(data + other + struct.pack("<i", len(other)) + b"PAR1")
        assert parquet.read_metadata(paths[-1]).num_rows == rows
        with pytest.raises((ValueError, OSError), match=f"{rows}.parquet"):
            _ = gyrfalcon.open(paths[-1], features=["a"], target="y").y
    for said in read_all(*paths, features=["a"], target="y"):
        assert re.match(rf"\w*Error FILE .*(gave {n} rows where|damaged)", said), said
    in_groups = tmp_path / "groups.parquet"
    other = meta.replace(varint(n), varint(n - 1), 1)  # that of the whole file comes first
    in_groups.write_bytes(data + other + struct.pack("<i", len(other)) + b"PAR1")
    with pytest.raises(ValueError, match=rf"groups.parquet cannot be read .*it has {n - 1} rows, in groups of \[{n}\]"):
        gyrfalcon.open(in_groups)


# ---- zarr ------------------------------------------------------------------------------------------------------------


class Planted:
    """What makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


V2 = {
    "zarr_format": 2,
    "shape": [4, 2],
    "chunks": [4, 2],
    "dtype": "<f8",
    "order": "C",
    "fill_value": 0.0,
    "filters": None,
    "compressor": None,
}
V3 = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4, 2],
    "data_type": "float64",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 2]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0.0,
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    "attributes": {},
}
SHARDS = {
    "chunk_shape": [4, 2],
    "codecs": [*V3["codecs"], {"name": "numcodecs.pickle", "configuration": {"protocol": 5}}],
    "index_codecs": V3["codecs"],
}
HOSTILE = {
    "filter": ({**V2, "filters": [{"id": "pickle", "protocol": 5}]}, "coded with 'pickle'"),
    "compressor": ({**V2, "compressor": {"id": "pickle", "protocol": 5}}, "coded with 'pickle'"),
    "objects": ({**V2, "dtype": "|O", "filters": [{"id": "pickle"}]}, "neither numbers nor text"),
    "json": ({**V2, "dtype": "|O", "filters": [{"id": "json2"}]}, "neither numbers nor text"),
    "words": ({**V2, "filters": [{"id": "vlen-utf8"}]}, "coded with 'vlen-utf8'"),
    "record": ({**V2, "dtype": [["a", "|O"]], "filters": [{"id": "pickle"}]}, "neither numbers nor text"),
    "nameless": ({**V2, "compressor": {}}, "coded with 'None'"),
    "v3": ({**V3, "codecs": [*V3["codecs"], {"name": "numcodecs.pickle"}]}, "coded with 'pickle'"),
    "v3 short": ({**V3, "codecs": ["bytes", "numcodecs.pickle"]}, "coded with 'pickle'"),
    "v3 shards": ({**V3, "codecs": [{"name": "sharding_indexed", "configuration": SHARDS}]}, "coded with 'pickle'"),
    "v3 text": ({**V3, "data_type": "string", "codecs": [{"name": "vlen-utf8"}]}, "neither numbers nor text"),
}


@pytest.mark.parametrize("where", ["X", "y", "both", "group"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_zarr_store_that_names_a_codec_of_objects(tmp_path, kind, where):
    """As the rows, as the target, as rows that another description beside it says are harmless, and in a copy."""
    document, reason = HOSTILE[kind]
    planted = tmp_path / "planted"
    payload = pickle.dumps(Planted(planted))
    document = {**document, "fill_value": base64.b64encode(payload).decode()} if kind == "record" else document
    store, name = tmp_path / "rows.zarr", "y" if where == "y" else "X"
    for array, described in {"X": V2, "y": V2, name: document}.items():
        (store / array / "c" / "0").mkdir(parents=True)
        (store / array / "0.0").write_bytes(payload if described is document else VALUES[:4].tobytes())
        (store / array / "c" / "0" / "0").write_bytes(payload)
        metadata = ".zarray" if described["zarr_format"] == 2 else "zarr.json"
        (store / array / metadata).write_text(json.dumps(described))
    (store / ".zgroup").write_text('{"zarr_format": 2}')
    if where == "both":
        harmless, file = (V3, "zarr.json") if document["zarr_format"] == 2 else (V2, ".zarray")
        (store / "X" / file).write_text(json.dumps(harmless))
    if where == "group" and document["zarr_format"] == 2:
        (store / "X" / ".zarray").write_text(json.dumps(V2))
        (store / "X" / "0.0").write_bytes(VALUES[:4].tobytes())
        contents = {".zgroup": {"zarr_format": 2}, "X/.zarray": document}
        (store / ".zmetadata").write_text(json.dumps({"zarr_consolidated_format": 1, "metadata": contents}))
        # a copy of what the arrays say is not what is believed
        assert_array_equal(np.concatenate(list(gyrfalcon.open(store).X.blocks(2))), VALUES[:4])
        assert not planted.exists()
        return
    with pytest.raises(ValueError, match=rf"rows\.zarr, '{name}' .*{re.escape(reason)}"):
        _ = gyrfalcon.open(store, target="y").y
    assert not planted.exists()


def test_a_hostile_array_beside_others_is_not_touched(tmp_path):
    """Arrays that are not asked for may be coded in any way."""
    planted, store = tmp_path / "planted", tmp_path / "rows.zarr"
    group = zarr.open_group(str(store), mode="w", zarr_format=2)
    group["X"] = VALUES
    (store / "names").mkdir()
    fill_value = base64.b64encode(pickle.dumps(Planted(planted))).decode()
    document = {**V2, "dtype": [["a", "|O"]], "filters": [{"id": "pickle"}], "fill_value": fill_value}
    (store / "names" / ".zarray").write_text(json.dumps(document))
    assert_array_equal(np.concatenate(list(gyrfalcon.open(store, features="X").X.blocks(100))), VALUES)
    assert not planted.exists()


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_stores_of_numbers_are_read_as_before(tmp_path, zarr_format):
    group = zarr.open_group(str(tmp_path / "rows.zarr"), mode="w", zarr_format=zarr_format)
    inner = group.create_group("inner")
    inner.create_array("rows", shape=VALUES.shape, chunks=(7, 2), dtype="f4", compressors="auto")[:] = VALUES
    group["y"] = np.arange(N, dtype=np.int16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr is not sure of how it writes text
        group.create_array("words", data=LABELS)
        data = gyrfalcon.open(tmp_path / "rows.zarr", target="words")
        assert_array_equal(data.y, LABELS)
    assert_array_equal(np.concatenate(list(data.X.blocks(99))), VALUES.astype(np.float32))
    assert_array_equal(gyrfalcon.open(tmp_path / "rows.zarr", features="inner/rows", target="y").y, np.arange(N))
    if zarr_format == 3:
        group.create_array("shards", shape=VALUES.shape, chunks=(10, 2), shards=(100, 2), dtype="f8")[:] = VALUES
        rows = gyrfalcon.open(tmp_path / "rows.zarr", features="shards").X
        assert_array_equal(np.concatenate(list(rows.blocks(99))), VALUES)


def test_zarr_metadata_that_are_none(tmp_path):
    for text in ("[]", "{}", "nothing", '{"shape": [4, -2]}', "[" * 100_000, '{"shape": "ab", "dtype": "<f8"}'):
        (tmp_path / "rows.zarr").mkdir(exist_ok=True)
        (tmp_path / "rows.zarr" / ".zarray").write_text(text)
        with pytest.raises(ValueError, match=r"rows\.zarr"):
            gyrfalcon.open(tmp_path / "rows.zarr")
    (tmp_path / "file.zarr").write_bytes(b"PK")
    with pytest.raises(ValueError, match="is a file: a zarr store is a folder"):
        gyrfalcon.open(tmp_path / "file.zarr")


# ---- npy and HDF5 ----------------------------------------------------------------------------------------------------


def write_npy(path, shape, numbers=b""):
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
        file.write(numbers)
    return path


def test_an_npy_file_of_a_shape_beyond_64_bits(tmp_path, read_all):
    shapes = [(2**32, 2**32), (2**62, 4), (-4, 2), (2**62, 0), (10**30, 10**30)]
    paths = [write_npy(tmp_path / f"{number}.npy", shape, bytes(64)) for number, shape in enumerate(shapes)]
    for path in paths:
        with pytest.raises(ValueError, match=path.name):
            gyrfalcon.open(path)
    for said in read_all(*paths):
        assert re.match(r"(Contents|Value)Error FILE", said), said


@pytest.mark.parametrize("shape", [(2**35,), (4,), (2**64 + N,)])
def test_an_npy_file_of_targets_that_does_not_fit(tmp_path, shape, read_all):
    path = write_npy(tmp_path / "rows.npy", (N, 2), VALUES.tobytes())
    target = write_npy(tmp_path / "target.npy", shape, bytes(8 * N))
    (said,) = read_all(path, target=str(target))
    assert re.match(rf"ContentsError {target} (is cut short|has shape \(4,\), where one number for each)", said), said


def test_hdf5_arrays_that_say_they_are_huge(tmp_path, read_all):
    """Arrays that were never written to take no room in the file, whatever their shapes."""
    path = tmp_path / "rows.h5"
    with h5py.File(path, "w") as file:
        file["X"] = VALUES
        file.create_dataset("long", shape=(2**40,), dtype="f8", chunks=(1000,))
        file.create_dataset("rows", shape=(2**40, 2), dtype="f8", chunks=(1000, 2))
        file.create_dataset("wide", shape=(2, 2**45), dtype="f8", chunks=(1, 2**20))
        file.create_dataset("nothing", data=h5py.Empty("f8"))
    (said,) = read_all(path, features="X", target="long")
    assert (
        said
        == f"ContentsError FILE, 'long' has shape (1099511627776,), where one number for each of the {N} rows is needed"
    )
    data = gyrfalcon.open(path, features="rows", target="long")
    assert data.X.shape == (2**40, 2)
    assert data.X.readers[0].starts.nbytes < 2**25
    assert_array_equal(data.X.take(np.array([2**39, 5])), np.zeros((2, 2)))
    with pytest.raises(MemoryError, match=r"rows\.h5, 'long' takes 8\.8 TB of memory, and .* are available"):
        _ = data.y
    with pytest.raises(MemoryError, match=r"rows\.h5: its 35184372088832 columns are read 1 rows at a time"):
        gyrfalcon.open(path, features="wide")
    for options in ({"features": "nothing"}, {"features": "X", "target": "nothing"}):
        with pytest.raises(ValueError, match=r"rows\.h5, 'nothing'.* shape None"):
            _ = gyrfalcon.open(path, **options).y


def test_a_zarr_array_that_says_it_is_huge(tmp_path):
    store = tmp_path / "rows.zarr"
    for name, shape, chunks in [("X", [2**40, 2], [1, 2]), ("y", [2**40], [1000]), ("chunk", [2**40, 2], [2**40, 2])]:
        (store / name).mkdir(parents=True)
        (store / name / ".zarray").write_text(json.dumps({**V2, "shape": shape, "chunks": chunks}))
    data = gyrfalcon.open(store, target="y")
    assert data.X.readers[0].starts.nbytes < 2**25
    with pytest.raises(MemoryError, match=r"rows\.zarr, 'y' takes 8\.8 TB of memory"):
        _ = data.y
    with pytest.raises(MemoryError, match=r"rows\.zarr: its 2 columns are read 1099511627776 rows at a time"):
        gyrfalcon.open(store, features="chunk")


def test_hdf5_arrays_that_are_in_other_files(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(VALUES.tobytes())
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["X"], file["y"] = VALUES, VALUES[:, 0]
    path = tmp_path / "rows.h5"
    with h5py.File(path, "w") as file:
        file["mine"] = VALUES
        file.create_dataset("raw", shape=(N, 2), dtype="f8", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
        file.create_dataset("raw y", shape=(N,), dtype="f8", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
        layout = h5py.VirtualLayout((N, 2), dtype="f8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "X", shape=(N, 2))
        file.create_virtual_dataset("virtual", layout)
        file["linked"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "X")
        file["group"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/")
        file["soft"] = h5py.SoftLink("raw")
        assert_array_equal(file["raw"][:], VALUES)  # which is what must not happen
    for features, reason in {
        "raw": f"'raw' has its values in '{secret}': other files than the one given are not read",
        "virtual": "'virtual' is a virtual dataset",
        "linked": "has no array 'linked'",
        "group/X": "has no array 'group/X'",
        "soft": "has no array 'soft'",
    }.items():
        with pytest.raises(ValueError, match=rf"rows\.h5,? {reason}"):
            gyrfalcon.open(path, features=features)
    for target, reason in {"raw y": "has its values in", "group/y": "has no array"}.items():
        with pytest.raises(ValueError, match=reason):
            _ = gyrfalcon.open(path, features="mine", target=target).y
    # a name that is an array in the first of several files
    for features in ("X", "y"):
        with h5py.File(tmp_path / "again.h5", "w") as file:
            file["X"], file["y"] = VALUES, VALUES[:, 0]
            del file[features]
            file[features] = h5py.ExternalLink(str(tmp_path / "other.h5"), features)
        with pytest.raises(ValueError, match=rf"again\.h5, '{features}' is a link"):
            _ = gyrfalcon.open([tmp_path / "other.h5", tmp_path / "again.h5"], features="X", target="y").y
    with h5py.File(path) as file:  # by who opens it
        assert_array_equal(np.concatenate(list(as_source(file["raw"]).blocks(100))), VALUES)


def test_an_hdf5_file_whose_text_never_ends(tmp_path, read_all):
    """Free space of no length in a heap of texts, after whose end the HDF5 library looks for ever."""
    path = tmp_path / "rows.h5"
    with h5py.File(path, "w") as file:
        file["X"], file["words"] = VALUES, LABELS.astype(object)
    assert_array_equal(gyrfalcon.open(path, target="words").y, LABELS)
    contents = bytearray(path.read_bytes())
    at = contents.index(b"GCOL") + 16
    contents[at : at + 16] = bytes(16)
    path.write_bytes(contents)
    (said,) = read_all(path, target="words")
    assert said == f"ContentsError FILE is damaged: its text has free space without end, at byte {at}"


@pytest.mark.parametrize("link", ["chunk", "folder"])
def test_a_zarr_chunk_that_is_a_link_is_not_followed(tmp_path, link):
    """Its target, any file of the machine, was read as rows."""
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(
        store=str(tmp_path / "store" / "X"), shape=(4, 2), chunks=(2, 2), dtype="f8", compressors=None, zarr_format=3
    )
    array[:] = np.arange(8.0).reshape(4, 2)
    chunks = tmp_path / "store" / "X" / "c"
    target = chunks / "0" / "0" if link == "chunk" else chunks / "0"
    assert target.exists()
    target.rename(tmp_path / "elsewhere")
    target.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"is a link, and is not followed: copy what it leads to"):
        gyrfalcon.open(tmp_path / "store")
