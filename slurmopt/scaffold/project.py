"""The files of a small project: a config for the cluster, one for the experiment, and a training. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

from slurmopt.importing.yaml_text import document
from slurmopt.scaffold.surroundings import Surroundings
from slurmopt.scaffold.training_files import WITH_TORCH, WITHOUT_TORCH
from slurmopt.units import human_seconds

SHIPPED = (
    "auto", "local", "hyperpod_p5", "infiniband", "parallelcluster", "dgx_h100", "g6e", "p4d", "p4de", "p5en",
    "p6_b200",
)  # fmt: skip
"""The profiles of conf/cluster/ that ship; one's own has another name."""
_TIME = 600
"""Seconds of the first run."""


@dataclass(frozen=True)
class Script:
    """A training that the user has."""

    name: str
    """Its path, from the folder of the project."""
    distributed: bool


@dataclass(frozen=True)
class Project:
    """New files."""

    experiment: str
    cluster: str
    files: dict[str, str]


def project(found: Surroundings, script: Script | None) -> Project:
    """The files that fit what was found. With a script there is no new training."""
    cluster = cluster_name(found)
    name = experiment_name(script)
    files = {
        f"conf/experiment/{name}.yaml": _experiment(found, script, cluster),
        f"conf/cluster/{cluster}.yaml": _cluster(found),
    }
    if script is None:
        files["train.py"] = WITH_TORCH if found.has_torch else WITHOUT_TORCH
    return Project(name, cluster, files)


def cluster_name(found: Surroundings) -> str:
    """The name of the cluster's config: Slurm's name for it, or `here`."""
    if found.cluster is None:
        return "here"
    name = re.sub(r"[^a-z0-9_-]+", "-", found.cluster.cluster.lower()).strip("-_")
    return name if re.match(r"[a-z]", name) and name not in SHIPPED else f"cluster-{name}".strip("-")


def experiment_name(script: Script | None) -> str:
    """`train`, or the name of the script."""
    if script is None:
        return "train"
    stem = script.name.rpartition("/")[2].rpartition(".")[0]
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")
    return name if re.match(r"[A-Za-z]", name) else f"train-{name}".strip("-")


def _cluster(found: Surroundings) -> str:
    heading, config, comments = _here(found) if found.cluster is None else _slurm(found)
    if found.environment.setup:
        config["environment"] = {"setup": found.environment.setup}
        comments["environment.setup"] = f"the {found.environment.kind} that was active"
    return document(config, heading, comments)


def _here(found: Surroundings) -> tuple[list[str], dict[str, Any], dict[str, str]]:
    config: dict[str, Any] = {"launch": {"backend": "local"}, "resources": {"gpus_per_node": found.gpus_here}}
    comments = {
        "launch.backend": "processes on this machine",
        "resources.gpus_per_node": "all GPUs of this machine; a rank for each" if found.gpus_here else "it has none",
    }
    return ["This machine, without Slurm. On a cluster, slurmopt init writes one for it."], config, comments


def _slurm(found: Surroundings) -> tuple[list[str], dict[str, Any], dict[str, str]]:
    assert found.cluster is not None
    heading = [f"The cluster {found.cluster.cluster}, Slurm {found.cluster.version}."]
    resources: dict[str, Any] = {}
    comments: dict[str, str] = {}
    if found.partition is not None and found.group is not None:
        heading.append(f"Partition {found.partition.name}: {group_text(found)}.")
        resources["partition"] = found.partition.name
        others = [item.name for item in found.cluster.partitions if item.state == "up" and item != found.partition]
        if others:
            comments["resources.partition"] = f"others: {', '.join(others[:6])}"
        resources |= _shares(found, comments)
    if found.account is not None:
        resources["account"] = found.account
    elif found.cluster.enforces_accounts:
        accounts = ", ".join(list(found.cluster.accounts or {})[:6]) or "ask your site"
        heading.append(f"Jobs need an account: set resources.account ({accounts}).")
    return heading, {"resources": resources} if resources else {}, comments


def _shares(found: Surroundings, comments: dict[str, str]) -> dict[str, Any]:
    """GPUs and CPUs of a node, and of each rank."""
    assert found.group is not None
    assert found.partition is not None
    gpus = found.group.gpu_count
    shares: dict[str, Any] = {}
    if gpus:
        shares["gpus_per_node"] = gpus
        comments["resources.gpus_per_node"] = "all GPUs of a node; a rank for each"
        kinds = {kind for group in found.partition.groups for kind in group.gpus}
        if len(kinds) > 1 and len(found.group.gpus) == 1 and (kind := next(iter(found.group.gpus))):
            shares["gpu_type"] = kind
        shares["cpus_per_task"] = max(1, found.group.cpus // gpus)
        comments["resources.cpus_per_task"] = f"for each rank; a node has {found.group.cpus}"
    return shares


def group_text(found: Surroundings) -> str:
    """What the chosen nodes have, for a person."""
    if found.group is None or found.partition is None:
        return "no usable nodes"
    kinds = [f"{count} GPUs" + (f" ({kind})" if kind else "") for kind, count in found.group.gpus.items() if count]
    limit = found.partition.max_time
    parts = [*kinds, f"{found.group.cpus} CPUs", f"{found.group.memory / 1024:.0f} GiB each"]
    return f"{found.group.usable} usable nodes with {', '.join(parts)}, " + (
        f"up to {human_seconds(limit)}" if limit is not None else "no time limit"
    )


def _experiment(found: Surroundings, script: Script | None, cluster: str) -> str:
    config: dict[str, Any] = {"defaults": [f"override /cluster: {cluster}"]}
    time = min(_TIME, (found.partition.max_time if found.partition else None) or _TIME)
    resources: dict[str, Any] = {"nodes": 1}
    comments = {
        "resources.nodes": "each with the GPUs of conf/cluster/" + cluster + ".yaml",
        "resources.time": "the run goes on in another attempt when it is hit",
    }
    if script is None:
        heading = _own_training(found, config, resources, comments)
    else:
        heading = _given_script(found, script, config, resources, comments)
    config["resources"] = {**resources, "time": f"{time // 60}m" if time >= 60 else f"{time}s"}
    if script is None:
        if found.has_torch:
            config["checkpoint"] = {"shared": {"every": 100}}
            comments["checkpoint.shared.every"] = "steps between checkpoints; or a time, such as 10min"
        config |= {"steps": 1000, "lr": 0.05}
        comments |= {"steps": "from here on, keys of your own", "lr": "change it when you launch: lr=0.1"}
        config |= {"seed": 0} if found.has_torch else {}
    text = document(config, heading, comments)
    return text.replace(f"  - 'override /cluster: {cluster}'", f"  - override /cluster: {cluster}")


def _own_training(
    found: Surroundings, config: dict[str, Any], resources: dict[str, Any], comments: dict[str, str]
) -> list[str]:
    config["task"] = {"_target_": "train.main"}
    comments["task._target_"] = "the function main in train.py; every rank calls it with this config"
    if not found.has_torch:  # without it, a function has one rank and no use for GPUs
        resources |= {"gpus_per_node": 0, "tasks_per_node": 1}
        comments["resources.gpus_per_node"] = "train.py uses none"
        del comments["resources.nodes"]
    return ["A training that resumes: train.py."]


def _given_script(
    found: Surroundings, script: Script, config: dict[str, Any], resources: dict[str, Any], comments: dict[str, str]
) -> list[str]:
    program = "bash" if script.name.endswith(".sh") else "python"
    config["task"] = {"command": f"{program} {shlex.quote(script.name)}"}
    gpus = found.group.gpu_count if found.group is not None else found.gpus_here
    if not script.distributed:
        config["task"]["distributed"] = "off"
        comments["task.distributed"] = "one process, and no RANK or WORLD_SIZE"
        resources |= {"gpus_per_node": min(1, gpus), "tasks_per_node": 1}
        comments["resources.gpus_per_node"] = "more once the script trains with several ranks"
        del comments["resources.nodes"]
    elif not gpus:
        resources["tasks_per_node"] = 1
    return [
        f"Runs {script.name} as it is. Its options go into the command: --lr ${{lr}}, with a key lr below.",
        "task.checkpoints: out/*.pt would name what it saves, so that its progress is known.",
    ]
