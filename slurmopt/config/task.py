"""The group `task`: the function or command that runs in the job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slurmopt.config.check import AUTO_OFF, one_of, text_or_null
from slurmopt.config.profiler import PROFILERS, ProfilerOptions, check_options
from slurmopt.errors import ConfigError

PER = ("rank", "node", "job")
"""The values of `task.per` after `auto` has been resolved."""


@dataclass(kw_only=True)
class Task:
    """What runs: a Python function (`_target_`) or a command (`command`); one of the two."""

    _target_: str | None = None
    """A function as `package.module.function`. Each rank calls it with the resolved config after the process group is
    initialised."""

    command: Any = None
    """A program and its arguments: a list, or a string that is split as by a shell. It is not run by a shell. `${lr}`
    stays one word for any value; `${oc.env:NODE_RANK}` is resolved on each rank."""

    per: str = "auto"
    """How often the command runs. `rank`: once per rank. `node`: once per node, for torchrun, accelerate or deepspeed.
    `job`: once, on the node of the batch script, for srun and mpirun. `auto`: depends on the launcher in the command,
    or in the shell script that it names."""

    distributed: str = "auto"
    """Whether a command has RANK, WORLD_SIZE and similar variables. `auto`: yes. `off`: none of them, for programs such
    as nanoGPT that use DistributedDataParallel whenever these variables are set."""

    checkpoints: str | None = None
    """A command's own checkpoints, as a glob such as `out/step-*`, relative to the working directory: the newest
    matching file is the measure of its progress if it reports no steps."""

    python: str | None = None
    """The Python of the job. Default: the Python of the launch; in a container: `python3`."""

    profiler: str | None = None
    """A profiler of the training: `nsys`, `ncu` or `py-spy`. It never ends the training; its reports are collected into
    the run folder. See [Profiling](profiling.md#nsys-ncu-and-py-spy)."""

    profiler_options: ProfilerOptions = field(default_factory=ProfilerOptions)
    """What it records, and of which ranks."""

    def __post_init__(self) -> None:
        one_of(self.per, ("auto", *PER), "task.per")
        if self.distributed == "False":  # YAML reads a bare `off` as false
            self.distributed = "off"
        one_of(self.distributed, AUTO_OFF, "task.distributed")
        text_or_null(self.checkpoints, "task.checkpoints")
        if self.profiler is not None:
            one_of(self.profiler, PROFILERS, "task.profiler")
            check_options(self.profiler, self.profiler_options)
        if self._target_ is not None and self.command is not None:
            raise ConfigError("only one of these can be set: task._target_, task.command")
        if self._target_ is not None and self.per in ("node", "job"):
            raise ConfigError(f"a function runs once per rank; task.per={self.per} is for task.command", "task.per")
        if self._target_ is not None and self.distributed != "auto":
            raise ConfigError("a function has a process group; this is for task.command", "task.distributed")
        if self.command is not None:
            self._check_command()

    def _check_command(self) -> None:
        words = self.command
        if not isinstance(words, list) or not words:
            raise ConfigError("is empty or no list of words; valid: a string or a list of strings", "task.command")
        for word in words:
            if isinstance(word, (dict, list)) or word is None:
                raise ConfigError(f"{word!r} is not a word; valid: strings and numbers", "task.command")
            if "\0" in str(word):
                raise ConfigError("a word has a NUL character", "task.command")
