"""The virtual environment that Swift runs in: its own, outside the checkout, made on first use."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from cluster.errors import ClusterError, UsageError

REQUIREMENTS = ("swift==2.38.3", "keystonemiddleware>=13")


def folder() -> Path:
    """Where the environment lies."""
    return Path(os.environ.get("SLURMOPT_S3_VENV") or f"/var/tmp/slurmopt-s3-{os.getuid()}")


def ready() -> bool:
    """Whether a whole installation of just these requirements is there."""
    note = folder() / "installed.txt"
    return note.is_file() and note.read_text() == "\n".join(REQUIREMENTS)


def python() -> Path:
    """The environment's Python; installs Swift first where it is missing."""
    venv = folder()
    venv.mkdir(mode=0o755, parents=True, exist_ok=True)
    if venv.stat().st_uid not in (0, os.getuid()):
        raise UsageError(f"{venv} belongs to somebody else; set SLURMOPT_S3_VENV")
    if not ready():
        with (venv / "lock").open("w") as lock:  # two first uses at once
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not ready():
                _install(venv)
    return venv / "bin" / "python"


def _install(venv: Path) -> None:
    print(f"s3-server: installing Swift into {venv}, once", file=sys.stderr, flush=True)
    _run(os.environ.get("PYTHON") or sys.executable, "-m", "venv", str(venv))
    _run(str(venv / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", *REQUIREMENTS)
    (venv / "installed.txt").write_text("\n".join(REQUIREMENTS))


def _run(*argv: str) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise ClusterError(f"{' '.join(argv)} failed\n{(done.stderr or done.stdout).strip()}")
