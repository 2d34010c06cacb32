"""Run Gyrfalcon on TabArena's tables: python benchmarks/tabarena_run.py --out DIR [--dataset NAME] [--lite]

Results are written below DIR, in the form that TabArena's leaderboard takes; see docs/tabarena.md. One run of all
tables and splits takes days, `--lite` runs the first split of each table. Needs TabArena, see tabarena_system.py.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results, created if it is missing")
    parser.add_argument("--dataset", nargs="*", help="names of tables; all by default")
    parser.add_argument("--lite", action="store_true", help="the first split of each table alone")
    parser.add_argument("--families", nargs="*", help="families of models of the blend, such as kernel")
    options = parser.parse_args()
    if find_spec("tabarena") is None:
        sys.exit('tabarena is missing: pip install "tabarena[benchmark] @ git+https://github.com/autogluon/tabarena"')

    from tabarena.benchmark.experiment import TabArenaV0pt1ExperimentBundle
    from tabarena.contexts import TabArenaContext
    from tabarena.utils.config_utils import SystemConfigGenerator
    from tabarena_system import GyrfalconSystem

    parameters = {"families": tuple(options.families)} if options.families else {}
    generator = SystemConfigGenerator(
        model_cls=GyrfalconSystem, name="Gyrfalcon", manual_configs=[{"parameters": parameters}]
    )
    experiments = TabArenaV0pt1ExperimentBundle(models=[(generator, 0)], system_experiments=True).build_experiments()
    options.out.mkdir(parents=True, exist_ok=True)
    TabArenaContext().build_and_run_jobs(
        experiments,
        expname=options.out,
        subset="lite" if options.lite else None,
        register=False,
        build_kwargs={"dataset_names": options.dataset} if options.dataset else None,
    )


if __name__ == "__main__":
    main()
