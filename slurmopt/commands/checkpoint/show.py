"""`slurmopt checkpoint show`: shows the content of one checkpoint.

`--json` prints one object: `step`, `checkpoint`, `tier`, `attempt`, `time`, `world_size`, `metrics`, `bytes`,
`tensors` (name → `dtype`, `shape`, `bytes`), `objects` (name → bytes), `files` (key → `bytes`, `encoding`, and
`used`: how many of them this checkpoint needs) and `references`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from slurmopt import command_output
from slurmopt.checkpoint.format.index import load_items
from slurmopt.checkpoint.format.manifest import Manifest, folder_of
from slurmopt.checkpoint.format.manifest_reader import decode
from slurmopt.commands.checkpoint.catalog import add_checkpoint, add_tier, catalog
from slurmopt.errors import one_line
from slurmopt.runs import options
from slurmopt.runs.status.state import age
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.units import human_bytes


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    saved = catalog(args).find(args.checkpoint)
    place, commit = next(iter(saved.places.values()))
    shown = _as_dict(load_items(place.store, decode(place.store.get(commit.manifest), commit)), place.name)
    if args.json:
        command_output.print_json(shown)
    else:
        print(_text(shown, sorted(saved.places), time.time()))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt checkpoint show`."""
    parser = options.parser(
        "checkpoint show", "Show the tensors and files of one checkpoint, and the checkpoints that it refers to."
    )
    add_checkpoint(parser)
    add_tier(parser, "as it lies on this tier; default: the fastest that has it")
    options.add_json(parser)
    return parser


def _as_dict(manifest: Manifest, tier: str) -> dict[str, Any]:
    sizes: dict[str, int] = {}
    used = dict.fromkeys(range(len(manifest.files)), 0)
    for item in manifest.items:
        if item.offsets is not None:
            sizes[item.name] = sizes.get(item.name, 0) + item.bytes
        for segment in item.segments:
            used[segment.file] += segment.stored
    return {
        "step": manifest.step,
        "checkpoint": manifest.name,
        "tier": tier,
        "attempt": manifest.attempt,
        "time": manifest.time,
        "world_size": manifest.world_size,
        "metrics": manifest.metrics,
        "bytes": sum(item.bytes for item in manifest.items),
        "tensors": {
            name: {"dtype": dtype, "shape": list(shape), "bytes": sizes.get(name, 0)}
            for name, (dtype, shape) in manifest.tensors.items()
        },
        "objects": {item.name: item.bytes for item in manifest.items if item.offsets is None},
        "files": {
            file.key: {"bytes": file.bytes, "encoding": file.encoding, "used": used[index]}
            for index, file in enumerate(manifest.files)
            if file.bytes
        },
        "references": list(manifest.references),
    }


def _text(shown: dict[str, Any], tiers: list[str], now: float) -> str:
    metrics = "  ".join(f"{key}={value:.6g}" for key, value in shown["metrics"].items())
    lines = [
        f"{shown['checkpoint']}",
        f"  step {shown['step']:,}, saved {age(shown['time'], now)} by attempt {shown['attempt']} on "
        f"{shown['world_size']} rank{'s' if shown['world_size'] > 1 else ''}; lies on {', '.join(tiers)}",
        f"  {human_bytes(shown['bytes'])} in {len(shown['tensors']):,} tensors and {len(shown['objects']):,} objects",
        *([f"  {one_line(metrics)}"] if metrics else []),
        "",
        f"files on {shown['tier']}",
    ]
    files = [_file(key, file, shown["checkpoint"]) for key, file in shown["files"].items()]
    parts = [table(["FILE", "SIZE", "NEEDED", "NOTES"], files, terminal_width())] if files else ["  none"]
    tensors = [
        [one_line(name), one_line(str(each["dtype"])), _shape(each["shape"]), human_bytes(each["bytes"])]
        for name, each in shown["tensors"].items()
    ]
    objects = [[one_line(name), "object", "-", human_bytes(size)] for name, size in shown["objects"].items()]
    parts += ["", table(["NAME", "TYPE", "SHAPE", "SIZE"], tensors + objects, terminal_width())]
    return "\n".join(lines + parts)


def _shape(sizes: list[Any]) -> str:
    return one_line("x".join(map(str, sizes))) or "scalar"


def _file(key: str, file: dict[str, Any], checkpoint: str) -> list[str]:
    notes = [] if folder_of(key) == checkpoint else ["of an earlier checkpoint"]
    notes += [file["encoding"]] if file["encoding"] else []
    return [key, human_bytes(file["bytes"]), human_bytes(file["used"]), ", ".join(notes)]
