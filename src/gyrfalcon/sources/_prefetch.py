"""Read blocks ahead: a thread makes them while the consumer computes, within a bounded number of bytes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


class _Ahead:
    """State that the thread and the consumer share. It has no reference to the generator, which can be collected."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.changed = threading.Condition()
        self.blocks: deque[Array] = deque()
        self.held = 0
        self.finished = False  # set by the thread: no more blocks will come
        self.closed = False  # set by the consumer: no more blocks are wanted
        self.error: BaseException | None = None

    def fill(self, blocks: Generator[Array, None, None]) -> None:
        """Put blocks into the queue until there are no more or the consumer has closed it; runs on the thread."""
        try:
            for block in blocks:
                if not self._put(block):
                    break
        except BaseException as error:  # raised again by `get`, whatever it is
            self.error = error
        finally:
            blocks.close()  # files are closed by the thread that opened them
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
        """Wait for the next block; return None after the last one. Called by the consumer."""
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
        """Tell the thread to stop."""
        with self.changed:
            self.closed = True
            self.blocks.clear()
            self.changed.notify_all()


def prefetch(blocks: Generator[Array, None, None], limit: int) -> Iterator[Array]:
    """Yield blocks in order while a thread, which runs and closes `blocks`, makes the next ones.

    The thread starts when the first block is requested. It ends after the last block, after an error, which is raised
    here, and when this generator is closed or garbage collected, also by an exception or Ctrl-C. Up to `limit` bytes of
    blocks wait at once, and at least one block, while one more is being made.
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
        # not started if Ctrl-C came first; the garbage collector may run this on any thread, also on this one
        if thread.ident is not None and thread is not threading.current_thread():
            thread.join()
