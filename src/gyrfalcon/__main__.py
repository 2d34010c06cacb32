"""``python -m gyrfalcon``: the command line."""

import sys

from gyrfalcon.cli import main

sys.exit(main())
