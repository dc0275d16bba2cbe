"""What is there for a new project: the cluster or this machine, the Python environment, and scripts in the folder."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

from slurmopt.errors import SlurmError, SlurmMissing, SlurmUnconfigured, one_line
from slurmopt.slurm.cluster.cluster_facts import ClusterFacts, NodeGroup, Partition

_SCRIPTS = ("train.py", "train_*.py", "*_train.py", "main.py", "run.py", "finetune*.py", "pretrain*.py")
_DISTRIBUTED = re.compile(
    rb"init_process_group|DistributedDataParallel|fully_shard|FullyShardedDataParallel|LOCAL_RANK|WORLD_SIZE"
    rb"|import (accelerate|deepspeed|lightning)|from (accelerate|deepspeed|lightning|pytorch_lightning|transformers)\b"
)
_LARGEST = 1 << 20


@dataclass(frozen=True)
class Environment:
    """The Python environment that is active."""

    kind: str
    """`venv`, `conda`, or `python`: none of both."""
    path: str
    setup: list[str] = field(default_factory=list)
    """Lines of bash that activate it in the job."""


@dataclass(frozen=True)
class Surroundings:
    """What was found."""

    cluster: ClusterFacts | None
    no_cluster: str
    """Why there is no cluster."""
    partition: Partition | None
    group: NodeGroup | None
    """The nodes of the partition that are usable and the largest."""
    account: str | None
    gpus_here: int
    environment: Environment
    has_torch: bool
    scripts: list[str]
    """Python files in the folder that may be trainings, the likeliest first."""


def look(folder: Path) -> Surroundings:
    """Asks Slurm, and looks at the environment and the folder. Nothing is started but Slurm's own commands."""
    cluster, why = _cluster()
    partition, group = chosen(cluster) if cluster is not None else (None, None)
    return Surroundings(
        cluster,
        why,
        partition,
        group,
        the_account(cluster),
        gpus_here(),
        environment(os.environ),
        importlib.util.find_spec("torch") is not None,
        _scripts(folder),
    )


def _cluster() -> tuple[ClusterFacts | None, str]:
    from slurmopt.slurm.cluster.facts import facts

    try:
        return facts(), ""
    except (SlurmMissing, SlurmUnconfigured):
        return None, "Slurm is not installed or not configured here"
    except SlurmError as error:
        return None, one_line(str(error).splitlines()[0])[:200]


def chosen(cluster: ClusterFacts) -> tuple[Partition | None, NodeGroup | None]:
    """The partition for trainings: one with GPUs before one without, the default before others."""
    mine = set(cluster.accounts or {})
    best: tuple[tuple[bool, bool, int], Partition, NodeGroup] | None = None
    for partition in cluster.partitions:
        groups = [group for group in partition.groups if group.usable]
        allowed = partition.allow_accounts is None or not mine or bool(mine & set(partition.allow_accounts))
        if partition.state != "up" or not groups or not allowed:
            continue
        group = max(groups, key=lambda group: (group.gpu_count > 0, group.usable, group.gpu_count))
        rank = (group.gpu_count > 0, partition.default, group.usable * max(1, group.gpu_count))
        if best is None or rank > best[0]:
            best = rank, partition, group
    return (best[1], best[2]) if best is not None else (None, None)


def the_account(cluster: ClusterFacts | None) -> str | None:
    """The account, where jobs need one and there is only one."""
    if cluster is None or not cluster.enforces_accounts or not cluster.accounts:
        return None
    return next(iter(cluster.accounts)) if len(cluster.accounts) == 1 else None


def gpus_here() -> int:
    """NVIDIA GPUs of this machine, by their device files."""
    try:
        return sum(bool(re.fullmatch(r"nvidia\d+", name)) for name in os.listdir("/dev"))
    except OSError:
        return 0


def environment(environ: os._Environ[str] | dict[str, str]) -> Environment:
    """The active environment, and how to activate it in a job."""
    venv = environ.get("VIRTUAL_ENV") or (sys.prefix if sys.prefix != sys.base_prefix else "")
    if venv and (activate := Path(venv, "bin", "activate")).is_file():
        return Environment("venv", venv, [f"source {_quoted(str(activate))}"])
    conda, executable = environ.get("CONDA_PREFIX", ""), environ.get("CONDA_EXE", "")
    if conda and executable:
        hook = Path(executable).parent.parent / "etc" / "profile.d" / "conda.sh"
        if hook.is_file():
            return Environment("conda", conda, [f"source {_quoted(str(hook))}", f"conda activate {_quoted(conda)}"])
    return Environment("python", sys.executable)


def _quoted(text: str) -> str:
    """A word of bash in which OmegaConf finds no interpolation either."""
    return shlex.quote(text).replace("${", "$'{'") if "${" in text else shlex.quote(text)


def _scripts(folder: Path) -> list[str]:
    found: dict[str, None] = {}
    for pattern in _SCRIPTS:
        for path in sorted(folder.glob(pattern)) if folder.is_dir() else []:
            if path.is_file():
                found[path.name] = None
    return list(found)


def is_distributed(path: Path) -> bool:
    """Whether a script looks as if it trains with several ranks. It is read, not run."""
    with open(path, "rb") as file:
        return bool(_DISTRIBUTED.search(file.read(_LARGEST)))
