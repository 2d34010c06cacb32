"""Files that say what is not so: no code is run, no foreign memory is read, and no memory is taken on their word."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet

import gyrfalcon

N = 500
VALUES = np.random.default_rng(0).standard_normal((N, 2))
LABELS = np.array(["no", "yes"])[np.arange(N) % 2]


READ = """
import resource, sys
import h5py, numpy, pyarrow.parquet, zarr  # before the limit
import gyrfalcon

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
if sys.platform == "linux":
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 2**30, now + 2**30))
for path in sys.argv[2:]:
    try:
        data = gyrfalcon.open(path, **eval(sys.argv[1]))
        said = f"{sum(len(block) for block in data.X.blocks(100))} {None if data.y is None else len(data.y)}"
    except Exception as error:
        said = f"{type(error).__name__} {error}".replace(path, "FILE").replace("\\n", " ")
    print(said, flush=True)
"""


def read_all(*paths, **options):
    """What comes of reading all of some files, in a process of its own: it may crash, and has 1 GiB."""
    done = subprocess.run(
        [sys.executable, "-c", READ, repr(options), *map(str, paths)],
        env=os.environ | {"PYTHONPATH": str(Path(gyrfalcon.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr[-2000:])
    return done.stdout.splitlines()


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


def test_an_arrow_file_that_says_it_has_more_rows(tmp_path):
    paths = []
    for compression in ("uncompressed", "lz4", "zstd"):
        for rows in (N + 1, 10**7, 2**62, -1):
            paths.append(write_arrow(tmp_path / f"{compression}{rows}.feather", compression))
            changed(paths[-1], struct.pack("<q", N), struct.pack("<q", rows))
    for said in read_all(*paths, features=["a", "b"], target="y"):
        assert said.startswith("ValueError FILE cannot be read as Arrow: is it damaged"), said


def test_an_arrow_file_whose_rows_take_no_room(tmp_path):
    """A column of nulls has any number of rows in no bytes."""
    path = tmp_path / "rows.arrow"
    columns = pa.record_batch({"none": pa.nulls(N), "a": VALUES[:, 0]})
    with pa.OSFile(str(path), "wb") as file, ipc.new_file(file, columns.schema) as out:
        out.write_batch(columns)
    assert read_all(path, features=["a"]) == [f"{N} None"]
    changed(path, struct.pack("<q", N), struct.pack("<q", 10**10))
    (said,) = read_all(path, features=["a"])
    assert said.startswith("ValueError FILE cannot be read as Arrow: is it damaged"), said


def test_an_arrow_file_whose_text_begins_elsewhere(tmp_path):
    file, stream = write_arrow(tmp_path / "file.arrow", y=pa.array(["x" * 7] * N)), tmp_path / "stream.arrow"
    table = feather.read_table(file)
    with pa.OSFile(str(stream), "wb") as out, ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    for path in (file, stream):
        changed(path, struct.pack("<iii", 77, 84, 91), struct.pack("<iii", 77, 2**30, 91))
    for said in read_all(file, stream, features=["a", "b"], target="y"):
        assert said.startswith("ValueError FILE cannot be read, is it damaged"), said


def test_an_arrow_file_with_numbers_beyond_its_dictionary(tmp_path):
    paths = []
    codes = pa.array(np.arange(N, dtype=np.int32) % 2)
    for number, values in enumerate((pa.array(["no", "yes"]), pa.array([0.5, 1.5]))):
        y = pa.DictionaryArray.from_arrays(codes, values)
        paths.append(write_arrow(tmp_path / f"{number}.feather", y=y))
        changed(paths[-1], struct.pack("<6i", 0, 1, 0, 1, 0, 1), struct.pack("<6i", 0, 1, 10**9, 1, 0, -5))
    for said in read_all(*paths, features=["a", "b"], target="y"):
        assert re.match(r"ValueError FILE cannot be read, is it damaged .*[Dd]ictionary", said), said


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is one of Linux")
def test_a_compressed_arrow_file_that_asks_for_much_memory(tmp_path):
    path = write_arrow(tmp_path / "rows.feather", "zstd")
    changed(path, struct.pack("<q", 8 * N), struct.pack("<q", 2**45))
    (said,) = read_all(path, features=["a", "b"], target="y")
    assert said.startswith("MemoryError FILE asks for more memory than there is: is it damaged"), said


def test_a_parquet_file_that_says_it_has_more_rows(tmp_path):
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
