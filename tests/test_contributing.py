"""The map of CONTRIBUTING.md names every file of the package, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "gyrfalcon"
SUFFIXES = {".py", ".cpp", ".h"}


def rooms() -> dict[str, str]:
    """What the map says of each entry of src/gyrfalcon."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawn = text.split("    src/gyrfalcon/\n")[1].split("    tests/")[0]
    parts = re.split(r"^ {6}(\S+)", drawn, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def entries() -> dict[str, Path]:
    found = {f"{path.name}/" if path.is_dir() else path.name: path for path in PACKAGE.iterdir()}
    return {name: path for name, path in found.items() if path.suffix in SUFFIXES or holds_code(path)}


def holds_code(path: Path) -> bool:
    return path.is_dir() and any(file.suffix in SUFFIXES for file in path.iterdir())


def names(room: Path) -> set[str]:
    """The files of a room, Python's without their suffix, and those of folders in it."""
    files = [path for path in room.rglob("*") if path.suffix in SUFFIXES and path.name != "__init__.py"]
    return {path.stem if path.suffix == ".py" else path.name for path in files}


def test_every_entry_is_on_the_map_and_there_are_few():
    assert set(rooms()) == set(entries())
    assert len(entries()) <= 22


def test_every_file_is_named_in_its_room():
    words = {name: set(re.findall(r"[\w.]+\b", text)) for name, text in rooms().items()}
    missing = {
        f"{name}{file}" for name, path in entries().items() for file in names(path) - words[name] if path.is_dir()
    }
    assert missing == set()


def test_no_file_is_named_that_is_not_there():
    """A word with an underscore or a suffix can only be a file."""
    for name, text in rooms().items():
        named = {word for word in re.findall(r"[\w.]+\b", text) if "_" in word or word.endswith((".cpp", ".h"))}
        named -= {"check_rows"}
        assert named <= names(entries()[name]), name
