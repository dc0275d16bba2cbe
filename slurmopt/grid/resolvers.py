"""Provides Hydra's resolvers (`${hydra:…}`, `${now:…}`, `${python_version:…}`) without Hydra."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.basecontainer import BaseContainer

from slurmopt.config.imports import import_from


@contextlib.contextmanager
def hydra_answers(root: DictConfig, described: float) -> Iterator[None]:
    """Resolves `${hydra:…}` from `root.hydra`, and `${now:…}` to the time of the description, the same for every
    point."""
    now = datetime.fromtimestamp(described)
    answers: dict[str, Callable[..., Any]] = {
        "hydra": lambda path: OmegaConf.select(root.hydra, path),
        "now": now.strftime,
        "python_version": _python_version,
    }
    previous = {name: BaseContainer._resolvers.get(name) for name in answers}
    for name, answer in answers.items():
        OmegaConf.register_new_resolver(name, answer, replace=True)
    try:
        yield
    finally:
        for name, resolver in previous.items():
            OmegaConf.clear_resolver(name)
            if resolver is not None:
                BaseContainer._resolvers[name] = resolver


def _python_version(level: str = "minor") -> str | None:
    parts = {"major": 1, "minor": 2, "micro": 3}
    return ".".join(map(str, sys.version_info[: parts[level]])) if level in parts else None


def import_modules(names: tuple[str, ...]) -> None:
    """Imports the modules of `launch.imports`, which register resolvers; they may be in the working directory."""
    for name in names:
        if name not in sys.modules:
            import_from(Path.cwd(), name)
