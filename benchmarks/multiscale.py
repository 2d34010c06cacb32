"""Large tables, one part after another: python benchmarks/multiscale.py [--part PART ...] --data DIR [--quick]

    --part auto     AutoRegressor and AutoClassifier beyond 100,000 rows, beside LightGBM and CatBoost
                    [--time-budget 60 300] [--tables NAME ...] [--methods NAME ...] [--files]
    --part hierarchical   HierarchicalRegressor beside exact fits and FALKON on four data sets
                    [--sets NAME ...] [--mus MU ...]
    --part growth   time and memory of a hierarchical fit from 10^5 to 3 x 10^6 rows [--sizes N ...]
                    [--files] [--features D] [--memory-budget BYTES]: rows in a file, larger than the memory
    --part logistic   Newton steps for the logistic loss with the factors of trees, beside calibrated least squares

Each row is printed as soon as it is known. `--quick` runs the same code with fewer rows and seconds, where bars may be
missed. A part is a module here with ``arguments(parser)`` and ``run(options)``, which returns whether its bars are met.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

PARTS = {
    "hierarchical": "multiscale_hierarchical",
    "growth": "multiscale_growth",
    "logistic": "multiscale_logistic",
    "auto": "multiscale_auto",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="*", default=list(PARTS), choices=list(PARTS), help="all by default")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the real data sets")
    parser.add_argument("--quick", action="store_true", help="fewer rows and seconds: bars may be missed")
    modules = {name: importlib.import_module(module) for name, module in PARTS.items()}
    for module in modules.values():
        module.arguments(parser)
    options = parser.parse_args()
    met = [modules[name].run(options) for name in options.part]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
