"""Checks that a run or sweep belongs to this user and that no other user can change it: its script and command are
executed with the rights of the user who submits them.

For a symbolic link, both the link and its target are checked.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import stat
from collections.abc import Iterable
from pathlib import Path

from slurmopt import command_output
from slurmopt.errors import FolderError, RunError, one_line
from slurmopt.run_folder.access.owner import OTHERS_WRITE, belongs, is_open, is_own, is_trusted, keeps_modes
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder, sweep_of


def refuse_foreign(sweep: SweepFolder) -> None:
    """Raises RunError if the sweep is incomplete, or if another user could have written the files to be submitted;
    FolderError if another user could replace the folder of the sweep."""
    files = (sweep.path, sweep.points_file, sweep.script, sweep.config, sweep.events)
    for path in files:
        if not os.path.lexists(path):
            raise RunError(f"{one_line(str(path))}: no such file; the sweep is not complete")
    _refuse(files, sweep.path, "a sweep", "")
    _close_places(sweep.path)


def refuse_foreign_run(run: RunFolder, prefix: str = "") -> None:
    """Checks a run, an array task or a point like `refuse_foreign`; the message begins with `prefix`."""
    if (sweep := sweep_of(run)) is not None:
        refuse_foreign(sweep)
    files = (run.path, run.script, run.config, run.events, run.code, run.package, run.submitit)
    _refuse(files, run.path if sweep is None else sweep.path, "a run", prefix)
    if sweep is None:
        _close_places(run.path)


def refuse_taken(run: RunFolder) -> None:
    """Raises RunError if the path of the run exists but is not a complete run of this user."""
    message = f"launch.id: {run.id!r} is taken: {one_line(str(run.path))}"
    if not os.path.isdir(run.path):
        kind = "a broken link" if not os.path.exists(run.path) else "a file"
        raise RunError(f"{message} is {kind}; move it away, or choose another ID")
    refuse_foreign_run(run, "launch.id: ")
    if missing := run.lacks():
        raise RunError(f"{message} is not a run: it has no {', no '.join(missing)}; move it away, or choose another ID")


def refuse_others(run: RunFolder) -> None:
    """Raises RunError if a run that is to be stopped or pruned belongs to another user. root is permitted."""
    for path in (run.path, run.events, run.config):
        with contextlib.suppress(FileNotFoundError):
            facts = path.lstat()
            if os.geteuid() and not belongs(path, facts, run.path):
                label = one_line(f"{run.name}/{run.id}")
                raise RunError(f"{label} belongs to another user ({name_of(facts.st_uid)}); only that user can do that")


def is_mine(run: RunFolder) -> bool:
    """Whether the files of the run belong to this user, regardless of their modes; False if they cannot be read."""
    try:
        files = (run.path, run.script, config_of(run), run.events)
        return all(belongs(file, file.lstat(), run.path) for file in files)
    except OSError:
        return False


def config_of(run: RunFolder) -> Path:
    """Returns the path of the run's config.yaml; that of the sweep for a point that ended before it wrote its own."""
    sweep = sweep_of(run)
    return run.config if sweep is None or os.path.lexists(run.config) else sweep.config


def owner_of(run: RunFolder) -> str | None:
    """Returns the name of the other user who owns the run or its journal; None if this user owns both."""
    return _owner(run.path, run.path) or _owner(run.events, run.path)


def _owner(path: Path, folder: Path) -> str | None:
    """Returns the name of the other user who owns `path`, which is in `folder`; None if this user does, or if it is
    unknown."""
    try:
        facts = path.lstat()
    except OSError:
        return None
    return None if is_own(facts, folder) else name_of(facts.st_uid)


def name_of(uid: int) -> str:
    """Returns the name of a user, or `uid 1234` if there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _refuse(paths: Iterable[Path], folder: Path, noun: str, prefix: str) -> None:
    """Raises RunError if one of `paths`, which are in `folder` (a run or sweep), belongs to another user or is writable
    by others. If others cannot access the folder, only the owner is checked."""
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
                raise RunError(f"{prefix}{shown} is a broken link: {error.strerror}") from error
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
    """Returns the command that removes the write permission of others; for a file of root, root must run it."""
    command = f"chmod go-w {shlex.quote(shown)}"
    return f"have its owner, root, do this: {command}" if os.geteuid() and not facts.st_uid else command


def _is_closed(folder: Path) -> bool:
    """Whether only this user can access the content of the folder."""
    try:
        facts = folder.stat()
    except OSError:
        return False
    return not facts.st_mode & 0o077 and is_own(facts, folder)


def make_place(folder: Path) -> None:
    """Creates `folder`, runs/NAME, writable only by this user, and its missing parents, writable by the group if the
    umask permits it, because each member may have runs there. Raises FolderError like `close_place`."""
    missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):  # a concurrent launch created it
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
    """Calls `close_place` for the parent of a run or sweep and, if that is a symbolic link, for the parent of its
    target."""
    close_place(folder.parent)
    if folder.is_symlink():
        close_place(folder.resolve().parent)


def close_place(folder: Path) -> None:
    """Removes the write permission of others from `folder`, runs/NAME, which an earlier umask may have granted: with
    it, they could replace a run.

    Raises FolderError if that fails, or if the folder, or a link in its path, belongs to another user. Folders above it
    may be writable by others: nothing that they put there is executed, because the job checks the owner of its folder.
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
    command_output.warn(
        f"{shown} could be written by others (mode {mode:o}), who could put another run in the place of "
        f"yours; now only you may write there (mode {mode & ~OTHERS_WRITE:o})"
    )


def _is_open_to_all(folder: Path) -> bool:
    """Whether the folder is world-writable and sticky, as /tmp; the kernel restricts links in such folders
    (fs.protected_symlinks)."""
    mode = folder.stat().st_mode
    return bool(mode & stat.S_IWOTH and mode & stat.S_ISVTX)


def _warn_of_everybody(folder: Path) -> None:
    for above in folder.resolve().parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            command_output.warn(
                f"{one_line(str(above))} may be written by everybody (mode {stat.S_IMODE(mode):o}): others "
                f"can put something else in the place of your runs; a job that finds that uses nothing of it, and ends"
            )
            return


def _warn_of_hidden_owners(folder: Path) -> None:
    """Prints a warning if the file system shows `folder`, which this user has created, with another owner or mode."""
    facts = folder.stat()
    if facts.st_uid in (0, os.geteuid()) and not (facts.st_mode & OTHERS_WRITE and not keeps_modes(folder)):
        return
    command_output.warn(
        f"{one_line(str(folder))}: this file system does not tell whose a file is (user {facts.st_uid}, mode "
        f"{stat.S_IMODE(facts.st_mode):o}, whoever made it); its server decides whether others can change your runs"
    )


def _refused(folder: Path, why: str, instead: str = "") -> str:
    return (
        f"{one_line(str(folder))} {why}, who could put another run in the place of yours; "
        f"{instead}have your runs in another folder, by launch.folder or launch.name"
    )
