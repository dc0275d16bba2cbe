"""What environment.txt says of the moment of launch: versions, host, git commit and diff."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

from slurmopt.errors import one_line
from slurmopt.slurm.job import Job

_PACKAGES = ("slurmopt", "hydra-core", "omegaconf", "submitit", "torch", "numpy")
_LONGEST_DIFF = 1_000_000
_SECRETS = (
    *(".env*", "*.env", ".secrets*", "secrets.*", "*credentials*", ".netrc", ".pgpass", ".pypirc", ".npmrc"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*"),
    *(".env*/**", ".ssh/**", ".aws/**"),
)
"""Tracked files, in any folder and any case, whose changes are left out: keys, passwords and tokens are kept there."""


def environment_text(job: Job, workdir: Path) -> str:
    """The launch's part of environment.txt; the job adds its own."""
    lines = [
        f"launched   {time.strftime('%Y-%m-%d %H:%M:%S %z')}",
        f"host       {platform.node()}",
        f"system     {platform.platform()}",
        f"python     {platform.python_version()} ({sys.executable})",
        *(f"{name:<10} {version}" for name in _PACKAGES if (version := _version(name)) is not None),
        *_git(workdir),
    ]
    return "\n".join(lines) + "\n"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(workdir: Path) -> list[str]:
    commit = _git_output(workdir, "rev-parse", "HEAD")
    if commit is None:
        return ["git        none"]
    secret = [f":(top,icase,glob)**/{pattern}" for pattern in _SECRETS]
    changed = _git_output(workdir, "diff", "HEAD", "--name-only", "-z", "--", *secret) or ""
    left_out = [f"left out   {one_line(name)}: it may hold secrets" for name in changed.split("\0") if name]
    public = [pattern.replace("(", "(exclude,") for pattern in secret]
    diff = _git_output(workdir, "diff", "HEAD", "--", ":/", *public) or ""
    if len(diff) > _LONGEST_DIFF:
        diff = diff[:_LONGEST_DIFF] + "\n… cut here\n"
    if not diff and not left_out:
        return [f"git        {commit.strip()}, no changes"]
    return [f"git        {commit.strip()}", *left_out, "", diff]


def _git_output(workdir: Path, *words: str) -> str | None:
    """What git says, or None where there is no git, no repository, or no answer in time."""
    command = ["git", "-C", str(workdir), *words]
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")
