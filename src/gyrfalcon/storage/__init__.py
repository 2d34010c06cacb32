"""Files that outlive a process: models, checkpoints of fits, predictions."""

from .._utils.registry import register
from .models import ModelFileError, SaveMixin, load, save
from .predictions import write_predictions

__all__ = ["ModelFileError", "SaveMixin", "load", "register", "save", "write_predictions"]
