"""Classifiers by least squares, whose values are mapped to probabilities by rows that were not learnt from."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ..fitting.arguments import described
from ..fitting.calibration import Calibration
from ._base import KernelClassifier
from ._lazy import lazily

Array = NDArray[Any]


@described
class CalibratedClassifier(KernelClassifier):
    """A classifier with targets +1 and -1 and calibrated probabilities."""

    calibration_: Calibration

    @lazily
    def uncalibrated(self, X: Any) -> Array:
        """Return the values of least squares for targets +1 and -1, which `calibration_` maps to probabilities.

        Parameters
        ----------
        {dense_rows.X}

        Returns
        -------
        array of shape (n,) for two classes, else (n, n_classes); a Dask array for a Dask collection
        """
        return self._values(X)

    @lazily
    def decision_function(self, X: Any) -> Array:
        """Return log(P / (1 - P)) of ``classes_[1]`` of two classes, else log P of each class.

        Parameters
        ----------
        {dense_rows.X}

        Returns
        -------
        array of shape (n,) for two classes, else (n, n_classes); a Dask array for a Dask collection
        """
        values = self._values(X)
        return self.calibration_.scores(values)

    @lazily
    def predict_proba(self, X: Any) -> Array:
        """Predict the probabilities of the classes, calibrated on rows that were not learnt from.

        Parameters
        ----------
        {dense_rows.X}

        Returns
        -------
        array of shape (n, n_classes), whose rows sum to one; a Dask array for a Dask collection
        """
        values = self._values(X)
        return self.calibration_.probabilities(values)

    @lazily
    def predict_log_proba(self, X: Any) -> Array:
        """Predict the logarithms of `predict_proba`, finite even where a probability rounds to zero.

        Parameters
        ----------
        {dense_rows.X}

        Returns
        -------
        array of shape (n, n_classes); a Dask array for a Dask collection
        """
        values = self._values(X)
        return self.calibration_.log_probabilities(values)

    def _check_calibration(self) -> None:
        """Raise ValueError if the calibration comes from a model file and does not fit the classes."""
        if not isinstance(self.calibration_, Calibration) or len(self.calibration_.bias) != len(self.classes_):
            raise ValueError(f"calibration_ is not one of {len(self.classes_)} classes")
