"""``gyrfalcon demo``: a million rows, four models, and their times and errors.

The data is a robot arm: five joints that turn both ways, ten angles in all, and the distance of its hand from a point
in space, measured with noise. The distance is a smooth function of the angles that is far from linear.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._utils.atomic import replacing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

JOINTS = 5
NOISE = 0.1  # standard deviation: no model's test error can be smaller
LENGTH_SCALE = 2.0
PENALTY = 1e-6
MAX_ITER = 20
TREES = 300  # trees of boosting: three times the default, with which it has not converged
TEST_ROWS = 100_000
VALIDATION_ROWS = 10_000


def _count(text: str) -> int:
    value = int(text.replace(",", "").replace("_", ""))
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return value


def _seed(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"{text} must be at least 0 and less than 2**32")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gyrfalcon demo``."""
    centers = "Nyström centers, of gyrfalcon and of scikit-learn's Nystroem alike"
    memory = "memory for keeping gyrfalcon's kernel matrix: bytes, such as 4GB, or auto; by default it is not kept"
    add = parser.add_argument
    add("--rows", type=_count, default=1_000_000, metavar="N", help="rows to learn from")
    add("--centers", "--n-centers", dest="n_centers", type=_count, default=1_000, metavar="M", help=centers)
    add("--seed", type=_seed, default=0, help="seed of the data and of the centers")
    add("--n-jobs", type=int, default=None, metavar="N", help="threads of every model (None: all cores)")
    add("--memory-budget", default="0", metavar="SIZE", help=memory)
    add("--output", type=Path, default=Path("gyrfalcon_demo.png"), metavar="PATH", help="where to write the picture")
    add("--no-compare", action="store_true", help="leave the other models out")
    add("--json", action="store_true", help="print the results as JSON instead of a table")


@dataclass
class Outcome:
    """Times of one model in seconds, its root mean squared error and R^2 on the test rows, and its iterations."""

    model: str
    rows: int
    centers: int | None
    fit_seconds: float
    predict_seconds: float
    error: float
    r2: float
    history: list[dict[str, Any]] = field(default_factory=list)


def make_arm(n: int, seed: int | np.random.SeedSequence = 0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Make a dataset: the angles of a robot arm's joints, and the measured distance of its hand from a point.

    X has 10 angles for each of the n rows, uniform between -1 and 1: five sideways, five upwards. A joint turns by half
    as much. The distance y has normal noise of standard deviation 0.1. Both are float32.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, size=(n, 2 * JOINTS)).astype(np.float32)
    # a joint's direction is the sum of the turns before it
    sideways, upwards = np.cumsum(0.5 * X[:, :JOINTS], axis=1), np.cumsum(0.5 * X[:, JOINTS:], axis=1)
    flat = np.cos(upwards)
    hand = np.stack([flat * np.cos(sideways), flat * np.sin(sideways), np.sin(upwards)]).sum(axis=2)
    distance = np.linalg.norm(hand - np.array([[2.0], [1.0], [1.0]]), axis=0)
    return X, (distance + NOISE * random.standard_normal(n)).astype(np.float32)


def run(arguments: argparse.Namespace) -> int:
    """Run the demo and return the exit code."""
    import numpy as np
    from threadpoolctl import threadpool_limits

    from .._utils.memory import parse_memory
    from .._utils.threads import effective_n_jobs
    from ._shared import check_output

    budget = int(arguments.memory_budget) if arguments.memory_budget.isdigit() else arguments.memory_budget
    parse_memory(budget)  # a wrong one is reported before the data is made
    check_output(str(arguments.output))
    n_threads = effective_n_jobs(arguments.n_jobs)
    rows, centers = arguments.rows, min(arguments.n_centers, arguments.rows)

    if not arguments.no_compare:
        _say("With a million rows and two cores this takes one to two minutes; with --no-compare it takes seconds.")
    _say(f"Making {rows:,} rows of {2 * JOINTS} features: a robot arm's joint angles, and the distance of its hand ...")
    seeds = np.random.SeedSequence(arguments.seed).spawn(3)
    train, validation, test = map(make_arm, (rows, VALIDATION_ROWS, TEST_ROWS), seeds)
    _say(f"Learning with gyrfalcon: {centers:,} centers, {n_threads} threads ...")
    ours = _falkon(train, validation, test, centers, arguments.seed, arguments.n_jobs, budget)
    others: list[Outcome] = []
    notes = [f"Test error is the root mean squared error on {TEST_ROWS:,} new rows; the noise alone makes {NOISE:g}."]
    if not arguments.no_compare:
        _say(_done(ours))
        with threadpool_limits(n_threads):
            others, more = _compared(train, test, centers, arguments.seed, n_threads)
        notes += more
    outcomes = [*others, ours]
    picture = _draw(outcomes, ours, arguments.output)
    if arguments.json:
        print(json.dumps(_report(arguments, n_threads, outcomes, picture), indent=2))
    else:
        print(_table(outcomes), "", *notes, *([] if picture is None else [f"The picture is {picture}"]), sep="\n")
    return 0


# ---- the models -----------------------------------------------------------------------------------------------------


def _falkon(
    train: Any, validation: Any, test: Any, centers: int, seed: int, n_jobs: int | None, budget: Any
) -> Outcome:
    from ..estimators import FalkonRegressor
    from ..kernels import Gaussian

    model = FalkonRegressor(
        Gaussian(length_scale=LENGTH_SCALE),
        n_centers=centers,
        penalty=PENALTY,
        scale=False,
        max_iter=MAX_ITER,
        memory_budget=budget,
        n_jobs=n_jobs,
        random_state=seed,
        verbose=1,
    )
    began = time.perf_counter()
    model.fit(train[0], train[1], X_val=validation[0], y_val=validation[1])
    outcome = _outcome("gyrfalcon FalkonRegressor", began, train, centers, model.predict, test)
    outcome.history = model.history_
    return outcome


def _compared(train: Any, test: Any, centers: int, seed: int, n_threads: int) -> tuple[list[Outcome], list[str]]:
    """Fit models of scikit-learn to the same rows; return their outcomes and remarks about them."""
    rows = len(train[0])
    _say("Now Ridge, a linear model ...")
    ridge = _ridge(train, test)
    _say(f"{_done(ridge)} Now HistGradientBoosting, {TREES} trees ...")
    boosting = _boosting(train, test, seed)
    notes = [f"HistGradientBoosting is scikit-learn's, with {TREES} trees and else its defaults."]
    fitting = _rows_that_fit(rows, centers)
    if fitting < centers:
        notes.append(f"Nystroem + Ridge left out: its features of {centers:,} rows do not fit into memory.")
        return [ridge, boosting], notes
    _say(f"{_done(boosting)} Now scikit-learn's Nystroem + Ridge, {fitting:,} rows, the longest ...")
    nystroem = _nystroem((train[0][:fitting], train[1][:fitting]), test, centers, seed)
    notes.append(
        f"Same kernel (Gaussian, length_scale={LENGTH_SCALE:g}) and penalty ({PENALTY:g}, Ridge's "
        f"alpha={PENALTY * fitting:.3g}); float32; {n_threads} threads each."
    )
    if fitting < rows:
        notes.append(
            f"Nystroem + Ridge learned from {fitting:,} rows: it stores a feature for each row and center, and those "
            f"of {rows:,} rows do not fit into memory here."
        )
    return [ridge, boosting, nystroem], notes


def _ridge(train: Any, test: Any) -> Outcome:
    from sklearn.linear_model import Ridge

    began = time.perf_counter()
    model = Ridge(alpha=PENALTY * len(train[0])).fit(*train)
    return _outcome("Ridge (linear)", began, train, None, model.predict, test)


def _boosting(train: Any, test: Any, seed: int) -> Outcome:
    from sklearn.ensemble import HistGradientBoostingRegressor

    began = time.perf_counter()
    model = HistGradientBoostingRegressor(max_iter=TREES, random_state=seed).fit(*train)
    return _outcome("HistGradientBoosting", began, train, None, model.predict, test)


def _nystroem(train: Any, test: Any, centers: int, seed: int) -> Outcome:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(
        Nystroem(gamma=0.5 / LENGTH_SCALE**2, n_components=centers, random_state=seed),
        # the features belong to the pipeline: not copying them halves the memory and saves time
        Ridge(alpha=PENALTY * len(train[0]), copy_X=False),
    )
    began = time.perf_counter()
    model.fit(*train)
    return _outcome("Nystroem + Ridge", began, train, centers, model.predict, test)


def _outcome(name: str, began: float, train: Any, centers: int | None, predict: Any, test: Any) -> Outcome:
    import numpy as np

    fitted = time.perf_counter()
    wrong = np.square(predict(test[0]) - test[1], dtype=np.float64).mean()
    done = time.perf_counter()
    return Outcome(
        name,
        len(train[0]),
        centers,
        fitted - began,
        done - fitted,
        float(np.sqrt(wrong)),
        float(1 - wrong / test[1].var(dtype=np.float64)),
    )


def _rows_that_fit(rows: int, centers: int) -> int:
    """Return how many rows scikit-learn has memory for: it holds two matrices of Nyström features at once."""
    from .._utils.memory import available_memory

    return min(rows, int(0.8 * available_memory() / (2 * 4 * centers)) // 1000 * 1000)


# ---- what the user sees ---------------------------------------------------------------------------------------------


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _done(outcome: Outcome) -> str:
    return f"Test error {outcome.error:.4f} after {_seconds(outcome.fit_seconds)}."


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 9.995 else f"{value:.1f} s"


def _table(outcomes: list[Outcome]) -> str:
    header = ("model", "rows", "centers", "fit", "predict", "test error", "R2")
    lines = [header] + [
        (
            outcome.model,
            f"{outcome.rows:,}",
            "-" if outcome.centers is None else f"{outcome.centers:,}",
            _seconds(outcome.fit_seconds),
            _seconds(outcome.predict_seconds),
            f"{outcome.error:.4f}",
            f"{outcome.r2:.4f}",
        )
        for outcome in outcomes
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines]
    return "\n".join([text[0], "-" * max(map(len, text)), *text[1:]])


def _report(
    arguments: argparse.Namespace, n_threads: int, outcomes: list[Outcome], picture: Path | None
) -> dict[str, Any]:
    return {
        "rows": arguments.rows,
        "n_centers": arguments.n_centers,
        "seed": arguments.seed,
        "threads": n_threads,
        "length_scale": LENGTH_SCALE,
        "penalty": PENALTY,
        "noise": NOISE,
        "test_rows": TEST_ROWS,
        "picture": None if picture is None else str(picture),
        "models": [asdict(outcome) for outcome in outcomes],
    }


def _draw(outcomes: list[Outcome], ours: Outcome, path: Path) -> Path | None:
    """Draw times and errors, or one model's convergence; print how to install matplotlib if it is missing."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        _say('No picture: it needs matplotlib. Install it with "pip install matplotlib".')
        return None
    from ..plots import ConvergenceDisplay
    from ..plots._drawing import GREEN, GREY

    figure = Figure(figsize=(7, 3), dpi=220, layout="constrained")
    FigureCanvasAgg(figure)  # no window, whatever the user's settings
    if len(outcomes) == 1:
        ConvergenceDisplay.from_history(ours.history, ax=figure.subplots())
    else:
        names = [outcome.model.replace("gyrfalcon ", "") for outcome in outcomes]
        colors = [GREEN if outcome is ours else GREY for outcome in outcomes]
        left, right = figure.subplots(1, 2, sharey=True)
        seconds = left.barh(names, [outcome.fit_seconds for outcome in outcomes], color=colors)
        left.bar_label(seconds, [_seconds(outcome.fit_seconds) for outcome in outcomes], padding=3)
        left.set_xlabel("seconds of training")
        errors = right.barh(names, [outcome.error for outcome in outcomes], color=colors)
        right.bar_label(errors, [f"{outcome.error:.3f}" for outcome in outcomes], padding=3)
        right.axvline(NOISE, color="black", linestyle=":", label="the noise alone")
        right.set_xlabel("test error (RMSE)")
        right.legend(loc="center right", frameon=False)  # between two rows: beside them are their errors
        for ax in (left, right):
            ax.margins(x=0.25)
            ax.xaxis.set_major_formatter("{x:g}")
            ax.tick_params(axis="y", length=0)
            ax.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{ours.rows:,} rows")
    with replacing(path) as partial:
        figure.savefig(partial, format=path.suffix[1:] or "png")
    return path
