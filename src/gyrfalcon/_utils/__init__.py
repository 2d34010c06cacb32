"""What every room uses: memory, threads, factorisations, ranges of numbers, atomic files, the registry of classes."""
