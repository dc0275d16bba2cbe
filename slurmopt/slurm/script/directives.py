"""The `#SBATCH` lines of a job script."""

from __future__ import annotations

from slurmopt.config.resources import Resources
from slurmopt.slurm.script.job import Job, cpus_per_process, lead, processes_per_node
from slurmopt.slurm.script.quoting import directive, file_pattern
from slurmopt.units import mebibytes, seconds, slurm_time


def directives(job: Job) -> list[tuple[str, list[str]]]:
    """The `#SBATCH` options in groups, each with a heading."""
    resources = job.settings.resources
    groups = [
        ("the run", _run_directives(job)),
        ("what it needs", _needs(job)),
        ("where it runs", _place(resources)),
        ("notifications", _options(resources, mail_user="mail-user", mail_type="mail-type")),
        ("further options", [directive(name, value) for name, value in resources.extra.items() if value is not False]),
        ("restarts: a signal to this shell before the time limit, and permission to requeue", _return(job)),
    ]
    return [(title, lines) for title, lines in groups if lines]


def _run_directives(job: Job) -> list[str]:
    output = f"{file_pattern(job.folder.logs)}/job-{'%A_%a' if job.sweep else '%j'}.log"
    return [directive("job-name", job.name), directive("output", output), directive("open-mode", "append")]


def _needs(job: Job) -> list[str]:
    resources = job.settings.resources
    lines = [directive("nodes", resources.nodes), _tasks(job)]
    if resources.cpus_per_task is not None:
        lines.append(directive("cpus-per-task", cpus_per_process(job)))
    if resources.gpus_per_node:
        kind = f"{resources.gpu_type}:" if resources.gpu_type else ""
        lines.append(directive("gpus-per-node", f"{kind}{resources.gpus_per_node}"))
    for name, option in (("memory", "mem"), ("memory_per_cpu", "mem-per-cpu"), ("memory_per_gpu", "mem-per-gpu")):
        if (value := getattr(resources, name)) is not None:
            lines.append(directive(option, slurm_memory(value)))
    if resources.time is not None:
        lines.append(directive("time", slurm_time(seconds(resources.time))))
    if resources.exclusive:
        lines.append(directive("exclusive"))
    return lines + _options(resources, licenses="licenses")


def _tasks(job: Job) -> str:
    """What makes each node large enough for its processes.

    With a range it names CPUs and no tasks: from `--ntasks-per-node` Slurm (22.05) computes a number of tasks when the
    job first starts, keeps it, and a requeued job then waits for as many nodes as it had.
    """
    each = processes_per_node(job)
    if not job.settings.resources.elastic:
        return directive("ntasks-per-node", each)
    return directive("mincpus", each * (cpus_per_process(job) or 1))


def slurm_memory(text: str) -> str:
    """Memory as sbatch takes it, in the largest whole unit."""
    size = mebibytes(text)
    return f"{size // 1024}G" if size and size % 1024 == 0 else f"{size}M" if size else "0"


def _place(resources: Resources) -> list[str]:
    names = ("partition", "account", "qos", "constraint", "nodelist", "exclude", "reservation")
    return _options(resources, **{name: name for name in names})


def _options(resources: Resources, **options: str) -> list[str]:
    values = [(option, getattr(resources, name)) for name, option in options.items()]
    return [directive(option, value) for option, value in values if value is not None]


def _return(job: Job) -> list[str]:
    return [directive("requeue"), directive("signal", f"B:USR1@{lead(job.settings)}")]
