"""The options that all commands on runs share."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import NoReturn

from slurmopt.errors import InputError

RUN_HELP = "a name (its latest run), NAME/ID, an ID or the start of one, a folder, a Slurm job id; default: the latest"


class _Parser(argparse.ArgumentParser):
    """Tells a mistake in one line, as every error is told."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog.removeprefix('slurmopt ')}: {message}; see {self.prog} --help")


def parser(command: str, description: str) -> argparse.ArgumentParser:
    """A parser for `slurmopt COMMAND`, with --folder."""
    made = _Parser(prog=f"slurmopt {command}", description=description, allow_abbrev=False)
    made.add_argument(
        "--folder",
        type=Path,
        default=Path(os.environ.get("SLURMOPT_FOLDER") or "runs"),
        help="the folder of your runs (default: $SLURMOPT_FOLDER, else runs)",
    )
    return made


def add_run(made: argparse.ArgumentParser) -> None:
    """One RUN, which may be left out."""
    made.add_argument("run", nargs="?", metavar="RUN", help=RUN_HELP)


def add_json(made: argparse._ActionsContainer) -> None:
    made.add_argument("--json", action="store_true", help="print JSON on standard output, and nothing else")
