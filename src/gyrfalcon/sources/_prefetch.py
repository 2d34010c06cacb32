"""Reading while others compute: one thread runs ahead of the reader by a bounded number of bytes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


class _Ahead:
    """What the thread and the reader share. It knows nothing of the generator, which can so be collected."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.changed = threading.Condition()
        self.blocks: deque[Array] = deque()
        self.held = 0
        self.finished = False  # set by the thread: nothing more will come
        self.closed = False  # set by the reader: nothing more is wanted
        self.error: BaseException | None = None

    def fill(self, blocks: Iterable[Array]) -> None:
        """The thread: put blocks until there are no more, or nobody wants them."""
        try:
            for block in blocks:
                if not self._put(block):
                    break
        except BaseException as error:  # whatever it is, the reader is the one to be told
            self.error = error
        finally:
            close = getattr(blocks, "close", None)  # what the blocks are read from is closed by who opened it
            if close is not None:
                close()
            with self.changed:
                self.finished = True
                self.changed.notify_all()

    def _put(self, block: Array) -> bool:
        with self.changed:
            # one block may always wait, however large
            while self.blocks and self.held + block.nbytes > self.limit and not self.closed:
                self.changed.wait()
            if not self.closed:
                self.blocks.append(block)
                self.held += block.nbytes
                self.changed.notify_all()
            return not self.closed

    def get(self) -> Array | None:
        """The reader: the next block, None after the last."""
        with self.changed:
            while not self.blocks and not self.finished:
                self.changed.wait()
            if self.blocks:
                block = self.blocks.popleft()
                self.held -= block.nbytes
                self.changed.notify_all()
                return block
        if self.error is not None:
            raise self.error
        return None

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.blocks.clear()
            self.changed.notify_all()


def prefetch(blocks: Iterable[Array], limit: int) -> Iterator[Array]:
    """Give the blocks in their order while a thread makes the next ones.

    The thread starts when the first block is asked for. It ends with the last block, with an error, which is raised
    here, and when this generator is closed or let go of, by an exception or Ctrl-C as well.

    Parameters
    ----------
    blocks : iterable of arrays
        Made on the thread, and closed there if it has ``close``.
    limit : int
        Bytes of the blocks that may wait at once; one block may always, and one more is in the making.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.sources._prefetch import prefetch
    >>> [block.sum() for block in prefetch((np.full(3, i) for i in range(3)), limit=1000)]
    [np.int64(0), np.int64(3), np.int64(6)]
    """
    ahead = _Ahead(limit)
    thread = threading.Thread(target=ahead.fill, args=(blocks,), name="gyrfalcon-read", daemon=True)
    try:
        thread.start()
        del blocks  # the thread's alone
        while (block := ahead.get()) is not None:
            yield block
    finally:
        ahead.close()
        # never started if Ctrl-C came first; and the garbage collector may run this on any thread, this one as well
        if thread.ident is not None and thread is not threading.current_thread():
            thread.join()
