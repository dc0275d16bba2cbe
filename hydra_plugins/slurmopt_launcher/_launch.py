"""Launches a batch of jobs as a sweep: settings, points, the context file, one submission, and the returned values."""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import CompactHydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from slurmopt.errors import ConfigError, SlurmoptError, one_line

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction

    from slurmopt.config.schema import Settings
    from slurmopt.sweeps.submit.plan import SweepPlan

log = logging.getLogger(__name__)

TARGET = "slurmopt.hydra_app.job.run"
_OUR_SWEEPERS = (
    "hydra._internal.core_plugins.basic_sweeper.BasicSweeper",
    "hydra_plugins.slurmopt_launcher.sweeper.SlurmoptSweeper",
)
"""Sweepers that only use whether a job failed. Any other sweeper may need the returned values."""
_FLAT = {"launch": ("backend", "name", "folder", "check"), "sweep": ("at_once", "per_task", "side_by_side")}
"""Options directly below hydra.launcher, by their group in slurmopt's config."""
_FLAT_KEY = re.compile(rf"(?<![\w./])(?:{'|'.join(_FLAT)})\.({'|'.join(sum(_FLAT.values(), ()))})\b")
_GROUP_KEY = re.compile(
    r"(?<![\w./])((?:resources|environment|restart|health|notify|checkpoint|monitor|network)\.[a-z_]+)\b"
)


@dataclass(frozen=True)
class Multirun:
    """One batch of jobs, with the arguments that Hydra passes to a launcher."""

    config: DictConfig
    hydra: HydraContext
    function: TaskFunction
    jobs: list[list[str]]
    first: int
    """The number of the first job of the batch in the multirun."""

    @property
    def options(self) -> DictConfig:
        launcher = self.config.hydra.launcher
        assert isinstance(launcher, DictConfig)
        return launcher


def check_sweeper(config: DictConfig) -> None:
    """Raises CompactHydraException if the sweeper needs the returned values and `hydra.launcher.wait` is false."""
    sweeper = str(config.hydra.sweeper._target_)
    if not config.hydra.launcher.wait and sweeper not in _OUR_SWEEPERS:
        raise CompactHydraException(
            f"hydra.launcher.wait: false does not go with {sweeper}, which needs the values that the jobs return; "
            "valid: true, or hydra/sweeper=basic or slurmopt"
        )


def launch(multirun: Multirun) -> list[JobReturn]:
    """Submits the batch, waits for it unless `hydra.launcher.wait` is false, and returns one JobReturn per job.

    Raises CompactHydraException for errors of slurmopt; Hydra prints these in one line."""
    if not multirun.jobs:
        log.warning("The sweep is empty: nothing to launch")
        return []
    try:
        return _launch(multirun)
    except SlurmoptError as error:
        raise CompactHydraException(_in_hydras_words(error)) from error


def _launch(multirun: Multirun) -> list[JobReturn]:
    from slurmopt.config.launch import dry_run
    from slurmopt.launching.execute import ready
    from slurmopt.slurm.script.render import supervisor
    from slurmopt.sweeps.submit import submission

    plan = planned(multirun)
    _, script = ready(plan)
    if dry := dry_run(multirun.options.dry_run):
        sys.stdout.write(f"{script}\n{supervisor()}" if dry == "full" else script)
        print(f"slurmopt: dry run, nothing submitted; {len(multirun.jobs)} jobs", file=sys.stderr)
        raise SystemExit(0)
    from hydra_plugins.slurmopt_launcher._wait import commands, wait

    submissions, _ = submission.submit_sweep(plan, script)
    jobs = ", ".join(str(submitted.job) for submitted in submissions)
    whose = "job" if plan.backend == "local" else "Slurm's"
    log.info(f"Launched {len(multirun.jobs)} jobs by slurmopt: {whose} {jobs}; folder {plan.sweep.path}")
    if not multirun.options.wait:
        print(f"slurmopt: {commands(plan.sweep)}", file=sys.stderr, flush=True)
        return [JobReturn(overrides=words, status=JobStatus.COMPLETED) for words in multirun.jobs]
    return wait(plan.sweep, multirun.jobs)


def planned(multirun: Multirun) -> SweepPlan:
    """Returns the plan of the sweep for the batch. Writes nothing."""
    from hydra_plugins.slurmopt_launcher._points import points_of
    from slurmopt.hydra_app.context import FILE
    from slurmopt.launching.job_plan import workdir
    from slurmopt.launching.run_name import new_run_folder
    from slurmopt.launching.sweep_plan import sweep_plan

    stored, typed = settings_of(multirun)
    name = typed.launch.name or "run"
    words = [shlex.quote(word) for word in multirun.config.hydra.overrides.task]
    points = points_of(multirun.jobs, multirun.first, stored)
    plan = sweep_plan(typed, points, new_run_folder(name, typed.launch), name, workdir(typed, Path.cwd()), words)
    return replace(plan, files={FILE: _context(multirun, plan.source)})


def settings_of(multirun: Multirun) -> tuple[dict[str, Any], Settings]:
    """Returns `hydra.launcher.*` as slurmopt's groups: as plain containers with `oc.env` unresolved, and typed. Raises
    ConfigError with the key."""
    from slurmopt.config.composition.error_messages import translate
    from slurmopt.config.composition.self_contained import self_contained
    from slurmopt.config.composition.settings import settings
    from slurmopt.config.schema import GROUPS

    groups = self_contained(multirun.options, leave_out="_target_")
    for group, keys in _FLAT.items():
        groups[group] = {key: groups.pop(key) for key in keys}
    groups["task"] = {"_target_": TARGET}
    typed = {name: OmegaConf.structured(kind) for name, kind in GROUPS.items()}
    try:
        merged = OmegaConf.create({name: OmegaConf.merge(node, groups.get(name, {})) for name, node in typed.items()})
    except OmegaConfBaseException as error:
        raise translate(error) from error
    plain = OmegaConf.to_container(merged, resolve=False)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}, settings(merged)


def _context(multirun: Multirun, source: Path) -> bytes:
    """Returns the content of the context file for the jobs. Raises ConfigError if the application cannot be pickled."""
    from hydra.core.singleton import Singleton

    from slurmopt.hydra_app import context

    shared = context.Context(
        function=multirun.function,
        config=multirun.config,
        hydra=multirun.hydra,
        singletons=Singleton.get_state(),
        cwd=os.getcwd(),
        source=str(source.absolute()),
        first=multirun.first,
        jobs=multirun.jobs,
    )
    try:
        return context.dumps(shared)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ConfigError(f"the application cannot be sent to its jobs: {one_line(what)}") from error


def _in_hydras_words(error: SlurmoptError) -> str:
    """Returns the message with the keys of slurmopt's config replaced by those of `hydra.launcher`."""
    return _FLAT_KEY.sub(r"hydra.launcher.\1", _GROUP_KEY.sub(r"hydra.launcher.\1", str(error)))
