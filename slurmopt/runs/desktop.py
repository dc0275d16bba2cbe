"""Shows on this machine's desktop that a run has ended, to the one who waits for it, where its config asks for that."""

from __future__ import annotations

import os
import sys

from slurmopt.errors import InputError, one_line
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import journal as journals
from slurmopt.runs.ownership import config_of, owner_of


def show_end(run: RunFolder) -> None:
    """Shows the end of the run's latest attempt, once. Does nothing without a desktop, for a run of another user, and
    for one of the local backend, whose job shows it itself. A failure is a line on standard error."""
    from slurmopt.notify import desktop

    if desktop.program(os.environ) is None or run.in_sweep or owner_of(run) is not None:
        return
    journal = journals.read(run)
    if journal.local or journal.attempt is None:
        return
    for line in _told(run, journal.attempt.number):
        print(f"slurmopt: {one_line(line)}", file=sys.stderr, flush=True)


def _told(run: RunFolder, attempt: int) -> list[str]:
    from slurmopt.config.composition.settings import load
    from slurmopt.notify.tell import Hooks, tell

    try:
        notify = load(config_of(run))[1].notify
        return tell(run, attempt, Hooks(notify.when, desktop=notify.desktop), os.environ)
    except (InputError, OSError) as error:
        return [f"notify.desktop: {error}"]
