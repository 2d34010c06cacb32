"""The estimators' parameter ``checkpoint``: where the state of a fit is kept, and how often it is written."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..._utils.checks import not_negative

_check_seconds = not_negative("a finite number of seconds, not negative")


class CheckpointError(ValueError):
    """Raised if a checkpoint belongs to another fit, is in use by another process, or is damaged.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from gyrfalcon import CheckpointError, FalkonRegressor
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = FalkonRegressor(n_centers=20, checkpoint=folder, random_state=0).fit(X, X[:, 0])
    ...     try:
    ...         model.fit(X[:100], X[:100, 0])  # another fit, in the same folder
    ...     except CheckpointError:
    ...         print("each fit needs a folder of its own")
    each fit needs a folder of its own
    """


@dataclass(frozen=True)
class Checkpoint:
    """Folder in which the state of a fit is saved, and how often: a value for the parameter ``checkpoint``.

    Parameters
    ----------
    folder : str or path-like
        The folder of this fit; each fit needs its own. It is created if missing. Delete it to start from the beginning.
    every : float
        Minimum number of seconds between two writes. 0 writes after each iteration. Otherwise writing never takes more
        than about 2% of the time, however slow the disk is.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from gyrfalcon import FalkonRegressor
    >>> from gyrfalcon.storage.checkpoints import Checkpoint
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(500, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = FalkonRegressor(n_centers=50, checkpoint=Checkpoint(folder, every=5)).fit(X, np.sin(X[:, 0]))
    ...     again = FalkonRegressor(n_centers=50, checkpoint=folder).fit(X, np.sin(X[:, 0]))
    >>> bool((again.dual_coef_ == model.dual_coef_).all())
    True
    """

    folder: str | os.PathLike[str]
    every: float = 30.0

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str | os.PathLike) or not os.fspath(self.folder):
            raise TypeError(f"folder={self.folder!r} must be the name of a folder")
        _check_seconds("every", self.every)
