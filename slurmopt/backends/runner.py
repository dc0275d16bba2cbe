"""Runs a local job as Slurm would: `python -m slurmopt.backends.runner FOLDER`.

It runs the job script, sends the signal before the time limit and ends the job at it, ends it when told to by SIGTERM
(`slurmopt cancel`), and starts the next attempt when the script asks to be requeued.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from slurmopt.backends.killed_shell import KILL_WAIT, note_killed_shell
from slurmopt.errors import JobError
from slurmopt.job.facts import process_tree
from slurmopt.run_folder import attempts as story
from slurmopt.run_folder.access.files import open_append
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import EXIT_STATUS, INFRASTRUCTURE, REQUEUE
from slurmopt.run_folder.private import hold_run, refuse_foreign_folder, refuse_open_folder

_POLL = 0.2


class Runner:
    """Runs the attempts of one run, one after the other."""

    def __init__(self, folder: RunFolder, limit: float | None, lead: float) -> None:
        self.folder = folder
        self.limit = limit
        self.lead = lead
        self.cancelled = False
        self.timed_out = False
        """Whether the attempt was told to end because of its time limit."""

    def run(self) -> int:
        """Runs attempts until one ends for good, and returns its exit status. Does nothing if another runner has the
        run."""
        signal.signal(signal.SIGTERM, self._cancel)
        with open(self.folder.overrides, "r+b") as mine:  # the lock lives as long as this process, however it ends
            try:
                fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return 0
            status = EXIT_STATUS[REQUEUE]
            while status == EXIT_STATUS[REQUEUE] and not self.cancelled:
                status = self._attempt()
                if status == EXIT_STATUS[REQUEUE]:  # else nobody waits for it: a retry may begin at once
                    self._hold_off()
        return status

    def _cancel(self, *_: object) -> None:
        self.cancelled = True

    def _attempt(self) -> int:
        try:  # others may rename folders above it while an attempt runs, and put a script of their own there
            hold_run(self.folder)
            refuse_open_folder(self.folder.path)
            for path in (self.folder.path, self.folder.script):
                refuse_foreign_folder(path)
        except JobError as error:
            print(f"slurmopt: no attempt is started: {error}", file=sys.stderr)
            return EXIT_STATUS[INFRASTRUCTURE]
        with os.fdopen(open_append(self.folder.job_log(f"local-{os.getpid()}")), "ab") as log:
            script = ["bash", str(self.folder.script)]
            shell = subprocess.Popen(script, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
            self._supervise(shell)
        process_tree.clear_up()  # nothing of an attempt outlives it
        if shell.returncode < 0:
            exceeded = self.limit if self.timed_out else None
            note_killed_shell(self.folder, -shell.returncode, self.cancelled, exceeded)
        return shell.returncode

    def _hold_off(self) -> None:
        """Waits until the next attempt may start, as the end of the last one says."""
        attempts = story.attempts(self.folder)
        last = attempts[-1] if attempts else None
        while last is not None and time.time() < (last.ended or 0.0) + last.pause and not self.cancelled:
            time.sleep(_POLL)

    def _supervise(self, shell: subprocess.Popen[bytes]) -> None:
        start = time.monotonic()
        warned, ending, self.timed_out = False, None, False
        while shell.poll() is None:
            elapsed = time.monotonic() - start
            if self.limit is not None and not warned and elapsed >= self.limit - self.lead:
                warned = True
                shell.send_signal(signal.SIGUSR1)
            if ending is None and (self.cancelled or (self.limit is not None and elapsed >= self.limit)):
                ending, self.timed_out = elapsed, not self.cancelled
                self._end(shell)
            if ending is not None and elapsed >= ending + KILL_WAIT:
                process_tree.kill_below(os.getpid())
            with contextlib.suppress(subprocess.TimeoutExpired):
                shell.wait(_POLL)

    def _end(self, shell: subprocess.Popen[bytes]) -> None:
        """Signals the batch shell and all its ranks, as Slurm does at a time limit."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m slurmopt.backends.runner")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--time", type=float, help="time limit in seconds")
    parser.add_argument("--lead", type=float, default=0, help="seconds between the signal and the time limit")
    arguments = parser.parse_args(argv)
    process_tree.adopt_orphans()
    return Runner(RunFolder(arguments.folder), arguments.time, arguments.lead).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
