"""`python -m slurmopt.launch +experiment=x`: compose → check → render → submit. The one place that wires it all."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt import __version__
from slurmopt.cli import guarded
from slurmopt.config import arguments
from slurmopt.errors import CheckError, ConfigError, SlurmUnreachable
from slurmopt.folder.layout import RunFolder, folder_name
from slurmopt.patience import patience
from slurmopt.runs.plan import Plan

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from slurmopt.config.launch import Launch
    from slurmopt.config.schema import Settings
    from slurmopt.slurm.script import Job


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
        planned = plan(parsed.overrides, parsed.config_dir)
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
        _import(module)
    name = _name(config, first)
    run = _run_folder(name, first)
    stored = _stored(config, run)
    typed = settings(config)
    source = _workdir(typed)
    _check_task(typed, source)
    backend = _backend(typed)
    return Plan(_job(typed, run, name, source, backend, overrides), backend, stored, overrides, source)


def _plan_of_existing(asked: Launch, overrides: list[str]) -> Plan:
    """An existing run goes on with its own script, wherever the launch is typed."""
    from slurmopt.runs.resume import resume

    run, stored, typed = resume(asked)
    backend = typed.launch.backend
    job = _job(typed, run, run.name, run.path, backend, overrides)
    return Plan(job, backend, stored, overrides, run.path, existing=True)


def _backend(typed: Settings) -> str:
    from slurmopt.backends import choose

    backend = choose(typed.launch.backend)
    if backend == "local" and typed.environment.container.image and typed.environment.container.runtime == "pyxis":
        raise ConfigError("pyxis is a part of Slurm; valid here: apptainer", "environment.container.runtime")
    return backend


def _job(typed: Settings, run: RunFolder, name: str, source: Path, backend: str, overrides: list[str]) -> Job:
    from slurmopt.slurm.script import Job

    return Job(
        name=name,
        folder=run,
        settings=typed,
        workdir=run.code if typed.environment.snapshot != "off" else source,
        python=sys.executable,
        version=__version__,
        made_from=" ".join(word for word in overrides if not word.lstrip("+~").startswith("launch.")),
        local=backend == "local",
    )


def _workdir(typed: Settings) -> Path:
    """Where the job is to run, as the launch sees it."""
    folder = Path(typed.environment.workdir or Path.cwd()).expanduser().absolute()
    try:
        if folder.is_dir():
            return folder
    except OSError as error:  # too long, or below a folder that is closed
        raise ConfigError(f"{str(folder)!r}: {(error.strerror or '').lower()}", "environment.workdir") from error
    raise ConfigError(f"{str(folder)!r} is no folder", "environment.workdir")


def _import(module: str) -> None:
    sys.path.insert(0, str(Path.cwd()))
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


def _name(config: DictConfig, first: Launch) -> str:
    """`launch.name`, else the experiment's, else the task's."""
    if first.name:
        return first.name
    experiment = config.hydra.runtime.choices.get("experiment")
    target = config.task._target_ if "_target_" in config.task else None
    return str(experiment or (target or "run").rpartition(".")[2]).rpartition("/")[2]


def _stored(config: DictConfig, run: RunFolder) -> dict[str, Any]:
    """The config as config.yaml keeps it; `${hydra:…}` is answered here, the run folder being Hydra's output folder."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import open_dict

    from slurmopt.config.deferred import storable

    with open_dict(config):
        config.hydra.run.dir = config.hydra.runtime.output_dir = str(run.path)
    HydraConfig.instance().cfg = config  # type: ignore[assignment]
    return storable(config, leave_out="hydra")


def _check_task(typed: Settings, source: Path) -> None:
    from slurmopt.config.target import check_target

    if typed.task._target_ is None and typed.task.command is None:
        raise ConfigError(
            "nothing to run; set task._target_=package.module.function or task.command, "
            "or pick an experiment that does: +experiment=quickstart",
            "task",
        )
    if typed.task._target_ is not None:
        check_target(typed.task._target_, source)


def launch(plan: Plan) -> int:
    """Checks the plan against the cluster and carries it out, or prints what would be submitted."""
    from slurmopt import backends

    backend = backends.load(plan.backend)
    settings = plan.job.settings
    script = plan.job.folder.script.read_text(encoding="utf-8") if plan.existing else backend.script(plan.job)
    if backend.slurm and settings.launch.check:
        check(settings, tolerant=settings.launch.dry_run)
    if settings.launch.dry_run:
        return _show(plan, script)
    if backend.slurm and settings.launch.check:
        from slurmopt.slurm.estimate import estimate

        with patience("asking Slurm when it could start"):
            plan.estimate = estimate(script)
    from slurmopt.runs.submission import carry_out

    return carry_out(plan, backend, script)


def check(settings: Settings, tolerant: bool) -> None:
    """Raises CheckError with all that the cluster cannot give; `tolerant` of a cluster that does not answer."""
    from slurmopt.slurm.facts import facts
    from slurmopt.slurm.limits import findings, with_site_defaults

    try:
        with patience("asking Slurm what the cluster has"):
            found = findings(with_site_defaults(settings.resources, os.environ), facts())
    except SlurmUnreachable as error:
        if not tolerant:
            raise
        print(f"slurmopt: not checked against the cluster: {error}", file=sys.stderr)
        return
    if found:
        raise CheckError(found)


def _show(plan: Plan, script: str) -> int:
    run = plan.job.folder
    if plan.job.settings.launch.json:
        answer = {"run": str(run.path), "name": plan.job.name, "backend": plan.backend, "job_ids": [], "runs": 1}
        script = json.dumps({**answer, "script": script}) + "\n"
    sys.stdout.write(script)
    sys.stdout.flush()
    print(
        f"slurmopt: dry run, nothing submitted; it would go to {run.path} by {plan.backend}; "
        f"launch.id={run.id} submits this very script",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
