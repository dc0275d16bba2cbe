"""supervisor.sh of a run or sweep: writes it beside job.sbatch, which holds its SHA-256 and runs no other."""

from __future__ import annotations

import hashlib

from slurmopt.run_folder.access.files import NotRegular, read_script, replace_text
from slurmopt.run_folder.layout import RunFolder


def sha256(text: str) -> str:
    """The SHA-256 of a supervisor.sh, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def kept_name(text: str) -> str:
    """What this supervisor.sh is called where another one has taken its place."""
    return f"supervisor-{sha256(text)[:12]}.sh"


def write(run: RunFolder, text: str, keep: bool = False) -> None:
    """Puts `text` into the run's supervisor.sh. OSError.

    `keep`: jobs of the scripts before may still be queued, as in a sweep: another supervisor.sh stays, as `kept_name`.
    """
    before = read(run)
    if before == text:
        return
    if keep and before is not None:
        replace_text(run.path / kept_name(before), before)
    replace_text(run.supervisor, text)


def read(run: RunFolder) -> str | None:
    """The text of the run's supervisor.sh; None where there is none, as in a run of an earlier slurmopt, or where
    something else than a file of one's own is in its place. OSError."""
    try:
        return read_script(run.supervisor)
    except (FileNotFoundError, NotRegular):
        return None
