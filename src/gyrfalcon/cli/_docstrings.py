"""Descriptions of parameters, from the numpydoc docstring of a class."""

from __future__ import annotations

import inspect


def parameter_descriptions(cls: type) -> dict[str, str]:
    """Return the text of each entry of the section "Parameters" of a class's docstring, in one line.

    Parameters
    ----------
    cls : type
        A class with a docstring in the format of numpydoc.

    Returns
    -------
    dict from str to str
        The descriptions by the names of the parameters, without their types.

    Examples
    --------
    >>> from gyrfalcon.cli._docstrings import parameter_descriptions
    >>> from gyrfalcon.callbacks import TimeLimit
    >>> parameter_descriptions(TimeLimit)
    {'seconds': 'The limit, greater than 0.'}
    """
    lines = (inspect.getdoc(cls) or "").splitlines()
    descriptions: dict[str, str] = {}
    if "Parameters" not in lines:
        return descriptions
    names: list[str] = []
    for line in lines[lines.index("Parameters") + 2 :]:
        if line.startswith("---"):  # the line before was the title of the next section
            for name in names:
                del descriptions[name]
            break
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.partition(" : ")[0].split(",")]
            descriptions.update(dict.fromkeys(names, ""))
        else:
            for name in names:
                descriptions[name] = " ".join([*descriptions[name].split(), *line.split()])
    return descriptions


def first_sentences(text: str, count: int) -> str:
    """Return the first sentences of a description as an option's help: no capital, no full stop, no markup."""
    words = ". ".join(text.replace("`", "").split(". ")[:count]).rstrip(".")
    return words[:1].lower() + words[1:]
