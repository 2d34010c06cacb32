"""Descriptions of parameters that the help texts take from docstrings."""

from __future__ import annotations

import inspect

import pytest

from gyrfalcon import FalkonClassifier, FalkonRegressor
from gyrfalcon.cli._fit_options import first_sentences, parameter_descriptions


class Documented:
    """A class.

    Parameters
    ----------
    a : int, default=3
        One sentence. Another
        one: with a colon : and spaces.

        A paragraph of its own.
    b, c : str
    d
        No type.

    Attributes
    ----------
    e_ : float
        Not a parameter.
    """


def test_entries_of_the_section():
    assert parameter_descriptions(Documented) == {
        "a": "One sentence. Another one: with a colon : and spaces. A paragraph of its own.",
        "b": "",
        "c": "",
        "d": "No type.",
    }
    assert parameter_descriptions(type("Silent", (), {})) == {}


@pytest.mark.parametrize("cls", [FalkonRegressor, FalkonClassifier])
def test_every_parameter_of_an_estimator_is_found(cls):
    descriptions = parameter_descriptions(cls)
    assert list(descriptions) == list(inspect.signature(cls).parameters)
    assert all(descriptions.values())


def test_sentences_of_help():
    assert first_sentences("Number of `M` things. More is more. And so on.", 2) == "number of M things. More is more"
    assert first_sentences("", 1) == ""
