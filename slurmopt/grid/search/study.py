"""Reads and writes the study file of a search, `study.journal`, in Optuna's own format, so that its tools open it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend, JournalFileOpenLock, JournalStorage

from slurmopt.errors import ConfigError
from slurmopt.grid.search.space import Search
from slurmopt.grid.search.tuning_sampler import Following
from slurmopt.run_folder.access.files import open_append
from slurmopt.run_folder.access.open_folders import held

ABOUT = "slurmopt"
"""The study's attribute that stores the Search."""
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)
_STALE, _STALE_ALONE = 30, 3  # seconds
_LONGEST_LINE = 2**20


class StudyFile(BaseJournalBackend):
    """Optuna's journal file, written by one process at a time even if other writers are killed.

    Optuna's lock is a file that its holder removes; its O_EXCL form rather than the symbolic link, for an NFSv3 client
    whose lost answer is sent again knows its own file by the verifier, and takes its own link for somebody else's. A
    holder that is killed leaves the lock behind, and two who wait for it can both break it. So ours wait at a lock of
    the kernel first, which dies with its holder, where the file system has those: then nobody else of ours can be
    inside, and a lock file that lies there for 3 seconds instead of 30 is a dead one's. Optuna's lock is
    taken in any case: for its own tools, which may write too.

    A writer that is killed, or finds the disk full, can leave half a line, after which Optuna could read no more: the
    next writer cuts it off.
    """

    def __init__(self, path: Path) -> None:
        self._path = held(path)
        self._lock = JournalFileOpenLock(str(self._path))
        self._file = JournalFileBackend(str(self._path), lock_obj=_Held())
        self._mutex = threading.RLock()
        self._depth = 0

    def read_logs(self, log_number_from: int) -> Any:
        return self._file.read_logs(log_number_from)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        with self.turn():
            self._cut_torn_line()
            self._file.append_logs(logs)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Holds the file for writing; reentrant."""
        with self._mutex:
            self._depth += 1
            try:
                if self._depth > 1:
                    yield
                else:
                    with _kernel_lock(self._path.with_name(f".{self._path.name}")) as alone:
                        self._lock.grace_period = _STALE_ALONE if alone else _STALE
                        self._lock.acquire()
                        try:
                            yield
                        finally:
                            self._release()
            finally:
                self._depth -= 1

    def _release(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:  # the lines are written all the same
            print(
                f"slurmopt: {self._path}: its lock was broken by another process, which took this one for dead",
                file=sys.stderr,
            )

    def _cut_torn_line(self) -> None:
        with open(self._path, "r+b", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            if end == 0 or os.pread(file.fileno(), 1, end - 1) == b"\n":
                return
            start = max(0, end - _LONGEST_LINE)
            file.truncate(start + os.pread(file.fileno(), end - start, start).rfind(b"\n") + 1)


class _Held:
    """A lock for Optuna's writer that does nothing, because `turn` already holds the lock."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


@contextlib.contextmanager
def _kernel_lock(path: Path) -> Iterator[bool]:
    """Waits for the lock, at most as long as a dead NFS client can delay it; yields whether this process holds it."""
    descriptor = open_append(path)
    try:
        deadline = time.monotonic() + _STALE
        locked = _try_lock(descriptor)
        while locked is False and time.monotonic() < deadline:
            time.sleep(random.uniform(0.001, 0.005))  # noqa: S311
            locked = _try_lock(descriptor)
        yield bool(locked)
    finally:
        os.close(descriptor)  # releases it


def _try_lock(descriptor: int) -> bool | None:
    """None where the file system has no locks."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        return False
    return True


def open_storage(path: Path) -> tuple[StudyFile, JournalStorage]:
    """Opens a study file. ConfigError where it is not one; OSError where it cannot be read."""
    os.close(os.open(path, os.O_RDONLY))  # Optuna would make an empty one
    file = StudyFile(path)
    try:
        return file, JournalStorage(file)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise ConfigError(
            f"{path} is not a study of Optuna, or a damaged one: {type(error).__name__}: {error}"
        ) from error


def make(path: Path, name: str, search: Search) -> None:
    """Makes the study of a new sweep, or completes it. ConfigError where the file is another sweep's."""
    os.close(open_append(path))
    _, storage = open_storage(path)
    _refuse_others(path, name, storage)
    with _quiet():
        study = optuna.create_study(
            storage=storage, study_name=name, direction=search.direction, load_if_exists=True
        )  # Optuna reports each study that it makes
    if ABOUT not in study.user_attrs:
        study.set_user_attr(ABOUT, search.as_json())


def find(path: Path, name: str, storage: JournalStorage) -> Search:
    """The Search of the study `name` in the file. ConfigError where it is missing, or the file is another sweep's."""
    _refuse_others(path, name, storage)
    for study in storage.get_all_studies():
        try:
            return Search.from_json(study.user_attrs[ABOUT])
        except (KeyError, TypeError):
            break
    raise ConfigError(f"{path} is not complete: the launch that made it broke off; launch the sweep again")


def _refuse_others(path: Path, name: str, storage: JournalStorage) -> None:
    others = [study.study_name for study in storage.get_all_studies() if study.study_name != name]
    if others:
        raise ConfigError(
            f"{path} holds the study of another sweep ({', '.join(others)}), and this one is {name}; move it away"
        )


def study_for(storage: JournalStorage, name: str, search: Search, trial: int, steps: int | None = None) -> optuna.Study:
    """The study with the sampler and the pruner of one trial, which will make `steps` steps. It is loaded anew, so that
    it has the results of all workers."""
    with _quiet():
        return optuna.load_study(
            study_name=name, storage=storage, sampler=_sampler(search, trial), pruner=_pruner(search, steps)
        )


def _sampler(search: Search, trial: int) -> optuna.samplers.BaseSampler:
    seed = search.seed_of(trial)
    if search.tunes:
        return Following(search.method)
    if search.method == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    # Counting the running trials as bad keeps workers from all trying the same promising place.
    return optuna.samplers.TPESampler(seed=seed, constant_liar=True)


def _pruner(search: Search, steps: int | None) -> optuna.pruners.BasePruner:
    if search.method == "asha":
        # Optuna would take the first rung from the first trial that has completed; those that run beside it then enter
        # the rungs with the values of their last steps, which no later trial reaches at its first.
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=max(1, (steps or 0) // 100))
    pruners = {"hyperband": optuna.pruners.HyperbandPruner, "median": optuna.pruners.MedianPruner}
    return pruners.get(search.method, optuna.pruners.NopPruner)()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences Optuna's own messages and warnings; the verbosity that user code set is restored."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
