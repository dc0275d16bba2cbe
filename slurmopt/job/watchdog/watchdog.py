"""Watches for hangs beside the batch shell: finds ranks that hang, has their stacks written, and ends the step.

Where a rank has died, it ends the others too: after srun's own SIGTERM they have KillWait, 30 s by default, in which
they can only wait for it.

python -m slurmopt.job.watchdog.watchdog FOLDER ATTEMPT RANKS --hang-after auto|SECONDS --deadline SECONDS
    --timeout SECONDS --heartbeat SECONDS --step-pid PID
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from slurmopt.job.facts import process_tree
from slurmopt.job.supervisor.attempt_end import in_one_line
from slurmopt.job.watchdog import stacks
from slurmopt.job.watchdog.hang_detector import Allowance, Hang, Ranks
from slurmopt.run_folder import events, heartbeat
from slurmopt.run_folder.files import replace_json
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.open_folders import held
from slurmopt.run_folder.private import hold_run

_INTERVAL = 5.0
_READS_PER_SECOND = 50.0
"""The ranks write twice as many at most; so a thousand are looked at every 20 s."""
_PY_SPY_SECONDS = 15.0
_GRACE_SECONDS = 5.0
_SRUN_SECONDS = 60.0
"""KillWait, 30 s by default, and some: so long srun waits for a node that does not answer."""
_RANKS_OF_BEFORE = 16


class Watchdog:
    """Watches one attempt. `step` is the process id of srun, or of our spawn."""

    def __init__(self, folder: RunFolder, attempt: int, ranks: int, step: int, allowed: Allowance) -> None:
        self._folder, self._attempt, self._step, self._allowance = folder, attempt, step, allowed
        self._ranks = Ranks(ranks, steps_expected=_reported_before(folder, attempt))
        self._now = 0.0
        self._looked = time.monotonic()
        self._deaths = Deaths(folder)
        self._has_asked_early = False

    def watch(self) -> Hang | None:
        """Until the step has ended, or hangs and has been ended."""
        while _lives(self._step):
            if _within(self._allowance.interval, self._deaths.long_ago, every=1.0):
                self._end()
                return None
            self._look()
            self._ask_early()
            if self._hang() and (hang := self._make_sure()):
                self._tell(hang)
                self._end()
                return hang
        return None

    def _look(self) -> None:
        """Reads the heartbeats. Time counts only while they can be read, and while this process itself runs: it and
        the ranks may have been suspended together."""
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        try:
            beats = self._read_all()
        except OSError:  # the file system is away
            return
        self._now += min(passed, 2 * self._allowance.interval)
        self._ranks.take(beats, self._now)

    def _read_all(self) -> dict[int, Heartbeat]:
        """The heartbeats of those that have not ended; OSError where none can be read. Listing the folder also makes
        an NFS client see the files that were replaced."""
        beats, trouble = {}, None
        for rank in self._folder.ranks_with_heartbeats(self._attempt):
            if rank not in self._ranks.seen or self._ranks.seen[rank].ended:
                continue
            try:
                beat = heartbeat.read(self._folder.heartbeat(self._attempt, rank))
            except OSError as error:  # a stale handle: it was replaced just now
                trouble = error
                continue
            if beat is not None:
                beats[rank] = beat
        if trouble is not None and not beats:
            raise trouble
        return beats

    def _hang(self) -> Hang | None:
        return self._ranks.hang(self._allowed, self._now)

    @property
    def _allowed(self) -> Allowance:
        return replace(self._allowance, slowest=self._ranks.slowest, first=self._ranks.first)

    def _ask_early(self) -> None:
        """Shortly before a collective's own timeout ends the ranks: then nobody is left to write stacks."""
        early = self._allowed.before_the_collective
        if early is None:
            return
        hang = self._ranks.hang(early, self._now)
        if hang is None:
            self._has_asked_early = False
        elif not self._has_asked_early:
            self._has_asked_early = True
            print(f"slurmopt: nothing has moved for {hang.seconds:.0f} s: the ranks write their stacks", flush=True)
            with contextlib.suppress(OSError):  # the next look finds out whether the folder is away
                self._ask()

    def _make_sure(self) -> Hang | None:
        """Asks for the stacks and waits for them; the hang, if it is one still."""
        deadline, since = time.monotonic() + self._allowance.quiet, self._now
        while self._ranks.unclear(since, self._allowed, self._now) and time.monotonic() < deadline:
            self._pause()
        if not self._hang():
            return None
        try:
            self._ask()
        except OSError as error:
            # The ranks cannot write their heartbeats either.
            print(f"slurmopt: the heartbeats stand still, but the folder cannot be written: {error}", flush=True)
            self._ranks.start_afresh(self._now)
            return None
        self._wait_for_stacks()
        hang = self._hang()
        if hang is None:
            print(f"slurmopt: attempt {self._attempt} seemed to hang, but goes on", flush=True)
            held(self._folder.stacks_request(self._attempt)).unlink(missing_ok=True)
        return hang

    def _ask(self) -> None:
        """Each rank that beats writes its own stacks, and the lowest of a node tries to for the silent ones there."""
        silent = {rank.rank: rank for rank in self._ranks.silent(self._allowed, self._now)}
        speakers: dict[str | None, int] = {}
        for rank in self._ranks.seen.values():
            if rank.rank not in silent and not rank.ended:
                speakers.setdefault(rank.node, rank.rank)
        beaten = [rank for rank in silent.values() if rank.time is not None]
        names = ("rank", "node", "pid")
        about = [{n: getattr(rank, n) for n in names} | {"speaker": speakers.get(rank.node)} for rank in beaten]
        replace_json(self._folder.stacks_request(self._attempt), {"silent": about})
        here = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        if here not in speakers:
            alone = [(stacks.silent_rank(rank.rank), rank.pid) for rank in beaten if rank.node == here]
            stacks.write_from_outside(alone, sys.stdout.fileno())

    def _wait_for_stacks(self) -> None:
        """Until each rank that beats has beaten twice: one heartbeat may have been on its way already."""
        before = {rank.rank: rank.beats for rank in self._ranks.seen.values()}
        beat = max(self._allowance.heartbeat, 1.0)
        least, most = time.monotonic() + 2 * beat, time.monotonic() + 2 * beat + _PY_SPY_SECONDS
        while time.monotonic() < most and _lives(self._step):
            self._pause()
            silent = {rank.rank for rank in self._ranks.silent(self._allowed, self._now)}
            waited_for = [r for r in self._ranks.seen.values() if not r.ended and r.rank not in silent]
            if time.monotonic() >= least and all(rank.beats >= before[rank.rank] + 2 for rank in waited_for):
                return

    def _pause(self) -> None:
        time.sleep(min(1.0, self._allowance.interval))
        self._look()

    def _tell(self, hang: Hang) -> None:
        """Leaves the finding in the run folder, in the journal and in the job's log."""
        print(f"slurmopt: attempt {self._attempt}: {in_words(hang)}", flush=True)
        seconds = round(hang.seconds, 1)
        try:
            replace_json(self._folder.hang(self._attempt), {**asdict(hang), "seconds": seconds})
            fields = {"rank": hang.rank, "node": hang.node, "step": hang.step, "seconds": seconds}
            events.append(self._folder.events, "hang", attempt=self._attempt, **fields)
        except OSError as error:  # what hangs must end all the same
            print(f"slurmopt: the hang cannot be written into the run folder: {error}", flush=True)

    def _end(self) -> None:
        """srun kills all tasks at SIGTERM, without grace, and waits for the nodes. Our spawn only passes it on, but its
        ranks are below it on this machine. SIGKILL comes last: `wait` in the shell may return before the ranks died."""
        _send(self._step, signal.SIGTERM)
        if not _within(_GRACE_SECONDS, self._has_ended) and not _is_srun(self._step):
            process_tree.kill_below(self._step)
        if not _within(_SRUN_SECONDS, self._has_ended):
            _send(self._step, signal.SIGKILL)

    def _has_ended(self) -> bool:
        return not _lives(self._step)


class Deaths:
    """What srun says in the job's log of ranks that ended badly: a rank that is killed leaves no word itself."""

    _LINE = re.compile(rb"^srun: error: \S+: tasks? [\d,\-\[\]]+: ", re.MULTILINE)

    def __init__(self, folder: RunFolder) -> None:
        self._log = folder.job_log(os.environ.get("SLURM_JOB_ID", "-"))
        self._read = self._size()
        self._since: float | None = None

    def long_ago(self) -> bool:
        """Whether a rank died more than a few seconds ago: the others had the time to say what they lost."""
        if self._since is None and self._size() > self._read and self._LINE.search(self._news()):
            self._since = time.monotonic()
        return self._since is not None and time.monotonic() - self._since > _GRACE_SECONDS

    def _size(self) -> int:
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    def _news(self) -> bytes:
        try:
            with self._log.open("rb") as file:
                file.seek(self._read)
                return file.read(65536)
        except OSError:
            return b""


def in_words(hang: Hang) -> str:
    """The finding in one line."""
    where = f"rank {hang.rank}" + (f" on {hang.node}" if hang.node else "")
    still = "is silent" if hang.rank in hang.silent else "made no step"
    step = "before its first step" if hang.step is None else f"step {hang.step}"
    others = "" if len(hang.silent) < 2 else f"; {len(hang.silent)} ranks are silent"
    return f"hang: {where} stopped first: it {still} for {hang.seconds:.0f} s ({step}, phase {hang.phase}){others}"


def _reported_before(folder: RunFolder, attempt: int) -> bool:
    """Whether a rank of an earlier attempt reported a step: then one is to be expected in this one too."""
    for before in range(attempt - 1, -1, -1):
        for rank in sorted(folder.ranks_with_heartbeats(before))[:_RANKS_OF_BEFORE]:
            with contextlib.suppress(OSError):
                beat = heartbeat.read(folder.heartbeat(before, rank))
                if beat is not None and beat.step is not None:
                    return True
    return False


def hangs_before(folder: RunFolder, attempt: int) -> int:
    """How many attempts hung just before this one, one after the other."""
    hung = 0
    while attempt > hung and os.path.exists(held(folder.hang(attempt - hung - 1))):
        hung += 1
    return hung


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _is_srun(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "srun"
    except FileNotFoundError:
        return False


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _within(seconds: float, condition: Callable[[], bool], every: float = 0.05) -> bool:
    deadline = time.monotonic() + seconds
    while not (met := condition()) and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(every, left))
    return met


def interval(ranks: int, hang_after: float | None) -> float:
    """Seconds between two looks: a few, fewer where `hang_after` is short, more where there are many files to read."""
    return max(_INTERVAL if hang_after is None else min(_INTERVAL, hang_after / 4), ranks / _READS_PER_SECOND)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m slurmopt.job.watchdog.watchdog", allow_abbrev=False)
    parser.add_argument("folder", help="the run folder")
    parser.add_argument("attempt", type=int)
    parser.add_argument("ranks", type=int, help="how many there are")
    parser.add_argument("--hang-after", type=stacks.hang_after, required=True, metavar="auto|SECONDS")
    parser.add_argument("--deadline", type=float, required=True, help="seconds that a save may take")
    parser.add_argument("--timeout", type=float, default=0.0, help="seconds that a collective may take")
    parser.add_argument("--heartbeat", type=float, default=10.0, help="seconds between heartbeats")
    parser.add_argument("--step-pid", type=int, required=True, metavar="PID", help="of srun, or of our spawn")
    return parser


def main(argv: list[str]) -> int:
    """Watches; the exit status is 0 when the step has ended by itself, 1 when it hung."""
    words = _parser().parse_args(argv)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # may be sent to all that belongs to the batch shell
    every = interval(words.ranks, words.hang_after)
    folder = RunFolder(Path(words.folder).absolute())
    hold_run(folder)
    allowed = Allowance(
        words.hang_after,
        words.deadline,
        words.heartbeat,
        every,
        collective=words.timeout,
        hangs=hangs_before(folder, words.attempt),
    )
    return 0 if Watchdog(folder, words.attempt, words.ranks, words.step_pid, allowed).watch() is None else 1


if __name__ == "__main__":
    sys.exit(in_one_line(main, sys.argv[1:]))
