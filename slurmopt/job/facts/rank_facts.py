"""Reads rank, world size and the like from the environment: one table of variables.

Slurm's words hold for a process that srun started. The batch shell has SLURM_PROCID and SLURM_NTASKS too, but is no
rank.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

_WORDS = {  # fact: (torchrun's word, Slurm's word)
    "rank": ("RANK", "SLURM_PROCID"),
    "local_rank": ("LOCAL_RANK", "SLURM_LOCALID"),
    "world_size": ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS"),
    "local_world_size": ("LOCAL_WORLD_SIZE", None),
    "node_rank": ("NODE_RANK", "SLURM_NODEID"),
    "nodes": ("NNODES", "SLURM_STEP_NUM_NODES"),
}
_TRACKED_BY_CGROUP = re.compile(r"^\d+:(?:\S*freezer\S*:\S*|:\S*slurmstepd\.scope)/job_\d+", re.MULTILINE)
"""In /proc/PID/cgroup: the hierarchy of cgroup v1 that proctrack/cgroup uses, or that of v2."""
_ALONE = {"rank": 0, "local_rank": 0, "world_size": 1, "local_world_size": 1, "node_rank": 0, "nodes": 1}


@dataclass(frozen=True)
class RankFacts:
    """The place of a rank in the job, in the terms of torch.distributed."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    node_rank: int
    nodes: int
    node: str
    """The node's name in Slurm, else the host name."""
    master_addr: str
    master_port: int


def rank_facts() -> RankFacts:
    """The facts of this process: from torchrun's variables if they are set (as in every rank of slurmopt), else from
    Slurm's, else a world size of one."""
    return facts_from(os.environ)


def facts_from(environ: Mapping[str, str]) -> RankFacts:
    """`rank_facts()` of the given environment."""
    if "RANK" in environ:
        return _facts(environ, _torchrun(environ))
    return launched_facts(environ)


def launched_facts(environ: Mapping[str, str]) -> RankFacts:
    """The facts of a process that the launcher has just started: srun's variables take precedence over a RANK left in
    the user's environment. `slurmopt.job.worker.spawn` removes srun's variables."""
    if in_slurm_step(environ):
        return _facts(environ, _slurm(environ))
    return _facts(environ, _torchrun(environ) if "RANK" in environ else _ALONE)


def in_slurm_step(environ: Mapping[str, str]) -> bool:
    """Whether srun started this process or one of its parents; the batch shell has no step id."""
    return "SLURM_STEP_ID" in environ and "SLURM_PROCID" in environ


def gets_signals_alone(environ: Mapping[str, str]) -> bool:
    """Whether Slurm's signals reach only this process, and not those that it started: with proctrack/cgroup they go to
    the processes that slurmstepd itself has started."""
    if not in_slurm_step(environ):
        return True
    with open("/proc/self/cgroup", errors="replace") as file:
        return is_tracked_by_cgroup(file.read())


def is_tracked_by_cgroup(cgroups: str) -> bool:
    """Whether proctrack/cgroup has put a process there, by its /proc/PID/cgroup."""
    return _TRACKED_BY_CGROUP.search(cgroups) is not None


def slurm_job(environ: Mapping[str, str]) -> str | None:
    """The job id as Slurm's commands take it. For an array A_a, because the plain id of its last task means the whole
    array."""
    if array := environ.get("SLURM_ARRAY_JOB_ID"):
        return f"{array}_{environ.get('SLURM_ARRAY_TASK_ID', 0)}"
    return environ.get("SLURM_JOB_ID")


def started_with() -> dict[str, str]:
    """The environment that this process began with. `environment.variables` of a point may have changed os.environ
    since, also SLURM_ARRAY_TASK_ID: an imported script expects its own numbers, and Slurm's are of another task."""
    try:
        with open("/proc/self/environ", encoding="utf-8", errors="surrogateescape") as file:
            words = file.read().split("\0")
    except OSError:
        return dict(os.environ)
    return dict(word.split("=", 1) for word in words if "=" in word)


def one_per_node(facts: RankFacts) -> RankFacts:
    """The facts if one process was started per node: rank and node rank are the same."""
    return replace(facts, node_rank=facts.rank, nodes=facts.world_size, local_rank=0, local_world_size=1)


def _facts(environ: Mapping[str, str], numbers: Mapping[str, int]) -> RankFacts:
    return RankFacts(
        **numbers,
        node=environ.get("SLURMD_NODENAME") or os.uname().nodename,
        master_addr=environ.get("MASTER_ADDR") or "127.0.0.1",
        master_port=int(environ.get("MASTER_PORT") or 29500),
    )


def _torchrun(environ: Mapping[str, str]) -> dict[str, int]:
    facts = {fact: int(environ[word]) for fact, (word, _) in _WORDS.items() if environ.get(word)}
    facts.setdefault("world_size", 1)
    facts.setdefault("local_world_size", facts["world_size"] if facts.get("nodes", 1) == 1 else 1)
    facts.setdefault("nodes", max(1, facts["world_size"] // facts["local_world_size"]))
    facts.setdefault("node_rank", int(environ.get("GROUP_RANK") or facts["rank"] // facts["local_world_size"]))
    return _ALONE | facts


def _slurm(environ: Mapping[str, str]) -> dict[str, int]:
    facts = {fact: int(environ[word]) for fact, (_, word) in _WORDS.items() if word and environ.get(word)}
    per_node = tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE", "1"))
    node_rank = facts.get("node_rank", 0)
    facts["local_world_size"] = per_node[min(node_rank, len(per_node) - 1)]
    return _ALONE | facts


def tasks_per_node(text: str) -> list[int]:
    """Slurm's short form of the tasks on each node: "2(x3),1" is [2, 2, 2, 1]."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            raise ValueError(f"not a list of tasks per node: {text!r}; valid is a form such as '2(x3),1'")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def exports(facts: RankFacts) -> dict[str, str]:
    """The facts as torchrun's variables, for the environment of the task."""
    numbers = {word: str(getattr(facts, fact)) for fact, (word, _) in _WORDS.items()}
    return {**numbers, "MASTER_ADDR": facts.master_addr, "MASTER_PORT": str(facts.master_port)}


def torchrun_exports(facts: RankFacts, environ: Mapping[str, str], ranks_per_node: int = 1) -> dict[str, str]:
    """For one process per node: torchrun takes its flags' defaults from PET_*, so a bare `torchrun train.py` works.

    It starts `ranks_per_node` ranks; where that is 1, one for each GPU that it sees.
    """
    words = {
        "PET_NNODES": str(facts.nodes),
        "PET_NODE_RANK": str(facts.node_rank),
        "PET_MASTER_ADDR": facts.master_addr,
        "PET_MASTER_PORT": str(facts.master_port),
    }
    each = ranks_per_node if ranks_per_node > 1 else visible_gpus(environ)
    if each and "PET_NPROC_PER_NODE" not in environ:
        words["PET_NPROC_PER_NODE"] = str(each)
    return words


def ranks_of_torchrun(environ: Mapping[str, str], ranks_per_node: int) -> int:
    """How many ranks torchrun starts on each node, as far as all nodes know alike: the user's own number, else
    `ranks_per_node`. `environ` is that before `torchrun_exports`, which may count this node's GPUs."""
    own = environ.get("PET_NPROC_PER_NODE", "")
    return int(own) if own.isdecimal() else ranks_per_node


def visible_gpus(environ: Mapping[str, str]) -> int:
    """How many GPUs the environment shows to this process; 0 if it names none."""
    devices = environ.get("CUDA_VISIBLE_DEVICES")
    if devices is not None:
        return len([device for device in devices.split(",") if device.strip() and device.strip() != "-1"])
    count = environ.get("SLURM_GPUS_ON_NODE", "")
    return int(count) if count.isdigit() else 0
