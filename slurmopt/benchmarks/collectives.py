"""Measures the collectives in every rank: the function of `+experiment=bench_collectives`, and what `slurmopt bench
collectives` starts on one machine.

    python -m slurmopt.benchmarks.collectives REQUEST

REQUEST is JSON: `options` (`slurmopt.collectives.options.BenchOptions`), `backend` (auto, nccl, gloo), `init` (the
init_method of torch.distributed), `result` (the file that rank 0 writes) and perhaps `parent` (a process id: the rank
ends with that process). RANK, WORLD_SIZE and LOCAL_RANK come from
the environment, as from torchrun.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from slurmopt.benchmarks import collective_links
from slurmopt.benchmarks.collective_rows import Timer
from slurmopt.collectives.definitions import ELEMENT
from slurmopt.collectives.options import BenchOptions, options_of
from slurmopt.collectives.recording import Recording
from slurmopt.errors import ConfigError, InputError, JobError, SlurmoptError, one_line
from slurmopt.job.facts.rank_facts import RankFacts, rank_facts

_PR_SET_PDEATHSIG = 1
_TIMEOUT = 600.0
"""Seconds that a rank waits for the others."""


def run(config: Any) -> dict[str, Any]:
    """The benchmark of a run: the config's group `bench` has the options. Returns the recording, which result.json
    keeps; JobError where a value was wrong."""
    from omegaconf import OmegaConf

    group = config.get("bench")
    given: Any = {} if group is None else OmegaConf.to_container(group) if OmegaConf.is_dict(group) else None
    if given is None:
        raise ConfigError("is no group; valid: the keys of conf/experiment/bench_collectives.yaml", "bench")
    recording = measured(options_of(given))
    if rank_facts().rank == 0:
        print(json.dumps(recording.as_dict()), flush=True)
    if recording.wrong:
        raise JobError(fault_text(recording))
    return recording.as_dict()


def fault_text(recording: Recording) -> str:
    """The first wrong value, in one line."""
    first, count = recording.wrong[0], len(recording.wrong)
    more = f" (and {count - 1} more sizes or collectives)" if count > 1 else ""
    return f"{first.collective} of {first.size:,} bytes gave {first.wrong:,} wrong values; {first.fault}{more}"


def measured(options: BenchOptions) -> Recording:
    """The recording of the default process group, the same in every rank but for the texts of other ranks."""
    import torch
    import torch.distributed as dist

    if not dist.is_initialized() or dist.get_world_size() < 2:
        raise JobError(
            "a benchmark of collectives needs at least two ranks: "
            "set resources.nodes or resources.tasks_per_node to 2 or more"
        )
    facts, backend = rank_facts(), dist.get_backend()
    device = torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")
    nodes = _of_all_ranks(facts.node)
    recording = Recording(
        world=dist.get_world_size(), nodes=list(dict.fromkeys(nodes)), backend=backend, device=_device_name(device),
        torch=torch.__version__, time=time.time(),
    )  # fmt: skip
    _measure_rows(recording, options, device)
    if options.pairs:
        recording.links = collective_links.measured(_endpoints(nodes), dist.get_rank(), device)
    return recording


def _measure_rows(recording: Recording, options: BenchOptions, device: Any) -> None:
    import torch.distributed as dist

    from slurmopt import progress  # without it `slurmopt status` would show a benchmark of a slow network as a hang

    done = 0
    timer = Timer(options, dist.get_rank(), recording.world, device)
    for name in options.collectives:
        for asked in options.sizes:
            row = timer.row(name, asked)
            _note_size(recording, name, asked, None if row is None else row.size)
            if row is not None and row.size not in {each.size for each in recording.of(name)}:
                recording.rows.append(row)
            done += 1
            progress(done, total=len(options.collectives) * len(options.sizes))


def _note_size(recording: Recording, name: str, asked: int, size: int | None) -> None:
    if size is None:
        recording.notes.append(
            f"{name}: {asked:,} bytes left out: they are less than {ELEMENT} bytes for each of {recording.world} ranks"
        )
    elif size != asked:
        recording.notes.append(
            f"{name}: {asked:,} bytes do not divide evenly among {recording.world} ranks; measured with {size:,}"
        )


def _of_all_ranks(value: str) -> list[str]:
    import torch.distributed as dist

    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, value)
    return [str(each) for each in told]


def _endpoints(nodes: list[str]) -> list[tuple[int, str]]:
    """(rank, name): the first rank of each node; on one node all its ranks."""
    if len(set(nodes)) == 1:
        return [(rank, f"rank {rank}") for rank in range(len(nodes))]
    return [(nodes.index(node), node) for node in dict.fromkeys(nodes)]


def _device_name(device: Any) -> str:
    import torch

    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else "cpu"


def main(argv: list[str]) -> int:
    """One rank of a benchmark without a run."""
    request = json.loads(Path(argv[0]).read_text())
    facts = rank_facts()
    _end_with_parent(request.get("parent"))
    try:
        recording = _in_group(request, facts)
    except (SlurmoptError, RuntimeError, ValueError) as error:
        where = "" if isinstance(error, SlurmoptError) else f"rank {facts.rank}: "
        print(f"slurmopt: error: {where}{one_line(str(error).strip())[:1000]}", file=sys.stderr)
        return getattr(error, "exit_status", 1)
    if facts.rank == 0:
        Path(request["result"]).write_text(json.dumps(recording.as_dict()))
    return 0


def _end_with_parent(parent: int | None) -> None:
    """Has the kernel kill this rank once the command that started it is gone."""
    if os.getppid() == parent:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _in_group(request: dict[str, Any], facts: RankFacts) -> Recording:
    import torch
    import torch.distributed as dist

    gpus = torch.cuda.device_count()
    backend = request["backend"]
    if backend == "auto":
        backend = "nccl" if gpus >= facts.local_world_size and dist.is_nccl_available() else "gloo"
    if backend == "nccl":
        if not dist.is_nccl_available() or gpus < facts.local_world_size:
            raise InputError(f"nccl needs a GPU for each of {facts.local_world_size} ranks; torch sees {gpus} here")
        torch.cuda.set_device(facts.local_rank)
    torch.set_num_threads(1)
    dist.init_process_group(
        backend,
        init_method=request["init"],
        rank=facts.rank,
        world_size=facts.world_size,
        timeout=timedelta(seconds=_TIMEOUT),
        device_id=torch.device("cuda", facts.local_rank) if backend == "nccl" else None,
    )
    try:
        return measured(options_of(request["options"]))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
