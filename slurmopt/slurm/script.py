"""The job script: config in, text out. Pure: the same config gives the same text, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slurmopt.config.deferred import DEFERRED
from slurmopt.config.environment import Container
from slurmopt.config.health import checks_of
from slurmopt.config.resources import Resources
from slurmopt.config.schema import Settings
from slurmopt.config.shipped import shipped
from slurmopt.errors import ConfigError, one_line
from slurmopt.folder.layout import RunFolder
from slurmopt.slurm.quoting import comment_line, directive, file_pattern, shell, shell_deferred
from slurmopt.survival.policy import policy_of
from slurmopt.units import human_seconds, mebibytes, seconds, slurm_time

_CONTAINER_PACKAGE = "/opt/slurmopt"
_NO_END = 1_000_000


@dataclass(frozen=True)
class Array:
    """How the array tasks of a sweep run their points."""

    packed: bool
    """Whether a parent starts them; else each array task is one point."""
    side_by_side: int = 1
    search: bool = False


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that a script is made from."""

    name: str
    folder: RunFolder
    settings: Settings
    workdir: Path
    python: str
    """The Python of the batch shell: the one that launched."""
    version: str
    made_from: str
    """What was typed, for the script's first lines."""
    local: bool = False
    """Whether it is to run as processes on this machine."""
    submitit: bool = False
    """Whether each rank starts through submitit's own entry."""
    sweep: Array | None = None
    """Whether the script is that of a sweep's array tasks; `folder` is the sweep's then."""
    after: tuple[Path, ...] = ()
    """The runs and sweeps that it starts after."""

    @property
    def packed(self) -> bool:
        return self.sweep is not None and self.sweep.packed


def render(job: Job) -> str:
    """The script's text. ConfigError where a template is missing or names something undefined."""
    import jinja2

    template = job.settings.launch.template
    loaders: list[jinja2.BaseLoader] = [jinja2.FileSystemLoader(shipped("sbatch_templates"))]
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
        "ranks": _ranks(job),
        "nodes": _nodes(job),
        "srun": _srun(job),
        "runtime": _runtime(job),
        "pythonpath": _pythonpath(job),
        "policy": _policy(job),
        "mode": "750" if job.settings.launch.group_access else "700",
        "lead": lead(job.settings),
        "hold": job.settings.restart.lead == "auto",
        "limit": None if job.settings.resources.time is None else seconds(job.settings.resources.time),
        "lookout": _lookout(job),
        # A word for each of a thousand points would be noise.
        "notify": [] if job.sweep else [shell(word) for word in job.settings.notify.words()],
        "sweep": job.sweep,
        "container": environment.container.image is not None,
    }


def processes_per_node(job: Job) -> int:
    """How many processes the step starts on a node; of a packed array task it is the parent alone."""
    return 1 if job.packed or job.settings.task.per == "node" else job.settings.resources.ranks_per_node


def _nodes(job: Job) -> int | str:
    """The number of nodes; of a range, the word of bash for how many this attempt has. On this machine: the least."""
    resources = job.settings.resources
    return resources.least_nodes if job.local or not resources.elastic else "$SLURM_JOB_NUM_NODES"


def _ranks(job: Job) -> int | str:
    """How many processes the step starts in all: a number, or the word of bash for it."""
    nodes, each = _nodes(job), processes_per_node(job)
    return nodes * each if isinstance(nodes, int) else f"$((SLURM_JOB_NUM_NODES * {each}))"


def directives(job: Job) -> list[tuple[str, list[str]]]:
    """The `#SBATCH` options in groups, each with a heading."""
    resources = job.settings.resources
    groups = [
        ("the run", _run_directives(job)),
        ("what it needs", _needs(job)),
        ("where it runs", _place(resources)),
        ("who hears of it", _options(resources, mail_user="mail-user", mail_type="mail-type")),
        ("further options", [directive(name, value) for name, value in resources.extra.items() if value is not False]),
        ("coming back: a signal to this shell before the time limit, and leave to be requeued", _return(job)),
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


def cpus_per_process(job: Job) -> int | None:
    """A process that stands for a whole node gets the cores of all its ranks."""
    resources = job.settings.resources
    if resources.cpus_per_task is None:
        return None
    return resources.cpus_per_task * (resources.ranks_per_node // processes_per_node(job))


def slurm_memory(text: str) -> str:
    """Memory as sbatch takes it, in the largest whole unit."""
    size = mebibytes(text)
    return f"{size // 1024}G" if size and size % 1024 == 0 else f"{size}M" if size else "0"


def _place(resources: Resources) -> list[str]:
    names = ("partition", "account", "qos", "constraint", "nodelist", "exclude", "reservation")
    return _options(resources, **{name: name for name in names})


def _options(resources: Resources, **options: str) -> list[str]:
    given = [(option, getattr(resources, name)) for name, option in options.items()]
    return [directive(option, value) for option, value in given if value is not None]


def _return(job: Job) -> list[str]:
    return [directive("requeue"), directive("signal", f"B:USR1@{lead(job.settings)}")]


def lead(settings: Settings) -> int:
    """Seconds before the time limit at which the job is told: `restart.lead`, or what suits the limit."""
    limit = seconds(settings.resources.time) if settings.resources.time is not None else None
    if settings.restart.lead == "auto":
        return min(120, max(1, limit // 4)) if limit is not None else 120
    chosen = seconds(settings.restart.lead)
    if limit is not None and chosen >= limit:
        raise ConfigError(
            f"{human_seconds(chosen)} is not shorter than resources.time ({human_seconds(limit)})", "restart.lead"
        )
    return chosen


def _policy(job: Job) -> str:
    settings = job.settings
    durable = settings.checkpoint.durable_tier
    policy = policy_of(settings.restart, settings.task, settings.resources, job.workdir, durable)
    if job.packed:  # each point has its own budget; the array task comes back as long as it has points
        policy = replace(policy, no_progress=_NO_END, checkpoints=None)
    return policy.as_word()


def _lookout(job: Job) -> list[str]:
    """The words of the process that looks out for hangs; none where it is switched off."""
    patience = job.settings.restart.hang_after
    if patience == "off" or job.packed:  # the parent looks after its points itself
        return []
    words = ["--hang-after", patience if patience == "auto" else seconds(patience)]
    words += ["--deadline", seconds(job.settings.checkpoint.deadline)]
    return [shell(word) for word in [*words, "--heartbeat", seconds(job.settings.monitor.heartbeat)]]


def _setup_line(line: str) -> str:
    """A line of the user's own bash; `${oc.env:NAME}` in it means the job's variable."""
    return DEFERRED.sub(lambda match: f"${{{match[1]}}}" if match[2] is None else f"${{{match[1]}-{match[2]}}}", line)


def _exports(job: Job) -> list[tuple[str, str]]:
    merged = {**job.settings.network.variables, **job.settings.environment.variables}
    return [
        (name, shell_deferred(value, f"environment.variables.{name}"))
        for name, value in merged.items()
        if value is not None
    ]


def _srun(job: Job) -> list[str]:
    """srun's options, each one word of bash."""
    container = job.settings.environment.container
    words = [f"--ntasks-per-node={processes_per_node(job)}"]
    if (cpus := cpus_per_process(job)) is not None:  # srun since 22.05 does not take it over from sbatch
        words.append(f"--cpus-per-task={cpus}")
    words.append("--kill-on-bad-exit=1")
    if container.image is not None and container.runtime == "pyxis":
        mounts = ",".join(_mounts(job, container))
        words += [f"--container-image={container.image}", f"--container-mounts={mounts}"]
        words += [f"--container-workdir={job.workdir}", *container.options]
    return [f"--nodes={_nodes(job)}", f"--ntasks={_ranks(job)}", *map(shell, words)]


def _mounts(job: Job, container: Container) -> list[str]:
    package = Path(__file__).resolve().parent.parent
    own = [f"{job.folder.path}:{job.folder.path}", f"{job.workdir}:{job.workdir}"]
    return [*own, f"{package}:{_CONTAINER_PACKAGE}/slurmopt:ro", *container.mounts]


def _pythonpath(job: Job) -> str | None:
    """Where a Python that has no slurmopt of its own finds it."""
    if job.settings.environment.container.image is not None:
        return _CONTAINER_PACKAGE
    return str(job.folder.package) if job.settings.task.python is not None else None


def _runtime(job: Job) -> list[str]:
    """The words that start one rank, or all of them on this machine; each is one word of bash."""
    python = [shell(word) for word in [*_apptainer(job), *_python(job)]]
    if job.submitit:
        return [*python, "-m", "submitit.core._submit", '"$SLURMOPT_RUN_FOLDER/submitit"']
    arguments = [shell(word) for word in rank_arguments(job.settings)]
    if job.packed:
        return [
            *python,
            "-m",
            "slurmopt.runtime.pack",
            '"$SLURMOPT_SWEEP"',
            '"$1"',
            '"$2"',
            '"$3"',
            *_packing(job),
            *arguments,
        ]
    entry = ["slurmopt.runtime"]
    if job.local:
        entry = ["slurmopt.runtime.spawn", "--ranks", str(_ranks(job))]
    return [*python, "-m", *entry, '"$SLURMOPT_RUN_FOLDER"', *arguments]


def _packing(job: Job) -> list[str]:
    """What the parent is told beside the task: resources are the array task's, and points side by side share them."""
    assert job.sweep is not None
    settings = job.settings
    policy = policy_of(
        settings.restart, settings.task, settings.resources, job.workdir, settings.checkpoint.durable_tier
    )
    side = job.sweep.side_by_side
    words = ["--side-by-side", side, "--ranks", max(1, settings.resources.ranks_per_node // side)]
    words += ["--policy", policy.as_word(), *(["--search"] if job.sweep.search else [])]
    return [shell(word) for word in words]


def rank_arguments(settings: Settings) -> list[str]:
    """What `python -m slurmopt.runtime FOLDER` is told of the task."""
    task = settings.task
    patience = settings.restart.hang_after
    words = ["--heartbeat", str(seconds(settings.monitor.heartbeat))]
    words += ["--hang-after", patience if patience in ("auto", "off") else str(seconds(patience))]
    if settings.health.enabled:
        checkpoint = settings.checkpoint
        checks = checks_of(settings.health, checkpoint.scratch.path, checkpoint.shared.path)
        words += ["--health", checks.as_word()]
    if task.command is not None:
        words += ["--per", "node"] if task.per == "node" else []
        words += ["--forward", settings.restart.forward] if settings.restart.forward else []
        return [*words, "--", *map(_word, task.command)]
    words += ["--timeout", str(seconds(settings.network.timeout)), "--backend", settings.network.backend]
    words += [word for module in settings.launch.imports for word in ("--import", module)]
    return [*words, "--function", str(task._target_)]


def _word(value: Any) -> str:
    """A word of a command; YAML's true is the word "true", not Python's."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _python(job: Job) -> list[str]:
    task, container = job.settings.task, job.settings.environment.container
    return [task.python or ("python3" if container.image is not None else job.python)]


def _apptainer(job: Job) -> list[str]:
    container = job.settings.environment.container
    if container.image is None or container.runtime != "apptainer":
        return []
    binds = [word for mount in _mounts(job, container) for word in ("--bind", mount)]
    gpus = ["--nv"] if job.settings.resources.gpus_per_node else []
    return ["apptainer", "exec", *gpus, *binds, "--pwd", str(job.workdir), *container.options, container.image]
