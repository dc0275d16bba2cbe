"""Whether a sweep is one's own: its script and its words are run as whoever submits them."""

from __future__ import annotations

import os
import stat

from slurmopt.errors import RunError, one_line
from slurmopt.folder.sweep import SweepFolder


def refuse_foreign(sweep: SweepFolder) -> None:
    """RunError where another user could have written what is about to be submitted. Links are not followed: one may
    lead to a file of one's own."""
    for path in (sweep.path, sweep.points_file, sweep.script, sweep.config, sweep.events):
        try:
            facts = path.lstat()
        except OSError as error:
            raise RunError(f"{one_line(str(path))}: {error.strerror}; the sweep is not complete") from error
        if facts.st_uid != os.geteuid():
            raise RunError(f"{one_line(str(path))} belongs to another user; launch a sweep of your own")
        if stat.S_ISLNK(facts.st_mode) or facts.st_mode & stat.S_IWOTH:
            raise RunError(f"{one_line(str(path))} is a link, or others may write it: it is not submitted")
