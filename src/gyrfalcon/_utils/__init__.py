"""Shared by all rooms: checks, memory, threads, warnings, factorisations, ranges, samples, atomic files, registry."""
