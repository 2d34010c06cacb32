"""Files of the papers' data sets: each format is read from a small file of the same form, and each row can be run."""

from __future__ import annotations

import gzip
import importlib
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from sklearn.datasets import dump_svmlight_file

ROOT = Path(__file__).parents[1]
N, N_TEST = 60, 30
random = np.random.default_rng(0)


@pytest.fixture
def published(monkeypatch):
    for folder in ("benchmarks", "benchmarks/papers"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    return importlib.import_module("published")


def rows(d: int, classes: int = 0, n: int = N + N_TEST) -> tuple[np.ndarray, np.ndarray]:
    """Features of one decimal, and years or classes that depend on them."""
    X = np.round(random.standard_normal((n, d)), 1).astype(np.float32)
    if classes:
        return X, np.arange(n) % classes
    return X, np.round(1990 + 5 * X[:, 0]).astype(np.float32)


def text(path: Path, X: np.ndarray, y: np.ndarray) -> None:
    np.savetxt(path, np.column_stack([y, X]), delimiter=",", fmt="%.6g")


def years(folder: Path, monkeypatch) -> tuple[np.ndarray, np.ndarray]:
    X, y = rows(90)
    text(folder / "YearPredictionMSD.txt", X, y)
    readers = importlib.import_module("_readers")
    # the published file has 463,715 training rows
    small = readers.table("YearPredictionMSD.txt", n_train=N)
    configurations = importlib.import_module("_configurations")
    for name in ("MillionSongs", "MSD", "YearPrediction"):
        changed = configurations.SETS[name].__class__(**{**vars(configurations.SETS[name]), "readers": (small,)})
        monkeypatch.setitem(configurations.SETS, name, changed)
    return X[:N], y[:N]


def csv(name: str, d: int):
    def write(folder: Path, monkeypatch) -> tuple[np.ndarray, np.ndarray]:
        X, y = rows(d, classes=2)
        text(folder / f"{name}.csv.gz", X, y)  # NumPy packs it by its name
        return X, y

    return write


def timit(folder: Path, monkeypatch) -> tuple[np.ndarray, np.ndarray]:
    X, y = rows(10, classes=144, n=288)
    X_test, phones = rows(10, classes=48)
    savemat(folder / "TIMIT.mat", {"Xtr": X, "Ytr": y[:, None], "Xts": X_test, "Yts": phones[:, None] + 1})
    return X, y


def yelp(folder: Path, monkeypatch) -> tuple[np.ndarray, np.ndarray]:
    X = (random.random((N, 40)) < 0.1).astype(np.float32)
    y = 1.0 + np.arange(N) % 5
    dump_svmlight_file(X, y, str(folder / "yelp.svm"), zero_based=False)
    return X, y


def libsvm(name: str, d: int, labels: tuple[int, int], test: bool = True):
    def write(folder: Path, monkeypatch) -> tuple[np.ndarray, np.ndarray]:
        X, y = rows(d, classes=2, n=N)
        y = np.where(y > 0, labels[1], labels[0])
        dump_svmlight_file(X, y, str(folder / name), zero_based=False)
        if test:
            dump_svmlight_file(X[:20], y[:20], str(folder / f"{name}.t"), zero_based=False)
        return X, y

    return write


def imagenet(folder: Path, monkeypatch) -> tuple[np.ndarray, np.ndarray]:
    X, y = rows(16, classes=5)
    np.savez(folder / "imagenet.npz", X=X[:N], y=y[:N], X_test=X[N:], y_test=y[N:])
    return X[:N], y[:N]


def hdf5(name: str):
    def write(folder: Path, monkeypatch) -> tuple[np.ndarray, np.ndarray]:
        h5py = pytest.importorskip("h5py")
        X, y = rows(9)
        y -= 1990  # delays, early and late
        with h5py.File(folder / name, "w") as file:
            file["X"], file["Y"] = X, y[:, None]
        return X, y

    return write


def flights(folder: Path, monkeypatch) -> tuple[np.ndarray, np.ndarray]:
    names = ["ArrDelay", "Month", "DayofMonth", "DayOfWeek", "plane_age", "Distance", "AirTime", "DepTime", "ArrTime"]
    X, y = rows(8)
    X[:, 6:] = [[1_325, 45]] * len(X)
    y = np.round(10 * random.standard_normal(len(X)))
    lines = [",".join(names), *(",".join(f"{v:g}" for v in row) for row in np.column_stack([y, X])), "NA" + 8 * ",1"]
    (folder / "flights.csv").write_text("\n".join(lines))
    return X, y


def mnist(folder: Path, monkeypatch) -> tuple[np.ndarray, np.ndarray]:
    X = random.integers(0, 256, (N, 784), dtype=np.uint8)
    y = (np.arange(N) % 10).astype(np.uint8)
    for part in ("train", "t10k"):
        sizes = b"".join(size.to_bytes(4, "big") for size in (2_051, N, 28, 28))
        with gzip.open(folder / f"{part}-images-idx3-ubyte.gz", "wb") as file:
            file.write(sizes + X.tobytes())
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(sizes[:8] + y.tobytes())
    return X, y


def cifar(folder: Path, monkeypatch) -> tuple[np.ndarray, np.ndarray]:
    X = random.integers(0, 256, (N, 3, 32, 32), dtype=np.uint8)
    y = (np.arange(N) % 10).astype(np.uint8)
    batches = np.split(np.column_stack([y, X.reshape(N, -1)]), 5)
    for number, batch in enumerate(batches, start=1):
        (folder / f"data_batch_{number}.bin").write_bytes(batch.tobytes())
    (folder / "test_batch.bin").write_bytes(batches[0].tobytes())
    return luminance(X), y


def svhn(folder: Path, monkeypatch) -> tuple[np.ndarray, np.ndarray]:
    X = random.integers(0, 256, (N, 3, 32, 32), dtype=np.uint8)
    y = 1 + np.arange(N) % 10
    for part in ("train", "test"):
        savemat(folder / f"{part}_32x32.mat", {"X": X.transpose(2, 3, 1, 0), "y": y[:, None]})
    return luminance(X), y


def luminance(X: np.ndarray) -> np.ndarray:
    return (0.2126 * X[:, 0] + 0.7152 * X[:, 1] + 0.0722 * X[:, 2]).reshape(len(X), -1)


def coil(folder: Path, monkeypatch) -> tuple[np.ndarray, np.ndarray]:
    X, y = rows(85, classes=2)
    np.savetxt(folder / "ticdata2000.txt", np.column_stack([X, y])[:N], delimiter="\t")
    np.savetxt(folder / "ticeval2000.txt", X[N:], delimiter="\t")
    np.savetxt(folder / "tictgts2000.txt", y[N:])
    return X[:N], y[:N]


WRITERS = {
    "MillionSongs": years,
    "TIMIT": timit,
    "YELP": yelp,
    "SUSY": csv("SUSY", 18),
    "HIGGS": csv("HIGGS", 28),
    "IMAGENET": imagenet,
    "TAXI": hdf5("NYCTAXI.h5"),
    "AIRLINE": flights,
    "AIRLINE-CLS": hdf5("flights.hdf5"),
    "MSD": years,
    "MNIST": mnist,
    "CIFAR-10": cifar,
    "SVHN": svhn,
    "InsuranceCompany": coil,
    "Adult": libsvm("a9a", 123, (-1, 1)),
    "Ijcnn": libsvm("ijcnn1", 22, (-1, 1)),
    "YearPrediction": years,
    "Covertype": libsvm("covtype.libsvm.binary", 54, (1, 2), test=False),
}


@pytest.mark.parametrize("name", WRITERS)
def test_files_are_read_and_rows_are_run(published, name, tmp_path, monkeypatch, capsys):
    """What was written is what is read, and one command prints each row beside the published one."""
    published.main([name, "--data", str(tmp_path)])
    assert f"{name} was not run" in capsys.readouterr().out
    X, y = WRITERS[name](tmp_path, monkeypatch)
    arrays = published.read(name, tmp_path, None)
    found = arrays["X"].toarray() if hasattr(arrays["X"], "toarray") else arrays["X"]
    np.testing.assert_allclose(found, X, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(arrays["y"], y)
    published.main([name, "--data", str(tmp_path), "--centers", "20"])
    printed = capsys.readouterr().out
    for row in published.ROWS:
        if row.data == name:
            assert published.numbers(row.published) in printed
            assert row.method in printed
    assert "nan" not in printed


def test_every_set_of_the_papers_has_a_row(published, capsys):
    assert set(WRITERS) == set(published.SETS) == {row.data for row in published.ROWS}
    published.main(["--list"])
    assert capsys.readouterr().out.count("\n| ") == len(published.ROWS) + len(published.RIVALS) + 2  # and two headers


def test_preparation(published):
    """Scalings by their formulas: the variance of HIGGS, the range of NYTRO's sets, the minutes of flights."""
    X = random.standard_normal((50, 4)).astype(np.float32) * [1, 2, 3, 4] + 5
    data = published.Data(X[:40], np.zeros(40), X[40:], np.zeros(10))
    by_variance = published.scale_features(data, "by variance")
    np.testing.assert_allclose(by_variance.X_test, (X[40:] - X[:40].mean(axis=0)) / X[:40].var(axis=0), rtol=1e-4)
    ranged = published.scale_features(data, "range")
    both = np.concatenate([ranged.X, ranged.X_test])
    np.testing.assert_allclose([both.min(axis=0), both.max(axis=0)], [[-1] * 4, [1] * 4], atol=1e-6)
    times = np.zeros((3, 8), np.float32)
    times[:, 6], times[:, 7], times[1, 5] = 1_325, 45, 800
    kept = published.flights({"X": times, "y": np.array([0, 0, -90])}, filtered=True)
    np.testing.assert_array_equal(kept["X"][:, 6:], [[13 * 60 + 25, 45]])
