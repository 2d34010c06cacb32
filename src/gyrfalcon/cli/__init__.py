"""The command line, one module for each command; `gyrfalcon.cli.main` lists them.

A command's module has ``add_arguments(parser)`` and ``run(arguments)``, which returns the exit code. An option has the
name of the parameter of the Python API that it sets.
"""
