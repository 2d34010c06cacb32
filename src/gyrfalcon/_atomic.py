"""Files that are replaced whole or not at all: models, checkpoints and predictions all end up on disk through here."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[str]:
    """Give the name of an empty file to write; at the end of the block it takes the place of the one at `path`.

    Whatever happens in the block or to the process, there is the old file or the new one at `path`, never a part of
    one: the new one is on disk before it is moved there. A process that is killed may leave a file behind whose name
    begins with a dot and ends with ``.partial``; an exception leaves nothing.

    Parameters
    ----------
    path : str or path-like
        A link stays a link: the file it points to is the one that is replaced. The new file has the permissions of the
        one it replaces, or those of any new file.

    Examples
    --------
    >>> import os, tempfile
    >>> from gyrfalcon._atomic import replacing
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     name = os.path.join(folder, "numbers")
    ...     with replacing(name) as partial, open(partial, "w") as file:
    ...         _ = file.write("1 2 3")
    ...     os.listdir(folder)
    ['numbers']
    """
    target = os.path.realpath(os.fspath(path))
    if os.path.isdir(target):
        raise IsADirectoryError(f"cannot write to {os.fspath(path)!r}: it is a folder")
    folder, name = os.path.split(target)
    partial = os.path.join(folder, f".{name[:40]}.{secrets.token_hex(8)}.partial")
    try:
        # Made here because what writes into it may make its file readable by the owner alone.
        descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        mode = os.fstat(descriptor).st_mode
        os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(target).st_mode
        yield partial
        _sync(partial, os.O_RDWR)
        os.chmod(partial, mode & 0o777)
        os.replace(partial, target)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
        if isinstance(error, OSError) and error.filename == partial:
            error.filename = os.fspath(path)
        raise
    # The move itself survives a power cut only once the folder is on disk; some systems cannot do that, and need not.
    with contextlib.suppress(OSError):
        _sync(folder, os.O_RDONLY)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
