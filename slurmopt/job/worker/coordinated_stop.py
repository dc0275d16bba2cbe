"""Makes all ranks stop at the same step. Ranks communicate only once a stop is requested.

When a rank is asked to stop (a signal; another rank's word, looked for once a second, less often by hundreds of ranks),
a thread of it promises in the
rendezvous store not to pass its next step without knowing where all leave. The latest of the promises is that step. The
thread promises even while the training sits in a collective that waits for a rank which has promised already, so nobody
waits for ever; and no rank can have passed the step, because none passes its own promise before all are known.
Where they leave is written once, by whoever comes first: rank 0 that has all promises, a rank that has waited too long
for one, a rank that takes no more steps. So all leave, or none does. Each word is signed with a key that the ranks have
exchanged over their process group, for a store that slurmopt has not made takes the word of whoever connects.

Where the store is lost while the training goes on, the ranks agree in the same way by files in the run folder. Rank 0
leaves there, too, what it has settled in the store just before. A rank that is not shown the run folder hears only what
it is told itself, and leaves after its own next step.
"""

from __future__ import annotations

import contextlib
import hmac
import importlib
import random
import sys
import threading
import time
from typing import Any

from slurmopt import log
from slurmopt.errors import JobError
from slurmopt.job import signals
from slurmopt.job.worker import current_run
from slurmopt.job.worker.stop_files import StopFiles

_LOOK_EVERY = 1.0
_LONGEST_LOOK = 10.0
_ASKED_PER_SECOND = 100.0
"""Requests per second to rank 0's store by all ranks together, as long as each rank has one in ten seconds."""
_PATIENCE = 30.0
"""Seconds that a rank waits for the promises of the others. A rank that has not answered by then has a problem of its
own. Well below `restart.lead`, so that the training can use the rest."""
_LOST = 3.0
"""Seconds after which a rank that has lost the store assumes that the attempt continues."""
_NOWHERE = sys.maxsize
_DIGITS = len(str(_NOWHERE))
_generation = 0


class CoordinatedStop:
    """One rank's part in stopping at a common step. Times are seconds."""

    def __init__(self, rank: int, world_size: int, key: bytes) -> None:
        """Called by all ranks in their main threads, after torch's default group was created. `key` is the same secret
        on all ranks."""
        current_run.take_signals()
        self._rank, self._world_size, self._key = rank, world_size, key
        self._store: Any = None
        if world_size > 1:
            self._prefix = _prefix()
            self._store = _store(self._prefix)
        self._turn = threading.Lock()
        self._step = 0
        self._promise: int | None = None
        self._at = _NOWHERE
        self._decided = threading.Event()
        self._closed = threading.Event()
        if self._store is not None:
            threading.Thread(target=self._agree, name="slurmopt-stop", daemon=True).start()

    def due(self, step: int) -> bool:
        """Whether all ranks stop now, after `step`. Waits only if a stop was requested and this rank has promised."""
        with self._turn:
            if step > self._step:
                self._step = step
            promise = self._promise
        if self._store is None:
            return current_run.stop_requested()  # and the training knows
        if promise is None or step < promise:
            return False
        if not self._decided.wait(3 * _PATIENCE):  # the store itself does not answer
            self._promise = _NOWHERE
        if step < self._at:
            return False
        current_run.tell()
        return True

    def close(self) -> None:
        """Declares that this rank makes no more steps. The others then neither stop without it nor wait for it."""
        self._closed.set()
        if self._store is not None and self._promise is None:
            with contextlib.suppress(RuntimeError, OSError):  # the store is gone with rank 0: there is nobody to tell
                self._settle(_NOWHERE)

    def _agree(self) -> None:
        try:
            try:
                self._at = self._agreed()
            except RuntimeError:  # the store is lost
                self._agree_without_store()
        finally:
            self._decided.set()
        if self._rank == 0 and self._at != _NOWHERE and not isinstance(self._store, StopFiles):
            # For a rank that lost the store before it has read this. Last: a file system that hangs delays nobody.
            with contextlib.suppress(JobError, OSError):
                self._files().compare_set("at", "", self._signed("at", self._at))

    def _agreed(self) -> int:
        """The step at which all ranks stop, once a stop is requested."""
        self._wait_for_request()
        if self._closed.is_set():
            return _NOWHERE
        promise = self._promised()
        self._store.set("asked", self._signed("asked", 0))
        self._store.set(f"promise/{self._rank}", self._signed(f"promise/{self._rank}", promise))
        return self._where()

    def _promised(self) -> int:
        with self._turn:
            if self._promise is None:
                self._promise = self._step + 1
            return self._promise

    def _agree_without_store(self) -> None:
        """Agrees by files. Mostly rank 0 has ended, and the attempt with it; so nothing is printed until this rank
        lives on."""
        if self._promise is None and self._closed.wait(_LOST):
            return
        try:
            self._store = self._files()
        except (JobError, OSError) as error:
            _say(
                f"rank 0's store is lost, and there is no run folder ({error}): this rank stops when it is asked to, "
                "without waiting for the others"
            )
            self._leave_alone()
            return
        _say("rank 0's store is lost: from now on the ranks agree on where to stop by files in the run folder")
        try:
            self._at = self._agreed()
        except OSError as error:
            _say(
                f"the run folder cannot be written ({error}): this rank stops only at the step that the others have "
                "agreed on"
            )
            self._at = self._settled_by_others()

    def _settled_by_others(self) -> int:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline and not self._closed.wait(_LOOK_EVERY):
            if (at := self._number("at", self._store.get("at"))) is not None:
                return at
        return _NOWHERE

    def _leave_alone(self) -> None:
        while not (signals.wait(_LOOK_EVERY) or self._closed.is_set() or current_run.is_stop_requested()):
            pass
        if not self._closed.is_set():
            self._at = self._promised()

    def _files(self) -> StopFiles:
        """The file store, the same on all ranks. JobError or OSError if this rank has no run folder."""
        here = current_run.current_run()
        return StopFiles(here.folder.stop_agreement(here.attempt, self._prefix.rpartition("/")[2]))

    def _wait_for_request(self) -> None:
        look = time.monotonic() + self._pause()
        while not (signals.wait(_LOOK_EVERY) or self._closed.is_set() or current_run.is_stop_requested()):
            if time.monotonic() >= look:
                look = time.monotonic() + self._pause()
                if self._store.check(["asked"]) and self._number("asked", self._store.get("asked")) is not None:
                    signals.request("rank")

    def _pause(self) -> float:
        """Seconds between two requests to the store. They differ between the ranks, so that not all ask at once."""
        longest = min(_LONGEST_LOOK, max(_LOOK_EVERY, self._world_size / _ASKED_PER_SECOND))
        return 0.0 if longest == _LOOK_EVERY else random.uniform(0.75, 1.25) * longest  # noqa: S311 - hides nothing

    def _where(self) -> int:
        """The step at which all ranks stop."""
        deadline = time.monotonic() + _PATIENCE
        if self._rank == 0:
            promises = [f"promise/{rank}" for rank in range(self._world_size)]
            came = self._come(promises, deadline)
            promised = [self._number(each, self._store.get(each)) for each in promises] if came else [None]
            at = self._settle(_NOWHERE if None in promised else max(each for each in promised if each is not None))
        else:
            self._come(["at"], deadline)
            at = self._settle(_NOWHERE)
        if at == _NOWHERE and time.monotonic() >= deadline:
            _say("not all ranks answered where to stop; going on")
        return at

    def _settle(self, at: int) -> int:
        """Settles the step: `at`, unless another rank was quicker. A value that no rank has written means that all go
        on."""
        settled = self._number("at", self._store.compare_set("at", "", self._signed("at", at)))
        return _NOWHERE if settled is None else settled

    def _signed(self, key: str, number: int) -> str:
        return f"{number} {hmac.digest(self._key, f'{self._prefix}{key} {number}'.encode(), 'sha256').hex()}"

    def _number(self, key: str, value: bytes) -> int | None:
        """The number if a rank has written it, else None: torch's own store accepts values from anybody."""
        number = value.partition(b" ")[0]
        if not number.isdigit() or len(number) > _DIGITS:
            return None
        return int(number) if hmac.compare_digest(value, self._signed(key, int(number)).encode()) else None

    def _come(self, keys: list[str], deadline: float) -> bool:
        """Whether all `keys` are set; False if the step is settled without them, or the time is over. Polls, because a
        blocking read would block the store for this whole process. One request asks for all keys. If there are many
        ranks, each asks less often, except for rank 0, whose answer they wait for."""
        share = 1 if self._rank == 0 else max(1, self._world_size / _ASKED_PER_SECOND)
        pause = 0.001 * share
        while not self._store.check(keys):
            if time.monotonic() >= deadline or (keys != ["at"] and self._store.check(["at"])):
                return False
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads the ranks, hides nothing
            pause = min(0.05 * share, pause * 1.5)
        return True


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # the log may be on a disk that is full
        log.warning(line)


def _prefix() -> str:
    """A prefix for keys that are not used twice: all ranks count their calls alike."""
    global _generation
    _generation += 1
    return f"slurmopt/stop/{_generation}"


def _store(prefix: str) -> Any:
    """The store of torch's default group, which slurmopt, torchrun or the user has created."""
    dist = importlib.import_module("torch.distributed")
    store = importlib.import_module("torch.distributed.distributed_c10d")._get_default_store()
    return dist.PrefixStore(prefix, store)
