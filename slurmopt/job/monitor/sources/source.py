"""What the sampler reads: the protocol of a source of measurements."""

from __future__ import annotations

from typing import Any, Protocol


class Source(Protocol):
    """One source on this node, such as NVIDIA's GPUs or the cgroup of the step.

    A source keeps its handles open and its last counters. Values of counters are rates per second since the last
    `read`; those of a first `read` are missing. A counter that falls was reset: its value is missing once.
    """

    name: str
    """The word in `monitor.sources`."""

    def facts(self) -> dict[str, Any]:
        """What does not change, for the header of the series, such as {"gpus": [...]}."""

    def absent(self) -> dict[str, str]:
        """Columns without values, and why: a word of `slurmopt.run_folder.series.series.ABSENT`."""

    def read(self) -> dict[str, float]:
        """Column → its value now. Called in a thread of its own, as a driver may not return for minutes."""

    def events(self) -> list[dict[str, Any]]:
        """What has happened since the last call: {"event": word, "time": …, …}."""

    def close(self) -> None:
        """Releases what is held."""
