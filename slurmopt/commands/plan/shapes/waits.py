"""When each shape would start if it were submitted now, as Slurm estimates it: in which partition, with which limit."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import TYPE_CHECKING

from slurmopt.config.plan import Plan
from slurmopt.config.resources import Resources
from slurmopt.errors import SlurmError, one_line
from slurmopt.launching.override_words import merged
from slurmopt.planning.ranges import Range
from slurmopt.slow_notice import slow_notice
from slurmopt.units import human_seconds, seconds

if TYPE_CHECKING:
    from slurmopt.slurm.cluster.cluster_facts import ClusterFacts


@dataclass(frozen=True)
class Wait:
    """Slurm's hint for one shape."""

    seconds: float | None
    """None where Slurm cannot tell."""
    text: str

    @property
    def short(self) -> str:
        if self.seconds is None:
            return self.text
        return "now" if self.seconds < 5 else human_seconds(self.seconds)


@dataclass(frozen=True)
class Ask:
    """What a job asks for beside its shape. None: what the config has."""

    partition: str | None
    time: str | None

    @property
    def overrides(self) -> list[str]:
        named = {"partition": self.partition, "time": self.time}
        return [f"resources.{key}={value}" for key, value in named.items() if value is not None]

    @property
    def text(self) -> str:
        return ", ".join(filter(None, (self.partition, self.time)))


@dataclass(frozen=True, kw_only=True)
class Option:
    """One such job, and when it would start and finish."""

    ask: Ask
    wait: Wait
    limit: float | None
    """Seconds after which the job ends and goes on in its next attempt; None where the partition's counts."""

    def finish(self, run: Range | None) -> tuple[float, float] | None:
        """Seconds from now until the training has ended, p50 and p90; None where Slurm or the plan does not tell. Each
        attempt after a time limit waits as long as the first."""
        if run is None or self.wait.seconds is None:
            return None
        return self._after(run.middle, self.wait.seconds), self._after(run.quantile(0.9), self.wait.seconds)

    def _after(self, run: float, wait: float) -> float:
        attempts = 1 if self.limit is None else max(1, math.ceil(run / self.limit))
        return run + attempts * wait


def asks(plan: Plan) -> list[Ask]:
    """The partitions and time limits to compare: what the config has, where `plan` names none."""
    partitions: list[str | None] = [*plan.partitions] or [None]
    times: list[str | None] = [*plan.times] or [None]
    return [Ask(partition, time) for partition, time in product(partitions, times)]


def options(launches: list[list[str]], plan: Plan, resources: Resources, config_dir: str | None) -> list[list[Option]]:
    """For each launch, given by its overrides, one for each of `asks`. What Slurm refuses says why."""
    with slow_notice("asking Slurm when each would start"):
        known = _cluster()
        return [[_option(each, ask, resources, config_dir, known) for ask in asks(plan)] for each in launches]


def earliest(found: list[Option], run: Range | None) -> Option:
    """The one that finishes first, else that starts first; of equals the first one."""
    return min(found, key=lambda one: (_or_never(one.finish(run)), _or_never((one.wait.seconds,))))


def _or_never(times: tuple[float | None, ...] | None) -> float:
    first = None if times is None else times[0]
    return math.inf if first is None else first


def _cluster() -> ClusterFacts | None:
    """None where Slurm does not answer."""
    from slurmopt.slurm.cluster.facts import facts

    try:
        return facts()
    except SlurmError:
        return None


def _option(
    overrides: list[str], ask: Ask, resources: Resources, config_dir: str | None, known: ClusterFacts | None
) -> Option:
    limit = ask.time or resources.time
    return Option(
        ask=ask,
        wait=_wait(merged(overrides, ask.overrides), config_dir, known),
        limit=None if limit is None else float(seconds(limit)),
    )


def _wait(overrides: list[str], config_dir: str | None, known: ClusterFacts | None) -> Wait:
    from slurmopt.launching import run_plan
    from slurmopt.slurm.cluster.estimate import estimated_start
    from slurmopt.slurm.cluster.limits import findings, with_site_defaults
    from slurmopt.slurm.script.render import render

    job = run_plan.plan(overrides, config_dir).job
    # Slurm estimates a start of jobs, too, that would wait for ever, such as for a limit of the partition.
    if known is not None and (wrong := findings(with_site_defaults(job.settings.resources, os.environ), known)):
        return Wait(None, one_line(wrong[0]))
    try:
        found = estimated_start(render(job))
    except SlurmError as error:
        return Wait(None, one_line(str(error)))
    if found.start is None:
        return Wait(None, found.text)
    return Wait(max(0.0, (found.start - datetime.now()).total_seconds()), found.text)
