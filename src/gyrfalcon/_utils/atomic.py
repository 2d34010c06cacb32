"""Files that are replaced whole or not at all: the way models, checkpoints and predictions are written."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager

_ENDING = ".partial"
_LOCK = "lock"
_KINDS = {
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}
_TOO_OLD = 7 * 86_400  # seconds without a write, after which a folder of another machine is taken for a leftover


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the name of an empty file to write; at the end of the block it replaces the one at `path`.

    Whatever happens in the block or to the process, `path` has the old file or the new one, never a part of one: the
    new one is on disk before it is moved there. An exception leaves nothing. A process that is killed leaves a folder
    whose name begins with a dot and ends with ``.partial``; the next one that writes to `path` removes it.

    A link stays a link: the file it points to is replaced. The new file has the permissions of the one it replaces, or
    those of any new file. Anything else than a regular file is refused, see `check_replaceable`.
    """
    check_replaceable(path)
    target = os.path.realpath(os.fspath(path))
    remove_leftovers(target)
    try:
        with _folder_beside(target) as folder:
            partial = os.path.join(folder, "contents")
            # Created here, because a writer may create files that only the owner can read.
            descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            mode = os.fstat(descriptor).st_mode
            os.close(descriptor)
            with contextlib.suppress(FileNotFoundError):
                mode = os.stat(target).st_mode
            yield partial
            _sync(partial, os.O_RDWR)
            os.chmod(partial, mode & 0o777)
            check_replaceable(path)  # once more: the block may have taken hours
            os.replace(partial, target)
    except OSError as error:
        if isinstance(error.filename, str) and error.filename.startswith(os.path.join(*_named(target))):
            error.filename = os.fspath(path)
        raise
    # The move itself survives a power cut only once the folder is on disk; not all systems can sync folders.
    with contextlib.suppress(OSError):
        _sync(os.path.dirname(target), os.O_RDONLY)


def check_replaceable(path: str | os.PathLike[str]) -> None:
    """Raise OSError if `path` exists and is no regular file, or is a link to a file that does not exist.

    A device, a named pipe or a socket would be replaced by a file.
    """
    name = os.fspath(path)
    try:
        mode = os.stat(name).st_mode
    except OSError as error:
        if os.path.islink(name):
            raise FileNotFoundError(
                f"cannot write to {name!r}: it is a link to {os.readlink(name)!r}, which does not exist: remove the "
                "link, or name the file itself"
            ) from error
        return  # nothing is there, or the error comes again when it is written
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"cannot write to {name!r}: it is a folder")
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no regular file")
        raise FileExistsError(
            f"cannot write to {name!r}: it is {kind}, which a file would replace: name a file, and copy it from there"
        )


# ---- what killed processes leave -------------------------------------------------------------------------------------
#
# A file is written in a folder of its own beside its place, because some writers make temporary files in turn. The
# folder holds a lock while somebody works in it; locks end with their process, however that ends.


def remove_leftovers(path: str) -> None:
    """Remove the folders of processes that were killed while they wrote to `path`."""
    folder, prefix = _named(path)
    with contextlib.suppress(OSError):
        names = os.listdir(folder)
        for name in names:
            if name.startswith(prefix) and name.endswith(_ENDING):
                with contextlib.suppress(OSError):
                    _remove_if_left(os.path.join(folder, name))


def try_lock(descriptor: int) -> bool | None:
    """Lock an open file while it is open: True if done, False if another process holds it, None without locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return None
    return True


def _named(path: str) -> tuple[str, str]:
    folder, name = os.path.split(path)
    return folder, f".{name[:40]}."


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", platform.node())[:40]


@contextmanager
def _folder_beside(target: str) -> Iterator[str]:
    """Yield a new folder, which is locked meanwhile and removed at the end."""
    parent, prefix = _named(target)
    while True:
        folder = os.path.join(parent, f"{prefix}{_host()}.{secrets.token_hex(8)}{_ENDING}")
        os.mkdir(folder)
        lock = os.path.join(folder, _LOCK)
        try:
            descriptor = os.open(lock, os.O_CREAT | os.O_RDWR)
        except FileNotFoundError:  # taken for a leftover by another process, before the lock was there
            continue
        try:
            if try_lock(descriptor) is False or not os.path.exists(lock):  # the same, a moment later
                continue
            yield folder
            return
        finally:
            os.close(descriptor)
            shutil.rmtree(folder, ignore_errors=True)


def _remove_if_left(folder: str) -> None:
    """Remove a folder that no process uses: its lock tells for folders of this machine, their age for others."""
    newest = max(os.lstat(os.path.join(folder, name)).st_mtime for name in (".", *os.listdir(folder)))
    ours = f".{_host()}." in os.path.basename(folder)
    descriptor = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT * ours)
    try:
        locked = try_lock(descriptor)
        if locked is not False and ((locked and ours) or time.time() - newest > _TOO_OLD):
            shutil.rmtree(folder)
    finally:
        os.close(descriptor)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
