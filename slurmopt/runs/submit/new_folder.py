"""Making a run folder: whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from slurmopt.errors import FolderError, one_line, why_failed
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import replace_text
from slurmopt.run_folder.access.open_folders import hold, is_swapped, release
from slurmopt.run_folder.access.owner import is_own
from slurmopt.run_folder.access.temporary import clear_drafts, drafts, temporary_name
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.private import written_by_nobody_else
from slurmopt.runs.ownership import make_place, name_of
from slurmopt.runs.submit.code_snapshot import copy_code
from slurmopt.runs.submit.environment_file import environment_text
from slurmopt.slow_notice import slow_notice
from slurmopt.slurm.script.job import Job
from slurmopt.slurm.script.render import supervisor

_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space, or choose another launch.folder",
    errno.EDQUOT: "your quota is used up; free some space, or choose another launch.folder",
    errno.EACCES: "you may not write there; choose another launch.folder",
    errno.EPERM: "you may not write there; choose another launch.folder",
    errno.EROFS: "it is mounted read-only; choose another launch.folder",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter launch.name or launch.folder",
    errno.ENOTDIR: "part of the path is a file; choose another launch.folder",
}
_TRIES = 100
"""How often the folder of drafts is made before the launch gives up."""


def _said(error: OSError | UnicodeEncodeError) -> str:
    return why_failed(error) if isinstance(error, OSError) else "the path is not valid UTF-8"


@contextlib.contextmanager
def folder_errors(path: Path) -> Iterator[None]:
    """Turns errors of the file system into one line with a way out."""
    try:
        yield
    except FileExistsError:
        raise  # the caller's to tell: the same launch again, or another run
    except (OSError, UnicodeEncodeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        advice = _ADVICE.get(number or 0) or f"{_said(error)}; choose another launch.folder"
        raise FolderError(f"cannot make the run folder {one_line(str(path))!r}: {advice}") from error


def make_run(
    job: Job,
    script: str,
    stored: dict[str, Any],
    overrides: list[str],
    snapshot_from: Path,
    fill: Callable[[Path], None] | None = None,
    **told: Any,
) -> None:
    """Makes the run folder in a hidden one beside its place and renames it there, so that a run folder is whole or is
    not there.

    `fill` puts more into it, and `told` into the journal's first line. This process holds the folder from then on: see
    `slurmopt.run_folder.access.open_folders`. Raises FolderError, and leaves nothing behind
    then; FileExistsError where the run is there already.
    """
    final = job.folder
    place = final.path.parent
    draft = RunFolder(temporary_name(drafts(place) / final.path.name))
    with folder_errors(final.path):
        make_place(place)
    with folder_errors(final.path), written_by_nobody_else():
        clear_drafts(place)
        try:
            _begin(draft, job)
            _fill(draft, job, script, stored, overrides, snapshot_from)
            if fill is not None:
                fill(draft.path)
            # What is relative in the config was meant from where the launch was typed.
            events.append(draft.events, "created", name=job.name, id=job.folder.id, cwd=os.getcwd(), **told)
            release(final.path)
            hold(final.path, at=draft.path)  # who may rename what is above it may do so from now on
            _move(draft.path, final.path)
        except BaseException:
            release(final.path)
            shutil.rmtree(draft.path, ignore_errors=True)
            remove_empty(draft.path.parent)
            remove_empty(place)
            raise
        remove_empty(draft.path.parent)


def _begin(draft: RunFolder, job: Job) -> None:
    """Makes the draft, in a folder that no other user can have put there."""
    place = draft.path.parent
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):  # another launch has removed the folder, which it found empty
            with contextlib.suppress(FileExistsError):
                place.mkdir(mode=0o700)
            facts = place.lstat()
            if not (stat.S_ISDIR(facts.st_mode) and is_own(facts, place)):
                owner = name_of(facts.st_uid)
                raise FolderError(f"{one_line(str(place))}, of user {owner}, is not a folder of yours; remove it")
            return draft.make(job.settings.launch.group_access, of_sweep=job.sweep is not None)
    raise FileNotFoundError(errno.ENOENT, "it is removed again and again", str(place))


def _move(draft: Path, final: Path) -> None:
    try:
        draft.rename(final)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise FileExistsError(errno.EEXIST, "the run is there already", str(final)) from error
        raise


def _fill(
    draft: RunFolder, job: Job, script: str, stored: dict[str, Any], overrides: list[str], snapshot_from: Path
) -> None:
    from omegaconf import OmegaConf

    from slurmopt.grid.yaml_dump import dump_stored

    replace_text(draft.config, dump_stored(stored))
    replace_text(draft.overrides, OmegaConf.to_yaml(OmegaConf.create(overrides)))
    replace_text(draft.supervisor, supervisor())
    replace_text(draft.script, script)
    replace_text(draft.environment, environment_text(job, snapshot_from))
    if job.settings.task.python is not None:
        link_package(draft)
    if job.settings.environment.snapshot != "off":
        with slow_notice(f"copying the code from {snapshot_from}"):
            copy_code(snapshot_from, draft.code, job.settings.environment.snapshot, skip=job.folder.path.parent.parent)


def link_package(run: RunFolder) -> None:
    """Links this slurmopt into the run folder, for a Python of the job that lacks it."""
    run.package.mkdir(mode=0o750, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (run.package / "slurmopt").symlink_to(Path(__file__).resolve().parents[2])


def discard(run: RunFolder) -> None:
    """Removes a run that Slurm never had, but nothing that somebody else has put in its place."""
    if is_swapped(run.path):
        return
    shutil.rmtree(run.path, ignore_errors=True)
    remove_empty(run.path.parent)


def remove_empty(folder: Path) -> None:
    """Removes the folder of a name under which no run was made."""
    with contextlib.suppress(OSError):
        folder.rmdir()
