"""`slurmopt _complete LINE`: what could stand where the line ends, a candidate a line. Shells call it at every tab."""

from __future__ import annotations

import os
import re
from argparse import SUPPRESS, Action
from collections.abc import Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path

from slurmopt.commands import COMMANDS

_HARMLESS = re.compile(r"[\w./=+:@%,~-]*")


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    for candidate in candidates(argv[0] if argv else ""):
        if _HARMLESS.fullmatch(candidate):  # the shell puts it on the line as it is
            print(candidate)
    return 0


def candidates(line: str) -> list[str]:
    """What could stand where `line` ends; nothing where the shell had better offer files."""
    words = line.split()
    current = "" if not words or line[-1].isspace() else words.pop()
    if len(words) < 2:
        return [name for name in COMMANDS if name.startswith(current)]
    command, typed = words[1], words[2:]
    if command == "launch":
        return _overrides(typed, current)
    if command == "checkpoint":
        from slurmopt.commands.checkpoint.main import COMMANDS as OF_CHECKPOINT

        if not typed:
            return [name for name in OF_CHECKPOINT if name.startswith(current)]
        return _arguments(OF_CHECKPOINT, typed[0], typed[1:], current)
    return _arguments(COMMANDS, command, typed, current)


def _arguments(commands: Mapping[str, tuple[str, str]], command: str, typed: list[str], current: str) -> list[str]:
    """Candidates for an argument of a command, from the command's own parser."""
    if command not in commands:
        return []
    actions = import_module(commands[command][0]).parser()._actions
    options = {name: action for action in actions if action.help != SUPPRESS for name in action.option_strings}
    valued = [name for name, action in options.items() if action.nargs != 0]
    if typed and typed[-1] in valued:
        return [str(choice) for choice in options[typed[-1]].choices or () if str(choice).startswith(current)]
    if current.startswith("-"):
        return sorted(name for name in options if name.startswith("--") and name.startswith(current))
    words = [word for before, word in pairwise(["", *typed]) if before not in valued and word[:1] != "-"]
    return _positional([action for action in actions if not action.option_strings], len(words), typed, current)


def _positional(actions: list[Action], index: int, typed: list[str], current: str) -> list[str]:
    """Candidates for the positional argument number `index`."""
    if not actions or (index >= len(actions) and actions[-1].nargs not in ("*", "+")):
        return []
    action = actions[min(index, len(actions) - 1)]
    if action.choices is not None:
        return [str(choice) for choice in action.choices if str(choice).startswith(current)]
    kind = str(action.metavar).split()[0].strip("[]")
    return _named(typed, current, sweeps_only=kind == "SWEEP") if kind in ("RUN", "SWEEP") else []


def _named(typed: list[str], current: str, sweeps_only: bool = False) -> list[str]:
    """Runs and sweeps: names first; IDs once a name stands, or where the word begins one."""
    from slurmopt.runs.all_runs import all_runs, all_sweeps, created

    folder = Path(os.environ.get("SLURMOPT_FOLDER") or "runs")
    if "--folder" in typed[:-1]:
        folder = Path(typed[typed.index("--folder") + 1])
    both = [*([] if sweeps_only else all_runs(folder)), *(sweep.run for sweep in all_sweeps(folder))]
    runs = sorted(both, key=created, reverse=True)
    if "/" in current:
        labels = [f"{run.name}/{run.id}" for run in runs]
    else:
        labels = [run.name for run in runs] + ([run.id for run in runs] if current else [])
    return list(dict.fromkeys(word for word in labels if word.startswith(current)))


def _overrides(typed: list[str], current: str) -> list[str]:
    """Hydra's own candidates, over the search path of a launch."""
    if current.startswith("-"):
        return [word for word in ("--config-dir", "--cfg", "--info", "--help") if word.startswith(current)]
    if typed and typed[-1] == "--config-dir":
        return []
    from hydra.errors import HydraException
    from hydra.plugins.completion_plugin import DefaultCompletionPlugin
    from omegaconf.errors import OmegaConfBaseException

    from slurmopt.config.composition.compose import PRIMARY, hydra_session
    from slurmopt.launching import arguments

    parsed = arguments.parse(typed)
    line = " ".join([*parsed.overrides, current])
    with hydra_session(parsed.config_dir) as hydra:
        try:
            return DefaultCompletionPlugin(hydra.config_loader)._query(PRIMARY, line)
        except (HydraException, OmegaConfBaseException):
            return []  # what stands there already does not compose; the launch will say why
