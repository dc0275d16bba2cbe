"""The launch of the run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from slurmopt.config.check import one_line_text, one_of, readable
from slurmopt.errors import ConfigError
from slurmopt.units import seconds

_LONGEST_NAME = 200
BACKENDS = ("auto", "sbatch", "submitit", "local")


@dataclass(kw_only=True)
class Launch:
    """The launch of the run."""

    backend: str = "auto"
    """`sbatch`, `submitit`, `local` (processes on this machine), or `auto`: sbatch if it is configured for a cluster,
    else local."""

    name: str | None = None
    """The run's name. Default: the experiment's."""

    folder: str = "runs"
    """Run folders are made in FOLDER/NAME/ID."""

    id: str | None = None
    """The run's ID. Repeating a launch with the same ID never submits twice. Default: a new one."""

    run: str | None = None
    """An existing run (a name, folder or job id) to continue with its stored config."""

    dry_run: bool | str = False
    """Print the script instead of submitting it; `full`: also `supervisor.sh`, which is in the same folder and is the
    same for all runs."""

    wait: bool | None = None
    """Wait for the run to end and show its log. Default: only with the local backend, and with a sweep there only in a
    terminal."""

    check: bool = True
    """Check the requested resources against the real cluster first."""

    doctor: bool = False
    """Run the checks of `slurmopt doctor` on this machine and Slurm first; if one fails, nothing is submitted."""

    template: str | None = None
    """A Jinja2 template of your own instead of the shipped `job.sbatch.j2`."""

    json: bool = False
    """Print one JSON object on standard output, and nothing else."""

    imports: list[str] = field(default_factory=list)
    """Modules to import at launch and in the job, for the OmegaConf resolvers they register."""

    group_access: bool = False
    """Whether your Unix group may read the run folder."""

    after: list[str] = field(default_factory=list)
    """Runs and sweeps (names, folders or job IDs) that must finish before this one starts."""

    after_failure: bool = False
    """Whether it also starts if they end without success."""

    submit_timeout: str = "2m"
    """How long to search for the job if Slurm did not answer its submission."""

    def __post_init__(self) -> None:
        one_of(self.backend, BACKENDS, "launch.backend")
        self.dry_run = dry_run(self.dry_run)
        one_line_text(self.name, "launch.name")
        if self.name is not None and len(self.name) > _LONGEST_NAME:
            raise ConfigError(f"has {len(self.name)} characters; valid: up to {_LONGEST_NAME}", "launch.name")
        if self.id is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", self.id):
            raise ConfigError(
                f"{self.id!r} is not an ID; valid: letters, digits, dots, dashes, underscores", "launch.id"
            )
        if not self.folder or "\0" in self.folder:
            raise ConfigError("is not a folder", "launch.folder")
        if self.id is not None and self.run is not None:
            raise ConfigError("only one of these can be set: launch.id, launch.run")
        readable(self.submit_timeout, seconds, "launch.submit_timeout")


def dry_run(value: bool | str) -> bool | str:
    """Returns True, False or "full" for a value of `launch.dry_run`; accepts all of OmegaConf's spellings of a bool.
    Raises ConfigError for any other value."""
    word = str(value).lower()
    if word in ("true", "yes", "on", "y", "t", "1"):
        return True
    if word in ("false", "no", "off", "n", "f", "0"):
        return False
    one_of(str(value), ("true", "false", "full"), "launch.dry_run")
    return str(value)
