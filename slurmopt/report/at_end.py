"""Writes report.html into a run's folder once the run has ended: what the batch shell calls after the last verdict.

python -m slurmopt.report.at_end FOLDER

A failure is a line in the job's log, and the exit status is 0 all the same.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from slurmopt.errors import SlurmoptError, one_line, with_place
from slurmopt.report.output import page
from slurmopt.report.run import build
from slurmopt.run_folder.access.files import replace_text
from slurmopt.run_folder.access.open_folders import HELD
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.private import hold_run


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    try:
        run = RunFolder(Path(argv[0]).absolute())
        hold_run(run)
        os.environ.pop(HELD, None)
        write(run)
    except (SlurmoptError, OSError) as error:
        why = with_place(error) if isinstance(error, OSError) else str(error)
        print(f"slurmopt: the report was not written: {one_line(why)}", file=sys.stderr, flush=True)
    return 0


def write(run: RunFolder) -> None:
    """Writes the page of the run into its folder. SlurmoptError, OSError."""
    replace_text(run.report, page.run_page(build.report_on(run)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
