"""The command line: exit codes, where output goes, and the demo in small."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import gyrfalcon
from gyrfalcon.cli import demo
from gyrfalcon.cli import main as cli
from gyrfalcon.cli.main import Command, UsageError, main, make_parser

# one thread: those of boosting wait for each other in loops, which takes long beside other tests
SMALL = ["demo", "--rows", "3000", "--centers", "100", "--n-jobs", "1"]


@pytest.fixture(autouse=True)
def _few_test_rows(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "TEST_ROWS", 2000)
    monkeypatch.setattr(demo, "VALIDATION_ROWS", 500)
    monkeypatch.setattr(demo, "TREES", 30)
    monkeypatch.chdir(tmp_path)


def module(*arguments, stdout=subprocess.PIPE):
    """``python -m gyrfalcon`` with the package that is tested here, wherever the working directory is."""
    package = str(Path(gyrfalcon.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "gyrfalcon", *arguments]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment)


# ---- the frame -------------------------------------------------------------------------------------------------------


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"gyrfalcon {gyrfalcon.__version__}\n"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("fti", "fit"),
        ("demo --row 5 --centre=3", "--centers"),
        ("fit x.csv --target y -o m --time-budgets 3", "--time-budget"),
        ("fit x.csv --targt y -o m", "--target"),
        ("export m.gyr --outptu a", "--output"),
    ],
)
def test_what_was_meant(words, meant, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 2
    assert f"(did you mean {meant}?)" in capsys.readouterr().err


def test_a_misspelt_option_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["fit", "x.csv", "--targt", "y", "--out", "m"])
    said = capsys.readouterr().err.splitlines()[-1]
    assert "unrecognized arguments: --targt (did you mean --target?); the following arguments are required" in said


def test_completion(capsys):
    pytest.importorskip("shtab")
    assert main(["complete", "bash"]) == 0
    script = capsys.readouterr().out
    assert all(word in script for word in ("evaluate", "--time-budget", "--centers", "--delimiter"))


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["demo", "--nonsense"], ["demo", "--rows", "many"]])
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: gyrfalcon" in captured.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--rows", "0"], "--rows"), (["--centers", "-3"], "--centers"), (["--seed", "-1"], "--seed")],
)
def test_a_wrong_number_is_named(arguments, named, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["demo", *arguments])
    assert stop.value.code == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command.name, "--help"])
    assert stop.value.code == 0
    assert command.help.split()[0] in capsys.readouterr().out


def examples(text):
    """The commands in a help text."""
    return [line.strip() for line in text.replace("\\\n", "").splitlines() if line.startswith("  gyrfalcon ")]


def help_of(arguments, capsys):
    with pytest.raises(SystemExit):
        main([*arguments, "--help"])
    return capsys.readouterr().out


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "report", "inspect"])
def test_examples_of_help_can_be_typed(command, capsys):
    found = examples(help_of([command], capsys))
    assert len(found) >= 2
    for line in found:
        words = shlex.split(line.partition("|")[0])
        assert words[1] == command
        arguments = make_parser(words[1:]).parse_args(words[1:])
        assert callable(arguments.run)


def test_the_list_of_commands(capsys):
    text = help_of([], capsys)
    assert all(f"\n    {command.name}" in text for command in cli.COMMANDS)
    assert [line.split()[1] for line in examples(text)] == ["fit", "report", "predict"]


def test_defaults_are_told(capsys):
    text = " ".join(help_of(["fit"], capsys).split())
    for name, default in (("penalty", "auto"), ("random-state", "0"), ("max-iter", "20"), ("kernel", "gaussian")):
        assert f"(default: {default})" in text.partition(f"--{name} ")[2].partition(" --")[0]
    assert "(default: None)" not in text


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["nonsense"], []])
def test_starting_imports_no_numerical_library(arguments):
    code = f"""
import sys
from gyrfalcon.cli.main import main
try:
    main({arguments!r})
except SystemExit:
    heavy = {{"numpy", "scipy", "sklearn", "pandas", "tqdm", "threadpoolctl", "gyrfalcon.estimators"}}
    print("imported:", sorted(heavy & sys.modules.keys()))
"""
    environment = os.environ | {"PYTHONPATH": str(Path(gyrfalcon.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "imported: []", done.stderr


def test_a_command_imports_no_other_command(capsys):
    with pytest.raises(SystemExit):
        main(
            ["two", "--help"],
            [
                Command("one", "Fail.", lambda parser: pytest.fail("not the command that was typed"), lambda _: 1),
                Command("two", "Try something.", lambda parser: None, lambda _: 0),
            ],
        )
    assert "usage: gyrfalcon two" in capsys.readouterr().out


def test_versions(capsys):
    assert main(["versions"]) == 0
    assert f"gyrfalcon: {gyrfalcon.__version__}" in capsys.readouterr().out
    assert main(["versions", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["numpy"] == np.__version__


def test_python_m():
    process = module("versions")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "numpy" in out


def command_that(function):
    return [Command("try", "Try something.", lambda parser: None, function)]


def test_a_new_command_is_one_entry(capsys):
    def add_arguments(parser):
        parser.add_argument("--times", type=int, default=1)

    def run(arguments):
        print("hello " * arguments.times)
        return 0

    assert main(["greet", "--times", "2"], [Command("greet", "Say hello.", add_arguments, run)]) == 0
    assert capsys.readouterr().out.split() == ["hello", "hello"]


@pytest.mark.parametrize("error", [ValueError("n is odd"), OSError("n is odd"), MemoryError("n is odd")])
def test_an_error_is_one_line(error, capsys):
    def fail(arguments):
        raise error

    assert main(["try"], command_that(fail)) == 1
    assert capsys.readouterr().err == "gyrfalcon: error: n is odd\n"
    with pytest.raises(type(error)):
        main(["try", "--traceback"], command_that(fail))


def test_options_that_do_not_go_together_are_2(capsys):
    def fail(arguments):
        raise UsageError("--this and --that: choose one")

    assert main(["try"], command_that(fail)) == 2
    assert capsys.readouterr().err == "gyrfalcon: error: --this and --that: choose one\n"


def test_an_error_proposes_columns_as_they_are_typed(capsys):
    def fail(arguments):
        raise ValueError(
            "not numbers:\nchoose features=['a', 'b c'] or\nfeatures=[...], delimiter=';', delimiter='\\t'"
        )

    assert main(["try"], command_that(fail)) == 1
    said = 'not numbers: choose --features a,b c or --features A,B,..., --delimiter ";", --delimiter tab'
    assert capsys.readouterr().err == f"gyrfalcon: error: {said}\n"


def test_a_warning_is_one_line(capsys):
    def warn(arguments):
        warnings.warn("n is\nodd: features=[...]", UserWarning, stacklevel=1)
        return 0

    before = warnings.showwarning
    assert main(["try"], command_that(warn)) == 0
    assert capsys.readouterr().err == "gyrfalcon: warning: n is odd: --features A,B,...\n"
    assert warnings.showwarning is before


def test_a_bug_is_not_hidden():
    def fail(arguments):
        raise AttributeError("a bug")

    with pytest.raises(AttributeError):
        main(["try"], command_that(fail))


def test_an_interrupt_is_130(capsys):
    def interrupted(arguments):
        raise KeyboardInterrupt

    assert main(["try"], command_that(interrupted)) == 130
    assert capsys.readouterr().err.strip() == "gyrfalcon: interrupted"


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_the_demo():
    process = module("demo", "--rows", "2000000", "--no-compare", "--memory-budget", "0")
    assert process.stderr is not None
    assert any("Learning" in line for line in process.stderr)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    # Python may end by the signal itself, seen once on a busy machine: a shell calls both 130
    assert process.returncode in (130, -signal.SIGINT), err
    assert out == ""
    assert err.strip().splitlines()[-1] == "gyrfalcon: interrupted"
    assert "Traceback" not in err


def test_a_closed_pipe_is_quiet():
    reading, writing = os.pipe()
    os.close(reading)
    process = module("versions", stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err == ""


# ---- the demo --------------------------------------------------------------------------------------------------------


def test_demo(capsys, tmp_path):
    picture = tmp_path / "picture.png"
    assert main([*SMALL, "--output", str(picture)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split()[:4] == ["model", "rows", "centers", "fit"]
    assert [line.split()[0] for line in lines[2:6]] == ["Ridge", "HistGradientBoosting", "Nystroem", "gyrfalcon"]
    assert len({len(line) for line in lines[1:6]}) == 1, "the columns are aligned"
    assert "passes" in err
    assert "Nystroem" in err
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 200_000


def test_demo_in_json(capsys, tmp_path):
    assert main([*SMALL, "--json", "--seed", "3"]) == 0
    report = json.loads(capsys.readouterr().out)
    ridge, boosting, nystroem, ours = report["models"]
    assert (report["rows"], report["n_centers"], report["seed"]) == (3000, 100, 3)
    assert boosting["rows"] == nystroem["rows"] == ours["rows"] == 3000
    assert nystroem["centers"] == ours["centers"] == 100
    # the same estimator up to the draw of the centers, and both far better than a line
    assert ours["error"] < 0.7 * ridge["error"]
    assert ours["error"] < 1.15 * nystroem["error"]
    assert boosting["error"] < ridge["error"]
    assert ours["history"][-1]["passes"] == len(ours["history"]) + 1
    assert (tmp_path / report["picture"]).exists()


def test_demo_says_how_far_it_is(capsys):
    assert main(SMALL) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[3].split()[:2] == ["HistGradientBoosting", "3,000"]
    assert err.count("Test error") == 3, "each model's is there when it is done"


def test_demo_alone(capsys):
    assert main([*SMALL, "--json", "--no-compare", "--n-jobs", "1", "--memory-budget", "0"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [model["model"] for model in report["models"]] == ["gyrfalcon FalkonRegressor"]
    assert report["threads"] == 1


def test_demo_with_more_centers_than_rows(capsys):
    assert main(["demo", "--rows", "50", "--centers", "100", "--n-jobs", "1", "--json"]) == 0
    assert {model["centers"] for model in json.loads(capsys.readouterr().out)["models"]} == {None, 50}


@pytest.mark.parametrize(("room", "rows"), [(10_000, 3000), (3200, 2000), (50, 0)])
def test_rows_that_the_peer_can_hold(monkeypatch, room, rows):
    monkeypatch.setattr("gyrfalcon._utils.memory.available_memory", lambda: 2 * 4 * 100 * room)
    assert demo._rows_that_fit(3000, 100) == rows


@pytest.mark.parametrize(("rows", "said"), [(2000, "learned from 2,000 rows"), (0, "left out")])
def test_demo_where_the_peer_does_not_fit(monkeypatch, capsys, rows, said):
    monkeypatch.setattr(demo, "_rows_that_fit", lambda *_: rows)
    assert main(SMALL) == 0
    out = capsys.readouterr().out
    assert said in out
    assert ("Nystroem + Ridge  " in out) == (rows > 0)


def test_demo_without_matplotlib(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([*SMALL, "--no-compare"]) == 0
    out, err = capsys.readouterr()
    assert "pip install matplotlib" in err
    assert "gyrfalcon FalkonRegressor" in out
    assert "drawn" not in out
    assert not list(tmp_path.glob("*.png"))


@pytest.mark.parametrize("output", ["nowhere/picture.png", "."])
def test_demo_looks_at_the_output_first(capsys, output):
    assert main([*SMALL, "--output", output]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "--output" in err
    assert "Making" not in err


def test_demo_looks_at_the_budget_first(capsys):
    assert main([*SMALL, "--memory-budget", "plenty"]) == 1
    err = capsys.readouterr().err
    assert "plenty" in err
    assert "Making" not in err


def test_the_arm_is_the_same_every_time():
    X, y = demo.make_arm(1000, 7)
    again = demo.make_arm(1000, 7)
    assert X.dtype == y.dtype == np.float32
    np.testing.assert_array_equal(X, again[0])
    np.testing.assert_array_equal(y, again[1])
    assert not np.array_equal(y, demo.make_arm(1000, 8)[1])


def test_the_arm_reaches_as_far_as_its_links():
    X, y = demo.make_arm(5000)
    assert X.shape == (5000, 2 * demo.JOINTS)
    # five links of length 1, and a point at distance sqrt(6)
    assert y.min() > -5 * demo.NOISE
    assert y.max() < 5 + 6**0.5 + 5 * demo.NOISE
