"""The group `health`: the checks of each node at the start of each attempt.

The job imports this module too, so it does not import Hydra or OmegaConf.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from slurmopt.config.check import readable
from slurmopt.errors import ConfigError
from slurmopt.run_folder.json_values import from_json
from slurmopt.units import mebibytes, seconds

_LEAST_SECONDS, _MOST_SECONDS = 3, 600


@dataclass(kw_only=True)
class Health:
    """The checks of each node before the training. A node that fails a check ends the attempt with the cause
    `infrastructure`, and is excluded from the next attempts (`restart.exclude`)."""

    enabled: bool = True
    """Whether nodes are checked."""

    within: str = "20s"
    """The timeout of the check of a node, 3 seconds to 10 minutes. A healthy node takes a fraction of a second. The
    GPUs have six times this timeout, because of a cold start of their driver."""

    wait: str | None = "5m"
    """How long the job waits for a temporary problem to end, and checks again with growing intervals: a full or
    unresponsive shared file system; null: it does not wait."""

    gpus: bool = True
    """Whether the allocated GPUs are checked: all of them respond; none has a row remapping failure (NVML: `pip install
    'slurmopt[gpu]'`, which also warns of ECC errors); for a function whose Python has torch, a copy and a small kernel
    return the right numbers."""

    reach: bool = True
    """Whether each node connects to all others, over TCP on a port that the kernel assigns."""

    clock: str | None = "30s"
    """The maximum difference between the clock of a node and that of the file system of the run folder; null: not
    checked."""

    shared: str | None = "1GB"
    """The free space that the run folder and `checkpoint.shared.path` need; null: not checked."""

    scratch: str | None = "100MB"
    """The free space that TMPDIR and `checkpoint.scratch.path` need on each node; null: not checked."""

    def __post_init__(self) -> None:
        readable(self.within, seconds, "health.within")
        if not _LEAST_SECONDS <= seconds(self.within) <= _MOST_SECONDS:
            raise ConfigError(f"{self.within!r} is not valid; valid: 3s to 10m", "health.within")
        readable(self.wait, seconds, "health.wait")
        readable(self.clock, seconds, "health.clock")
        readable(self.shared, mebibytes, "health.shared")
        readable(self.scratch, mebibytes, "health.scratch")


@dataclass(frozen=True, kw_only=True)
class Checks:
    """The group in the form that the job uses: times in seconds, sizes in bytes. None: not checked."""

    within: float = 20.0
    wait: float = 0.0
    gpus: bool = True
    reach: bool = True
    clock: float | None = None
    shared: int | None = None
    scratch: int | None = None
    shared_path: str | None = None
    """The folder of the shared tier if it is outside the run folder; `${oc.env:NAME}` is resolved in the job."""
    scratch_path: str | None = None
    """The folder of the scratch tier; `${oc.env:NAME}` is resolved in the job."""
    container: bool = False
    """Whether the rank runs in a container; these folders must then be mounted in it."""

    def to_json_arg(self) -> str:
        """Returns the checks as JSON without spaces, one argument in the job script; omits those that are None."""
        checks = {name: value for name, value in asdict(self).items() if value is not None}
        if not self.container:
            del checks["container"]
        return json.dumps(checks, separators=(",", ":"))


def checks_of(health: Health, scratch_path: str | None, shared_path: str | None, container: bool = False) -> Checks:
    """Returns the checks for a config. The paths are those of `checkpoint.scratch` and `checkpoint.shared`."""
    return Checks(
        within=seconds(health.within),
        wait=0.0 if health.wait is None else seconds(health.wait),
        gpus=health.gpus,
        reach=health.reach,
        clock=None if health.clock is None else seconds(health.clock),
        shared=None if health.shared is None else mebibytes(health.shared) << 20,
        scratch=None if health.scratch is None else mebibytes(health.scratch) << 20,
        shared_path=None if shared_path == "auto" else shared_path,
        scratch_path=scratch_path,
        container=container,
    )


def from_word(word: str) -> Checks:
    """Parses the JSON written by `Checks.to_json_arg`. Raises ValueError if it is invalid."""
    return from_json(Checks, word)
