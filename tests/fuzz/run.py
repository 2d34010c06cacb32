"""Run random cases in processes that may crash or hang: ``python -m tests.fuzz.run --minutes 10 --seed 7``.

Each child runs cases one after the other, and says which before it begins. If it ends or says nothing for too long,
that case is a finding, and another child goes on with the next one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, Queue
from typing import Any

ROOT = Path(__file__).parents[2]
KINDS = ("checkpoint", "file", "fit", "model", "play", "sample", "search")
SECONDS = 30  # that a case may take: some hundred times what it does take
START = 120  # that a child may take to begin
MEMORY = 4 << 30  # that a child may ask for


def reproduce(kind: str, seed: int, number: int) -> str:
    return f"python -m tests.fuzz.run --kind {kind} --seed {seed} --case {number}"


# ---- the child -------------------------------------------------------------------------------------------------------


def child(kind: str, seed: int, numbers: range, folder: str) -> None:
    """Run these cases, and write a line before and after each."""
    import faulthandler
    import resource

    import h5py  # noqa: F401 (before the limit)
    import pyarrow.parquet  # noqa: F401
    import zarr  # noqa: F401

    from . import cases

    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # so that what asks for all memory there is gets none, and the machine stays alive
        limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a case prints
    for number in numbers:
        print(json.dumps({"at": number}), file=out, flush=True)
        found = cases.run(kind, seed, number, Path(folder) / "case")
        print(json.dumps({"done": number, "found": found}), file=out, flush=True)


# ---- the parent ------------------------------------------------------------------------------------------------------


def watched(kind: str, seed: int, numbers: range, until: float | None = None) -> Iterator[tuple[int, str | None]]:
    """Each case's number and what is wrong with it, from children that are started again when one ends."""
    left = numbers
    while left and (until is None or time.monotonic() < until):
        with tempfile.TemporaryDirectory() as folder:
            yield from _one_child(kind, seed, left, folder, until, done := [])
        left = left[len(done) :]


def _one_child(
    kind: str, seed: int, numbers: range, folder: str, until: float | None, done: list[int]
) -> Iterator[tuple[int, str | None]]:
    given = ["--child", "--kind", kind, "--seed", str(seed), "--folder", folder]
    given += ["--numbers", str(numbers.start), str(numbers.stop), str(numbers.step)]
    stderr = Path(folder) / "stderr"
    with (
        stderr.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.run", *given],
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        lines: Queue[str | None] = Queue()
        threading.Thread(target=_pass_on, args=(process.stdout, lines), daemon=True).start()
        at = None
        try:
            while until is None or time.monotonic() < until:
                try:
                    line = lines.get(timeout=START if at is None else SECONDS)
                except Empty:
                    line = None
                    what = f"it hangs: nothing for {SECONDS} seconds"
                else:
                    what = "the process ended"
                if line is None:
                    process.kill() if what.startswith("it hangs") else None
                    code = process.wait()
                    if at is None and not what.startswith("it hangs") and code == 0:
                        return
                    if at is None:
                        raise RuntimeError(f"the child did not begin ({what}):\n{stderr.read_text()[-3000:]}")
                    if code < 0 and not what.startswith("it hangs"):
                        what = f"{signal.Signals(-code).name}: {stderr.read_text()[-1500:]}"
                    done.append(at)
                    yield at, what
                    return
                told: dict[str, Any] = json.loads(line)
                if "at" in told:
                    at = told["at"]
                else:
                    done.append(told["done"])
                    yield told["done"], told["found"]
                    if len(done) == len(numbers):
                        return
        finally:
            process.kill()


def _pass_on(stream: Any, lines: Queue[str | None]) -> None:
    with contextlib.suppress(ValueError):  # closed meanwhile
        for line in stream:
            lines.put(line)
    lines.put(None)


def search(kind: str, seed: int, count: int, jobs: int = 2, until: float | None = None) -> tuple[int, list[str]]:
    """Run `count` cases, some at a time: how many were run, and what was found, each with the way to see it again."""

    def share(worker: int) -> list[tuple[int, str | None]]:
        return list(watched(kind, seed, range(worker, count, jobs), until))

    with ThreadPoolExecutor(jobs) as pool:
        results = sorted(result for part in pool.map(share, range(jobs)) for result in part)
    found = [f"{what}\n    {reproduce(kind, seed, number)}" for number, what in results if what is not None]
    return len(results), found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, help="which cases; all kinds in turn by default")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the same seed gives the same cases")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--count", type=int, default=10**9, help="most cases of each kind")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--case", type=int, help="this case alone, in this process")
    for hidden in ("--child", "--folder", "--numbers"):
        more: dict[str, Any] = {"action": "store_true"} if hidden == "--child" else {}
        more |= {"nargs": 3, "type": int} if hidden == "--numbers" else {}
        parser.add_argument(hidden, help=argparse.SUPPRESS, **more)
    options = parser.parse_args()
    if options.child:
        child(options.kind, options.seed, range(*options.numbers), options.folder)
        return 0
    if options.case is not None:
        from . import cases

        if options.kind is None:
            parser.error("--case needs --kind")
        with tempfile.TemporaryDirectory() as folder:
            found = cases.run(options.kind, options.seed, options.case, Path(folder) / "case")
        print(found or "nothing is wrong with it")
        return int(found is not None)
    kinds = KINDS if options.kind is None else (options.kind,)
    failed = False
    for kind in kinds:
        until = time.monotonic() + 60 * options.minutes / len(kinds)
        count, findings = search(kind, options.seed, options.count, options.jobs, until)
        print(f"{kind}: {count} cases of seed {options.seed}, {len(findings)} findings", flush=True)
        for finding in findings:
            print(f"- {finding}", flush=True)
        failed |= bool(findings)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
