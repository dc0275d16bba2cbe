"""Has the report of an ended run written by a process of its own, where no batch shell does that."""

from __future__ import annotations

import subprocess
import sys

from slurmopt.errors import one_line
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.process import module_words
from slurmopt.runs.journal import returns
from slurmopt.runs.status.query import Status

_SECONDS = 30.0


def write_missing_report(status: Status) -> None:
    """Writes the report of a run that has ended without a batch shell that could: none was left, or it was killed."""
    attempt = status.journal.attempt
    if attempt is None or status.alive or status.state == "unknown" or status.owner is not None:
        return
    if attempt.end is None or returns(attempt.end):
        write_report(status.folder)


def write_report(run: RunFolder) -> None:
    """Writes report.html into the run's folder, in at most 30 seconds. Where that fails, a line on standard error says
    why, whatever it was."""
    words = [sys.executable, *module_words("slurmopt.report.at_end"), str(run.path)]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=_SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        _warn(f"it took more than {_SECONDS:g} s")
    except OSError as error:
        _warn(str(error))
    else:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        if said and done.returncode == 0:
            print(one_line(said[-1]), file=sys.stderr, flush=True)
        elif done.returncode:
            _warn(said[-1] if said else f"exit status {done.returncode}")


def _warn(why: str) -> None:
    print(f"slurmopt: the report was not written: {one_line(why)}", file=sys.stderr, flush=True)
