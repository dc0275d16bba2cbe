"""Traces a model under fake tensors in a process of its own: the login side imports no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from slurmopt.errors import InputError, one_line
from slurmopt.planning.layout import Work
from slurmopt.planning.memory.traced import Trace, trace_of

_PROGRAM = "slurmopt.training.fake_step"
_LONGEST = 300.0
"""Seconds of a trace."""
OPTIMIZERS = ("adamw", "momentum", "sgd")


def traced(work: Work, micro_batch: int, *, build: str | None = None, config: dict[str, Any] | None = None) -> Trace:
    """The trace of the function MODULE:FUNCTION, or of the content of a config.json. Raises InputError with the reason
    where it cannot be traced."""
    request = {
        "build": build,
        "config": config,
        "sequence": work.sequence,
        "batch": micro_batch,
        "precision": work.precision,
        "optimizer": work.optimizer,
    }
    what = build or "the config"
    try:
        done = subprocess.run(
            [sys.executable, "-m", _PROGRAM], input=json.dumps(request), capture_output=True, text=True,
            timeout=_LONGEST, env=_environment(),
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{what} cannot be traced: not within {_LONGEST:g} s") from error
    answer = _answer(done.stdout)
    if answer is None:
        raise InputError(f"{what} cannot be traced: {one_line(_last(done))}")
    if "error" in answer:
        raise InputError(f"{what} cannot be traced: {one_line(str(answer['error']))}")
    return trace_of(answer["layers"], answer["depths"])


def _environment() -> dict[str, str]:
    here = str(Path(__file__).resolve().parents[2])
    before = os.environ.get("PYTHONPATH")
    path = here if not before else f"{here}{os.pathsep}{before}"
    return {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}


def _last(done: subprocess.CompletedProcess[str]) -> str:
    return next((line for line in reversed(done.stderr.splitlines()) if line.strip()), f"exit status {done.returncode}")


def _answer(text: str) -> dict[str, Any] | None:
    """The last line: what the model prints comes before it."""
    try:
        found = json.loads(text.splitlines()[-1]) if text.strip() else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
