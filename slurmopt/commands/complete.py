"""`slurmopt _complete LINE`: what could stand where the line ends, a candidate a line. Shells call it at every tab."""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path

from slurmopt.commands import COMMANDS
from slurmopt.storage.kinds import KINDS

_SHELLS = ("bash", "zsh", "fish")
_WITH_RUN = ("status", "logs", "history", "retry", "cancel")
_WITH_SWEEP = ("results", "throttle")
_HARMLESS = re.compile(r"[\w./=+:@%,~-]*")
_VALUED = (
    "--folder", "--rank", "--attempt", "--to", "--key", "--keep", "--more-memory", "--more-time", "--sort", "--plot",
)  # fmt: skip
"""Options whose value is no RUN."""
_CHOICES = {"--tier": tuple(KINDS), "--from": tuple(KINDS), "--format": ("torch", "safetensors", "dcp")}


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
    command, given = words[1], words[2:]
    if command == "launch":
        return _overrides(given, current)
    if command == "completion":
        return [shell for shell in _SHELLS if shell.startswith(current)]
    if command == "checkpoint":
        return _checkpoint(given, current)
    if command not in COMMANDS or (given and given[-1] in _VALUED):
        return []
    if current.startswith("-"):
        return _options(COMMANDS[command][0], current)
    if command in _WITH_SWEEP:
        return _named(given, current, sweeps_only=True)
    return _named(given, current) if command in _WITH_RUN else []


def _checkpoint(given: list[str], current: str) -> list[str]:
    """A command of `slurmopt checkpoint`, then its options and its RUN."""
    from slurmopt.commands.checkpoint.main import COMMANDS as OF_CHECKPOINT

    if not given:
        return [name for name in OF_CHECKPOINT if name.startswith(current)]
    if given[-1] in _CHOICES:
        return [choice for choice in _CHOICES[given[-1]] if choice.startswith(current)]
    if given[0] not in OF_CHECKPOINT or given[-1] in _VALUED:
        return []
    if current.startswith("-"):
        return _options(OF_CHECKPOINT[given[0]][0], current)
    return _named(given, current) if len(_words(given)) == 1 else []


def _words(given: list[str]) -> list[str]:
    """Without options and their values."""
    valued = (*_VALUED, *_CHOICES)
    return [word for before, word in zip(["", *given], given, strict=False) if before not in valued and word[:1] != "-"]


def _options(module: str, current: str) -> list[str]:
    text = import_module(module).parser().format_help()
    return sorted({option for option in re.findall(r"--[a-z-]+", text) if option.startswith(current)})


def _named(given: list[str], current: str, sweeps_only: bool = False) -> list[str]:
    """Runs and sweeps: names first; IDs once a name stands, or where the word begins one."""
    from slurmopt.runs.find import all_runs, all_sweeps, created

    folder = Path(os.environ.get("SLURMOPT_FOLDER") or "runs")
    if "--folder" in given[:-1]:
        folder = Path(given[given.index("--folder") + 1])
    both = [*([] if sweeps_only else all_runs(folder)), *(sweep.run for sweep in all_sweeps(folder))]
    runs = sorted(both, key=created, reverse=True)
    if "/" in current:
        found = [f"{run.name}/{run.id}" for run in runs]
    else:
        found = [run.name for run in runs] + ([run.id for run in runs] if current else [])
    return list(dict.fromkeys(word for word in found if word.startswith(current)))


def _overrides(given: list[str], current: str) -> list[str]:
    """Hydra's own candidates, over the search path of a launch."""
    if current.startswith("-"):
        return [word for word in ("--config-dir", "--cfg", "--info", "--help") if word.startswith(current)]
    if given and given[-1] == "--config-dir":
        return []
    from hydra.errors import HydraException
    from hydra.plugins.completion_plugin import DefaultCompletionPlugin
    from omegaconf.errors import OmegaConfBaseException

    from slurmopt.config.composition import arguments
    from slurmopt.config.composition.compose import PRIMARY, hydra_session

    parsed = arguments.parse(given)
    line = " ".join([*parsed.overrides, current])
    with hydra_session(parsed.config_dir) as hydra:
        try:
            return DefaultCompletionPlugin(hydra.config_loader)._query(PRIMARY, line)
        except (HydraException, OmegaConfBaseException):
            return []  # what stands there already does not compose; the launch will say why
