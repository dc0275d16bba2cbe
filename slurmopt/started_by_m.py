"""Tells whether `python -m` has put the current folder first in sys.path, as it does not for the command `slurmopt`.

A file of the user's such as `queue.py` would stand in there for Python's own. Entry points ask this before they import
anything else.
"""

from __future__ import annotations

import os
import sys


def has_current_folder() -> bool:
    """Whether the first entry of sys.path is the current folder, because of `-m` and not of PYTHONPATH alone."""
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False) or sys.orig_argv[1:2] == ["-c"]:
        return False
    try:
        return sys.path[:1] in ([""], [os.getcwd()])
    except OSError:  # the folder was deleted: nothing can be imported from there
        return False
