"""The market's sources that are files: each a function of a folder it may write to and of the rows to be stored."""

from __future__ import annotations

import gzip

import numpy as np

import gyrfalcon
from gyrfalcon.sources import as_rows


def _table(values, types=("float32", "float64", "int16", "int8")):
    import pyarrow as pa

    columns = {f"x{j}": values[:, j].astype(types[j % len(types)]) for j in range(values.shape[1])}
    return pa.table(columns).append_column("y", pa.array(values[:, 0] * 2.0))


def parquet(folder, values):
    from pyarrow import parquet

    parquet.write_table(_table(values), folder / "rows.parquet", row_group_size=20)
    return gyrfalcon.open(folder / "rows.parquet", target="y").X


def parquet_folder(folder, values):
    """Files of uneven length, one of them without rows; written in an order that is not that of their names."""
    from pyarrow import parquet

    table = _table(values, ["float32"])
    edges = [0, 1, 1, 40, 97, len(values)]
    for number in reversed(range(len(edges) - 1)):
        part = table.slice(edges[number], edges[number + 1] - edges[number])
        parquet.write_table(part, folder / f"part-{number}.parquet", row_group_size=13)
    (folder / "_SUCCESS").touch()
    return gyrfalcon.open(folder, target="y").X


def parquet_features(folder, values):
    """Columns by name, in another order than the file's."""
    from pyarrow import parquet

    table = _table(values).select(["y", "x3", "x1", "x0", "x2"])
    parquet.write_table(table, folder / "rows.parquet")
    return gyrfalcon.open(folder / "*.parquet", features=["x0", "x1", "x2", "x3"], dtype="float32").X


def csv(folder, values):
    from pyarrow import csv

    table = _table(values)
    csv.write_csv(table.slice(0, 50), folder / "a.csv")
    csv.write_csv(table.slice(50), folder / "b.csv")
    return gyrfalcon.open([folder / "a.csv", folder / "b.csv"], target="y").X


def csv_gz(folder, values):
    with gzip.open(folder / "rows.csv.gz", "wt") as file:
        np.savetxt(file, values, fmt="%d", delimiter=",", header="a,b,c,d", comments="")
    return gyrfalcon.open(folder / "rows.csv.gz").X


def csv_zst(folder, values):
    import pyarrow as pa
    from pyarrow import csv

    with pa.output_stream(folder / "rows.csv.zst", compression="zstd") as file:
        csv.write_csv(_table(values), file)
    return gyrfalcon.open(folder / "rows.csv.zst", target="y").X


def filesystem(folder, values):
    """Folders on a filesystem of pyarrow, whose names are no columns that were asked for."""
    from pyarrow import fs, parquet

    for number, part in enumerate((values[:37], values[37:])):
        (folder / f"part={number}").mkdir()
        parquet.write_table(_table(part), folder / f"part={number}" / "rows.parquet", row_group_size=20)
    subtree = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    return gyrfalcon.open("", features=["x0", "x1", "x2", "x3"], filesystem=subtree).X


def feather(folder, values):
    from pyarrow import feather

    feather.write_feather(_table(values), folder / "rows.feather", chunksize=17)
    return gyrfalcon.open(folder / "rows.feather", target="y").X


def arrow_stream(folder, values):
    from pyarrow import OSFile, ipc

    table = _table(values)
    with OSFile(str(folder / "rows.arrow"), "wb") as file, ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, 31)
    return gyrfalcon.open(folder / "rows.arrow", target="y").X


def npy(folder, values):
    np.save(folder / "rows.npy", values.astype(np.float32))
    return gyrfalcon.open(folder / "rows.npy").X


def npy_fortran(folder, values):
    np.save(folder / "rows.npy", np.asfortranarray(np.insert(values, 2, 9, axis=1), dtype=">f8"))
    return gyrfalcon.open(folder / "rows.npy", target=2).X


def hdf5(folder, values):
    import h5py

    for name, part in {"a": values[:60], "b": values[60:]}.items():
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file.create_dataset("X", data=part.astype(np.float32), chunks=(7, 2), compression="gzip")
            file["y"] = part[:, 0]
    return gyrfalcon.open(folder, target="y").X


def hdf5_object(folder, values):
    import h5py

    with h5py.File(folder / "rows.h5", "w") as file:
        file["inner/numbers"] = values
    return as_rows(h5py.File(folder / "rows.h5", "r")["inner/numbers"])


def zarr(folder, values):
    import zarr

    array = zarr.open(str(folder / "rows.zarr"), mode="w", shape=values.shape, chunks=(10, 3), dtype="float32")
    array[:] = values
    return gyrfalcon.open(folder / "rows.zarr").X


def zarr_object(folder, values):
    import zarr

    array = zarr.open(str(folder / "rows.zarr"), mode="w", shape=values.shape, chunks=(10, 3), dtype="float64")
    array[:] = values
    return as_rows(array)


def lazy_frame(folder, values):
    import polars

    return gyrfalcon.open(polars.from_arrow(_table(values)).lazy(), target="y").X


def arrow_dataset(folder, values):
    import pyarrow.dataset
    from pyarrow import parquet

    parquet.write_table(_table(values, ["float32"]), folder / "rows.parquet", row_group_size=20)
    return gyrfalcon.open(pyarrow.dataset.dataset(folder), target="y").X


STORED = [
    parquet,
    parquet_folder,
    parquet_features,
    csv,
    csv_gz,
    csv_zst,
    filesystem,
    feather,
    arrow_stream,
    npy,
    npy_fortran,
    hdf5,
    hdf5_object,
    zarr,
    zarr_object,
    lazy_frame,
    arrow_dataset,
]
