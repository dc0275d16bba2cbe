"""Runs the checks of a machine on compute nodes, as a short job of srun, and gathers the answers."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from slurmopt.checks.result import FAIL, PASS, WARN, CheckResult
from slurmopt.doctor.places import Place
from slurmopt.errors import SlurmRefused
from slurmopt.run_folder.process import module_words
from slurmopt.slurm import client
from slurmopt.slurm.cluster.facts import facts

_MARK = "slurmopt-doctor"
_PIECE = 500
"""Characters. srun takes tasks' output by 1,024 bytes, and mixes the lines of tasks that are longer."""
_JOB_SECONDS = 90.0
_MINUTES = 2
_SKEW = 2.0
_NOT_NOW = ("nodes are busy", "configuration not available now")
"""With what srun ends after --immediate, also where there never will be as many nodes."""


@dataclass(frozen=True)
class Nodes:
    """The nodes that are asked for."""

    count: int
    partition: str | None = None
    account: str | None = None
    gpus_per_node: int | None = None
    within: int = 60
    """Seconds to wait for the nodes."""


def check_nodes(nodes: Nodes, folder: Path, used: Sequence[Place] = ()) -> list[CheckResult]:
    """What each node found. Raises SlurmError where the job cannot be had."""
    began = time.time()
    try:
        said = client.run(_words(nodes, folder, used), nodes.within + _JOB_SECONDS)
    except SlurmRefused as error:
        if any(word in str(error) for word in _NOT_NOW):
            raise SlurmRefused(_not_in_time(nodes)) from error
        raise
    ended = time.time()
    answers = read_answers(said)
    found = [result for answer in answers for result in _of_node(answer, began, ended)]
    if len(answers) < nodes.count:
        text = f"{nodes.count - len(answers)} of {nodes.count} nodes gave no answer"
        found.append(CheckResult("nodes", FAIL, text, "the output of srun says more"))
    return found


def answer_lines(answer: dict[str, Any]) -> str:
    """A node's answer as short lines, which `read_answers` puts together again."""
    text = json.dumps(answer)
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    return "".join(f"{_MARK} {answer['node']} {len(pieces)} {number} {piece}\n" for number, piece in enumerate(pieces))


def read_answers(said: str) -> list[dict[str, Any]]:
    """The answers in what srun printed, in which the lines of the nodes are mixed; those that are whole."""
    pieces: dict[tuple[str, int], dict[int, str]] = {}
    for line in said.splitlines():
        with contextlib.suppress(ValueError):  # not one of ours
            mark, node, count, number, piece = line.split(" ", 4)
            if mark == _MARK:
                pieces.setdefault((node, int(count)), {})[int(number)] = piece
    whole = [found for (_, count), found in pieces.items() if len(found) == count]
    return [json.loads("".join(found[number] for number in sorted(found))) for found in whole]


def _not_in_time(nodes: Nodes) -> str:
    partitions = [one for one in facts().partitions if nodes.partition in (None, one.name)]
    usable = max((sum(group.usable for group in partition.groups) for partition in partitions), default=0)
    if nodes.count > usable:
        return f"--nodes {nodes.count}: only {usable} are usable; sinfo shows them"
    again = f"slurmopt doctor --nodes {nodes.count} --within 10m"
    return f"{nodes.count} nodes were not free within {nodes.within} s; to wait longer: {again}"


def _words(nodes: Nodes, folder: Path, used: Sequence[Place]) -> list[str]:
    asked = [
        "srun", "--quiet", f"--nodes={nodes.count}", f"--ntasks={nodes.count}", "--ntasks-per-node=1",
        f"--time={_MINUTES}", f"--immediate={nodes.within}", "--job-name=slurmopt-doctor", "--kill-on-bad-exit=0",
    ]  # fmt: skip
    asked += [f"--partition={nodes.partition}"] if nodes.partition else []
    asked += [f"--account={nodes.account}"] if nodes.account else []
    asked += [f"--gpus-per-node={nodes.gpus_per_node}"] if nodes.gpus_per_node else []
    words = [str(folder.absolute()), json.dumps([asdict(place) for place in used])]
    return [*asked, "--", sys.executable, *module_words("slurmopt.doctor.on_one_node"), *words]


def _of_node(answer: dict[str, Any], began: float, ended: float) -> list[CheckResult]:
    node = str(answer["node"])
    results = [replace(CheckResult(**each), nodes=(node,)) for each in answer["results"]]
    off = max(began - answer["time"], answer["time"] - ended)
    if off > _SKEW:
        text = f"its clock is {off:.0f} s off this machine's"
        return [*results, CheckResult("clock", WARN, text, "chronyc tracking; systemctl restart chronyd", (node,))]
    return [*results, CheckResult("clock", PASS, "as this machine's", nodes=(node,))]
