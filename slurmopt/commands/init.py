"""`slurmopt init`: a small project that fits what is there: configs for the cluster and an experiment, and a training.

Nothing is asked, and no existing file is changed. `--json` prints one object: `folder`, `experiment`, `script` (the
training that the experiment runs), `files` (path → text), `written`, `found` (`cluster`, `partition`, `nodes`,
`gpus_per_node`, `environment`, `torch`, `scripts`; null for what is not there) and `next`, the command to launch it.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path

from slurmopt import command_output
from slurmopt.errors import InputError, one_line
from slurmopt.option_parser import OptionParser
from slurmopt.runs import options
from slurmopt.scaffold.given_script import given_script
from slurmopt.scaffold.new_files import check_folder, refuse_existing, write_new
from slurmopt.scaffold.project import Project, Script, group_text, project
from slurmopt.scaffold.surroundings import Surroundings, is_distributed, look


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    folder = args.folder
    check_folder(folder)
    found = look(folder)
    script, copied = _script(args.script, folder, found)
    made = project(found, script)
    if args.dry_run:
        refuse_existing(folder, [*made.files, *copied])
    else:
        write_new(folder, made.files, copied)
    if args.json:
        command_output.print_json(_answer(made, script, found, folder, not args.dry_run))
    else:
        print("\n".join(_lines(made, script, found, folder, list(copied), args.dry_run)))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt init`."""
    parser = OptionParser("slurmopt init", description="Write configs and a training that fit this cluster.")
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path("."), metavar="FOLDER", help="where (default: the current folder)"
    )
    parser.add_argument("--from", dest="script", type=Path, metavar="SCRIPT", help="your training; it is not changed")
    parser.add_argument("--dry-run", action="store_true", help="print what would be written, and write nothing")
    options.add_json(parser)
    return parser


def _script(given: Path | None, folder: Path, found: Surroundings) -> tuple[Script | None, dict[str, bytes]]:
    """The user's training, and its copy where it lies outside of the folder."""
    if given is not None:
        return given_script(given, folder)
    if not found.scripts:
        return None, {}
    try:
        return Script(found.scripts[0], is_distributed(folder / found.scripts[0])), {}
    except OSError as error:
        raise InputError(f"{folder / found.scripts[0]} cannot be read: {error.strerror}") from error


def next_command(made: Project, folder: Path) -> str:
    """The command that launches the experiment, from where this one was typed."""
    launch = f"slurmopt launch +experiment={made.experiment}"
    return launch if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && {launch}"


def _answer(
    made: Project, script: Script | None, found: Surroundings, folder: Path, written: bool
) -> dict[str, object]:
    return {
        "folder": str(folder.resolve()),
        "experiment": made.experiment,
        "script": script.name if script is not None else "train.py",
        "files": made.files,
        "written": written,
        "found": {
            "cluster": found.cluster.cluster if found.cluster else None,
            "partition": found.partition.name if found.partition else None,
            "nodes": found.group.usable if found.group else None,
            "gpus_per_node": found.group.gpu_count if found.group else found.gpus_here,
            "environment": found.environment.path,
            "torch": found.has_torch,
            "scripts": found.scripts,
        },
        "next": next_command(made, folder),
    }


def _lines(
    made: Project, script: Script | None, found: Surroundings, folder: Path, copied: list[str], dry_run: bool
) -> Iterator[str]:
    if found.cluster is not None:
        place = (
            f"{found.cluster.cluster}, partition {found.partition.name}: " if found.partition else found.cluster.cluster
        )
        yield f"  cluster  {place}{group_text(found)}"
    else:
        yield f"  cluster  none: {found.no_cluster}"
        yield f"  machine  {found.gpus_here or 'no'} GPUs; runs are processes here"
    torch = "with torch" if found.has_torch else "without torch"
    yield f"  python   {found.environment.kind} {one_line(found.environment.path)}, {torch}"
    if script is not None:
        how = "a rank for each GPU" if script.distributed else "one process"
        yield f"  script   {one_line(script.name)}, not changed: {how}"
        others = [name for name in found.scripts if name != script.name]
        if others:
            yield f"  others   {', '.join(map(one_line, others))}; --from SCRIPT takes another one"
    for name, text in made.files.items():
        yield f"  {'would write' if dry_run else 'wrote'}  {one_line(str(folder / name))}"
        if dry_run:
            yield from (f"    {line}" for line in text.splitlines())
    for name in copied:
        yield f"  {'would copy' if dry_run else 'copied'}  {one_line(str(folder / name))}"
    yield f"  next     {next_command(made, folder)}"
