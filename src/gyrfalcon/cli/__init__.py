"""The commands that work on files: fit, predict, evaluate, inspect. One module each; `gyrfalcon.cli.main` lists them.

A module has ``add_arguments(parser)`` and ``run(arguments)``, which gives the exit code. An option has the name of the
parameter of the Python API that it sets, so that there is one thing to learn.
"""
