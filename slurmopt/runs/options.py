"""The command-line options that all commands on runs share."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from slurmopt.option_parser import OptionParser
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import point_number, sweep_of
from slurmopt.runs import colour

RUN_HELP = "a name (its latest run), NAME/ID, an ID or a prefix of one, a folder, a Slurm job ID; default: the latest"


def parser(command: str, description: str) -> argparse.ArgumentParser:
    """A parser for `slurmopt COMMAND`, with --folder."""
    parser = OptionParser(f"slurmopt {command}", description=description)
    parser.add_argument(
        "--folder",
        type=Path,
        default=default_folder(),
        help="the folder of your runs (default: $SLURMOPT_FOLDER, else runs)",
    )
    return parser


class DefaultFolder(type(Path())):  # type: ignore[misc]  # before Python 3.12, a class of paths has to name its system
    """The folder in which commands look for runs if --folder is not given: then they look in this user's other folders
    too."""


def default_folder() -> Path:
    """The folder in which commands look for runs without --folder."""
    return DefaultFolder(os.environ.get("SLURMOPT_FOLDER") or "runs")


def run_arg(run: RunFolder, label: str) -> str:
    """The argument RUN that names a run, a sweep or a point in a suggested command: its label, if commands find that in
    the default folder, else its path. Quoted for a shell: a folder of another user may have any name."""
    sweep, number = sweep_of(run), point_number(run)
    home = run.path if sweep is None or number is None else sweep.path
    if home.absolute().parent.parent == default_folder().absolute():
        return shlex.quote(label)
    return shlex.quote(str(home if number is None else home / str(number)))


def add_run(parser: argparse.ArgumentParser) -> None:
    """Adds the optional argument RUN."""
    parser.add_argument("run", nargs="?", metavar="RUN", help=RUN_HELP)


def add_json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON on standard output, and nothing else")


def add_color(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--color", choices=colour.CHOICES, default="auto", help="colours of states (default: auto, on a terminal)"
    )
