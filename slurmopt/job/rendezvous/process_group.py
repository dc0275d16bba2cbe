"""Creates torch's process group; a rendezvous that fails names the ranks which did not arrive."""

from __future__ import annotations

import importlib
import os
import random
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from slurmopt import log
from slurmopt.errors import JobError, RendezvousError, Requeue
from slurmopt.job import signals
from slurmopt.job.facts import open_files
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.rendezvous.gloo import LAZY, lacks_files
from slurmopt.job.rendezvous.master_store import Rendezvous
from slurmopt.run_folder import heartbeat
from slurmopt.run_folder.layout import RunFolder

_ALL_HERE = "all"
_JOINED, _GONE = "joined", "gone"
"""The store's keys for the number of ranks that have created the group, and of those that have left it."""
_LACKS_FILES = "lacks-files"
"""The store's key for the number of ranks whose limit on open files is too low for all connections."""
_NAMED = 8
_ASKED_PER_SECOND = 1000.0
"""Requests per second to rank 0's store, by all ranks together."""
_LINGER = 3.0
_TOLD = "asked to stop before all ranks had arrived"


class ProcessGroup:
    """Joins and leaves the process group of all ranks. With a world size of one and no torch, no process group is
    created."""

    def __init__(self, folder: RunFolder, attempt: int, facts: RankFacts, timeout: float, backend: str) -> None:
        self._folder, self._attempt, self._facts = folder, attempt, facts
        self._timeout, self._backend = timeout, backend
        self._store: Any = None
        self._rendezvous: Rendezvous | None = None

    def join(self) -> None:
        """Binds the device, waits for all ranks and creates the group. RendezvousError names the ranks that did not
        arrive."""
        if not _has_torch():
            return self._go_without()
        dist = _distributed()

        device = self._bind_device()
        backend = self._chosen(device)
        self._store = self._meet()
        dist.init_process_group(
            backend,
            store=dist.PrefixStore("slurmopt", self._store),
            rank=self._facts.rank,
            world_size=self._facts.world_size,
            timeout=timedelta(seconds=self._timeout),
            device_id=device if backend == "nccl" else None,
        )
        self._store.add(_JOINED, 1)

    def _chosen(self, device: Any) -> str:
        """`auto`: nccl, which refuses two ranks on one GPU, where each rank has a GPU of its own; else gloo."""
        if self._backend != "auto":
            return self._backend
        return "nccl" if device is not None and self._facts.local_world_size <= _gpus_of_node() else "gloo"

    def leave(self) -> None:
        """Destroys the group. Rank 0 holds the store, so it waits until the other ranks have left, or `timeout` is
        over."""
        if self._store is None:
            return
        dist = _distributed()

        if dist.is_initialized():
            self._wait_for_late_ranks()
            dist.destroy_process_group()
        self._say_goodbye()

    def _wait_for_late_ranks(self) -> None:
        """Waits until all ranks have created the group: gloo fails in a rank that is still connecting to one that has
        ended, which happens if the function takes only milliseconds."""
        try:
            _wait_until(lambda: signals.terms() or self._have_all(_JOINED), self._timeout)
        except RuntimeError:  # rank 0 is gone
            return

    def _go_without(self) -> None:
        if self._facts.world_size > 1:
            raise JobError(
                f"{sys.executable} has no torch, and a function on {self._facts.world_size} ranks needs it: install it,"
                " name another Python with task.python, or use one task"
            )
        log.info("torch is not installed here: no process group")

    def _bind_device(self) -> Any:
        import torch

        if self._backend == "gloo" or not torch.cuda.is_available():
            return None
        device = torch.device("cuda", self._facts.local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        return device

    def _meet(self) -> Any:
        store = self._connect()
        if lacks_files(self._facts.world_size, open_files.limit()):
            store.add(_LACKS_FILES, 1)
        store.set(f"arrived/{self._facts.rank}", self._facts.node)
        store.add("arrivals", 1)
        verdict = self._wait_as_host(store) if self._facts.rank == 0 else self._wait_as_guest(store)
        if verdict != _ALL_HERE:
            raise RendezvousError(self._absent([int(rank) for rank in verdict.split(",")]))
        if store.add(_LACKS_FILES, 0):  # one of all the ranks, which have said so before they arrived
            os.environ.setdefault(LAZY, "1")
        return store

    def _connect(self) -> Any:
        facts = self._facts
        if facts.world_size == 1:  # nobody else is to be met: no port, no thread
            return _distributed().HashStore()
        try:
            rendezvous = Rendezvous(self._folder, self._attempt, facts, self._timeout)
            store = rendezvous.host() if facts.rank == 0 else rendezvous.guest(lambda: bool(signals.terms()))
        except OSError as error:
            if facts.rank:
                raise RendezvousError(f"{self._absent([0])} ({_first_line(error)})") from None
            place = f"{facts.master_addr}:{facts.master_port}"
            raise RendezvousError(f"rank 0 cannot listen at {place} on {facts.node}: {_first_line(error)}") from error
        if store is None:
            raise Requeue(_TOLD)
        self._rendezvous = rendezvous  # with rank 0's keys
        return store

    def _wait_as_host(self, store: Any) -> str:
        """Waits until all ranks have arrived, and publishes that or the missing ranks."""
        world = self._facts.world_size
        if _gathered(lambda: store.add("arrivals", 0) >= world, self._timeout):
            store.set("verdict", _ALL_HERE)
            return _ALL_HERE
        missing = [rank for rank in range(world) if not store.check([f"arrived/{rank}"])]
        if not missing:  # the last one came just now
            store.set("verdict", _ALL_HERE)
            return _ALL_HERE
        store.set("verdict", ",".join(map(str, missing)))
        _wait_until(lambda: store.add("told", 0) >= world - len(missing) - 1, _LINGER)
        return ",".join(map(str, missing))

    def _wait_as_guest(self, store: Any) -> str:
        """Polls instead of blocking in the store, so that signals are seen while waiting."""
        try:
            has_verdict = _seldom(lambda: store.check(["verdict"]), self._facts.world_size / _ASKED_PER_SECOND)
            if not _gathered(has_verdict, self._timeout + _LINGER):
                return "0"
            verdict = store.get("verdict").decode()
            store.add("told", 1)
        except RuntimeError as error:
            raise RendezvousError(f"rank 0 left while the ranks were gathering ({_first_line(error)})") from error
        return str(verdict)

    def _absent(self, missing: list[int]) -> str:
        facts = self._facts
        who = ("rank " if len(missing) == 1 else "ranks ") + ", ".join(map(str, missing[:_NAMED]))
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        log = self._folder.rank_log(self._attempt, missing[0]).relative_to(self._folder.kept)
        return (
            f"{who}{more} did not arrive at {facts.master_addr}:{facts.master_port} within {self._timeout:g} s:"
            f" {self._last_word(missing[0])}; see {log}"
        )

    def _last_word(self, rank: int) -> str:
        beat = heartbeat.read(self._folder.heartbeat(self._attempt, rank))
        if beat is None:
            return f"rank {rank} has no heartbeat, it never started"
        if beat.outcome is not None:
            return f"rank {rank} on {beat.node} ended: {beat.outcome.get('error') or beat.outcome.get('outcome')}"
        return f"rank {rank} on {beat.node} was {beat.phase}, last heard of {time.time() - beat.time:.0f} s ago"

    def _say_goodbye(self) -> None:
        try:
            self._store.add(_GONE, 1)
            if self._facts.rank == 0:
                # After a SIGTERM nobody is waited for: another rank has failed, or all are to end.
                _wait_until(lambda: signals.terms() or self._have_all(_GONE), self._timeout)
        except RuntimeError:  # rank 0 is gone already; everything is done, so it does not matter
            return

    def _have_all(self, key: str) -> bool:
        """Whether each rank has counted itself under the key."""
        return bool(self._store.add(key, 0) >= self._facts.world_size)


def _gpus_of_node() -> int:
    """The number of GPUs that this node's ranks share. If Slurm binds one to each task, torch sees only that one."""
    import torch

    of_job = os.environ.get("SLURM_GPUS_ON_NODE", "")
    return int(of_job) if of_job.isdigit() else int(torch.cuda.device_count())


def _distributed() -> Any:
    return importlib.import_module("torch.distributed")


def _has_torch() -> bool:
    try:
        return bool(_distributed().is_available())
    except ModuleNotFoundError as error:
        if error.name != "torch":  # a broken torch is to be seen
            raise
        return False


def _gathered(condition: Any, timeout: float) -> bool:
    """As `_wait_until`, but raises Requeue if Slurm ends the job: nothing has been computed yet."""
    if _wait_until(lambda: signals.terms() or condition(), timeout) and not condition():
        raise Requeue(_TOLD)
    return bool(condition())


def _seldom(condition: Callable[[], bool], seconds: float) -> Callable[[], bool]:
    """Evaluates the condition at most every `seconds`, with a random offset, so that many ranks do not ask at once.
    Once true, it stays true."""
    following, answer = 0.0, False

    def ask() -> bool:
        nonlocal following, answer
        if not answer and time.monotonic() >= following:
            following = time.monotonic() + random.uniform(0.75, 1.25) * seconds  # noqa: S311 - hides nothing
            answer = condition()
        return answer

    return ask


def _wait_until(condition: Any, timeout: float) -> bool:
    deadline, pause = time.monotonic() + timeout, 0.005
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(0.25, pause * 1.5)
    return True


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
