"""Gathers the evidence of an attempt's end from the run folder and the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from slurmopt.restart.evidence import Evidence
from slurmopt.run_folder.access.files import read_text
from slurmopt.run_folder.attempt_files import hang_of, job_log
from slurmopt.run_folder.attempts import Attempt
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder


def collect(folder: RunFolder, attempt: Attempt, beats: Mapping[int, Heartbeat]) -> Evidence:
    """The evidence in the run folder on an attempt whose ranks have ended, without the ranks' own outcomes."""
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
    """The evidence in the run folder on an attempt without a verdict, after which the attempt `back` has started."""
    return Evidence(
        signals=tuple(attempt.signals),
        hang=hang_of(folder, attempt),
        job_log=job_log(folder, attempt, until=back.log_from),
    )


def fields_of(text: str) -> dict[str, str]:
    """Parses `scontrol show job --oneliner`. Values are cut at their first space. Of two fields with the same name the
    first counts, as the user's comment, which may contain such text, comes late."""
    return dict(reversed(re.findall(r"(?:^|\s)([A-Z][A-Za-z/:]*)=(\S*)", text)))


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, ValueError):
        return ""
