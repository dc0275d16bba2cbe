"""The arguments that the job script passes to a rank.

python -m slurmopt.job FOLDER [options] --function pkg.mod.fn
python -m slurmopt.job FOLDER [options] -- word word …
SLURMOPT_COMMAND='["word", "word", …]' python -m slurmopt.job FOLDER [options]
python -m slurmopt.job FOLDER [options] --of-point
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt.config.check import AUTO_OFF
from slurmopt.config.health import Checks
from slurmopt.config.health import from_word as checks_from_word
from slurmopt.config.metrics import from_word as sinks_from_word
from slurmopt.config.monitor import Sampling
from slurmopt.config.monitor import from_word as sampling_from_word
from slurmopt.config.network import PROCESS_GROUP_BACKENDS, NetworkOptions
from slurmopt.config.network import from_argument as network_from_argument
from slurmopt.config.profiler import Profiler
from slurmopt.config.profiler import from_word as profiler_from_word
from slurmopt.config.restart import AFTER_SIGNAL
from slurmopt.config.storage import StagePlan
from slurmopt.config.storage import from_word as stage_from_word
from slurmopt.config.task import PER
from slurmopt.errors import JobError
from slurmopt.job.watchdog import stacks
from slurmopt.run_folder import private
from slurmopt.run_folder.heartbeat_silence import DEFAULT_INTERVAL
from slurmopt.run_folder.layout import RunFolder, run_folder
from slurmopt.run_folder.outcome import EXIT_STATUS, INFRASTRUCTURE

if TYPE_CHECKING:
    from slurmopt.config.profile import Automatic

COMMAND = "SLURMOPT_COMMAND"
"""Environment variable: the words of the command as JSON. Unlike arguments, only the user and root can read it."""
SUPERVISOR = "SLURMOPT_SUPERVISOR"
"""Environment variable: the process id of `slurmopt.job.worker.spawn`, if it started this rank."""
OF_POINT = "--of-point"
NO_VERDICT = "--no-verdict"
PATIENCE = 60.0
"""Seconds. On a node that temporarily cannot map user ids, all folders seem to belong to another user."""


@dataclass(frozen=True)
class RankArgs:
    """What one rank is to run. `heartbeat` and `timeout` are seconds. Either `function` or `command` is set, except for
    a point of a sweep whose config says which."""

    folder: RunFolder
    heartbeat: float
    timeout: float
    backend: str
    per: str
    forward: str | None
    imports: list[str]
    function: str | None
    command: list[str] | None
    hang_after: float | None = None
    """Seconds of `restart.hang_after`, None for auto; infinite if no watchdog runs."""
    health: Checks | None = None
    """The health checks before the task; None for no checks."""
    monitor: Sampling | None = None
    """What the sampler of the node measures; None for no sampler."""
    cpu_bind: bool = True
    """Whether a rank that Slurm has not bound is bound to the CPUs near its GPU."""
    exit_after_signal: str = "continue"
    """What an end without error after a signal means: `continue` or `finished`."""
    ranks_per_node: int = 1
    """With `per` node: how many ranks the command is to start there."""
    distributed: bool = True
    """Whether the command gets RANK, WORLD_SIZE and the like."""
    metrics: str | None = None
    """The metric sinks as JSON, for the process that writes to them; None if there are none."""
    network: NetworkOptions = field(default_factory=NetworkOptions)
    """The network between the nodes, for NCCL's variables."""
    stage: StagePlan | None = None
    """What is copied to the node's disk before the task; None for nothing."""
    profile: bool = True
    """Whether `slurmopt profile` can trace the task."""
    automatic: Automatic | None = None
    """The traces that rank 0 asks for by itself; None for none."""
    profiler: Profiler | None = None
    """The profiler around the task; None for none."""
    config: dict[str, Any] | None = None
    """Of a sweep's point, which has read it already: what its config.yaml holds."""


def parse(argv: list[str]) -> RankArgs:
    """Parses the arguments. A misspelt one ends the process with status 2 and the valid ones on standard error; a run
    folder that belongs to another user for PATIENCE seconds ends it with status 69."""
    words, command = _split(argv)
    options = _parser().parse_args(words)
    if command is None and options.function is None and not options.of_point:
        command = _of_environment(os.environ.get(COMMAND))
    if not options.of_point and (options.function is None) == (not command):
        _parser().error(f"either --function pkg.mod.fn or {COMMAND} or -- and the words of a command")
    folder = run_folder(Path(options.folder).absolute(), os.environ)
    _refuse_foreign(folder)
    return RankArgs(
        folder=folder,
        heartbeat=options.heartbeat,
        timeout=options.timeout,
        backend=options.backend,
        per=options.per,
        forward=options.forward,
        imports=options.imports,
        function=options.function,
        command=command,
        hang_after=options.hang_after,
        health=options.health,
        monitor=options.monitor,
        cpu_bind=options.cpu_bind == "auto",
        exit_after_signal=options.exit_after_signal,
        ranks_per_node=options.ranks_per_node,
        distributed=options.distributed != "off",
        metrics=options.metrics,
        network=options.network,
        stage=options.stage,
        profile=options.profile is not None,
        automatic=None if options.profile is True else options.profile,
        profiler=options.profiler,
    )


def _refuse_foreign(folder: RunFolder) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return private.hold_run(folder)
        except JobError as error:
            if time.monotonic() >= deadline:
                print(f"slurmopt: {error}", file=sys.stderr)
                raise SystemExit(EXIT_STATUS[INFRASTRUCTURE]) from error
        time.sleep(1)


def _split(argv: list[str]) -> tuple[list[str], list[str] | None]:
    if "--" not in argv:
        return argv, None
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


def _of_environment(text: str | None) -> list[str] | None:
    try:
        words = json.loads(text or "null")
    except ValueError:
        return None
    return [str(word) for word in words] if isinstance(words, list) else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m slurmopt.job", allow_abbrev=False)
    parser.add_argument("folder", help="the run folder")
    parser.add_argument("--heartbeat", type=float, default=DEFAULT_INTERVAL, help="interval in seconds")
    parser.add_argument("--timeout", type=float, default=600.0, help="timeout of the rendezvous in seconds")
    parser.add_argument("--backend", choices=PROCESS_GROUP_BACKENDS, default="auto")
    parser.add_argument(
        "--network", type=network_from_argument, default=NetworkOptions(), help="the network between the nodes"
    )
    parser.add_argument("--per", choices=PER, default="rank", help="how often the command runs")
    parser.add_argument("--ranks-per-node", type=int, default=1, metavar="N", help="ranks that the command starts")
    parser.add_argument("--distributed", choices=AUTO_OFF, default="auto", help="off: unset RANK, WORLD_SIZE")
    parser.add_argument("--forward", metavar="SIGNAL", help="the command's signal before the time limit")
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE")
    parser.add_argument("--hang-after", type=stacks.hang_after, default="auto", metavar="auto|off|SECONDS")
    parser.add_argument("--health", type=checks_from_word, metavar="JSON", help="the checks of the node")
    parser.add_argument("--monitor", type=sampling_from_word, metavar="JSON", help="what the node's sampler measures")
    parser.add_argument("--stage", type=stage_from_word, metavar="JSON", help="what is copied to the node's disk")
    parser.add_argument(
        "--profile", type=_profile, default=True, metavar="off|JSON", help="when the run is traced unasked"
    )
    parser.add_argument("--profiler", type=profiler_from_word, metavar="JSON", help="the profiler around the task")
    parser.add_argument("--metrics", type=_sinks, metavar="JSON", help="the metric sinks")
    parser.add_argument("--cpu-bind", choices=AUTO_OFF, default="auto", help="bind to the CPUs near the GPU")
    parser.add_argument("--exit-after-signal", choices=AFTER_SIGNAL, default="continue")
    parser.add_argument("--function", metavar="PKG.MOD.FN")
    parser.add_argument(OF_POINT, action="store_true", help="run the config of a point of a sweep")
    parser.add_argument(NO_VERDICT, action="store_true", help="with --of-point: the parent writes the verdict")
    return parser


def _profile(word: str) -> Automatic | None:
    from slurmopt.config.profile import from_word  # most runs are not told anything

    return from_word(word)


def _sinks(word: str) -> str:
    sinks_from_word(word)  # a mistake shows here, and not only in the process of the sinks
    return word
