"""A warning names the line of the user's code that called the package."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline

import gyrfalcon
from gyrfalcon._utils.threads import single_threaded_blas
from gyrfalcon._utils.warnings import warn


def deep(source, **names):
    """A function of a file in the package's folder."""
    path = os.path.join(os.path.dirname(gyrfalcon.__file__), "deep", "inside.py")
    names["warn"] = warn
    exec(compile(textwrap.dedent(source), path, "exec"), names)
    return names["outer"]


def line_of(recorded, text):
    """The source line that a warning points at."""
    (warning,) = [w for w in recorded if text in str(w.message)]
    with open(warning.filename) as file:
        return file.read().splitlines()[warning.lineno - 1]


def test_names_the_first_line_outside_the_package():
    outer = deep("""
        def inner():
            warn("deep down", UserWarning)
        def outer():
            inner()
    """)
    with pytest.warns(UserWarning, match="deep down") as recorded:
        outer()  # the user's line
    assert recorded[0].filename == __file__
    assert "the user's line" in line_of(recorded, "deep down")


def test_looks_through_decorators_and_pipelines():
    """A frame of contextlib or of scikit-learn is nobody's own line."""
    fit = deep(
        """
        @single_threaded_blas()
        def outer(self, X, y=None):
            warn("in a fit", UserWarning)
            return self
        """,
        single_threaded_blas=single_threaded_blas,
    )
    step = type("Step", (BaseEstimator,), {"fit": fit})()
    with pytest.warns(UserWarning, match="in a fit") as recorded:
        make_pipeline(step).fit(np.ones((3, 1)))  # the user's line
    assert "the user's line" in line_of(recorded, "in a fit")


def test_keeps_to_the_user_s_filters():
    outer = deep("""
        def outer():
            warn("again", UserWarning)
    """)
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("default")
        for _ in range(3):
            outer()
    assert len(recorded) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="again"):
            outer()


def test_a_script(tmp_path):
    """What a user sees: the name of the script and the line."""
    script = tmp_path / "mine.py"
    script.write_text("from gyrfalcon._utils.warnings import warn\n\n\nwarn('too few', UserWarning)\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=60)
    assert f"{script}:4: UserWarning: too few" in done.stderr
