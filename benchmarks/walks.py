"""Count the files and functions of Gyrfalcon that one call passes, and list them.

    python benchmarks/walks.py            # a fit of FalkonRegressor, its predictions, and gyrfalcon fit of a folder
    python benchmarks/walks.py --list

Each call has 500 rows, and is made once before it is counted, so that imports do not count. Functions are counted by
`sys.setprofile`, in all threads; lambdas, comprehensions and bodies of classes do not count.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import inspect
import io
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import gyrfalcon
from gyrfalcon.cli.main import main as command

PACKAGE = Path(gyrfalcon.__file__).parent
N = 500


def passed(call: Callable[[], Any]) -> dict[str, set[tuple[str, int]]]:
    """Return the functions that a call passes, by file."""
    call()
    found: dict[str, set[tuple[str, int]]] = defaultdict(set)

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event != "call" or not code.co_flags & inspect.CO_OPTIMIZED or not path.is_relative_to(PACKAGE):
            return
        if not code.co_name.startswith("<"):
            found[path.relative_to(PACKAGE).as_posix()].add((code.co_qualname, code.co_firstlineno))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def calls(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the calls and what they are."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 4))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(N)
    yield "FalkonRegressor().fit(X, y)", lambda: gyrfalcon.FalkonRegressor().fit(X, y)
    model = gyrfalcon.FalkonRegressor().fit(X, y)
    yield "model.predict(X)", lambda: model.predict(X)
    data = folder / "data"
    data.mkdir()
    for part in range(2):
        with open(data / f"{part}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["a", "b", "c", "city", "y"])
            for i in range(part * N // 2, (part + 1) * N // 2):
                writer.writerow([*X[i, :3], "uvw"[i % 3], y[i]])
    arguments = ["fit", str(data), "--target", "y", "-o", str(folder / "model.gyr"), "--time-budget", "10"]

    def fit() -> None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            if command(arguments):
                raise RuntimeError("gyrfalcon fit has failed")

    yield "gyrfalcon fit data --target y -o model.gyr", fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the functions of each file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, call in calls(Path(folder)):
            found = passed(call)
            print(f"{name}: {len(found)} files, {sum(map(len, found.values()))} functions")
            for file, functions in sorted(found.items() if given.list else []):
                print(f"    {file}: {', '.join(sorted(function for function, _ in functions))}")


if __name__ == "__main__":
    main()
