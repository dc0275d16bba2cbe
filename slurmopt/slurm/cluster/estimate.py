"""Asks Slurm when a job would start if it were submitted now: `sbatch --test-only`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import datetime

from slurmopt.errors import SlurmRefused, one_line
from slurmopt.slurm import client
from slurmopt.slurm.environment import clean_environment
from slurmopt.units import human_seconds

_TIMEOUT = 30.0
_ANSWER = re.compile(r"Job \S+ to start at (\S+)(?: a)? using (\d+) processors on nodes (\S*) in partition (\S+)")
_NOT_NOW = "Requested node configuration is not available"
"""Slurm's answer also while nodes are down or drained; sbatch itself would accept the job, which would wait for
them."""


@dataclass(frozen=True)
class Estimate:
    """Slurm's estimate of the start."""

    start: datetime | None
    """Local time; None if Slurm cannot tell."""
    text: str
    """For people."""


def estimate(script: str) -> str:
    """When and where `script` would start, for people. Raises SlurmRefused with Slurm's reason."""
    return estimated_start(script).text


def estimated_start(script: str, timeout: float = _TIMEOUT) -> Estimate:
    """Asks Slurm when `script` would start, without submitting it. Raises SlurmRefused with Slurm's reason."""
    environment = {**clean_environment(os.environ, script), "SLURM_TIME_FORMAT": "standard"}
    try:
        answer = client.ask(["sbatch", "--test-only"], timeout, environment, input=script)
    except SlurmRefused as error:
        if _NOT_NOW in str(error):
            return Estimate(None, "unknown: no nodes that could run it are available now")
        raise
    return parse_estimate(answer.stderr + answer.stdout, datetime.now())


def parse_estimate(output: str, now: datetime) -> Estimate:
    """Parses sbatch's answer; the text is relative to `now`."""
    match = _ANSWER.search(output)
    if match is None:
        return Estimate(None, one_line(client.reason(output)) or "unknown")
    where = one_line(f"on {match[3] or 'unknown nodes'} in partition {match[4]}")
    try:
        start = datetime.fromisoformat(match[1])
    except ValueError:
        return Estimate(None, f"unknown, {where}")
    wait = (start - now).total_seconds()
    return Estimate(
        start, f"now, {where}" if wait < 5 else f"in about {human_seconds(wait)} ({start:%a %H:%M}), {where}"
    )
