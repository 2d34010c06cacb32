"""A folder of Parquet files
=========================

Fit a model to a folder of Parquet files without loading it into memory, and
write predictions block by block.

Run it with ``python examples/parquet_folder.py [rows]``.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
from pyarrow import parquet

import gyrfalcon
from gyrfalcon.cli.demo import make_arm

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000

with tempfile.TemporaryDirectory() as work:
    # four files for training and one for testing
    X, y = make_arm(rows)
    for number, part in enumerate(np.array_split(np.arange(rows), 5)):
        folder = Path(work) / ("test" if number == 4 else "train")
        folder.mkdir(exist_ok=True)
        columns = {f"joint{j}": X[part, j] for j in range(X.shape[1])}
        parquet.write_table(
            pa.table({**columns, "position": y[part]}),
            folder / f"part{number}.parquet",
        )

    train = gyrfalcon.open(f"{work}/train", target="position")
    print(train)
    model = gyrfalcon.FalkonRegressor(
        n_centers=min(1000, rows // 4),
        scale=True,
        memory_budget="1GB",
        random_state=0,
    )
    model.fit(train.X, train.y)

    test = gyrfalcon.open(f"{work}/test", target="position")
    count = gyrfalcon.write_predictions(
        model, test, f"{work}/predictions.parquet"
    )
    written = parquet.read_table(f"{work}/predictions.parquet")[
        "prediction"
    ].to_numpy()
    unexplained = np.mean((written - test.y) ** 2) / np.var(test.y)
    truth = test.y[:]
    print(
        f"{count:,} predictions written; R2 on the test rows "
        f"{1 - unexplained:.3f}"
    )

# %%
# The predictions in the file, and the true values.

figure, ax = plt.subplots(figsize=(4.5, 4.5), layout="constrained")
ax.hexbin(truth, written, gridsize=40, mincnt=1, bins="log")
ax.axline((truth.mean(), truth.mean()), slope=1, color="C1")
ax.set(xlabel="position", ylabel="prediction in the file")
plt.show()
