"""Divides the CPUs and GPUs of the array task equally among the points that run side by side; gives each a port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurmopt.job.facts.rank_facts import in_slurm_step, visible_gpus


@dataclass(frozen=True)
class Share:
    """The resources of one slot of the pack."""

    cpus: tuple[int, ...]
    gpus: tuple[str, ...] | None
    """As in CUDA_VISIBLE_DEVICES; None if the array task has no GPUs."""
    fraction: float | None
    """The fraction of each GPU's memory for one process; None for all of it."""


def shares(places: int, cpus: set[int], environ: Mapping[str, str]) -> list[Share]:
    """The shares of `places` points that run side by side."""
    devices = _devices(environ)
    parts = []
    for place in range(places):
        gpus = _part(devices, place, places) if devices else None
        on_one = -(-places // len(devices)) if devices else 1  # so many points share a GPU at most
        parts.append(Share(tuple(_part(sorted(cpus), place, places)), gpus, 1 / on_one if on_one > 1 else None))
    return parts


def _devices(environ: Mapping[str, str]) -> list[str]:
    if (words := environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [word.strip() for word in words.split(",") if word.strip() and word.strip() != "-1"]
    return [str(device) for device in range(visible_gpus(environ))]


def _part(things: list, place: int, places: int) -> tuple:  # type: ignore[type-arg]
    """The `place`-th of `places` parts in a row; where there are fewer things than places, they are shared."""
    if len(things) < places:
        return (things[place % len(things)],) if things else ()
    return tuple(things[place * len(things) // places : (place + 1) * len(things) // places])


def words(share: Share, ranks: int, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a point's ranks that describe its share."""
    variables: dict[str, str] = {}
    if "OMP_NUM_THREADS" not in environ:
        variables["OMP_NUM_THREADS"] = str(max(1, len(share.cpus) // ranks))
    if share.gpus is not None:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(share.gpus)
        variables["SLURM_GPUS_ON_NODE"] = str(len(share.gpus))
    return variables


def rank_words(rank: int, ranks: int, port: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Who a rank of a point is: in torchrun's words, and in Slurm's, whose own are about the parent."""
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    variables |= {"NODE_RANK": 0, "NNODES": 1, "MASTER_PORT": port}
    if in_slurm_step(environ):
        variables |= {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NODEID": 0}
        variables |= {"SLURM_NTASKS": ranks, "SLURM_STEP_NUM_TASKS": ranks, "SLURM_STEP_TASKS_PER_NODE": ranks}
    return {"MASTER_ADDR": "127.0.0.1", **{word: str(value) for word, value in variables.items()}}
