"""Makes the plan of one run from overrides: composes and validates; writes nothing and asks nobody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt.errors import ConfigError
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.submit.plan import Plan

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from slurmopt.config.launch import Launch


from slurmopt.config.imports import import_from
from slurmopt.launching.benchmark import check_benchmark
from slurmopt.launching.failure_rate import with_known_rate
from slurmopt.launching.job_plan import checked_task, chosen_backend, dependencies, job_for, workdir
from slurmopt.launching.run_name import new_run_folder, run_name, tell_another_name


def plan(overrides: list[str], config_dir: str | None = None) -> Plan:
    """Composes and validates; nothing is written and nobody is asked. Raises ConfigError."""
    from slurmopt.config.composition.compose import compose
    from slurmopt.config.composition.settings import check_groups, settings, typed_group

    config = compose(overrides, config_dir)
    check_groups(config)
    first = typed_group(config, "launch")
    if first.run is not None:
        return _plan_of_existing(first, overrides)
    for module in first.imports:
        import_from(Path.cwd(), module)
    name = run_name(config, first)
    run = new_run_folder(name, first)
    tell_another_name(first, run)
    stored = _stored(config, run)
    typed = settings(config)
    if (known := with_known_rate(overrides, typed)) is not None:
        return plan(known, config_dir)
    for option in ("points", "zip", "skip", "search", "then"):
        if getattr(typed.sweep, option):
            raise ConfigError("is for many runs; add -m, or leave it out", f"sweep.{option}")
    source = workdir(typed, Path.cwd())
    backend = chosen_backend(typed)
    typed = checked_task(typed, source)
    check_benchmark(config, typed)
    job = replace(job_for(typed, run, name, source, backend, overrides), after=dependencies(typed, backend))
    return Plan(job, backend, stored, overrides, source)


def _plan_of_existing(asked: Launch, overrides: list[str]) -> Plan:
    """An existing run goes on with its own script, wherever the launch is typed."""
    from slurmopt.runs.submit.resume import resume

    resumed = resume(asked)
    run, stored = resumed.run, resumed.stored
    job = job_for(resumed.settings, run, run.name, run.path, resumed.backend, overrides)
    after = resumed.after
    return Plan(job, resumed.backend, stored, overrides, run.path, existing=True, after=after, submitted=resumed.job)


def _stored(config: DictConfig, run: RunFolder) -> dict[str, Any]:
    """The config as config.yaml keeps it; `${hydra:…}` is answered here, the run folder being Hydra's output folder."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import open_dict

    from slurmopt.config.composition.deferred import storable

    with open_dict(config):
        config.hydra.run.dir = config.hydra.runtime.output_dir = str(run.path)
    HydraConfig.instance().cfg = config  # type: ignore[assignment]
    return storable(config, leave_out="hydra")
