"""The job script: config in, text out. Pure: the same config gives the same text, byte for byte."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurmopt.config.composition.deferred import DEFERRED
from slurmopt.config.composition.shipped import shipped
from slurmopt.errors import ConfigError, one_line
from slurmopt.restart import causes
from slurmopt.run_folder.layout import SUPERVISOR
from slurmopt.run_folder.process import module_start
from slurmopt.run_folder.supervisor_file import kept_name, sha256
from slurmopt.slurm.script.container import apptainer_variables, mounted_folders
from slurmopt.slurm.script.directives import directives
from slurmopt.slurm.script.job import Job, lead, policy
from slurmopt.slurm.script.quoting import comment_line, shell, shell_deferred
from slurmopt.slurm.script.step import command, nodes, own_srun, pythonpath, ranks, runtime, srun
from slurmopt.units import seconds

_TEMPLATES = "sbatch_templates"


def render(job: Job) -> str:
    """The script's text. ConfigError where a template is missing or names something undefined."""
    import jinja2

    template = job.settings.launch.template
    loaders: list[jinja2.BaseLoader] = [jinja2.FileSystemLoader(shipped(_TEMPLATES))]
    if template is not None:
        loaders.insert(0, jinja2.FileSystemLoader(Path(template).absolute().parent))
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  every value is quoted for its place in a shell script, not for HTML
    )
    environment.filters["shell"] = shell
    name = Path(template).name if template else "job.sbatch.j2"
    try:
        return environment.get_template(name).render(context(job))
    except jinja2.TemplateNotFound as error:
        raise ConfigError(f"there is no template {one_line(str(error))!r}", "launch.template") from error
    except jinja2.TemplateError as error:
        place = f" (line {error.lineno})" if isinstance(error, jinja2.TemplateSyntaxError) else ""
        raise ConfigError(f"{name}: {one_line(str(error))}{place}", "launch.template") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8", "launch.template") from error
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:  # raised by its expressions
        raise ConfigError(f"{name}: {one_line(str(error))}", "launch.template") from error


@functools.cache
def supervisor() -> str:
    """The text of supervisor.sh, which a launch writes beside the script: what all jobs have in common."""
    return (shipped(_TEMPLATES) / SUPERVISOR).read_text(encoding="utf-8")


def _has_own_supervisor(template: str | None) -> bool:
    """Whether a template of the user's own has other parts of the supervisor beside it, which are to be used then."""
    if template is None:
        return False
    return any((Path(template).absolute().parent / name).exists() for name in ("supervisor.sh.j2", "array.sh.j2"))


def context(job: Job) -> dict[str, Any]:
    """What a template may name; docs/templates.md tells of each."""
    environment = job.settings.environment
    return {
        "job": job,
        "title": comment_line(f"{job.name} · run {job.folder.id}"),
        "made_from": comment_line(job.made_from),
        "directives": directives(job),
        "modules": [(name, shell_deferred(name, "environment.modules")) for name in environment.modules],
        "setup": [_setup_line(line) for line in environment.setup],
        "exports": _exports(job),
        "ranks": ranks(job),
        "nodes": nodes(job),
        "srun": srun(job),
        "runtime": runtime(job),
        "command": command(job),
        "own_srun": own_srun(job),
        "pythonpath": pythonpath(job),
        "module_start": [shell(word) for word in module_start()],
        "policy": _policy(job),
        "mode": "750" if job.settings.launch.group_access else "700",
        "lead": lead(job.settings),
        "hold": job.settings.restart.lead == "auto",
        "limit": None if job.settings.resources.time is None else seconds(job.settings.resources.time),
        "lookout": _lookout(job),
        # A word for each of a thousand points would be noise.
        "notify": None if job.sweep else job.settings.notify.to_json_arg(),
        "sweep": job.sweep,
        "container": environment.container.image is not None,
        "mounted_folders": mounted_folders(job, nodes(job)),
        "apptainer_variables": apptainer_variables(job),
        "supervisor": supervisor(),
        "supervisor_sha256": sha256(supervisor()),
        "kept_supervisor": kept_name(supervisor()),
        "own_supervisor": _has_own_supervisor(job.settings.launch.template),
    }


_NO_END = 1_000_000


def _policy(job: Job) -> str:
    job_policy = policy(job)
    if job.packed:  # each point has its own budget; the array task comes back as long as it has points
        # A user error of the parent's is "3 of 40 points failed": it would be the same the next time.
        budgets = job_policy.budgets | {causes.key(causes.USER_ERROR): 0}
        job_policy = replace(job_policy, budgets=budgets, no_progress=_NO_END, checkpoints=None)
    return job_policy.to_json_arg()


def _lookout(job: Job) -> list[str]:
    """The words of the process that looks out for hangs; none where it is switched off."""
    patience = job.settings.restart.hang_after
    if patience == "off" or job.packed:  # the parent looks after its points itself
        return []
    words = ["--hang-after", patience if patience == "auto" else seconds(patience)]
    words += ["--deadline", seconds(job.settings.checkpoint.deadline)]
    words += ["--timeout", seconds(job.settings.network.timeout)]
    return [shell(word) for word in [*words, "--heartbeat", seconds(job.settings.monitor.heartbeat)]]


def _setup_line(line: str) -> str:
    """A line of the user's own bash; `${oc.env:NAME}` in it means the job's variable."""
    return DEFERRED.sub(lambda match: f"${{{match[1]}}}" if match[2] is None else f"${{{match[1]}-{match[2]}}}", line)


def _exports(job: Job) -> list[tuple[str, str]]:
    """Not the number of the array task that an imported script expects: Slurm's own says which points the task has.
    Each point sets its own before its training starts."""
    merged = {**job.settings.network.variables, **job.settings.environment.variables}
    return [
        (name, shell_deferred(value, f"environment.variables.{name}"))
        for name, value in merged.items()
        if value is not None and not (job.sweep and str(name).startswith("SLURM_ARRAY_"))
    ]
