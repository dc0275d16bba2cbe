"""`slurmopt import job.sbatch`: an existing batch script becomes an experiment. Nothing of the script is executed.

`--json` prints one object: `name`, `folder`, `files` (path → text), `written`, `kept` (why the script runs as it is;
null if it was taken apart), `points`, `lines` (a list of `line`, `text`, `became`: moved, own or left out, and `to`),
`warnings` and `next`, the command that launches it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from slurmopt import command_output
from slurmopt.errors import one_line
from slurmopt.importing.experiment import Imported, check_name, imported
from slurmopt.importing.remarks import LEFT_OUT, MOVED, OWN
from slurmopt.importing.shell.known_names import masked
from slurmopt.option_parser import OptionParser
from slurmopt.runs import options
from slurmopt.scaffold.new_files import refuse_existing, write_new
from slurmopt.scaffold.script_file import list_reader, read_script

_LONGEST = 56
_MARKS = {MOVED: "→", OWN: "·", LEFT_OUT: "✗"}


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    name = check_name(args.name) if args.name is not None else None
    text, shell = read_script(args.script)
    made = imported(text, args.script.name, name, shell, list_reader(Path.cwd()))
    folder = Path.cwd()
    if args.dry_run:
        refuse_existing(folder, made.files)
    else:
        write_new(folder, made.files, private=made.private)
    if args.json:
        command_output.print_json(_answer(made, folder, not args.dry_run))
    else:
        print("\n".join(_lines(made, args.script, args.dry_run)))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt import`."""
    parser = OptionParser(
        "slurmopt import",
        description="Make an experiment in conf/experiment/ from an existing batch script.",
    )
    parser.add_argument("script", type=Path, metavar="SCRIPT", help="the batch script, such as job.sbatch")
    parser.add_argument("--name", help="the name of the experiment (default: that of the job, else of the file)")
    parser.add_argument("--dry-run", action="store_true", help="print what would be written, and write nothing")
    options.add_json(parser)
    return parser


def next_command(made: Imported) -> str:
    """The command that launches the experiment."""
    return f"slurmopt launch {'-m ' if made.points > 1 else ''}+experiment={made.name}"


def _answer(made: Imported, folder: Path, written: bool) -> dict[str, object]:
    lines = [
        {"line": item.line, "text": masked(item.text), "became": item.became, "to": item.to} for item in made.remarks
    ]
    return {
        "name": made.name,
        "folder": str(folder),
        "files": made.files,
        "written": written,
        "kept": made.kept or None,
        "points": made.points,
        "lines": lines,
        "warnings": made.warnings,
        "next": next_command(made),
    }


def _lines(made: Imported, script: Path, dry_run: bool) -> Iterator[str]:
    yield f"{one_line(str(script))}: experiment {made.name}" + (f", {made.points:,} points" if made.points > 1 else "")
    for item in made.remarks:
        first = one_line(masked(item.text).split("\n")[0].rstrip("\\ "))
        shown = first if len(first) <= _LONGEST else first[: _LONGEST - 1] + "…"
        yield f"{item.line:5}  {shown:{_LONGEST}} {_MARKS[item.became]} {one_line(item.to)}"
    if made.kept:
        yield f"  kept     the script runs as it is, once on the first node, because {one_line(made.kept)}"
    for warning in made.warnings:
        yield f"  warning  {warning}"
    for name, text in made.files.items():
        yield f"  {'would write' if dry_run else 'wrote'}  {name}"
        if dry_run and name.endswith(".yaml"):
            yield from (f"    {line}" for line in text.splitlines())
    yield f"  next     {next_command(made)}"
