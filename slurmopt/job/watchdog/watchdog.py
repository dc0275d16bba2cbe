"""Watches for hangs beside the batch shell: finds ranks that hang, has their stacks written, and ends the step.

If a rank has died, it ends the others too. Otherwise they would wait for the dead rank until KillWait is over (30 s by
default), which starts with srun's own SIGTERM.

python -m slurmopt.job.watchdog.watchdog FOLDER ATTEMPT RANKS --hang-after auto|SECONDS --deadline SECONDS
    --timeout SECONDS --heartbeat SECONDS --step-pid PID
"""

from __future__ import annotations

import argparse
import contextlib
import os
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
from slurmopt.job.watchdog.srun_deaths import GRACE_SECONDS, SrunDeaths
from slurmopt.run_folder import captures, events, heartbeat
from slurmopt.run_folder.access.files import replace_json
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.heartbeat_silence import DEFAULT_INTERVAL
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.private import hold_run

_INTERVAL = 5.0
_READS_PER_SECOND = 50.0
"""Half of what the ranks write at most. The heartbeats of a thousand ranks are read every 20 s."""
_PY_SPY_SECONDS = 15.0
_SRUN_SECONDS = 60.0
"""A little more than KillWait, 30 s by default: so long srun waits for a node that does not answer."""
_RANKS_OF_BEFORE = 16


class Watchdog:
    """Watches one attempt. `step` is the process id of srun, or of `slurmopt.job.worker.spawn`."""

    def __init__(self, folder: RunFolder, attempt: int, ranks: int, step: int, allowed: Allowance) -> None:
        self._folder, self._attempt, self._step, self._allowance = folder, attempt, step, allowed
        self._ranks = Ranks(ranks, steps_expected=_reported_before(folder, attempt))
        self._now = 0.0
        self._looked = time.monotonic()
        self._deaths = SrunDeaths(folder)
        self._has_asked_early = False

    def watch(self) -> Hang | None:
        """Watches until the step has ended by itself, or has hung and was ended. Returns the hang."""
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
        """Reads the heartbeats. Time counts only while they can be read and this process runs: it and the ranks may
        have been suspended together."""
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        try:
            beats = self._read_all()
        except OSError:  # the file system is away
            return
        self._now += min(passed, 2 * self._allowance.interval)
        self._ranks.take(beats, self._now)

    def _read_all(self) -> dict[int, Heartbeat]:
        """The heartbeats of the ranks that have not ended. OSError if none can be read. Listing the folder also makes
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
        return replace(
            self._allowance, slowest=self._ranks.slowest, first=self._ranks.first, is_traced=self._is_traced()
        )

    def _is_traced(self) -> bool:
        """Whether traces of ranks are being made."""
        with contextlib.suppress(OSError):
            capture = captures.requested(self._folder, self._attempt)
            return capture is not None and captures.goes_on(self._folder, capture, time.time())
        return False

    def _ask_early(self) -> None:
        """Asks for stacks shortly before a collective's own timeout ends the ranks, after which no rank can write
        them."""
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
        """Asks for the stacks and waits for them. Returns the hang if the ranks still hang then."""
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
        """Each rank that beats writes its own stacks; the lowest of a node also tries to write those of silent ranks
        there."""
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
        """Waits until each rank that beats has beaten twice: one heartbeat may have been on its way already."""
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
        """Writes the hang into the run folder, the journal and the job's log."""
        print(f"slurmopt: attempt {self._attempt}: {in_words(hang)}", flush=True)
        seconds = round(hang.seconds, 1)
        try:
            replace_json(self._folder.hang(self._attempt), {**asdict(hang), "seconds": seconds})
            fields = {
                "rank": hang.rank, "node": hang.node, "step": hang.step, "seconds": seconds, "alike": hang.alike
            }  # fmt: skip
            events.append(self._folder.events, "hang", attempt=self._attempt, **fields)
        except OSError as error:  # the step must end all the same
            print(f"slurmopt: the hang cannot be written into the run folder: {error}", flush=True)

    def _end(self) -> None:
        """Ends the step. srun kills all tasks at SIGTERM and waits for the nodes; `spawn` only forwards the signal, but
        its ranks are below it on this machine. SIGKILL comes last: after it `wait` in the shell may return before the
        ranks have died."""
        _send(self._step, signal.SIGTERM)
        if not _within(GRACE_SECONDS, self._has_ended) and not _is_srun(self._step):
            process_tree.kill_below(self._step)
        if not _within(_SRUN_SECONDS, self._has_ended):
            _send(self._step, signal.SIGKILL)

    def _has_ended(self) -> bool:
        return not _lives(self._step)


def in_words(hang: Hang) -> str:
    """The hang in one line."""
    where = f"rank {hang.rank}" + (f" on {hang.node}" if hang.node else "")
    if hang.alike > 1:
        where = f"one of {hang.alike} ranks that are equally far, such as {where},"
    still = "is silent" if hang.rank in hang.silent else "made no step"
    step = "before its first step" if hang.step is None else f"step {hang.step}"
    others = "" if len(hang.silent) < 2 else f"; {len(hang.silent)} ranks are silent"
    return f"hang: {where} stopped first: it {still} for {hang.seconds:.0f} s ({step}, phase {hang.phase}){others}"


def _reported_before(folder: RunFolder, attempt: int) -> bool:
    """Whether a rank of an earlier attempt reported a step, so that one is expected in this attempt too."""
    for before in range(attempt - 1, -1, -1):
        for rank in sorted(folder.ranks_with_heartbeats(before))[:_RANKS_OF_BEFORE]:
            with contextlib.suppress(OSError):
                beat = heartbeat.read(folder.heartbeat(before, rank))
                if beat is not None and beat.step is not None:
                    return True
    return False


def hangs_before(folder: RunFolder, attempt: int) -> int:
    """How many attempts in a row hung just before this one."""
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
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip() == "srun"
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
    """Seconds between two readings of the heartbeats: fewer if `hang_after` is short, more if there are many ranks."""
    return max(_INTERVAL if hang_after is None else min(_INTERVAL, hang_after / 4), ranks / _READS_PER_SECOND)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m slurmopt.job.watchdog.watchdog", allow_abbrev=False)
    parser.add_argument("folder", help="the run folder")
    parser.add_argument("attempt", type=int)
    parser.add_argument("ranks", type=int, help="the number of ranks")
    parser.add_argument("--hang-after", type=stacks.hang_after, required=True, metavar="auto|SECONDS")
    parser.add_argument("--deadline", type=float, required=True, help="timeout of a save in seconds")
    parser.add_argument("--timeout", type=float, default=0.0, help="timeout of a collective in seconds")
    parser.add_argument("--heartbeat", type=float, default=DEFAULT_INTERVAL, help="interval in seconds")
    parser.add_argument("--step-pid", type=int, required=True, metavar="PID", help="the process of srun or spawn")
    return parser


def main(argv: list[str]) -> int:
    """Watches an attempt; the exit status is 0 if the step ended by itself, 1 if it hung."""
    args = _parser().parse_args(argv)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # may be sent to all that belongs to the batch shell
    every = interval(args.ranks, args.hang_after)
    folder = RunFolder(Path(args.folder).absolute())
    hold_run(folder)
    allowed = Allowance(
        args.hang_after,
        args.deadline,
        args.heartbeat,
        every,
        collective=args.timeout,
        hangs=hangs_before(folder, args.attempt),
    )
    return 0 if Watchdog(folder, args.attempt, args.ranks, args.step_pid, allowed).watch() is None else 1


if __name__ == "__main__":
    sys.exit(in_one_line(main, sys.argv[1:]))
