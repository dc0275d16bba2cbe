"""The file with the data that all jobs of a multirun share: the function, the config, Hydra's config loader and
singletons."""

from __future__ import annotations

import functools
import os
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt.errors import JobError, one_line
from slurmopt.hydra_app import main_module, pickles
from slurmopt.run_folder.layout import RunFolder

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig

FILE = "hydra.pickle"
"""The name of the file in the folder of the sweep."""


@dataclass(frozen=True)
class Context:
    """The arguments of Hydra's launcher, which a job restores."""

    function: TaskFunction
    config: DictConfig
    hydra: HydraContext
    singletons: Any
    cwd: str
    """The current directory of the launch."""
    source: str
    """The working directory of the jobs at launch, of which a snapshot is a copy."""
    first: int
    """The job number in the multirun of this sweep's point 0; it is not 0 if the sweeper launches several batches."""
    jobs: list[list[str]]
    """The overrides of each point."""


def dumps(context: Context) -> bytes:
    """Returns the content of the context file. Raises the exceptions of cloudpickle for objects that cannot be
    pickled."""
    script = main_module.Script.of_this_process()
    # The body is a pickle of its own: unpickling it needs sys.path, which is restored from the head first.
    head = {
        "python": sys.version_info[:2],
        "path": [os.path.abspath(place) for place in sys.path],
        "source": context.source,
        "script": script,
        "by_name": None if script is None else main_module.dumps(context),
        "body": pickles.dumps(context),
    }
    return pickles.dumps(head)


@functools.cache
def load(path: Path) -> Context:
    """Loads the context and restores sys.path, Hydra's singletons and OmegaConf's resolvers in this process.

    It runs once per process, and so once for all points that a parent forks. Raises JobError if the file is missing or
    was written by another version of Python.
    """
    try:
        head = pickles.loads(pickles.read(path))
    except FileNotFoundError as error:
        raise JobError(f"{path} is not there: the launcher wrote it, and the points need it") from error
    if head["python"] != sys.version_info[:2]:
        ours, theirs = (".".join(map(str, version)) for version in (sys.version_info[:2], head["python"]))
        raise JobError(f"the application was launched with Python {theirs}, and the job's is {ours}; use the same one")
    moved = Moved(head["source"], str(RunFolder(path.parent).code))
    folders = [moved.place(folder) for folder in head["path"]]
    # The folders of the application come first, as at launch, in particular that of its script.
    sys.path[:0] = [folder for folder in dict.fromkeys(folders) if folder not in sys.path]
    context = _body(head, moved)
    _restore(context)
    _move_configs(context, moved)
    return context


def _body(head: dict[str, Any], moved: Moved) -> Context:
    """Returns the context. Functions and classes of the script are imported by running the script again; those that are
    defined only in its `__main__` block are unpickled by value. If the script fails, all are unpickled by value."""
    context: Context = pickles.loads(head["body"])
    if head["script"] is None:
        return context
    try:
        main_module.run(head["script"], moved.place)
        main_module.complete(context.function)
        by_name: Context = pickle.loads(head["by_name"])  # noqa: S301 - checked by `pickles.read`
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's script
        what = one_line(f"{type(error).__name__}: {error}")
        print(f"slurmopt: the application's script cannot be run again for its names: {what}", flush=True)
        return context
    return by_name


@dataclass(frozen=True)
class Moved:
    """Maps paths of the launch to paths in the job. With a snapshot, `code` is a copy of the folder `source`."""

    source: str
    code: str

    def place(self, path: str) -> str:
        if not os.path.isdir(self.code) or os.path.commonpath([self.source, path]) != self.source:
            return path
        moved_path = os.path.join(self.code, os.path.relpath(path, self.source))
        return moved_path if os.path.exists(moved_path) else path


def _restore(context: Context) -> None:
    from hydra.core.singleton import Singleton
    from hydra.core.utils import setup_globals

    Singleton.set_state(context.singletons)
    setup_globals()


def _move_configs(context: Context, moved: Moved) -> None:
    loader: Any = context.hydra.config_loader
    for element in loader.config_search_path.get_path():
        place = (element.path or "").removeprefix("file://")
        if os.path.isabs(place) and moved.place(place) != place:
            element.path = moved.place(place)
    loader.repository.initialize_sources(loader.config_search_path)
