"""`slurmopt run`: options with sbatch's names and a command, as the overrides of a launch. Pure."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import PurePath

from slurmopt.config.schema import GROUPS
from slurmopt.errors import InputError
from slurmopt.grid.override_syntax import override_value
from slurmopt.run_folder.variables import escaped

RESOURCES = {
    "time": "time", "partition": "partition", "account": "account", "qos": "qos", "constraint": "constraint",
    "nodelist": "nodelist", "exclude": "exclude", "reservation": "reservation", "exclusive": "exclusive",
    "cpus_per_task": "cpus_per_task", "mem": "memory", "mem_per_cpu": "memory_per_cpu", "mem_per_gpu": "memory_per_gpu",
}  # fmt: skip
"""The options of sbatch that mean the same as one key of the group `resources`."""
_AXIS = re.compile(r"(?P<key>[A-Za-z_][\w.]*)=(?P<values>.+)", re.DOTALL)
_PLACE = re.compile(r"\$?\{([A-Za-z_][\w.]*)\}")
_LAST_BACKSLASHES = re.compile(r"\\*\Z")
_SCRIPT = re.compile(r"\.(?:py|sh|bash)$")


def overrides_of(args: argparse.Namespace, command: list[str], nodes: int | str | None) -> list[str]:
    """The overrides for which the options and the command stand. Raises InputError.

    `nodes`: those of `--nodes`, or what `--gpus` needs where that is not given.
    """
    axes = dict(map(_axis, args.array))
    resources = {key: getattr(args, option) for option, key in RESOURCES.items()} | _shape(args, nodes)
    given = {key: value for key, value in resources.items() if value not in (None, False)}
    words = [f"resources.{key}={override_value(value)}" for key, value in given.items()]
    words += [f"cluster={override_value(args.cluster)}"] if args.cluster else []
    words += [f"task.command={override_value([_command_word(word, axes) for word in command])}"]
    words += [] if args.name else [f"launch.name={override_value(name_of(command))}"]
    words += [f"{'' if _is_known(key) else '+'}{key}={values}" for key, values in axes.items()]
    _refuse_unused(axes, command)
    return [*words, *args.set]


def name_of(command: list[str]) -> str:
    """The run's name: that of the script or module that the command runs, else the program's."""
    texts = [word for word in command if not word.startswith("-")]
    script = next((word for word in texts if _SCRIPT.search(word)), None)
    module = next((after for word, after in pairwise(command) if word == "-m"), None)
    return PurePath(script).stem if script else module or PurePath(texts[0] if texts else command[0]).name


def _axis(text: str) -> tuple[str, str]:
    match = _AXIS.fullmatch(text)
    if match is None:
        raise InputError(
            f"run: --array {text!r} is not an axis; valid: --array 'lr=1e-4,3e-4' or --array 'seed=range(10)', "
            "and {lr} or {seed} in the command"
        )
    return match["key"], match["values"]


def _is_known(key: str) -> bool:
    return key.partition(".")[0] in GROUPS


def _shape(args: argparse.Namespace, nodes: int | str | None) -> dict[str, int | str | None]:
    """Nodes, GPUs and ranks on each node. Raises InputError where totals do not divide evenly among the nodes."""
    number = str(nodes or 1)
    count = int(number) if number.isdecimal() else None
    kind, gpus = args.gpus or args.gpus_per_node or (None, None)
    if args.gpus:
        gpus = _share(args.gpus[1], count, "-G", "GPUs", "--gpus-per-node")
    ranks = args.ntasks_per_node
    if args.ntasks:
        ranks = _share(args.ntasks, count, "-n", "ranks", "--ntasks-per-node")
    return {"nodes": nodes, "gpus_per_node": gpus, "gpu_type": kind, "tasks_per_node": ranks}


def _share(total: int, nodes: int | None, option: str, what: str, per_node: str) -> int:
    if not nodes:
        raise InputError(f"run: {option} is a total, and -N is a range; give {per_node}")
    if total % nodes:
        raise InputError(
            f"run: {option} {total} are not the same number of {what} on each of {nodes} nodes; "
            f"valid: a multiple of {nodes}, or {per_node}"
        )
    return total // nodes


def _command_word(word: str, axes: Iterable[str]) -> str:
    """The word with an interpolation for each `{key}` and `${key}` of an axis; any other `${` stays text.
    `${oc.env:NAME}` is resolved on each rank, as in a config."""
    text, position = "", 0
    for match in _PLACE.finditer(word):
        if match[1] in axes:
            before = escaped(word[position : match.start()], but_variables=True)
            text += before + _LAST_BACKSLASHES.search(before)[0] + f"${{{match[1]}}}"  # type: ignore[index]
            position = match.end()
    return text + escaped(word[position:], but_variables=True)


def _refuse_unused(axes: Iterable[str], command: list[str]) -> None:
    """Raises InputError for an axis that neither the command nor slurmopt would see."""
    used = {key for word in command for key in _PLACE.findall(word)}
    for key in axes:
        if key not in used and not _is_known(key):
            raise InputError(
                f"run: the command has no {{{key}}}, so all points of --array {key}=… would be the same; "
                f"write it where its value belongs, such as --{key} {{{key}}}"
            )
