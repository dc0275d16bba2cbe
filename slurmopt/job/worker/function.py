"""Runs the user's function in this process: imports its module, loads the config, makes the process group, calls it."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from slurmopt import log
from slurmopt.errors import JobError
from slurmopt.job import failures
from slurmopt.job.facts import environment_info
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.health.run_checks import check_gpu
from slurmopt.job.heartbeat import ddp_timings
from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
from slurmopt.job.rank_args import RankArgs
from slurmopt.job.rendezvous.process_group import ProcessGroup
from slurmopt.run_folder.outcome import FINISHED, REQUEUE, Outcome


class FunctionTask:
    """One call of the user's function in one rank."""

    def __init__(self, call: RankArgs, facts: RankFacts, attempt: int, live: HeartbeatWriter) -> None:
        self._call, self._facts, self._attempt, self._live = call, facts, attempt, live
        self._group = ProcessGroup(call.folder, attempt, facts, call.timeout, call.backend)

    def run(self) -> Outcome:
        """Prepares and calls the function. Whatever it raises becomes the outcome."""
        try:
            self._live.enter("importing")
            function, config = self._prepare()
            if (unfit := check_gpu(self._call, self._facts)) is not None:
                return unfit
            self._live.enter("waiting")
            if not (self._alone_without_torch() or getattr(function, "makes_process_group", False)):
                self._group.join()
            ddp_timings.find_models()
            self._live.enter("running")
            if self._facts.rank == 0:
                environment_info.note(self._call.folder, self._attempt, self._facts)
            self._record_allocations()
            return failures.finished(_storable(function(config)))
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - the boundary to the user's code
            self._note_out_of_memory(error)
            outcome = failures.outcome_of(error)
            if outcome.outcome not in (FINISHED, REQUEUE):
                print(outcome.traceback or outcome.error, file=sys.stderr)
            return outcome

    def _record_allocations(self) -> None:
        if self._call.automatic is not None and self._call.automatic.allocations:
            from slurmopt.job.memory import history

            history.keep(importlib.import_module("torch"))

    def _note_out_of_memory(self, error: BaseException) -> None:
        """Records what is on the GPU if the error says that it is full."""
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(error, torch.OutOfMemoryError):
            from slurmopt.job.memory.stored import note_out_of_memory

            note_out_of_memory(self._call.folder, self._attempt, self._facts, error)

    def _alone_without_torch(self) -> bool:
        """Whether torch need not be imported: a point of a sweep with one rank, whose module does not import it, starts
        seconds earlier."""
        return self._facts.world_size == 1 and "torch" not in sys.modules and self._call.folder.in_sweep

    def leave(self) -> None:
        """Destroys the process group. Called only after the function ended well, because this waits for the other
        ranks."""
        self._group.leave()

    def _prepare(self) -> tuple[Callable[[Any], Any], Any]:
        if os.getcwd() not in sys.path and "" not in sys.path:
            sys.path.insert(0, os.getcwd())
        for module in self._call.imports:
            importlib.import_module(module)
        return locate(self._call.function or ""), load_config(self._call)


def locate(path: str) -> Callable[[Any], Any]:
    """The function at `package.module.function`. JobError if nothing callable is there."""
    module, rest = _import_longest(path)
    target: Any = module
    for name in rest:
        if not hasattr(target, name):
            raise JobError(f"task._target_: {path!r}: {getattr(target, '__name__', target)} has no {name!r}")
        target = getattr(target, name)
    if not callable(target):
        raise JobError(f"task._target_: {path!r} is not a function but a {type(target).__name__}")
    return target  # type: ignore[no-any-return]


def _import_longest(path: str) -> tuple[Any, list[str]]:
    parts = path.split(".")
    for size in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:size])
        try:
            return importlib.import_module(name), parts[size:]
        except ModuleNotFoundError as error:
            # Only "this very name is not there" goes on; a module that the user's module misses is the user's error.
            if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
                raise
    raise JobError(f"task._target_: no module of {path!r} is found from {os.getcwd()} or in {sys.prefix}")


def load_config(call: RankArgs) -> Any:
    """The run's config with everything resolved, `oc.env` included."""
    try:
        from omegaconf import OmegaConf
    except ImportError as error:
        raise JobError(f"{sys.executable} lacks omegaconf, which task._target_ needs: pip install omegaconf") from error
    from slurmopt.config.composition.resolved import as_text
    from slurmopt.config.composition.stored_yaml import load

    held = load(call.folder.config, mine=True) if call.config is None else call.config
    config = OmegaConf.create(held if isinstance(held, (dict, list)) else {})
    plain, problem = _resolved(config)
    if problem is not None and problem.startswith("metrics."):
        config.metrics = None  # a sink that lacks its token has told so, and the training goes on
        plain, problem = _resolved(config)
    if problem is not None:
        raise JobError(f"config.yaml: {problem}")
    return OmegaConf.create(as_text(plain))


def _resolved(config: Any) -> tuple[Any, str | None]:
    """The config as plain containers with everything resolved; what cannot be resolved, with its key. A text with `${`
    may be no interpolation that OmegaConf could read, so nothing is resolved in place."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return OmegaConf.to_container(config, resolve=True), None
    except OmegaConfBaseException as error:
        return None, f"{error.full_key}: {str(error).splitlines()[0]}"


def _storable(result: Any) -> Any:
    try:
        json.dumps(result)
    except (TypeError, ValueError):
        log.warning(f"the function returned a {type(result).__name__}, which result.json cannot hold; left out there")
        return None
    return result
