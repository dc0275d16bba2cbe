"""The folders of the shipped configs and templates."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]


def shipped(folder: str) -> Path:
    """Returns the path of `conf` or `sbatch_templates`: in the installed package, or in the root of a checkout."""
    installed = _PACKAGE / folder
    return installed if installed.is_dir() else _PACKAGE.parent / folder
