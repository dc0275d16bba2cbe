"""Where the shipped configs and templates lie."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]


def shipped(folder: str) -> Path:
    """`conf` or `sbatch_templates`: inside the package once installed, at the top of the repository in a checkout."""
    installed = _PACKAGE / folder
    return installed if installed.is_dir() else _PACKAGE.parent / folder
