"""The third-party Hydra application of the tests, put where a test wants it."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[1]


UNTRACED = ("env", "-u", "COVERAGE_PROCESS_CONFIG")
"""Switches coverage off in the command after it: under a tracer, as under a debugger, Hydra prints tracebacks."""


def place(path: Path) -> dict[str, str]:
    """Copies the application to `path`, its script to `source/`; what its processes need in their environment."""
    source = _CHECKOUT / "tests" / "hydra_app" / "app"
    shutil.copytree(source, path / "source", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (path / "data.txt").write_text("relative")
    plugins = path / "source" / "plugins"
    installed = Path(sysconfig.get_paths()["purelib"]) / "hydra_plugins" / "slurmopt_launcher"
    if not installed.is_dir():  # of an editable installation's plugins Hydra sees nothing
        (plugins / "hydra_plugins" / installed.name).symlink_to(_CHECKOUT / "hydra_plugins" / installed.name)
    return {"PYTHONPATH": str(plugins), "COPIED": "from the launch"}
