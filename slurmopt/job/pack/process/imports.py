"""Imports in the parent, once for all points."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from slurmopt.grid.points import Points
from slurmopt.job import failures
from slurmopt.job.pack.pack_args import Pack
from slurmopt.job.pack.process.fresh import Imported
from slurmopt.job.supervisor.attempt_end import say
from slurmopt.job.worker import current_run
from slurmopt.job.worker.function import locate
from slurmopt.run_folder.layout import RECORDS

_OF_A_RUN = (current_run.FOLDER, RECORDS, current_run.ATTEMPT, "SLURMOPT_CONFIG", "SLURMOPT_POINT")
_OF_A_RANK = ("RANK", "LOCAL_RANK", current_run.LOCAL_RANK)


def import_all(pack: Pack, points: Points) -> Imported:
    """torch and the modules of the points' functions. What cannot be imported here is the error of each point, which
    tries it itself; it is told here once."""
    imported = Imported()
    functions = _functions(pack, points)
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    if functions:
        # Many modules ask at import whether there is a GPU; asked of the driver itself, no fork could use it then.
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        if pack.ranks > 1 or any(map(_mentions_torch, functions)):
            _import_torch()
            imported.before_users_module()
        if not _differs_by_point(points):
            with _as_nobody(pack.ranks):
                _import_users(pack, functions)
    imported.note()
    gc.collect()
    gc.freeze()  # the points share these objects' memory as long as nobody touches it
    return imported


def _functions(pack: Pack, points: Points) -> list[str]:
    """The functions that points may call; none if the task is a command."""
    tasks = [base.config.get("task") or {} for base in points.bases]
    functions = [pack.call.function, *(task.get("_target_") for task in tasks)]
    return list(dict.fromkeys(one for one in functions if isinstance(one, str) and "${" not in one))


def _differs_by_point(points: Points) -> bool:
    """Whether points have environment variables of their own: modules may read them when they are imported. The axes of
    Hydra's own sweeps are another config's keys."""
    return points.kind != "hydra" and any(key.startswith("environment.") for axis in points.axes for key in axis.keys)


def _mentions_torch(function: str) -> bool:
    """Whether the function's own module says "torch": it may import it only when it is called, and then each point
    would wait for that. One that does without is not made to wait for it at all."""
    try:
        spec = importlib.util.find_spec(function.rpartition(".")[0])
        return spec is not None and spec.origin is not None and b"torch" in Path(spec.origin).read_bytes()
    except (ImportError, ValueError, OSError):  # importing it will tell what is wrong
        return False


def _import_torch() -> None:
    try:
        importlib.import_module("torch")
        importlib.import_module("torch.distributed")
    except ModuleNotFoundError as error:
        if error.name != "torch":  # a broken torch is to be seen
            raise


def _import_users(pack: Pack, functions: list[str]) -> None:
    try:
        for module in pack.call.imports:
            importlib.import_module(module)
        for function in functions:
            if (prepare := getattr(locate(function), "prepare_points", None)) is not None:
                prepare(pack.points)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary to the user's code
        say(f"each point will fail to import it: {failures.outcome_of(error).error or failures.headline(error)}")


@contextlib.contextmanager
def _as_nobody(ranks: int) -> Iterator[None]:
    """A module that asks at import which run or rank it is in must not get the parent's answer for all points: it
    fails here, and is imported by each point."""
    names = _OF_A_RUN + (_OF_A_RANK if ranks > 1 else ())
    held = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(held)
