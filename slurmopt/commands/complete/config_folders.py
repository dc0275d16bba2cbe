"""The folders in which a launch looks for configs."""

from __future__ import annotations

import os
from pathlib import Path

from slurmopt.commands.complete.stored import PACKAGE


def folders(config_dir: str | None) -> list[Path]:
    """The folders of configs, those of the user first."""
    own = Path(config_dir or "conf").absolute()
    shipped = next((path for path in (PACKAGE / "conf", PACKAGE.parent / "conf") if path.is_dir()), PACKAGE / "conf")
    return [shipped] if os.path.realpath(own) == os.path.realpath(shipped) else [own, shipped]
