"""Data that does not fit: files, sparse rows, half precision, a cluster, checkpoints. One command, one table.

    python benchmarks/big_data                     everything, at the full sizes (about an hour on two cores)
    python benchmarks/big_data --small             everything in some minutes
    python benchmarks/big_data sparse dask         some parts

Each part is a module here with ``run(small, data)``, which gives rows of (what, measured, bar, whether it is met).
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

PARTS = ("files", "flights", "sparse", "half", "dask", "checkpoints")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which of {', '.join(PARTS)}; all by default")
    parser.add_argument("--small", action="store_true", help="smaller sizes: the same code, but bars may be missed")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the real data sets")
    arguments = parser.parse_args()
    unknown = [part for part in arguments.parts if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}: choose among {', '.join(PARTS)}")
    failed = 0
    for part in arguments.parts or PARTS:
        began = time.perf_counter()
        rows = importlib.import_module(f"{part}_part").run(small=arguments.small, data=arguments.data)
        print(f"\n{part}{' (small)' * arguments.small}, {time.perf_counter() - began:.0f} s")
        width = max(len(what) for what, *_ in rows)
        for what, measured, bar, met in rows:
            verdict = "" if met is None else "met" if met else "NOT met"
            print(f"  {what:<{width}}  {measured:<34} {bar:<28} {verdict}".rstrip(), flush=True)
            failed += met is False
    return 1 if failed else 0


if __name__ == "__main__":
    # a script's own folder is importable; so is the one above it, where helpers of other benchmarks are
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    sys.exit(main())
