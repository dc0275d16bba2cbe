"""Going on with an existing run: the stored config and script, submitted again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt.errors import ConfigError, RunError
from slurmopt.folder import events
from slurmopt.folder.layout import RunFolder
from slurmopt.runs.find import find
from slurmopt.runs.gather import gather

if TYPE_CHECKING:
    from slurmopt.config.launch import Launch
    from slurmopt.config.schema import Settings


def resume(asked: Launch) -> tuple[RunFolder, dict[str, Any], Settings]:
    """The run, and its stored config: plain, and typed with what is said of `launch` now.

    Raises RunError while the run is alive, ConfigError for overrides that it cannot take.
    """
    from slurmopt.config.settings import load

    run = find(asked.run, Path(asked.folder))
    _refuse_foreign(run)
    _refuse_alive(run)
    stored, typed = load(run.config)
    backend = _backend(run)
    if asked.backend not in ("auto", backend):
        raise ConfigError(f"the script of {run.path.name} was made for {backend}; leave it out", "launch.backend")
    launch = replace(asked, backend=backend, name=run.name)
    return run, stored, replace(typed, launch=launch)


def _refuse_foreign(run: RunFolder) -> None:
    """Its script is run as it lies there: whoever could write it would run it as you."""
    for path in (run.path, run.script, run.config, run.events):
        if path.exists() and path.stat().st_uid != os.geteuid():
            raise RunError(f"launch.run: {path} belongs to another user; launch a run of your own")


def _refuse_alive(run: RunFolder) -> None:
    ((status, *_), problem) = gather([run], fresh=True)
    if status.alive:
        why = f" ({status.detail})" if status.detail else ""
        raise RunError(f"launch.run: {status.label} is {status.state}{why}; first: slurmopt cancel {status.label}")
    if status.state == "unknown":
        reason = status.detail or problem or "it cannot be told whether it is alive"
        raise RunError(f"launch.run: {status.label} may be alive: {reason}")


def _backend(run: RunFolder) -> str:
    """The backend that the run's script was made for."""
    used = [event.get("backend") for event in events.read(run.events) if event["event"] == "submitting"]
    if not used or not isinstance(used[-1], str):
        raise RunError(f"launch.run: the journal {run.events} does not say how the run was submitted")
    return used[-1]
