"""The group `environment`: shell lines, variables, a container, the code snapshot."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from typing import Any

from slurmopt.config.check import environment_variables, one_line_text, one_of
from slurmopt.errors import ConfigError, one_line


@dataclass(kw_only=True)
class Container:
    """The container of each rank. srun starts it, so the batch shell runs on the host."""

    runtime: str = "pyxis"
    """`pyxis` (enroot through srun's own options) or `apptainer`."""

    image: str | None = None
    """The image: `nvcr.io#nvidia/pytorch:25.01-py3`, a `.sqsh` file, a `.sif` file. None: no container."""

    mounts: list[str] = field(default_factory=list)
    """`SOURCE:TARGET[:ro]` each. The run folder, the working directory, the folders of `checkpoint.scratch` and
    `checkpoint.shared`, the sources and the folders of `storage.stage`, and slurmopt itself are always mounted."""

    options: list[str] = field(default_factory=list)
    """Further options for srun (pyxis) or `apptainer exec`, such as `--no-container-mount-home`."""

    def __post_init__(self) -> None:
        one_of(self.runtime, ("pyxis", "apptainer"), "environment.container.runtime")
        one_line_text(self.image, "environment.container.image")
        for mount in self.mounts:
            one_line_text(mount, "environment.container.mounts")
            if ":" not in mount or "," in mount:
                raise ConfigError(f"{mount!r} is not SOURCE:TARGET", "environment.container.mounts")


@dataclass(kw_only=True)
class Environment:
    """The environment of the task."""

    modules: list[str] = field(default_factory=list)
    """Modules to load, in this order, after `module purge`."""

    setup: list[str] = field(default_factory=list)
    """Lines of bash that the batch shell runs before the task, such as `source .venv/bin/activate`. A line that fails
    ends the job; append `|| true` if a failure does not matter."""

    variables: dict[str, Any] = field(default_factory=dict)
    """Environment variables. `${oc.env:NAME}` is resolved in the job, so that no secret is
    written."""

    container: Container = field(default_factory=Container)
    """A container around each rank."""

    workdir: str | None = None
    """The working directory. Default: the current directory of the launch."""

    snapshot: str = "off"
    """`git`: the job runs on a copy of the files that git tracks or would track; `copy`: on a copy of everything below
    the working directory; `off`: on the working directory itself, including edits while the job waits."""

    def __post_init__(self) -> None:
        if self.snapshot == "False":  # YAML reads a bare `off` as false
            self.snapshot = "off"
        one_of(self.snapshot, ("off", "git", "copy"), "environment.snapshot")
        environment_variables(self.variables, "environment.variables")
        self._check_setup()
        for module in self.modules:
            one_line_text(module, "environment.modules")
        if self.workdir is not None and "\0" in self.workdir:
            raise ConfigError("has a NUL character", "environment.workdir")

    def _check_setup(self) -> None:
        """Raises ConfigError if `bash -n` rejects the lines: a syntax error, such as an unclosed quote, would end the
        job before the task starts."""
        if not self.setup:
            return
        for line in self.setup:
            if not isinstance(line, str):
                raise ConfigError(
                    f"has {one_line(str(line))!r}, which is not a line of bash; write it in quotes", "environment.setup"
                )
        done = subprocess.run(
            ["bash", "-n"], input="\n".join(self.setup), text=True, capture_output=True, errors="surrogateescape"
        )
        if done.returncode:
            complaints = done.stderr.strip().splitlines() or ["bash cannot read it"]
            raise ConfigError(one_line(complaints[0]), "environment.setup")
