"""Runs a command that slurmopt did not launch, with a heartbeat and the sampler beside it: for `slurmopt monitor`.

python -m slurmopt.job.worker.monitored FOLDER SAMPLING -- COMMAND…

Signals are passed on to the command, and the exit status is the command's. What goes wrong with the measurements is a
line on standard error.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from slurmopt.config.monitor import from_word
from slurmopt.job.facts.rank_facts import launched_facts
from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
from slurmopt.job.monitor.start import sampled
from slurmopt.job.worker.current_run import ATTEMPT, FOLDER, LOCAL_RANK
from slurmopt.run_folder import private
from slurmopt.run_folder.heartbeat_silence import DEFAULT_INTERVAL
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import FINISHED, KILLED, USER_ERROR, Outcome

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)


class Command:
    """The command, and the signals that came before it was there."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        signal.signal(signal.SIGINT, lambda *_: None)  # a terminal gives it to the command too
        for number in _PASSED_ON:
            signal.signal(number, self._pass_on)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)

    def run(self, words: list[str]) -> int:
        """Runs it, and returns its exit status as a shell tells it."""
        try:
            self._process = subprocess.Popen(words)
        except OSError as error:
            print(f"slurmopt: cannot start {words[0]}: {error.strerror}", file=sys.stderr)
            return 126 if isinstance(error, PermissionError) else 127
        for number in self._early:
            self._process.send_signal(number)
        status = self._process.wait()
        return status if status >= 0 else 128 - status


def main(argv: list[str]) -> int:
    """Runs the command; returns its exit status."""
    command = Command()
    folder, sampling, _, *words = argv
    run = RunFolder(Path(folder))
    private.hold_run(run)
    os.environ.update({FOLDER: folder, ATTEMPT: "0", LOCAL_RANK: "0"})
    facts = launched_facts({"SLURMD_NODENAME": os.environ.get("SLURMD_NODENAME", "")})
    live = HeartbeatWriter(run.heartbeat(0, 0), facts, DEFAULT_INTERVAL, lambda: None)
    with contextlib.closing(live), sampled(from_word(sampling), run, 0, facts, whole_job=True):
        live.start()
        live.enter("running")
        live.name_gpus()
        status = command.run(words)
        live.end(outcome_of(status))
    return status


def outcome_of(status: int) -> Outcome:
    """The outcome of a command with that exit status."""
    if status == 0:
        return Outcome(FINISHED, time.time(), 0)
    if status > 128 and status - 128 in set(signal.Signals):
        return Outcome(KILLED, time.time(), status, f"killed by {signal.Signals(status - 128).name}")
    return Outcome(USER_ERROR, time.time(), status, f"exit status {status}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
