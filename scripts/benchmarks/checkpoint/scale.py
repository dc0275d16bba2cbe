"""What a save and a restore on many ranks cost each of them: synthetic plans of a large model, made in one process.

No rank but the measured one exists. Its tensors have no memory, its process group is torch's fake one, and what the
other ranks would send is made here. Seconds are of the CPU, so that others on the machine count little. Each row is a
process of its own, so that peaks do not add up. The rows "exchanged" and "whole" are what every rank did before shapes
and parts decided.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import BenchError

RANKS = (8, 64, 512, 1024)
PATIENCE = 1800.0
LAYERS, HIDDEN, INNER, HEADS_OUT, VOCABULARY = 80, 8192, 28672, 1024, 128256
"""A transformer of 70 billion parameters."""


def bench(report: Any, ranks: tuple[int, ...] = RANKS, layers: int = LAYERS) -> None:
    """Prints the table and keeps its numbers."""
    rows: list[dict[str, Any]] = []
    for world in ranks:
        for case in CASES:
            row = _measured(case, world, layers)
            rows.append(row)
            print(_line(row), flush=True)
    report.details["scale"] = {"layers": layers, "rows": rows}


def _measured(case: str, world: int, layers: int) -> dict[str, Any]:
    argv = [sys.executable, "-m", "benchmarks.checkpoint.scale", case, str(world), str(layers)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False, env=env)
    if done.returncode:
        raise BenchError(f"{' '.join(argv)}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _line(row: dict[str, Any]) -> str:
    more = "  ".join(f"{name} {_amount(value)}" for name, value in row["more"].items())
    return f"{row['ranks']:>5} ranks  {row['case']:<36} {row['seconds']:>9.3f} CPU s  {row['mib']:>8.0f} MiB  {more}"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"


def state(world: int, layers: int) -> dict[str, Any]:
    """Rank 0's view of a model and AdamW's state, each parameter sharded over all ranks (FSDP)."""
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = DeviceMesh("cpu", torch.arange(world), _init_backend=False)
    tensors: dict[str, Any] = {}
    for name, shape in _parameters(layers).items():
        strides = torch.empty(shape, device="meta").stride()
        local = torch.empty(()).expand(-(-shape[0] // world), *shape[1:])  # no memory is taken
        for key in (f"model.{name}", f"optimizer.state.{name}.exp_avg", f"optimizer.state.{name}.exp_avg_sq"):
            tensors[key] = DTensor.from_local(
                local, mesh, [Shard(0)], run_check=False, shape=torch.Size(shape), stride=strides
            )
        tensors[f"optimizer.state.{name}.step"] = torch.empty(())
    return tensors


def _parameters(layers: int) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"embedding": (VOCABULARY, HIDDEN), "head": (VOCABULARY, HIDDEN)}
    for layer in range(layers):
        found |= {
            f"layers.{layer}.{name}": shape
            for name, shape in {
                "attention.q": (HIDDEN, HIDDEN),
                "attention.k": (HEADS_OUT, HIDDEN),
                "attention.v": (HEADS_OUT, HIDDEN),
                "attention.out": (HIDDEN, HIDDEN),
                "mlp.gate": (INNER, HIDDEN),
                "mlp.up": (INNER, HIDDEN),
                "mlp.down": (HIDDEN, INNER),
                "norm.one": (HIDDEN,),
                "norm.two": (HIDDEN,),
            }.items()
        }
    return {**found, "norm": (HIDDEN,)}


def plan_together(world: int, layers: int) -> dict[str, Any]:
    """Every rank gathers all ranks' plans and makes the global one, as torch.distributed.checkpoint's planner does."""
    plans, sent = _local_plans(world, layers)
    memory = Peak()
    began = time.process_time()
    from torch.distributed.checkpoint._dedup_save_plans import dedup_save_plans
    from torch.distributed.checkpoint.default_planner import create_default_global_save_plan

    gathered = [pickle.loads(plan) for plan in plans]
    create_default_global_save_plan(dedup_save_plans(gathered))
    return memory.row(time.process_time() - began, items=sum(len(plan.items) for plan in gathered), received=sent)


def _local_plans(world: int, layers: int) -> tuple[list[bytes], int]:
    """As many plans as there are ranks, pickled as they travel. Those of the others are made from rank 0's."""
    from dataclasses import replace

    import torch
    from torch.distributed.checkpoint.default_planner import create_default_local_save_plan
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex

    plan = create_default_local_save_plan(state(world, layers), is_coordinator=True)

    def of(rank: int, item: Any) -> Any:
        sizes = item.tensor_data.chunk.sizes
        if item.type.name != "SHARD":
            return item
        offsets = torch.Size([rank * sizes[0], *item.index.offset[1:]])
        data = replace(item.tensor_data, chunk=ChunkStorageMetadata(offsets, sizes))
        return replace(item, index=MetadataIndex(item.index.fqn, offsets), tensor_data=data)

    plans = [pickle.dumps(replace(plan, items=[of(rank, item) for item in plan.items])) for rank in range(world)]
    return plans, sum(map(len, plans))


def plan_alone(world: int, layers: int) -> dict[str, Any]:
    """A rank finds its own share from shapes."""
    from slurmopt.checkpoint.snapshot.division import Division

    tensors = state(world, layers)
    memory = Peak()
    began = time.process_time()
    division = Division(tensors, world)
    assert division.derivable
    digest = division.digest
    share = division.share(world - 1)
    return memory.row(time.process_time() - began, items=len(share), received=world * len(pickle.dumps(digest)))


def decode_whole(world: int, layers: int) -> dict[str, Any]:
    """A rank decodes the items of all ranks, which one manifest has."""
    from slurmopt.checkpoint.format.manifest import File, Manifest
    from slurmopt.checkpoint.format.manifest_reader import decode

    items = ",".join(json.dumps(_items(rank, world, layers), separators=(",", ":"))[1:-1] for rank in range(world))
    head = Manifest(**_known(layers), files=[File(_key(rank), None, 1 << 50) for rank in range(world)], items=[])
    encoded = head.encode().replace(b'"items":[]', b'"items":[' + items.encode() + b"]")
    del items
    commit = head.commit(encoded, (0, 0))
    memory = Peak()
    began = time.process_time()
    decode(encoded, commit)
    return memory.row(time.process_time() - began, received=len(encoded))


def assemble(world: int, layers: int) -> dict[str, Any]:
    """Rank 0's writer puts the manifest together from what the ranks' writers send."""
    from slurmopt.checkpoint.commit.assembly import assemble_manifest

    known, summaries, sent = _summaries(world, layers)
    memory = Peak()
    began = time.process_time()
    manifest, sizes = assemble_manifest(known, summaries, [{}] * world)
    encoded = manifest.encode()
    manifest.commit(encoded, sizes)
    return memory.row(time.process_time() - began, received=sent, manifest=len(encoded))


def decode_part(world: int, layers: int) -> dict[str, Any]:
    """A rank decodes the manifest, finds out which parts concern it, and reads those."""
    from slurmopt.checkpoint.commit.assembly import assemble_manifest
    from slurmopt.checkpoint.format.index import load_items
    from slurmopt.checkpoint.format.manifest_reader import decode
    from slurmopt.checkpoint.restore.needed_files import needs

    known, summaries, _ = _summaries(world, layers)
    manifest, sizes = assemble_manifest(known, summaries, [{}] * world)
    encoded = manifest.encode()
    commit, live = manifest.commit(encoded, sizes), _nested(state(world, layers))
    store: Any = _Descriptions(world, layers)
    memory = Peak()
    began = time.process_time()
    main = decode(encoded, commit)
    parts = needs(main, live, 0).parts
    load_items(store, main, parts)
    return memory.row(time.process_time() - began, received=len(encoded) + store.read, parts=len(parts))


class _Descriptions:
    """What stands at the end of the payload files, as a store has it."""

    place = "memory"

    def __init__(self, world: int, layers: int) -> None:
        self._world, self._layers, self.read = world, layers, 0

    def read_into(self, key: str, offset: int, buffer: memoryview) -> None:
        from slurmopt.checkpoint.format.index import describe_items

        rank = int(key[-9:-4])
        data, length, _ = describe_items(_items(rank, self._world, self._layers, 0))
        buffer[:] = data[: len(buffer)]
        self.read += length


def _summaries(world: int, layers: int) -> tuple[dict[str, Any], list[Any], int]:
    """What rank 0 knows of a save, what each rank has written, and how many bytes the messages have."""
    from slurmopt.checkpoint.commit.assembly import payload_from_message
    from slurmopt.checkpoint.format.index import describe_items
    from slurmopt.checkpoint.format.manifest import File
    from slurmopt.checkpoint.snapshot.division import Division

    spread = json.loads(json.dumps(Division(state(world, layers), world).spread()))
    summaries, sent = [], 0
    for rank in range(world):
        items = _items(rank, world, layers, 0)
        _, length, checksum = describe_items(items)
        summary = {
            "files": [File(_key(rank), None, 1 << 50)],
            "place": [[0], 0, length, checksum],
            "objects": ["model", "optimizer"] if rank == 0 else [],
            "elements": sum(_elements(item) for item in items if item[1] is not None),
            "written": 1,
            "held": 1,
        }
        message = json.dumps(summary)
        sent += len(message)
        summaries.append(payload_from_message(json.loads(message)))
    return {**_known(layers), "spread": spread}, summaries, sent


def _elements(item: Any) -> int:
    return math.prod(item[2])


def _known(layers: int) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for name, shape in _parameters(layers).items():
        for key in _keys(name):
            tensors[key] = ("float32", shape)
        tensors[f"optimizer.state.{name}.step"] = ("float32", ())
    return {
        "step": 1, "attempt": 0, "unique": "a0000-00000001", "time": 1.0, "world_size": 1, "tensors": tensors,
    }  # fmt: skip


def _key(rank: int) -> str:
    return f"step-00000001/a0000-00000001/rank-{rank:05d}.bin"


def _keys(name: str) -> tuple[str, str, str]:
    return f"model.{name}", f"optimizer.state.{name}.exp_avg", f"optimizer.state.{name}.exp_avg_sq"


def _items(rank: int, world: int, layers: int, file: int | None = None) -> list[Any]:
    """What `rank` writes, as a manifest describes it. Each item has one segment, also where it would have several."""
    from slurmopt.checkpoint.format.manifest import Item, Segment

    number, items = rank if file is None else file, []
    for name, shape in _parameters(layers).items():
        part = -(-shape[0] // world)
        first = min(rank * part, shape[0])
        sizes = (min(part, shape[0] - first), *shape[1:])
        offsets = (first, *[0] * (len(shape) - 1))
        length = 4 * sizes[0] * (shape[1] if len(shape) > 1 else 1)
        if not length:
            continue
        pieces = [Segment(number, at, min(8 << 20, length - at), min(8 << 20, length - at), f"{rank:032x}")
                  for at in range(0, length, 8 << 20)]  # fmt: skip
        items += [Item(key, offsets, sizes, pieces) for key in _keys(name)]
    if rank == 0:
        small = [Segment(number, 0, 4, 4, "0" * 32)]
        items += [Item(f"optimizer.state.{name}.step", (), (), small) for name in _parameters(layers)]
        items += [Item(name, None, None, small) for name in ("model", "optimizer")]
    return items


def _nested(tensors: dict[str, Any]) -> dict[str, Any]:
    """The state as a training has it."""
    found: dict[str, Any] = {"model": {}, "optimizer": {}}
    for name, tensor in tensors.items():
        entry, _, rest = name.partition(".")
        found[entry][rest] = tensor
    return found


class Peak:
    """The memory that is taken from now on, beyond what this process has."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self._before = self._now("VmRSS")

    def row(self, seconds: float, **more: float) -> dict[str, Any]:
        return {"seconds": seconds, "mib": (self._now("VmHWM") - self._before) / 1024, "more": more}

    def _now(self, field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


CASES: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "plan, exchanged": plan_together,
    "plan, from shapes": plan_alone,
    "restore: manifest, whole": decode_whole,
    "restore: manifest, by part": decode_part,
    "commit: manifest, by part": assemble,
}


def main(argv: list[str]) -> int:
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    case, world, layers = argv[0], int(argv[1]), int(argv[2])
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    print(json.dumps({"ranks": world, "case": case, **CASES[case](world, layers)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
