"""Files that outlive a process: models, checkpoints of fits, predictions."""

from .._utils.registry import register
from .models import ModelFileError, load, save
from .predictions import write_predictions

__all__ = ["ModelFileError", "load", "register", "save", "write_predictions"]
