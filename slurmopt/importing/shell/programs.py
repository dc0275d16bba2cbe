"""What the programs of a batch script do, by their names."""

from __future__ import annotations

import re

PRINTS = frozenset(
    [
        "echo",
        "printf",
        "date",
        "hostname",
        "pwd",
        "env",
        "printenv",
        "nvidia-smi",
        "rocm-smi",
        "whoami",
        "id",
        "uname",
        "lscpu",
        "free",
        "df",
        "ls",
        "lsb_release",
        "which",
        "type",
        "uptime",
        "squeue",
        "sinfo",
        "sacct",
        "scontrol",
        "tree",
        "nproc",
        "nvcc",
        "true",
        ":",
        "wait",
        "sync",
        "sleep",
    ]
)
"""They only print, or wait."""
PREPARES = frozenset(
    [
        "mkdir",
        "touch",
        "ln",
        "cp",
        "rsync",
        "ulimit",
        "umask",
        "shopt",
        "unset",
        "rm",
        "chmod",
        "tar",
        "unzip",
        "wandb",
        "git",
    ]
)
"""They change something before the training."""
ENVIRONMENTS = ("conda", "mamba", "micromamba", "pyenv", "spack", "uenv")
LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
_HOOK = re.compile(r"(conda|mamba|micromamba|pyenv|direnv|pixi|spack|modulecmd)\b")
_START_FILES = re.compile(
    r"(.*/)?(\.?(bashrc|bash_profile|profile|zshrc|bash\.bashrc)|conda\.sh|mamba\.sh|modules?\.sh|lmod\.sh)"
)


def is_hook(source: str) -> bool:
    """Whether `eval …` sets up conda or the like."""
    return bool(_HOOK.search(source)) and "$(" in source


def is_start_file(path: str) -> bool:
    """Whether a sourced file is one of those that set up a shell, in which a failing line means nothing."""
    return bool(_START_FILES.fullmatch(path)) or "/init/" in path or "/etc/profile" in path
