"""`slurmopt top`: shows all runs and sweeps on the whole terminal, and keeps them up to date."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from slurmopt.errors import InputError, RunError
from slurmopt.runs import options
from slurmopt.runs.elsewhere import other_folders
from slurmopt.runs.unreadable_folders import closed_folder, permission_denied

_SHORTEST, _LONGEST = 0.5, 3600.0
_PLAIN_TERMINALS = ("dumb", "unknown", "")


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    _check_terminal()
    _check_folder(args.folder)
    return _show(args)


def _show(args: argparse.Namespace) -> int:
    from slurmopt.board.first_picture import first_picture
    from slurmopt.board.frame import View, frame
    from slurmopt.board.rows.folders import Folders
    from slurmopt.board.rows.reading import Reading

    others = other_folders(args.folder) if isinstance(args.folder, options.DefaultFolder) else []
    columns, lines = os.get_terminal_size(sys.stdin.fileno())
    reading, view = Reading(Folders([args.folder], others)), View(columns, lines)
    reading.first(view.space)
    view.take(list(reading.rows.values()))
    colours = not os.environ.pop("NO_COLOR", "")
    with first_picture(frame(view, list(reading.rows.values()), time.time()), colours):
        from slurmopt.board.app import run  # imports Textual

        return run(reading, args.refresh, view, colours)


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt top`."""
    parser = options.parser("top", "All runs and sweeps on the whole terminal, kept up to date.")
    parser.add_argument(
        "--refresh",
        type=_refresh,
        default=3.0,
        metavar="SECONDS",
        help="seconds between two looks at the runs (default: 3); more where a look takes long",
    )
    return parser


def _refresh(text: str) -> float:
    valid = f"a number of seconds from {_SHORTEST} to {_LONGEST:.0f}"
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number; valid: {valid}") from None
    if not _SHORTEST <= seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range; valid: {valid}")
    return seconds


def _check_terminal() -> None:
    """InputError where there is no terminal that can show it."""
    instead = "slurmopt list and slurmopt status --watch work there"
    for name, stream in (("input", sys.stdin), ("output", sys.stdout), ("error", sys.stderr)):
        if not stream.isatty():
            raise InputError(f"slurmopt top needs a terminal, and standard {name} is none; {instead}")
    terminal = os.environ.get("TERM", "")
    if terminal in _PLAIN_TERMINALS:
        raise InputError(f"slurmopt top cannot draw on the terminal TERM={terminal or 'unset'}; {instead}")


def _check_folder(folder: Path) -> None:
    """RunError where it cannot be read."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"--folder {str(folder)!r} is a file; valid: the folder of your runs")
    if (closed := closed_folder(folder.absolute())) is not None:
        raise RunError(permission_denied(closed))
