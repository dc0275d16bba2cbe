"""Imports the modules of `launch.imports`, which register OmegaConf resolvers."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from slurmopt.errors import ConfigError


def import_from(home: Path, module: str) -> None:
    """Imports `module` from `home` or sys.path. Raises ConfigError if it cannot be imported."""
    sys.path.insert(0, str(home))
    try:
        import_module(module)
    except ImportError as error:
        raise ConfigError(f"cannot import {module!r}: {error}", "launch.imports") from error
    finally:
        sys.path.pop(0)
