"""Launches what follows a sweep on this machine (`sweep.then`), once its last point has ended."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from slurmopt.run_folder import events
from slurmopt.run_folder.process import module_words
from slurmopt.run_folder.sweep_layout import SweepFolder

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings


def launch_then(sweep: SweepFolder, settings: Settings) -> None:
    """Launches it, as it would be typed where the sweep was; the ID keeps it from being launched twice. Does nothing
    for a sweep that was cancelled as a whole."""
    if settings.sweep.then is None or not sweep.more.exists():
        return
    options = ["launch.backend=local", "launch.wait=false", f"launch.id={sweep.id}-then"]
    command = [sys.executable, *module_words("slurmopt.launch"), *shlex.split(settings.sweep.then), *options]
    done = subprocess.run(
        command, cwd=home_of(sweep), stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode == 0:
        sweep.more.unlink(missing_ok=True)
        return
    why = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    events.append(sweep.events, "then-failed", reason=why)
    print(f"slurmopt: sweep.then is not launched: {why}", file=sys.stderr)


def home_of(sweep: SweepFolder) -> Path:
    """Where the sweep's launch was typed."""
    created = next(iter(events.read(sweep.events, "created")), {})
    return Path(str(created.get("cwd") or sweep.path))
