"""Resume a fit that was killed
============================

Kill the process of a fit, and start the same fit again: it continues where it
was killed, and ends with the same coefficients, bit for bit.

It prints::

    the first process ended with -9, and left
    ['checkpoint.safetensors', 'lock']
    the second did the iterations 8 to 20
    the same coefficients as without interruption: True

Run it with ``python examples/checkpoint.py [rows]``.
"""

import multiprocessing
import os
import signal
import sys
import tempfile

import numpy as np

from gyrfalcon import Checkpoint, FalkonRegressor
from gyrfalcon.cli.demo import make_arm

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000


def fit(folder, callbacks=None):
    # every=0 writes after each iteration; by default it is every 30 seconds
    checkpoint = None if folder is None else Checkpoint(folder, every=0)
    model = FalkonRegressor(
        n_centers=min(500, rows // 4),
        random_state=0,
        checkpoint=checkpoint,
        callbacks=callbacks,
    )
    return model.fit(*make_arm(rows))


def pull_the_plug(record):
    if record["iteration"] == 8:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        child = multiprocessing.get_context("spawn").Process(
            target=fit, args=(folder, pull_the_plug)
        )
        child.start()
        child.join()
        print(
            f"the first process ended with {child.exitcode}, and left "
            f"{sorted(os.listdir(folder))}"
        )

        done = []
        model = fit(
            folder, callbacks=lambda record: done.append(record["iteration"])
        )
        print(f"the second did the iterations {done[0]} to {done[-1]}")

    same = np.array_equal(model.dual_coef_, fit(None).dual_coef_)
    print(f"the same coefficients as without interruption: {same}")
