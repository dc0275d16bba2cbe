"""Whether a run or sweep is one's own, and stays so: its script and its words are run as whoever submits them.

Links are looked at themselves, not what they lead to: one may lead to a file of one's own.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import stat
from collections.abc import Iterable
from pathlib import Path

from slurmopt.errors import FolderError, RunError, one_line
from slurmopt.folder.layout import RunFolder
from slurmopt.folder.sweep import SweepFolder, sweep_of

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def refuse_foreign(sweep: SweepFolder) -> None:
    """RunError where another user could have written what is about to be submitted, or could put another folder in the
    sweep's place."""
    files = (sweep.path, sweep.points_file, sweep.script, sweep.config, sweep.events)
    for path in files:
        if not os.path.lexists(path):
            raise RunError(f"{one_line(str(path))}: no such file; the sweep is not complete")
    _refuse(files, "a sweep", "")
    refuse_place(sweep.path.parent)


def refuse_foreign_run(run: RunFolder, who: str = "") -> None:
    """The same for a run, an array task or a point; the message begins with `who`."""
    if (sweep := sweep_of(run)) is not None:
        refuse_foreign(sweep)
    else:
        refuse_place(run.path.parent)
    files = (run.path, run.script, run.config, run.events, run.code, run.package, run.submitit)
    _refuse(files, "a run", who)


def refuse_others(run: RunFolder) -> None:
    """RunError where a run that is to be ended, or to lose something, belongs to another user. root may do that."""
    if os.geteuid() and (name := owner_of(run) or owner(run.config)) is not None:
        raise RunError(f"{one_line(f'{run.name}/{run.id}')} belongs to another user ({name}), who alone can do that")


def is_mine(run: RunFolder) -> bool:
    """Whether the run's files belong to this user, whatever their modes; False where they cannot be looked at."""
    paths = (run.path, run.script, run.config, run.events)
    try:
        return all(path.lstat().st_uid == os.geteuid() for path in paths)
    except OSError:
        return False


def owner_of(run: RunFolder) -> str | None:
    """The name of the other user whom a run, or its journal, belongs to; None for one's own."""
    return owner(run.path) or owner(run.events)


def owner(path: Path) -> str | None:
    """The name of the other user whom `path` belongs to, else None: also where that cannot be told."""
    try:
        uid = path.lstat().st_uid
    except OSError:
        return None
    return None if uid == os.geteuid() else name_of(uid)


def name_of(uid: int) -> str:
    """The user's name, or `uid 1234`."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _refuse(paths: Iterable[Path], what: str, who: str) -> None:
    for path in paths:
        try:
            facts = path.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise RunError(f"{who}{one_line(str(path))}: {error.strerror}") from error
        shown = one_line(str(path))
        if facts.st_uid != os.geteuid():
            raise RunError(f"{who}{shown} belongs to another user ({name_of(facts.st_uid)}); launch {what} of your own")
        if stat.S_ISLNK(facts.st_mode):
            raise RunError(f"{who}{shown} is a link; name what it leads to")
        if facts.st_mode & _OTHERS:
            raise RunError(
                f"{who}{shown} may be written by others (mode {stat.S_IMODE(facts.st_mode):o}), and would run as you: "
                f"look at what is in it, then chmod go-w {shlex.quote(shown)}"
            )


def make_place(folder: Path) -> None:
    """Makes `folder`, runs/NAME, and what is missing above it, for nobody else to write, whatever the umask.
    FolderError as from `refuse_place`."""
    missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        for one in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another launch was quicker
                one.mkdir(mode=0o755)
        refuse_place(folder)
    except BaseException:
        for one in missing:
            with contextlib.suppress(OSError):
                one.rmdir()
        raise


def refuse_place(folder: Path) -> None:
    """FolderError where others could put another run in the place of one in `folder`, runs/NAME, now or later.

    It must belong to this user or root, and nobody else may rename in it. Above it a group may: of what it puts there
    nothing is run, as the job sees whose its folder is. All the world may not, but where the sticky bit is set.
    """
    for link in (folder, *folder.parents):
        if os.path.islink(link) and (uid := link.lstat().st_uid) not in (0, os.geteuid()):
            raise FolderError(_refused(link, f"is a link of another user ({name_of(uid)})"))
    facts, real = folder.stat(), folder.resolve()
    if facts.st_uid not in (0, os.geteuid()):
        raise FolderError(_refused(folder, f"belongs to another user ({name_of(facts.st_uid)})"))
    if facts.st_mode & _OTHERS and not facts.st_mode & stat.S_ISVTX:
        mode = f"may be written by others (mode {stat.S_IMODE(facts.st_mode):o})"
        raise FolderError(_refused(folder, mode, f"chmod go-w {shlex.quote(one_line(str(folder)))}, or "))
    for above in real.parents:
        facts = above.stat()
        foreign = facts.st_uid not in (0, os.geteuid())
        if facts.st_mode & stat.S_IWOTH and (foreign or not facts.st_mode & stat.S_ISVTX):
            raise FolderError(_refused(above, f"may be written by everybody (mode {stat.S_IMODE(facts.st_mode):o})"))


def _refused(folder: Path, why: str, instead: str = "") -> str:
    return (
        f"{one_line(str(folder))} {why}, who could put another run in the place of yours; "
        f"{instead}have your runs in another folder, by launch.folder or launch.name"
    )
