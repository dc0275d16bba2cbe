"""What starts the ranks: srun and its options, containers, the words that the runtime is told."""

from __future__ import annotations

import json
from typing import Any

from slurmopt.config.health import checks_of
from slurmopt.config.monitor import sampling_of
from slurmopt.config.network import NetworkOptions
from slurmopt.config.profile import OFF, automatic_of
from slurmopt.config.profiler import NCU, NSYS, profiler_of
from slurmopt.config.schema import Settings
from slurmopt.config.storage import stage_plan
from slurmopt.config.task_command.words import command_word
from slurmopt.run_folder.process import module_start
from slurmopt.run_folder.variables import escaped
from slurmopt.slurm.script.container import PACKAGE, apptainer_words, pyxis_options
from slurmopt.slurm.script.job import Job, cpus_per_process, policy, processes_per_node
from slurmopt.slurm.script.quoting import shell
from slurmopt.units import mebibytes, seconds


def nodes(job: Job) -> int | str:
    """The number of nodes; of a range, the word of bash for how many this attempt has. On this machine: the least."""
    resources = job.settings.resources
    return resources.least_nodes if job.local or not resources.elastic else "$SLURM_JOB_NUM_NODES"


def ranks(job: Job) -> int | str:
    """How many processes the script starts in all: a number, or the word of bash for it."""
    return 1 if job.starts_own_steps else _on_all_nodes(job)


def _on_all_nodes(job: Job) -> int | str:
    count, each = nodes(job), processes_per_node(job)
    return count * each if isinstance(count, int) else f"$((SLURM_JOB_NUM_NODES * {each}))"


def srun(job: Job) -> list[str]:
    """srun's options, each one word of bash."""
    container = job.settings.environment.container
    words = [f"--ntasks-per-node={processes_per_node(job)}"]
    if (cpus := cpus_per_process(job)) is not None:  # srun since 22.05 does not take it over from sbatch
        words.append(f"--cpus-per-task={cpus}")
    if job.settings.resources.gpus_per_node and processes_per_node(job) > 1 and _binds(job):
        words.append("--distribution=block:block")
    words.append("--kill-on-bad-exit=1")
    if job.settings.task.command is not None:
        words.append("--overlap")  # a srun in the command finds the job's resources free, as in a batch script
    pyxis = pyxis_options(job) if container.image is not None and container.runtime == "pyxis" else []
    return [f"--nodes={nodes(job)}", f"--ntasks={_on_all_nodes(job)}", *map(shell, words), *pyxis]


def _binds(job: Job) -> bool:
    """Whether neighbouring ranks are to be on one socket; a distribution of the user's own is left as it is."""
    resources = job.settings.resources
    return resources.cpu_bind == "auto" and "distribution" not in resources.extra


def own_srun(job: Job) -> list[tuple[str, int | str]]:
    """What the srun of a command's own must know of the job's tasks, and does not get from sbatch: variables, and words
    of bash."""
    each, cpus = processes_per_node(job), cpus_per_process(job)
    variables: list[tuple[str, int | str]] = []
    if job.settings.resources.elastic:  # sbatch was told of no tasks
        variables += [("SLURM_NTASKS", f"$((SLURM_JOB_NUM_NODES * {each}))"), ("SLURM_NTASKS_PER_NODE", each)]
    if cpus is not None:  # srun since 22.05 does not take it over from sbatch
        variables.append(("SRUN_CPUS_PER_TASK", cpus))
    return variables


def pythonpath(job: Job) -> str | None:
    """Where a Python that has no slurmopt of its own finds it."""
    if job.settings.environment.container.image is not None:
        return PACKAGE
    return str(job.folder.package) if job.settings.task.python is not None else None


def runtime(job: Job) -> list[str]:
    """The words that start one rank, or all of them on this machine; each is one word of bash."""
    python = [*_apptainer(job), *map(shell, _python(job))]
    if job.submitit:
        return [*python, "-m", "submitit.core._submit", '"$SLURMOPT_RUN_FOLDER/submitit"']
    python += map(shell, _module_start(job))
    arguments = [shell(word) for word in task_arguments(job.settings, of_point=job.sweep is not None)]
    if job.packed:
        return [
            *python,
            "slurmopt.job.pack",
            '"$SLURMOPT_SWEEP"',
            '"$1"',
            '"$2"',
            '"$3"',
            *_packing(job),
            *arguments,
        ]
    entry = ["slurmopt.job"]
    if job.local:
        entry = ["slurmopt.job.worker.spawn", "--ranks", str(ranks(job))]
    return [*python, *entry, '"$SLURMOPT_RUN_FOLDER"', *arguments]


def _module_start(job: Job) -> list[str]:
    """A function is imported from the working directory; what starts a command, or ranks, takes no module from
    there."""
    settings = job.settings
    if settings.task.command is None and (job.packed or not job.local):
        return ["-m"]
    return module_start(any_python=settings.task.python is not None or settings.environment.container.image is not None)


def _packing(job: Job) -> list[str]:
    """What the parent is told beside the task: resources are the array task's, and points side by side share them."""
    assert job.sweep is not None
    side = job.sweep.side_by_side
    ranks_of_point = (
        f'"{_on_all_nodes(job)}"' if job.point_steps else max(1, job.settings.resources.ranks_per_node // side)
    )
    words: list[str | int] = ["--side-by-side", side]
    if (memory := _memory(job)) is not None and not job.point_steps:  # Slurm limits the memory of a step
        words += ["--memory", memory // side]
    words += ["--deadline", seconds(job.settings.checkpoint.deadline)]
    words += ["--policy", policy(job).to_json_arg(), *(["--search"] if job.sweep.search else [])]
    own_srun = [f"--srun={option}" for option in srun(job)] if job.point_steps else []
    return ["--ranks", str(ranks_of_point), *map(shell, words), *own_srun]


def _memory(job: Job) -> int | None:
    """Bytes that a packed array task asks for; None where its needs do not say, as where it gets all of a node's."""
    resources = job.settings.resources
    each, times = resources.memory, 1
    if resources.memory_per_cpu is not None and not resources.exclusive:
        each, times = resources.memory_per_cpu, processes_per_node(job) * (cpus_per_process(job) or 1)
    elif resources.memory_per_gpu is not None:
        each, times = resources.memory_per_gpu, resources.gpus_per_node
    return None if each is None else (mebibytes(each) * times << 20) or None


def command(job: Job) -> str | None:
    """The words of `task.command` as JSON, for an environment variable: the arguments of the processes that start it,
    srun's among them, can be read by everybody on the nodes, and stay in Slurm's accounting. None for a function, and
    for a sweep's points."""
    words = job.settings.task.command
    return None if words is None or job.sweep is not None else json.dumps(_words(words))


def rank_arguments(settings: Settings) -> list[str]:
    """What a rank is told of the task, the words of its command included."""
    words = task_arguments(settings)
    return words if settings.task.command is None else [*words, "--", *_words(settings.task.command)]


def _words(command: list[Any]) -> list[str]:
    """The words as the rank reads them: it fills in `${oc.env:NAME}`, and any other `${` is text."""
    return [escaped(command_word(word), but_variables=True) for word in command]


def task_arguments(settings: Settings, of_point: bool = False) -> list[str]:
    """What `python -m slurmopt.job FOLDER` is told of the task, but for a command's words; `of_point`: a point's
    own config says the rest."""
    task, words = settings.task, _around_task(settings)
    if task.command is not None or of_point:
        words += ["--per", task.per] if task.per in ("node", "job") else []
        if task.per == "node" and settings.resources.ranks_per_node > 1:
            words += ["--ranks-per-node", str(settings.resources.ranks_per_node)]
        words += ["--distributed", "off"] if task.distributed == "off" else []
        words += ["--forward", settings.restart.forward] if settings.restart.forward else []
    if task.command is not None and not of_point:
        return words
    words += ["--timeout", str(seconds(settings.network.timeout)), "--backend", settings.network.backend]
    words += [word for module in settings.launch.imports for word in ("--import", module)]
    return [*words, "--of-point"] if of_point else [*words, "--function", str(task._target_)]


def _around_task(settings: Settings) -> list[str]:
    """What a rank does beside the task: heartbeats, checks, staging, measurements, and the variables of the network."""
    patience = settings.restart.hang_after
    words = ["--heartbeat", str(seconds(settings.monitor.heartbeat))]
    words += ["--hang-after", patience if patience in ("auto", "off") else str(seconds(patience))]
    if settings.resources.cpu_bind == "off":
        words += ["--cpu-bind", "off"]
    if settings.health.enabled:
        checkpoint = settings.checkpoint
        container = settings.environment.container.image is not None
        checks = checks_of(settings.health, checkpoint.scratch.path, checkpoint.shared.path, container)
        words += ["--health", checks.to_json_arg()]
    if settings.monitor.sampler:
        words += ["--monitor", sampling_of(settings.monitor).to_json_arg()]
    if (staging := stage_plan(settings.storage, settings.checkpoint)) is not None:
        words += ["--stage", staging.to_json_arg()]
    if (sinks := settings.metrics.to_json_arg()) is not None:
        words += ["--metrics", sinks]
    words += _tracing(settings)
    if settings.network.options != NetworkOptions():
        words += ["--network", settings.network.options.to_argument()]
    if settings.restart.exit_after_signal != "continue":
        words += ["--exit-after-signal", settings.restart.exit_after_signal]
    return words


def _tracing(settings: Settings) -> list[str]:
    """What traces and profiles the rank. Below nsys and ncu it cannot be traced: CUPTI has one subscriber."""
    words = []
    profiler = profiler_of(settings.task.profiler, settings.task.profiler_options)
    if not settings.profile.enabled or (profiler is not None and profiler.name in (NSYS, NCU)):
        words += ["--profile", OFF]
    elif (automatic := automatic_of(settings.profile)) is not None:
        words += ["--profile", automatic.to_json_arg()]
    return words if profiler is None else [*words, "--profiler", profiler.to_json_arg()]


def _python(job: Job) -> list[str]:
    task, container = job.settings.task, job.settings.environment.container
    return [task.python or ("python3" if container.image is not None else job.python)]


def _apptainer(job: Job) -> list[str]:
    container = job.settings.environment.container
    return apptainer_words(job) if container.image is not None and container.runtime == "apptainer" else []
