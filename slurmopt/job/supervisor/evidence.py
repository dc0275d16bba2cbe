"""Gathers the evidence of an attempt's end from the run folder and the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from slurmopt.restart.evidence import Evidence
from slurmopt.run_folder.attempt_files import hang_of, job_log
from slurmopt.run_folder.attempts import Attempt
from slurmopt.run_folder.files import read_text
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder


def collect(folder: RunFolder, attempt: Attempt, beats: Mapping[int, Heartbeat]) -> Evidence:
    """What the run folder holds of an attempt whose ranks have ended, but for the ranks' own accounts."""
    return Evidence(
        signals=tuple(attempt.signals),
        asked=frozenset(beat.asked for beat in beats.values() if beat.asked),
        cancelled=attempt.cancelled,
        hang=hang_of(folder, attempt),
        job_log=job_log(folder, attempt),
        slurm=fields_of(_text(folder.slurm_said(attempt.number))),
        restarts=int(os.environ.get("SLURM_RESTART_COUNT") or 0),
    )


def collect_previous(folder: RunFolder, attempt: Attempt, back: Attempt) -> Evidence:
    """What the run folder holds of an attempt that left no verdict, given that the run is `back`."""
    return Evidence(
        signals=tuple(attempt.signals),
        hang=hang_of(folder, attempt),
        job_log=job_log(folder, attempt, until=back.log_from),
    )


def fields_of(text: str) -> dict[str, str]:
    """`scontrol show job --oneliner` as fields; a value with spaces loses what comes after the first. Of two with one
    name the first counts: the user's own comment comes late."""
    return dict(reversed(re.findall(r"(?:^|\s)([A-Z][A-Za-z/:]*)=(\S*)", text)))


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, ValueError):
        return ""
