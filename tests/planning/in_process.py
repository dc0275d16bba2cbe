"""Commands of `slurmopt plan` in the process of the test: many of them in the time of one."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from typing import Any

from json_answer import data_of

from slurmopt.cli import main


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def slurmopt_plan(*words: str) -> Done:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        status = main(["plan", *words])
    return Done(status, out.getvalue(), errors.getvalue())


def answer_of(*words: str) -> dict[str, Any]:
    """What it says with `--json`."""
    done = slurmopt_plan(*words, "--json")
    assert done.returncode == 0, done.stderr
    found = data_of(done.stdout)
    assert isinstance(found, dict)
    return found
