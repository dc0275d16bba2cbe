"""`python -m slurmopt.launch +experiment=x`: compose → check → render → submit. The one place that wires it all."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt import __version__
from slurmopt.cli import guarded
from slurmopt.config import arguments
from slurmopt.errors import CheckError, ConfigError, SlurmUnreachable, one_line
from slurmopt.folder.files import read_script
from slurmopt.folder.layout import RunFolder, folder_name
from slurmopt.patience import patience
from slurmopt.runs.plan import Plan
from slurmopt.sweeps.plan import SweepPlan

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from slurmopt.backends.protocol import Backend
    from slurmopt.config.launch import Launch
    from slurmopt.config.resources import Resources
    from slurmopt.config.schema import Settings
    from slurmopt.grid.points import Points
    from slurmopt.slurm.facts import ClusterFacts
    from slurmopt.slurm.job import Job


def main(argv: list[str] | None = None) -> int:
    """Launches what the command line says; returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return guarded(lambda: _main(words))


def _main(words: list[str]) -> int:
    parsed = arguments.parse(words)
    if parsed.shows:
        from slurmopt.config.show import show

        return show(parsed.words, parsed.config_dir)
    # Standard output is for the script or the JSON alone; the user's modules and resolvers may print.
    with contextlib.redirect_stdout(sys.stderr):
        make = plan_sweep if parsed.multirun else plan
        planned = make(parsed.overrides, parsed.config_dir)
    return launch(planned)


def plan(overrides: list[str], config_dir: str | None = None) -> Plan:
    """Composes and validates; nothing is written and nobody is asked. Raises ConfigError."""
    from slurmopt.config.compose import compose
    from slurmopt.config.settings import check_groups, settings, typed_group

    config = compose(overrides, config_dir)
    check_groups(config)
    first = typed_group(config, "launch")
    if first.run is not None:
        return _plan_of_existing(first, overrides)
    for module in first.imports:
        import_from(Path.cwd(), module)
    name = _name(config, first)
    run = _run_folder(name, first)
    _tell_another_name(first, run)
    stored = _stored(config, run)
    typed = settings(config)
    for option in ("points", "zip", "skip", "search", "then"):
        if getattr(typed.sweep, option):
            raise ConfigError("is for many runs; add -m, or leave it out", f"sweep.{option}")
    source = workdir(typed, Path.cwd())
    backend = _backend(typed)
    typed = checked_task(typed, source)
    job = replace(job_for(typed, run, name, source, backend, overrides), after=_after(typed, backend))
    return Plan(job, backend, stored, overrides, source)


def plan_sweep(overrides: list[str], config_dir: str | None = None) -> SweepPlan:
    """`plan` for many runs: the points are described, each choice of config groups composed once."""
    from slurmopt.config.settings import typed_group
    from slurmopt.sweeps.describe import describe

    found = describe(overrides, config_dir)
    first = typed_group(found.config, "launch")
    if first.run is not None:
        raise ConfigError("is one run, and -m is for many; to go on with points: slurmopt retry", "launch.run")
    name = _name(found.config, first)
    run = _run_folder(name, first)
    _tell_another_name(first, run)
    source = workdir(found.settings, Path.cwd())
    return sweep_plan(checked_task(found.settings, source), found.points, run, name, source, overrides)


def sweep_plan(
    typed: Settings, points: Points, run: RunFolder, name: str, source: Path, overrides: list[str]
) -> SweepPlan:
    """The plan for `points` that are described already. ConfigError where they cannot be run so."""
    from slurmopt.slurm.job import Array
    from slurmopt.sweeps.plan import needs_one_node
    from slurmopt.sweeps.search import check_search

    backend = _backend(typed)
    if backend != "sbatch":
        raise ConfigError(f"sweeps go to Slurm by sbatch, not by {backend}", "launch.backend")
    if typed.sweep.packed and (why := needs_one_node(typed)) is not None:
        raise ConfigError(why, "sweep.search" if typed.sweep.search else "sweep.per_task")
    check_search(typed, points.axes)
    _check_then(typed)
    if typed.notify.as_word():
        print("slurmopt: notify is not for points of a sweep; a run after it may tell: sweep.then", file=sys.stderr)
    array = Array(typed.sweep.packed, typed.sweep.side_by_side, typed.sweep.search is not None)
    job = replace(job_for(typed, run, name, source, backend, overrides), sweep=array, after=_after(typed, backend))
    return SweepPlan(job, backend, points.config(0, run.path), overrides, source, points=points)


def _check_then(typed: Settings) -> None:
    """What follows the sweep is composed now, so that a mistake in it shows before anything is submitted."""
    if typed.sweep.then is None:
        return
    try:
        follows = plan([*shlex.split(typed.sweep.then), "launch.after_failure=true"])
    except (ConfigError, ValueError) as error:
        raise ConfigError(str(error), "sweep.then") from error
    asked = follows.job.settings.launch
    wrong = {
        "backend": follows.backend == "local",
        "dry_run": asked.dry_run,
        "wait": asked.wait,
        "run": follows.existing,
    }
    for name, is_set in wrong.items():
        if is_set:
            raise ConfigError(f"launch.{name} is not for what follows a sweep; leave it out", "sweep.then")


def _after(typed: Settings, backend: str) -> tuple[str, ...]:
    if not typed.launch.after:
        return ()
    if backend == "local":
        raise ConfigError("only Slurm can wait for another job; launch it once that has finished", "launch.after")
    from slurmopt.sweeps.after import dependency

    return tuple(dependency(typed.launch, Path.cwd()))


def _plan_of_existing(asked: Launch, overrides: list[str]) -> Plan:
    """An existing run goes on with its own script, wherever the launch is typed."""
    from slurmopt.runs.resume import resume

    found = resume(asked)
    run, stored = found.run, found.stored
    job = job_for(found.settings, run, run.name, run.path, found.backend, overrides)
    after = found.after
    return Plan(job, found.backend, stored, overrides, run.path, existing=True, after=after, submitted=found.job)


def _backend(typed: Settings) -> str:
    from slurmopt.backends import choose

    backend = choose(typed.launch.backend)
    if backend == "local" and typed.environment.container.image and typed.environment.container.runtime == "pyxis":
        raise ConfigError("pyxis is a part of Slurm; valid here: apptainer", "environment.container.runtime")
    return backend


def job_for(typed: Settings, run: RunFolder, name: str, source: Path, backend: str, overrides: list[str]) -> Job:
    """What the script is made from; `source` is the working directory, or what a snapshot is taken of."""
    from slurmopt.config.command import with_per
    from slurmopt.slurm.job import Job

    return Job(
        name=name,
        folder=run,
        settings=with_per(typed, source),
        workdir=run.code if typed.environment.snapshot != "off" else source,
        python=sys.executable,
        version=__version__,
        made_from=" ".join(word for word in overrides if not word.lstrip("+~").startswith("launch.")),
        local=backend == "local",
    )


def workdir(typed: Settings, home: Path) -> Path:
    """Where the job is to run, as the launch sees it; `home` is where that was typed."""
    folder = home / Path(typed.environment.workdir or "").expanduser()
    try:
        if folder.is_dir():
            return folder
    except OSError as error:  # too long, or below a folder that is closed
        raise ConfigError(f"{str(folder)!r}: {(error.strerror or '').lower()}", "environment.workdir") from error
    raise ConfigError(f"{str(folder)!r} is no folder", "environment.workdir")


def import_from(home: Path, module: str) -> None:
    """Imports a module that may lie in `home`, for the resolvers it registers. Raises ConfigError."""
    sys.path.insert(0, str(home))
    try:
        import_module(module)
    except ImportError as error:
        raise ConfigError(f"cannot import {module!r}: {error}", "launch.imports") from error
    finally:
        sys.path.pop(0)


def _run_folder(name: str, first: Launch) -> RunFolder:
    folder = Path(first.folder).expanduser().absolute()
    if not str(folder).isprintable() or "\\" in str(folder):
        # Slurm could not be told where the log belongs: a directive is one line, a backslash ends its file patterns.
        raise ConfigError(f"{str(folder)!r} has control characters or backslashes", "launch.folder")
    run_id = first.id or f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"
    return RunFolder(folder / folder_name(name) / run_id)


def _tell_another_name(first: Launch, run: RunFolder) -> None:
    """Says so where `launch.name` cannot be a folder's."""
    if first.name and first.name != run.name:
        print(
            f"slurmopt: launch.name: {one_line(first.name)!r} cannot be a folder's name (valid: up to 100 letters, "
            f"digits, '.', '_' and '-'): the run is named {run.name}",
            file=sys.stderr,
        )


def _name(config: DictConfig, first: Launch) -> str:
    """`launch.name`, else the experiment's, else the task's."""
    if first.name:
        return first.name
    experiment = config.hydra.runtime.choices.get("experiment")
    return str(experiment or _target(config).rpartition(".")[2]).rpartition("/")[2]


def _target(config: DictConfig) -> str:
    from omegaconf.errors import OmegaConfBaseException

    from slurmopt.config.translate import translate

    try:
        return str(config.task.get("_target_") or "run")
    except OmegaConfBaseException as error:
        raise translate(error) from error


def _stored(config: DictConfig, run: RunFolder) -> dict[str, Any]:
    """The config as config.yaml keeps it; `${hydra:…}` is answered here, the run folder being Hydra's output folder."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import open_dict

    from slurmopt.config.deferred import storable

    with open_dict(config):
        config.hydra.run.dir = config.hydra.runtime.output_dir = str(run.path)
    HydraConfig.instance().cfg = config  # type: ignore[assignment]
    return storable(config, leave_out="hydra")


def checked_task(typed: Settings, source: Path) -> Settings:
    """`typed` with `task.per` decided. ConfigError where there is nothing to run, or it is not there."""
    from slurmopt.config.checkpoint import check_packages
    from slurmopt.config.command import check_command, check_python, check_task, launcher, with_per
    from slurmopt.config.target import check_target

    check_task(typed.task)
    if typed.launch.check:
        check_python(typed, source)
    if typed.task._target_ is not None:
        check_target(typed.task._target_, source)
        environment = typed.environment
        if not (typed.task.python or environment.container.image or environment.modules or environment.setup):
            check_packages(typed.checkpoint)  # the job has this very Python
        return typed
    if typed.launch.check:
        check_command(typed, source)
    decided = with_per(typed, source)
    if typed.task.per == "auto" and (found := launcher(typed, source)) is not None:
        what = f"{found.name} in {found.script}" if found.script else found.name
        print(f"slurmopt: task.per={found.per}: {what} starts the ranks", file=sys.stderr)
    return decided


def launch(plan: Plan) -> int:
    """Checks the plan against the cluster and carries it out, or prints what would be submitted."""
    backend, script = ready(plan)
    settings = plan.job.settings
    if settings.launch.dry_run:
        return _show(plan, script)
    if backend.slurm and settings.launch.check:
        from slurmopt.slurm.estimate import estimate

        with patience("asking Slurm when it could start"):
            plan.estimate = estimate(script)
    if isinstance(plan, SweepPlan):
        from slurmopt.sweeps import submission

        return submission.carry_out(plan, script)
    from slurmopt.runs.submission import carry_out

    return carry_out(plan, backend, script)


def ready(plan: Plan) -> tuple[Backend, str]:
    """The backend and the script of a plan that the cluster can run. Raises CheckError."""
    from slurmopt import backends

    backend, settings = backends.load(plan.backend), plan.job.settings
    as_it_lies = plan.existing and plan.changes is None
    script = read_script(plan.job.folder.script) if as_it_lies else backend.script(plan.job)
    if backend.slurm and settings.launch.check:
        check(settings, tolerant=settings.launch.dry_run)
    if settings.notify.webhook and not settings.notify.webhook.startswith("${"):
        print(
            "slurmopt: notify.webhook is written into the run folder as it is; if it is a secret, write ${oc.env:NAME}",
            file=sys.stderr,
        )
    return backend, script


def check(settings: Settings, tolerant: bool) -> None:
    """Raises CheckError with all that the cluster cannot give; `tolerant` of a cluster that does not answer."""
    from slurmopt.slurm.facts import facts
    from slurmopt.slurm.limits import findings, idle_gpus, remarks, with_site_defaults

    resources = with_site_defaults(settings.resources, os.environ)
    try:
        with patience("asking Slurm what the cluster has"):
            known = facts()
            found = findings(resources, known)
    except SlurmUnreachable as error:
        if not tolerant:
            raise
        print(f"slurmopt: not checked against the cluster: {error}", file=sys.stderr)
        return
    if found:
        raise CheckError(found)
    alone = settings.task.per == "rank" and not settings.sweep.packed  # a process that stands for one rank only
    idle = idle_gpus(resources) if alone else []
    for line in [*remarks(resources, known), *idle, *_needs_tending(settings, resources, known)]:
        print(f"slurmopt: {line}", file=sys.stderr)


def _needs_tending(settings: Settings, resources: Resources, known: ClusterFacts) -> list[str]:
    """A line where Slurm would not bring the run back by itself, with the way out."""
    from slurmopt.runs.handover import cron_line
    from slurmopt.slurm.limits import cancelled_by_preemption

    names = cancelled_by_preemption(resources, known)
    if not names:
        return []
    why = f"partition {', '.join(names)}: a job of higher priority ends this one for good (PreemptMode=CANCEL)"
    return [f"{why}; this line of crontab brings it back: {cron_line(Path(settings.launch.folder))}"]


def _show(plan: Plan, script: str) -> int:
    run = plan.job.folder
    count = len(plan.points) if isinstance(plan, SweepPlan) else 1
    if plan.job.settings.launch.json:
        answer = {"run": str(run.path), "name": plan.job.name, "backend": plan.backend, "job_ids": [], "runs": count}
        script = json.dumps({**answer, "script": script}) + "\n"
    sys.stdout.write(script)
    sys.stdout.flush()
    what = f"{count:,} points" if isinstance(plan, SweepPlan) else "it"
    print(
        f"slurmopt: dry run, nothing submitted; {what} would go to {run.path} by {plan.backend}; "
        f"launch.id={run.id} submits this very script",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
