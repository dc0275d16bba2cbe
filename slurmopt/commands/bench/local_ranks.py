"""Runs the benchmark between ranks of this machine, without Slurm."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from slurmopt.collectives.options import BenchOptions
from slurmopt.collectives.recording import Recording, recording_of
from slurmopt.errors import InputError, JobError, SlurmoptError, one_line
from slurmopt.run_folder.process import module_words

_MODULE = "slurmopt.benchmarks.collectives"
_MOST_RANKS = 256
_WITHOUT_GPUS = 2
_POLL = 0.05
_GPU = re.compile(r"nvidia\d+")
_OWN_ERROR = "slurmopt: error: "


def measure(options: BenchOptions, ranks: int | None, backend: str) -> Recording:
    """Starts the ranks and waits for them. InputError for bad input or without torch; JobError where a rank fails."""
    count = _default_ranks() if ranks is None else ranks
    if count == 1:
        raise InputError("bench collectives: one rank has nobody to talk to; valid: --ranks 2 or more")
    if not 2 <= count <= _MOST_RANKS:
        raise InputError(f"bench collectives: --ranks {count} is not valid; valid: 2 to {_MOST_RANKS}")
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            f"bench collectives: {sys.executable} has no torch, which does the measuring; install it here, or launch "
            "+experiment=bench_collectives with task.python naming a Python that has it"
        )
    with tempfile.TemporaryDirectory(prefix="slurmopt-bench-") as folder:
        return _measure(Path(folder), options, count, backend)


def _default_ranks() -> int:
    gpus = _visible_gpus()
    return gpus if gpus > 1 else _WITHOUT_GPUS


def _visible_gpus() -> int:
    """GPUs of this machine, without importing torch, which takes seconds."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return len([word for word in chosen.split(",") if word.strip() and word.strip() != "-1"])
    return sum(1 for name in os.listdir("/dev") if _GPU.fullmatch(name))


def _measure(folder: Path, options: BenchOptions, count: int, backend: str) -> Recording:
    request, result = folder / "request.json", folder / "result.json"
    words = {
        "options": options.as_dict(), "backend": backend, "init": f"file://{folder}/store", "result": str(result),
        "parent": os.getpid(),
    }  # fmt: skip
    request.write_text(json.dumps(words))
    with _ranks(folder, count, request) as processes:
        _wait(folder, processes)
    if not result.is_file():
        raise JobError(f"bench collectives: the ranks ended without a result: {_first_error(folder, range(count))}")
    return recording_of(result.read_text(), "the benchmark")


@contextlib.contextmanager
def _ranks(folder: Path, count: int, request: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The ranks, none of which is left when the block ends, also by SIGTERM."""
    earlier = signal.signal(signal.SIGTERM, _leave)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(count):
            with open(folder / f"rank-{rank}.log", "wb") as log:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, *module_words(_MODULE), str(request)],
                        env=_environment(rank, count),
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
        for process in processes:
            process.wait()
        signal.signal(signal.SIGTERM, earlier)


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _environment(rank: int, count: int) -> dict[str, str]:
    """torchrun's variables; those of an enclosing job would say something else. Ranks of one machine talk over lo."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SLURMOPT_"))}
    numbers = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": count,
        "LOCAL_WORLD_SIZE": count,
        "NODE_RANK": 0,
        "NNODES": 1,
    }
    return {"GLOO_SOCKET_IFNAME": "lo", **inherited, **{name: str(value) for name, value in numbers.items()}}


def _wait(folder: Path, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Until all ranks have ended; JobError for the first that fails."""
    running = dict(enumerate(processes))
    while running:
        ended = {rank: process for rank, process in running.items() if process.poll() is not None}
        failed = [rank for rank, process in ended.items() if process.returncode]
        if failed:
            raise _error(folder, failed, processes)
        running = {rank: process for rank, process in running.items() if rank not in ended}
        if running and not ended:
            time.sleep(_POLL)


def _error(folder: Path, failed: Sequence[int], processes: Sequence[subprocess.Popen[bytes]]) -> SlurmoptError:
    status, said = processes[failed[0]].returncode, _first_error(folder, failed)
    if status == InputError.exit_status:
        return InputError(f"bench collectives: {said}")
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    return JobError(f"bench collectives: rank {failed[0]} {how}{said and ': '}{said}")


def _first_error(folder: Path, ranks: Sequence[int] | range) -> str:
    """What the first rank that says something said: its error in our words, else its last line."""
    for rank in ranks:
        lines = (folder / f"rank-{rank}.log").read_text(errors="replace").splitlines()
        own = [line.removeprefix(_OWN_ERROR) for line in lines if line.startswith(_OWN_ERROR)]
        last = own[:1] or [line for line in lines if line.strip()][-1:]
        if last:
            return one_line(last[0])[:500]
    return ""
