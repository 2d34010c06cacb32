"""KernelPCA, KernelKMeans and mmd_test beside scikit-learn, from files, and the level of the test.

    python benchmarks/unsupervised.py [--data DIR] [--quick] [--only SECTION ...]

- *peers*: MNIST, 60,000 x 784 pixels / 255, M = 1,000: `Nystroem` and `PCA` or `KMeans` on its n x M columns, and the
  same in one estimator. Inertias are measured alike: to that of the peer, which sees its columns alone, what these
  miss of the rows is added.
- *files*: 1,000,000 x 20 rows from Parquet with memory_budget="1GB", in a process of its own that tells its peak.
- *mmd*: 100,000 + 100,000 rows and 500 permutations; and the share of 2,000 tests of equal distributions with p <= 5%.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _common import best_of, in_subprocess, table
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline

from gyrfalcon import KernelKMeans, KernelPCA, mmd_test
from gyrfalcon.kernels import Gaussian

LENGTH_SCALE = 7.0

FROM_FILES = """
import json, time, warnings
import gyrfalcon
from gyrfalcon import KernelKMeans, KernelPCA
from _common import peak, resident
warnings.simplefilter("ignore")
path, method = sys.argv[1:]
rows = gyrfalcon.open(path).X
options = {"n_centers": 1000, "dtype": "float32", "memory_budget": "1GB", "random_state": 0}
model = KernelPCA(n_components=20, **options) if method == "KernelPCA" else KernelKMeans(10, **options)
before, start = resident(), time.perf_counter()
model.fit(rows)
print(json.dumps([time.perf_counter() - start, (peak() - before) / 1e6]))
"""


def peers(folder: Path, quick: bool) -> None:
    path = folder / "mnist.npz"
    if not path.exists():
        print(f"\nMNIST is left out: there is no {path.name} in {folder} (--data names the folder)")
        return
    with np.load(path) as archive:
        X = archive["X"][: 10_000 if quick else 60_000].astype(np.float32) / 255
    kernel, n = Gaussian(LENGTH_SCALE), len(X)
    found: dict[str, Any] = {}

    def columns() -> Nystroem:
        return Nystroem(gamma=0.5 / LENGTH_SCALE**2, n_components=1000, random_state=0)

    def keep(name: str, model: Any) -> Any:
        def run() -> None:
            found[name] = model.fit(X)

        return run

    options = {"n_centers": 1000, "scale": False, "random_state": 0}
    seconds = best_of(
        {
            "Nystroem + PCA(20)": keep("Nystroem + PCA(20)", make_pipeline(columns(), PCA(20))),
            "KernelPCA(n_components=20)": keep("KernelPCA", KernelPCA(kernel=kernel, n_components=20, **options)),
            "Nystroem + KMeans(10, n_init=1)": keep(
                "Nystroem + KMeans", make_pipeline(columns(), KMeans(10, n_init=1, random_state=0))
            ),
            "KernelKMeans(10, n_init=1)": keep("one start", KernelKMeans(10, kernel=kernel, n_init=1, **options)),
            "KernelKMeans(10)": keep("KernelKMeans", KernelKMeans(10, kernel=kernel, **options)),
        },
        1 if quick else 2,
    )
    names = list(seconds)
    peer = found["Nystroem + PCA(20)"]
    table(
        f"MNIST, n = {n:,}, 20 components",
        ["", "seconds", "variance of the components", "times faster"],
        [
            [names[0], seconds[names[0]], float(peer[-1].explained_variance_.sum()), 1.0],
            [
                names[1],
                seconds[names[1]],
                float(found["KernelPCA"].explained_variance_.sum()),
                seconds[names[0]] / seconds[names[1]],
            ],
        ],
    )
    peer = found["Nystroem + KMeans"]
    missed = n - float(np.square(peer[0].transform(X), dtype=np.float64).sum())
    table(
        f"MNIST, n = {n:,}, 10 clusters",
        ["", "seconds", "passes over all rows", "inertia", "times faster"],
        [
            [names[2], seconds[names[2]], peer[-1].n_iter_, f"{peer[-1].inertia_ + missed:.1f}", 1.0],
            *(
                [
                    name,
                    seconds[name],
                    found[key].n_iter_,
                    f"{found[key].inertia_:.1f}",
                    seconds[names[2]] / seconds[name],
                ]
                for name, key in ((names[3], "one start"), (names[4], "KernelKMeans"))
            ),
        ],
    )


def files(folder: Path, quick: bool) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    n = 100_000 if quick else 1_000_000
    rng = np.random.default_rng(0)
    means = 3 * rng.standard_normal((10, 20))
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "rows.parquet"
        X = (means[rng.integers(10, size=n)] + rng.standard_normal((n, 20))).astype(np.float32)
        parquet.write_table(pa.table({f"x{j}": X[:, j] for j in range(20)}), path, row_group_size=50_000)
        rows = [[name, *in_subprocess(FROM_FILES, path, name)] for name in ("KernelPCA", "KernelKMeans")]
    table(f'{n:,} x 20 rows from Parquet, M = 1,000, memory_budget="1GB"', ["", "seconds", "MB beyond the start"], rows)


def mmd(folder: Path, quick: bool) -> None:
    rng = np.random.default_rng(0)
    n = 10_000 if quick else 100_000
    X, Y = (rng.standard_normal((n, 10)).astype(np.float32) for _ in range(2))
    rows = []
    for name, other in {"the same distribution": Y, "means that differ by 0.02": Y + np.float32(0.02)}.items():
        start = time.perf_counter()
        test = mmd_test(X, other, random_state=0)
        rows.append([name, time.perf_counter() - start, len(test.centers), test.statistic, test.pvalue])
    table(f"{n:,} + {n:,} x 10 rows, 500 permutations", ["", "seconds", "centers", "MMD^2", "p"], rows)

    trials = 200 if quick else 2_000
    p = np.array(
        [
            mmd_test(
                rng.standard_normal((50, 2)),
                rng.standard_normal((40, 2)),
                n_centers=30,
                n_permutations=199,
                random_state=i,
            ).pvalue
            for i in range(trials)
        ]
    )
    table(
        f"level: {trials:,} tests of 50 + 40 rows of the same distribution, M = 30",
        ["p at most", "share of tests"],
        [[level, float((p <= level).mean())] for level in (0.01, 0.05, 0.1, 0.5)],
    )


SECTIONS = {"peers": peers, "files": files, "mmd": mmd}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=default, help="folder of .npz files")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for a look")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="sections to run")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.only:
        SECTIONS[name](arguments.data, arguments.quick)


if __name__ == "__main__":
    main()
