"""Submits the points that had no room yet: `python -m slurmopt.sweeps.submit.backlog SWEEP [SECONDS]`.

Array tasks and `slurmopt tend` call it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from slurmopt import command_output
from slurmopt.backends.array.machine import this_machine
from slurmopt.backends.array.needs import needs_of
from slurmopt.backends.array.state import is_local
from slurmopt.errors import SlurmoptError, SlurmRefused, SlurmUnreachable, with_place
from slurmopt.grid.override_syntax import override_value
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.submissions import cancelled
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import open_append, replace_text
from slurmopt.run_folder.process import module_words
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.journal import point_count
from slurmopt.runs.ownership import refuse_foreign
from slurmopt.runs.submit import arrays
from slurmopt.runs.submit.exactly_once import locked
from slurmopt.slurm.cluster.submit_limits import SUBMIT_LIMIT

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings
    from slurmopt.sweeps.submit.capacity import Room

_PAUSE = 2.0
_THEN_AGAIN = 60.0


def left(sweep: SweepFolder) -> Ranges:
    """The points that no array job has yet, and nobody has cancelled."""
    count = point_count(sweep)
    waiting = Ranges([(0, count - 1)] if count else []).difference(arrays.submitted(sweep))
    return waiting.difference(cancelled(sweep))


def submit_what_fits(sweep: SweepFolder, settings: Settings) -> None:
    """Array jobs for the points that are left, as long as there is room. With the sweep's lock held."""
    from slurmopt.sweeps.submit.capacity import room
    from slurmopt.sweeps.submit.plan import first_batch

    if is_local(sweep):
        _submit_here(sweep, settings)
        return
    waiting, capacity = left(sweep), room(sweep, settings)
    if (likely := _likely(sweep)) is not None:
        capacity = capacity.at_most(min(likely, capacity.tasks))
    while waiting and capacity.tasks:
        batch = replace(first_batch(waiting, settings.sweep, capacity.tasks), options=_options(sweep, settings))
        try:
            submission = arrays.submit_array(sweep, settings, batch, point_count(sweep))
        except SlurmRefused as error:
            capacity = _smaller(error, capacity, batch.size, anything=bool(arrays.submitted(sweep)))
            continue
        # Somebody may have cancelled some meanwhile.
        waiting, capacity = (
            waiting.difference(batch.points).difference(cancelled(sweep)),
            capacity.after(submission.size),
        )
    if waiting:
        replace_text(sweep.more, "later\n" if capacity.pending else "")  # array.sh.j2 reads it
        return
    if settings.sweep.then is None or launch_then(sweep, settings.sweep.then):
        sweep.more.unlink(missing_ok=True)


def _submit_here(sweep: SweepFolder, settings: Settings) -> None:
    """Array jobs for all points that are left, to the runner on this machine, which launches `sweep.then` itself."""
    from slurmopt.sweeps.submit.plan import first_batch

    count = point_count(sweep)
    while waiting := left(sweep):
        arrays.submit_array(sweep, settings, first_batch(waiting, settings.sweep, tasks_here(settings, count)), count)
    if settings.sweep.then is None:
        sweep.more.unlink(missing_ok=True)


def tasks_here(settings: Settings, count: int) -> int:
    """How many array tasks one array job on this machine may have: as many as there are points. The workers of a search
    are as many as can run at a time: one more would find all trials taken."""
    if settings.sweep.search is None:
        return count
    here = this_machine()
    return needs_of(settings.resources, here).at_once(here)


def at_once_here(settings: Settings) -> str:
    """How many array tasks this machine runs at a time, for people."""
    here = this_machine()
    most = min(needs_of(settings.resources, here).at_once(here), settings.sweep.at_once or len(here.cpus))
    return f"up to {most} array task{'s' if most > 1 else ''}"


def _likely(sweep: SweepFolder) -> int | None:
    """How many array tasks Slurm may take, where it has refused more than it tells beforehand: each refusal costs it
    something. None where it never did."""
    refused = any(SUBMIT_LIMIT in str(event.get("reason")) for event in events.read(sweep.events, "submit-failed"))
    sizes = [submission.size for submission in arrays.known(sweep) if submission.job is not None]
    return 2 * sizes[-1] if refused and sizes else None


def _smaller(error: SlurmRefused, capacity: Room, size: int, anything: bool) -> Room:
    """The room after a refusal: half of what was too much, as long as the site's limit is the reason."""
    from slurmopt.slurm.cluster.submit_limits import is_submit_limit

    if not is_submit_limit(error) or (size == 1 and not anything):
        raise error
    return capacity.at_most(size // 2)


def _options(sweep: SweepFolder, settings: Settings) -> tuple[str, ...]:
    """What the next array job waits for: `launch.after`; and, as a throttle holds for one array job, the one before."""
    from slurmopt.sweeps.submit.dependencies import dependency

    before = [submission.job for submission in arrays.known(sweep) if submission.job is not None]
    waits = dependency(settings.launch, _home(sweep))
    if not (before and settings.sweep.at_once):
        return tuple(waits)
    chained = f"afterany:{before[-1]}"
    return (f"{waits[0]},{chained}", *waits[1:]) if waits else (f"--dependency={chained}",)


def _home(sweep: SweepFolder) -> Path:
    """Where the sweep's launch was typed."""
    created = next(iter(events.read(sweep.events, "created")), {})
    return Path(str(created.get("cwd") or sweep.path))


def launch_then(sweep: SweepFolder, words: str) -> bool:
    """Launches what follows the sweep, as it would be typed where the sweep was; once, whoever asks how often.

    Whether it stands; where it does not, the journal tells why, and it is tried again a minute later at the earliest.
    """
    failed = [float(event.get("time") or 0) for event in events.read(sweep.events, "then-failed")]
    if failed and time.time() - failed[-1] < _THEN_AGAIN:
        return False
    options = [
        f"launch.after={override_value([str(sweep.path)])}",
        f"launch.id={sweep.id}-then",
        "launch.after_failure=true",
    ]
    command = [sys.executable, *module_words("slurmopt.launch"), *shlex.split(words), *options]
    done = subprocess.run(command, cwd=_home(sweep), stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        events.append(sweep.events, "then-failed", reason=why)
        command_output.warn(f"sweep.then is not launched yet: {why}")
    return done.returncode == 0


def go_on(sweep: SweepFolder, patience: float = 0.0) -> None:
    """Submits what fits now. `patience`: seconds for another that looks just now, for room that is being made, and for
    a slurmctld that is away.

    Raises SlurmoptError where something is wrong then.
    """
    refuse_foreign(sweep)
    with _waiter(sweep, patience) as patience:
        deadline, pause = time.monotonic() + patience, _PAUSE
        while sweep.more.exists():
            late = time.monotonic() + pause > deadline
            try:
                if _submit_more(sweep, max(0.0, deadline - time.monotonic())) or late:
                    return
            except SlurmUnreachable:
                if late:
                    raise
            time.sleep(pause)
            pause *= 2


@contextlib.contextmanager
def _waiter(sweep: SweepFolder, patience: float) -> Iterator[float]:
    """One may wait for room; the others leave at once, which makes it."""
    with os.fdopen(open_append(sweep.path / ".waiting"), "ab") as file:
        try:
            if patience:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            patience = 0.0
        except OSError:  # a file system without locks
            patience = min(patience, _PAUSE)
        yield patience


def _submit_more(sweep: SweepFolder, patience: float) -> bool:
    """Submits what fits; whether nobody needs to look again soon."""
    from slurmopt.config.composition.settings import load

    with locked(sweep.run, patience) as is_ours:
        if not is_ours or not sweep.more.exists():
            return True
        _, settings = load(sweep.config)
        arrays.settle(sweep, settings, point_count(sweep))
        submit_what_fits(sweep, settings)
        # Where nothing waits any more nobody starts who would look again: tasks that end just now still count.
        return not sweep.more.exists() or sweep.more.read_text(encoding="utf-8") != ""


def main(argv: list[str]) -> int:
    """Looks once, or for so many seconds. Where something is wrong for now, the next array task looks again."""
    sweep = SweepFolder(Path(argv[0]).absolute())
    try:
        go_on(sweep, float(argv[1]) if len(argv) > 1 else 0.0)
    except (SlurmoptError, OSError) as error:  # a disk that is full tells nobody by a traceback
        command_output.warn(f"the next points are not submitted yet: {with_place(error)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
