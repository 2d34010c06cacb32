"""What every kernel, every backend and every source must do. A new one is added to `market` and nowhere else."""
