"""What a metric sink is given, and what it must offer: records, a place, a protocol of two functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.variables import Unset, fill


class SinkError(Exception):
    """Why a sink could not send: one line, without secrets. What it was given is lost."""


class NotWritten(SinkError):
    """The same, and nothing of it was sent: it is to be tried again."""


class Unusable(SinkError):
    """The sink cannot work in this job: a package or a variable is missing. It is not tried again."""


@dataclass(frozen=True)
class Record:
    """Numbers that belong together."""

    time: float
    """Seconds since the epoch: when `progress` was called, or the interval of a measurement ended."""
    step: int | None
    """The training's step; of a measurement, the last one that a rank of the node reported, if any."""
    values: Mapping[str, float]
    """Name → value: what `progress` was given, or a row of `slurmopt.run_folder.series.series`."""
    hardware: bool = False
    """Whether it is a row of the node's series."""


@dataclass(frozen=True)
class Place:
    """Where the process of the sinks runs."""

    folder: RunFolder
    attempt: int
    node: str
    rank: int
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def run(self) -> str:
        """NAME/ID of the run."""
        return f"{self.folder.name}/{self.folder.id}"

    def filled(self, text: str, key: str) -> str:
        """An option with `${oc.env:NAME}` filled in. Raises Unusable."""
        try:
            return fill(text, self.environ)
        except Unset as error:
            raise Unusable(f"{key} needs the environment variable {error}, which is not set here") from error


class Sink(Protocol):
    """One place that metrics are sent to. Both functions may take as long as they like, but for the limits that the
    sink sets itself; they run in a thread of their own. What they raise is said once, in one line."""

    def write(self, records: Sequence[Record]) -> None:
        """Sends the records, or keeps them for a later call. Raises SinkError."""

    def close(self, outcome: str | None) -> None:
        """Sends what it kept, and releases what it holds. `outcome`: how the rank ended, a word of
        `slurmopt.run_folder.outcome`; None if it did not say. Raises SinkError."""
