"""The warm parent of `scripts/chaos calls`: it has imported slurmopt, and forks one process for each command.

Reads one JSON object a line: `argv`, `out` and `err` (files), `seconds`, and how the command is disturbed: `roots`,
`report`, `call`, `fault`, `locks`. Answers with `status`: the exit status, minus the signal's number, or null where the
command was still running after `seconds`.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import time
import traceback
from typing import Any

SHORTER = 10
"""Pauses of a disturbed command are divided by this."""
_MODULES = """
slurmopt.cli slurmopt.launching.run_plan slurmopt.launching.sweep_plan slurmopt.launching.execute
slurmopt.launch slurmopt.commands.retry slurmopt.slow_notice hydra._internal.utils hydra.core.plugins
slurmopt.config.composition.compose slurmopt.config.composition.settings slurmopt.backends.sbatch
slurmopt.slurm.cluster.estimate slurmopt.slurm.cluster.limits slurmopt.runs.submit.launch_run
slurmopt.runs.recovery.missing_end slurmopt.runs.recovery.resubmit slurmopt.runs.submit.resume
slurmopt.runs.submit.code_snapshot slurmopt.commands.status slurmopt.commands.cancel slurmopt.commands.throttle
slurmopt.commands.tend slurmopt.sweeps.submit.submission slurmopt.sweeps.submit.resubmit
slurmopt.sweeps.submit.capacity slurmopt.sweeps.definition.hydra_compositions slurmopt.sweeps.submit.dependencies
"""


def main() -> None:
    library = ctypes.CDLL(os.environ.pop("LD_PRELOAD"))
    for name in _MODULES.split():
        importlib.import_module(name)
    importlib.import_module("hydra.core.plugins").Plugins.instance()  # looks through all that is installed
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(_run(library, asked))
        print(json.dumps({"status": _wait(child, asked["seconds"])}), flush=True)


def _run(library: ctypes.CDLL, asked: dict[str, Any]) -> int:
    """The command, in the forked process; its exit status."""
    from slurmopt import cli

    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in ((1, asked["out"]), (2, asked["err"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    try:
        _arm(library, asked)
        status = cli.main(asked["argv"])
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001  as the interpreter would: what is no answer for a user is judged by its text
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _arm(library: ctypes.CDLL, asked: dict[str, Any]) -> None:
    roots = (ctypes.c_char_p * 5)(*[os.fsencode(root) for root in asked["roots"]])
    report = os.fsencode(asked["report"])
    library.calls_arm(roots, report, ctypes.c_long(asked["call"]), asked["fault"], int(not asked["locks"]), SHORTER)


def _wait(child: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.002)


if __name__ == "__main__":
    main()
