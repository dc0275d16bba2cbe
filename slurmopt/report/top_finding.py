"""Prints the finding that costs a run most, in one line; nothing where there is none.

python -m slurmopt.report.top_finding FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from slurmopt.errors import SlurmoptError, one_line
from slurmopt.report.output.text import finding_cost
from slurmopt.report.run import build
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.private import hold_run


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    try:
        run = RunFolder(Path(argv[0]).absolute())
        hold_run(run)
        report = build.report_on(run)
    except (SlurmoptError, OSError):  # there is a notification without a finding then
        return 1
    for finding in report.findings[:1]:
        print(one_line(f"{finding.name}: {finding.summary}{finding_cost(finding, report.unit)}"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
