"""Starts the runner of a sweep, which outlives this process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

from slurmopt.backends.array import state as states
from slurmopt.errors import FolderError, RunError
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.process import module_words
from slurmopt.run_folder.sweep_layout import SweepFolder

_PATIENCE = 60.0
"""Seconds in which a runner takes its array jobs; on an idle machine it is half a second."""
_POLL = 0.05


def start_runner(sweep: SweepFolder, jobs: Collection[str] = (), home: Path | None = None) -> None:
    """Starts a runner for the sweep, unless one is alive, and waits until it has `jobs`. `home`: its working directory.
    RunError where the sweep runs on another machine, or the runner does not start."""
    refuse_elsewhere(sweep)
    if (owner := held(sweep.path).stat().st_uid) != os.geteuid():
        raise RunError(f"{sweep.path} belongs to user {owner}; only that user can start its runner")
    command = [sys.executable, *module_words("slurmopt.backends.array.runner"), str(sweep.path)]
    try:
        with open(sweep.path / "logs" / "runner.log", "ab") as log:
            runner = subprocess.Popen(
                command,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home or Path.cwd(),
            )
    except OSError as error:
        raise FolderError(f"cannot start the runner {sys.executable}: {error.strerror}") from error
    _await(sweep, runner, jobs)


def refuse_elsewhere(sweep: SweepFolder) -> None:
    """RunError where the sweep's runner may be alive on another machine."""
    state = states.read(sweep)
    if state.runner_lives is None:
        raise RunError(f"{sweep.name}/{sweep.id} runs on {state.host}; repeat the command there")


def _await(sweep: SweepFolder, runner: subprocess.Popen[bytes], jobs: Collection[str]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        state = states.read(sweep)
        has_ended = runner.poll() is not None
        if state.runner_lives and set(jobs) <= set(state.jobs):
            return
        if has_ended:
            if runner.returncode == 0 and set(jobs) <= set(states.read(sweep).jobs):
                return  # another runner has them, or all have ended already
            raise RunError(f"the runner did not start; it wrote {sweep.path / 'logs' / 'runner.log'}")
        if time.monotonic() > deadline:
            return
        time.sleep(_POLL)
