"""The commands to type next: each works in a shell as it is printed, a remark being a comment of the shell."""

from __future__ import annotations

import shlex

from slurmopt.errors import one_line
from slurmopt.restart import causes
from slurmopt.run_folder import events
from slurmopt.run_folder.json_values import text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.journal import FOREIGN
from slurmopt.runs.options import run_arg
from slurmopt.runs.status.query import Status

_NEXT = {
    "pending": ["slurmopt logs {run} --follow  # waits for its start", "slurmopt cancel {run}"],
    "running": ["slurmopt logs {run} --follow"],
    "stopping": ["slurmopt status {run} --watch"],
    "requeued": ["slurmopt status {run} --watch"],
    "finished": ["slurmopt report {run}", "slurmopt logs {run}"],
    "failed": ["slurmopt logs {run} --errors", "slurmopt retry {run}{more}"],
    "killed": ["slurmopt logs {run} --errors", "slurmopt retry {run}{more}"],
    "cancelled": ["slurmopt retry {run}  # goes on with it"],
    "lost": ["slurmopt logs {run} --errors", "slurmopt retry {run}"],
    "unknown": ["slurmopt logs {run}"],
}


def next_commands(status: Status) -> list[str]:
    """Of a run or a point, by its state; none where nothing can be done."""
    folder, run = status.folder, run_arg(status.folder, status.label)
    if status.journal.problem is not None and not folder.in_sweep:
        return [f"squeue --me -o '%i %o'  # your job whose script is {one_line(str(folder.script))}"]
    if status.journal.backend == FOREIGN:
        return [f"slurmopt report {run}"]
    if status.owner is not None:  # only its owner can submit, retry or cancel it
        return [f"slurmopt logs {run}"] if status.journal.attempt else []
    if status.state == "unsubmitted":
        return [] if folder.lacks() else [repeated_launch(folder)]
    if status.journal.for_tend and status.alive:
        return [f"slurmopt tend {run}"]
    options = causes.RETRY_OPTIONS.get(text((status.journal.ended or {}).get("cause")) or "", "")
    return [command.format(run=run, more=options) for command in _NEXT[status.state]]


def after_launch(run: RunFolder, label: str, of_sweep: bool) -> list[str]:
    """What is typed most often after a launch."""
    name = run_arg(run, label)
    second = f"slurmopt results {name}" if of_sweep else f"slurmopt logs {name} --follow"
    return [f"slurmopt status {name}", second, f"slurmopt cancel {name}"]


def repeated_launch(run: RunFolder, multirun: bool = False) -> str:
    """The launch of a run or sweep again with its ID, in the folder in which it was typed; it never submits twice."""
    from yaml import YAMLError

    from slurmopt.config.composition import stored_yaml

    created = next(iter(events.read(run.events, "created")), {})
    try:
        stored = stored_yaml.load(run.overrides, mine=True)
    except (OSError, YAMLError):
        stored = None
    words = [str(word) for word in stored] if isinstance(stored, list) else []
    words = [word for word in words if not word.startswith("launch.id=")]
    launch = shlex.join(["slurmopt", "launch", *(["-m"] if multirun else []), *words, f"launch.id={run.id}"])
    home = text(created.get("cwd"))
    return one_line(f"(cd {shlex.quote(home)} && {launch})" if home else launch)


def listed(commands: list[str], label: str, indent: int) -> list[str]:
    """The lines of a page or an answer: one command each, below each other."""
    return [f"  {label if not index else '':{indent}} {one_line(command)}" for index, command in enumerate(commands)]
