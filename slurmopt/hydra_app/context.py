"""What all jobs of a multirun share: the function, the config, Hydra's config loader and singletons, in one file."""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt.errors import JobError
from slurmopt.hydra_app import pickles

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig

FILE = "hydra.pickle"
"""Its name in the sweep's folder."""


@dataclass(frozen=True)
class Context:
    """The launcher's own setup, as a job gets it back."""

    function: TaskFunction
    config: DictConfig
    hydra: HydraContext
    singletons: Any
    cwd: str
    """Where the launch was typed."""
    first: int
    """The number in the multirun of this sweep's point 0: a sweeper may ask for several batches."""
    jobs: list[list[str]]
    """Each point's overrides."""


def dumps(context: Context) -> bytes:
    """The context file's bytes. Raises what cloudpickle raises for what has no pickle."""
    # The body needs the path to find the application's modules, so it cannot lie in the same pickle.
    head = {"python": sys.version_info[:2], "path": sys.path, "cwd": context.cwd, "body": pickles.dumps(context)}
    return pickles.dumps(head)


@functools.cache
def load(path: Path) -> Context:
    """The context, made this process's own: its module path, Hydra's singletons, OmegaConf's resolvers.

    Once in a process, and so once for all points that a parent forks.
    """
    try:
        head = pickles.loads(pickles.read(path))
    except FileNotFoundError as error:
        raise JobError(f"{path} is not there: the launcher wrote it, and the points need it") from error
    if head["python"] != sys.version_info[:2]:
        ours, theirs = (".".join(map(str, version)) for version in (sys.version_info[:2], head["python"]))
        raise JobError(f"the application was launched with Python {theirs}, and the job's is {ours}; use the same one")
    _extend_path(head["path"], head["cwd"])
    context: Context = pickles.loads(head["body"])
    _restore(context)
    return context


def here(place: str, cwd: str) -> str:
    """`place`, moved with the code where the job works on a snapshot of the folder the launch was typed in."""
    now = os.getcwd()
    if now == cwd or not os.path.isabs(place) or os.path.commonpath([cwd, place]) != cwd:
        return place
    moved = os.path.join(now, os.path.relpath(place, cwd))
    return moved if os.path.exists(moved) else place


def _extend_path(launched_with: list[str], cwd: str) -> None:
    """The application's modules come first, as they did at launch: its script's folder, above all."""
    wanted = [here(place, cwd) if place else os.getcwd() for place in launched_with]
    sys.path[:0] = [place for place in dict.fromkeys(wanted) if place not in sys.path]


def _restore(context: Context) -> None:
    from hydra.core.singleton import Singleton
    from hydra.core.utils import setup_globals

    Singleton.set_state(context.singletons)
    setup_globals()
    if os.getcwd() != context.cwd:
        _move_configs(context)


def _move_configs(context: Context) -> None:
    """Config folders of the application that lie in the snapshot are read there."""
    loader: Any = context.hydra.config_loader
    for element in loader.config_search_path.get_path():
        if element.path is not None and element.path.startswith(("/", "file://")):
            element.path = here(element.path.removeprefix("file://"), context.cwd)
    loader.repository.initialize_sources(loader.config_search_path)
