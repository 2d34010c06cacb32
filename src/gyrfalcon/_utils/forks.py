"""State of a process that a forked child must not inherit: locks that are held, and holders that do not exist there."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Lock(Protocol):
    """What a lock and a condition have in common."""

    def acquire(self) -> bool: ...

    def release(self) -> None: ...


State = TypeVar("State")


class PerProcess(Generic[State]):
    """One state for each process, `current`: after a fork the child has a new one.

    A fork copies memory and only one thread, so a lock held by another thread would never be released in the child.

    make : makes a state
    lock_of : returns the lock of a state, which is held during the fork so that no other thread is halfway through a
        change; it must be reentrant, since a signal handler may fork while its thread holds the lock
    leave : called in the child with the state of the parent, to undo what threads that were not copied would have
        undone
    """

    def __init__(
        self,
        make: Callable[[], State],
        lock_of: Callable[[State], Lock] | None = None,
        leave: Callable[[State], None] | None = None,
    ) -> None:
        self.current = make()

        def renew() -> None:
            inherited, self.current = self.current, make()
            if leave is not None:
                leave(inherited)
            if lock_of is not None:
                lock_of(inherited).release()

        if lock_of is None:
            os.register_at_fork(after_in_child=renew)
        else:
            os.register_at_fork(
                before=lambda: lock_of(self.current).acquire(),
                after_in_parent=lambda: lock_of(self.current).release(),
                after_in_child=renew,
            )
