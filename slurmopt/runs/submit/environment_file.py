"""What environment.txt says of the moment of launch: versions, host, git commit and diff."""

from __future__ import annotations

import platform
import stat
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

from slurmopt.errors import one_line
from slurmopt.slurm.script.job import Job

_PACKAGES = ("slurmopt", "hydra-core", "omegaconf", "submitit", "torch", "numpy")
_LONGEST_DIFF = 1_000_000
_SECRETS = (
    *(".env*", "*.env", "*secret*", "*credential*", "*password*", "*passwd*", "*api_key*", "*apikey*", "*api-key*"),
    *(
        "token.*",
        "tokens.*",
        "*.token",
        "*_token.*",
        "*-token.*",
        "*service-account*",
        "*service_account*",
        "auth.json",
    ),
    *(".netrc", ".pgpass", ".pypirc", ".npmrc", ".boto", ".s3cfg", ".dockercfg", ".htpasswd", "kubeconfig*"),
    *("kaggle.json", "rclone.conf", "*.pem", "*.key", "*.p12", "*.pfx", "id_rsa*", "id_dsa*", "id_ecdsa*"),
    *("id_ed25519*", ".env*/**", "*secret*/**", ".ssh/**", ".aws/**", ".kube/**", ".docker/**", ".gnupg/**"),
)
"""Tracked files, in any folder and any case, whose changes are left out: keys, passwords and tokens are kept there."""
_DIFF = ("diff", "HEAD", "--no-renames")
"""What was a secret file under another name is shown as one that is gone and one that is new: each by its own name."""


def environment_text(job: Job, workdir: Path) -> str:
    """The launch's part of environment.txt; the job adds its own."""
    lines = [
        f"launched   {time.strftime('%Y-%m-%d %H:%M:%S %z')}",
        f"host       {platform.node()}",
        f"system     {platform.platform()}",
        f"python     {platform.python_version()} ({sys.executable})",
        *(f"{name:<10} {version}" for name in _PACKAGES if (version := _version(name)) is not None),
        *_git(workdir, job.settings.launch.group_access),
    ]
    return "\n".join(lines) + "\n"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(workdir: Path, group_access: bool) -> list[str]:
    commit = _git_output(workdir, "rev-parse", "HEAD")
    if commit is None:
        return ["git        none"]
    secret = [f":(top,icase,glob)**/{pattern}" for pattern in _SECRETS]
    left_out = [f"left out   {one_line(name)}: it may hold secrets" for name in _changed(workdir, *secret)]
    public = [pattern.replace("(", "(exclude,") for pattern in secret]
    if group_access:
        closed = _closed(workdir, _changed(workdir, ":/", *public))
        left_out += [f"left out   {one_line(name)}: your group may not read it" for name in closed]
        public += [f":(top,exclude,literal){name}" for name in closed]
    diff = _git_output(workdir, *_DIFF, "--", ":/", *public) or ""
    if len(diff) > _LONGEST_DIFF:
        diff = diff[:_LONGEST_DIFF] + "\n… cut here\n"
    if not diff and not left_out:
        return [f"git        {commit.strip()}, no changes"]
    return [f"git        {commit.strip()}", *left_out, "", diff]


def _changed(workdir: Path, *patterns: str) -> list[str]:
    """The changed files, as git names them."""
    output = _git_output(workdir, *_DIFF, "--name-only", "-z", "--", *patterns) or ""
    return [name for name in output.split("\0") if name]


def _closed(workdir: Path, names: list[str]) -> list[str]:
    """Those that the group may not read, and those that are gone, of which nobody can tell any more."""
    top = Path((_git_output(workdir, "rev-parse", "--show-toplevel") or "").rstrip("\n"))
    return [name for name in names if not _is_open(top / name)]


def _is_open(path: Path) -> bool:
    try:
        return bool(path.lstat().st_mode & stat.S_IRGRP)
    except OSError:
        return False


def _git_output(workdir: Path, *arguments: str) -> str | None:
    """What git says, or None where there is no git, no repository, or no answer in time."""
    command = ["git", "-C", str(workdir), *arguments]
    try:
        process = subprocess.run(command, capture_output=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.decode(errors="replace")
