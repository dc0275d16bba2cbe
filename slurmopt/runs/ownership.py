"""Whether a run or sweep is one's own, and stays so: its script and its words are run as whoever submits them.

A link is looked at itself, and what it leads to by the same rules.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from slurmopt.errors import FolderError, RunError, one_line
from slurmopt.run_folder.access.owner import OTHERS_WRITE, belongs, is_open, is_own, is_trusted, keeps_modes
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder, sweep_of


def refuse_foreign(sweep: SweepFolder) -> None:
    """RunError where another user could have written what is about to be submitted, or could put another folder in the
    sweep's place."""
    files = (sweep.path, sweep.points_file, sweep.script, sweep.config, sweep.events)
    for path in files:
        if not os.path.lexists(path):
            raise RunError(f"{one_line(str(path))}: no such file; the sweep is not complete")
    _refuse(files, sweep.path, "a sweep", "")
    _close_places(sweep.path)


def refuse_foreign_run(run: RunFolder, prefix: str = "") -> None:
    """The same for a run, an array task or a point; the message begins with `prefix`."""
    if (sweep := sweep_of(run)) is not None:
        refuse_foreign(sweep)
    files = (run.path, run.script, run.config, run.events, run.code, run.package, run.submitit)
    _refuse(files, run.path if sweep is None else sweep.path, "a run", prefix)
    if sweep is None:
        _close_places(run.path)


def refuse_taken(run: RunFolder) -> None:
    """RunError where something is in the place of a run of one's own that no launch of this user's made."""
    message = f"launch.id: {run.id!r} is taken: {one_line(str(run.path))}"
    if not os.path.isdir(run.path):
        kind = "a link that leads nowhere" if not os.path.exists(run.path) else "a file"
        raise RunError(f"{message} is {kind}; move it away, or choose another ID")
    refuse_foreign_run(run, "launch.id: ")
    if missing := run.lacks():
        raise RunError(f"{message} is no run: it has no {', no '.join(missing)}; move it away, or choose another ID")


def refuse_others(run: RunFolder) -> None:
    """RunError where a run that is to be ended, or to lose something, belongs to another user. root may do that."""
    for path in (run.path, run.events, run.config):
        with contextlib.suppress(FileNotFoundError):
            facts = path.lstat()
            if os.geteuid() and not belongs(path, facts, run.path):
                label = one_line(f"{run.name}/{run.id}")
                raise RunError(f"{label} belongs to another user ({name_of(facts.st_uid)}), who alone can do that")


def is_mine(run: RunFolder) -> bool:
    """Whether the run's files belong to this user, whatever their modes; False where they cannot be looked at."""
    try:
        files = (run.path, run.script, config_of(run), run.events)
        return all(belongs(file, file.lstat(), run.path) for file in files)
    except OSError:
        return False


def config_of(run: RunFolder) -> Path:
    """The run's config.yaml; the sweep's for a point that died before it could write its own."""
    sweep = sweep_of(run)
    return run.config if sweep is None or os.path.lexists(run.config) else sweep.config


def owner_of(run: RunFolder) -> str | None:
    """The name of the other user whom a run, or its journal, belongs to; None for one's own."""
    return _owner(run.path, run.path) or _owner(run.events, run.path)


def _owner(path: Path, folder: Path) -> str | None:
    """The name of the other user whom `path`, in `folder`, belongs to, else None: also where that cannot be told."""
    try:
        facts = path.lstat()
    except OSError:
        return None
    return None if is_own(facts, folder) else name_of(facts.st_uid)


def name_of(uid: int) -> str:
    """The user's name, or `uid 1234`."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _refuse(paths: Iterable[Path], folder: Path, noun: str, prefix: str) -> None:
    """RunError where one of `paths`, which lie in the run's or sweep's `folder`, is another user's or may be written by
    others. Where nobody else can reach what is in the folder, only the owner counts."""
    is_closed = _is_closed(folder)
    for path in paths:
        shown = one_line(str(path))
        try:
            facts = path.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise RunError(f"{prefix}{shown}: {error.strerror}") from error
        is_link = stat.S_ISLNK(facts.st_mode)
        if is_link and is_trusted(facts, folder):
            try:
                facts = path.stat()
            except OSError as error:
                raise RunError(f"{prefix}{shown} is a link that leads nowhere: {error.strerror}") from error
        if not belongs(path, facts, folder):
            raise RunError(
                f"{prefix}{shown} belongs to another user ({name_of(facts.st_uid)}); launch {noun} of your own"
            )
        if (is_link or not is_closed) and is_open(facts, folder):
            raise RunError(
                f"{prefix}{shown} may be written by others (mode {stat.S_IMODE(facts.st_mode):o}), and would run as "
                f"you: look at what is in it; then {_close(shown, facts)}"
            )


def _close(shown: str, facts: os.stat_result) -> str:
    """How others lose the permission to write to it: of what belongs to root by root alone."""
    command = f"chmod go-w {shlex.quote(shown)}"
    return f"have its owner, root, do this: {command}" if os.geteuid() and not facts.st_uid else command


def _is_closed(folder: Path) -> bool:
    """Whether only this user can reach what is in the folder."""
    try:
        facts = folder.stat()
    except OSError:
        return False
    return not facts.st_mode & 0o077 and is_own(facts, folder)


def make_place(folder: Path) -> None:
    """Makes `folder`, runs/NAME, for nobody else to write, and what is missing above it, for a group where the umask
    lets it: each member has runs of their own there. FolderError as from `close_place`."""
    missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another launch was quicker
                path.mkdir(mode=0o755 if path == folder else 0o775)
        close_place(folder)
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise
    _warn_of_everybody(folder)
    _warn_of_hidden_owners(folder)


def _close_places(folder: Path) -> None:
    """`close_place` of where a run or sweep is, and of where the link leads that it may be."""
    close_place(folder.parent)
    if folder.is_symlink():
        close_place(folder.resolve().parent)


def close_place(folder: Path) -> None:
    """Takes from others the permission to write in `folder`, runs/NAME, which an earlier umask may have given them:
    they could put another run in the place of one there.

    FolderError where that cannot be done, and where the folder, or a link that it is found by, is another user's. What
    others can do above it is theirs: of what they put there nothing is run, as the job sees whose its folder is.
    """
    for link in (folder, *folder.parents):
        if (link == folder or _is_open_to_all(link.parent)) and os.path.islink(link):
            facts = link.lstat()
            if not is_trusted(facts, link.parent):
                raise FolderError(_refused(link, f"is a link of another user ({name_of(facts.st_uid)})"))
    facts = folder.stat()
    if not is_trusted(facts, folder):
        raise FolderError(_refused(folder, f"belongs to another user ({name_of(facts.st_uid)})"))
    if not facts.st_mode & OTHERS_WRITE or facts.st_mode & stat.S_ISVTX:
        return
    mode, shown = stat.S_IMODE(facts.st_mode), one_line(str(folder))
    with contextlib.suppress(OSError):
        folder.chmod(mode & ~OTHERS_WRITE)
    if folder.stat().st_mode & OTHERS_WRITE:
        if not keeps_modes(folder):
            return
        instead = f"{_close(shown, facts)}, or "
        raise FolderError(_refused(folder, f"may be written by others (mode {mode:o})", instead))
    print(
        f"slurmopt: {shown} could be written by others (mode {mode:o}), who could put another run in the place of "
        f"yours; now only you may write there (mode {mode & ~OTHERS_WRITE:o})",
        file=sys.stderr,
    )


def _is_open_to_all(folder: Path) -> bool:
    """Whether everybody may make links there, as in /tmp: the kernel's rule for links that are not to be followed."""
    mode = folder.stat().st_mode
    return bool(mode & stat.S_IWOTH and mode & stat.S_ISVTX)


def _warn_of_everybody(folder: Path) -> None:
    for above in folder.resolve().parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            print(
                f"slurmopt: {one_line(str(above))} may be written by everybody (mode {stat.S_IMODE(mode):o}): others "
                f"can put something else in the place of your runs; a job that finds that uses nothing of it, and ends",
                file=sys.stderr,
            )
            return


def _warn_of_hidden_owners(folder: Path) -> None:
    """Says so where the file system shows `folder`, which is this user's, as another user's or with other modes."""
    facts = folder.stat()
    if facts.st_uid in (0, os.geteuid()) and not (facts.st_mode & OTHERS_WRITE and not keeps_modes(folder)):
        return
    print(
        f"slurmopt: {one_line(str(folder))}: this file system does not tell whose a file is (user {facts.st_uid}, mode "
        f"{stat.S_IMODE(facts.st_mode):o}, whoever made it); its server decides whether others can change your runs",
        file=sys.stderr,
    )


def _refused(folder: Path, why: str, instead: str = "") -> str:
    return (
        f"{one_line(str(folder))} {why}, who could put another run in the place of yours; "
        f"{instead}have your runs in another folder, by launch.folder or launch.name"
    )
