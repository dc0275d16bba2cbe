"""The hook `notify.command`: a program that gets the facts as variables and as JSON. Also runs the other programs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from slurmopt.errors import one_line
from slurmopt.notify.hook_error import HookError, filled

COMMAND_SECONDS = 60


def run(words: Sequence[str], facts: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Runs the command in the run's folder. Raises HookError."""
    argv = [filled(str(word), environ) for word in words]
    # Not SLURMOPT_FOLDER, which names the folder of all runs to the commands.
    names = {"folder": "SLURMOPT_RUN_FOLDER"}
    variables = {names.get(key, f"SLURMOPT_{key.upper()}"): _plain(value) for key, value in facts.items()}
    environment = {**environ, **variables}
    start(argv, str(words[0]), json.dumps(facts).encode(), environment, cwd=facts["folder"])


def start(
    argv: Sequence[str],
    name: str,
    given: bytes,
    environ: Mapping[str, str],
    cwd: str | None = None,
    timeout: float = COMMAND_SECONDS,
) -> None:
    """Runs a program; what it prints goes to standard error, which is the job's log in a job. Raises HookError with
    `name`, the program as it was typed."""
    shown = repr(one_line(name))
    try:
        subprocess.run(argv, input=given, stdout=2, env=environ, cwd=cwd, timeout=timeout, check=True)
    except OSError as error:
        raise HookError(f"{shown} cannot be started: {(error.strerror or '').lower()}") from error
    except subprocess.TimeoutExpired as error:
        raise HookError(f"{shown} was still running after {timeout:g} s") from error
    except subprocess.CalledProcessError as error:
        ended = f"signal {-error.returncode}" if error.returncode < 0 else f"exit status {error.returncode}"
        raise HookError(f"{shown} ended with {ended}") from error


def _plain(value: Any) -> str:
    return "" if value is None else one_line(str(value))
