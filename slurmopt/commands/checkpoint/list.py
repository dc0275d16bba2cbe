"""`slurmopt checkpoint list`: the complete checkpoints of a run, newest first.

`--json` prints a list of objects, one a checkpoint:

    step checkpoint attempt time world_size     time in seconds since the epoch
    tiers            tier → new_bytes: what was written there for it
    bytes            of the state it holds
    metrics          as given to `save`
    references       earlier checkpoints that hold a part of it
    restored         whether the training went on from it last
    next             whether a restore would take it, as far as can be seen from here
    damaged          [tier, reason]: found broken there and set aside; such a checkpoint may be complete nowhere
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from typing import Any

from slurmopt import command_output
from slurmopt.commands.checkpoint.catalog import Catalog, Saved, add_tier, catalog
from slurmopt.errors import one_line
from slurmopt.runs import options
from slurmopt.runs.status import checkpoints
from slurmopt.runs.status.checkpoints import Checkpoints
from slurmopt.runs.status.state import age
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.units import human_bytes

_STEP = re.compile(r"step-\d{8,18}/")
_HEADER = ["STEP", "CHECKPOINT", "TIERS", "SAVED", "NEW", "STATE", "NOTES"]


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    run_catalog = catalog(args)
    entries = _entries(run_catalog, whole=args.tier is None)
    if args.json:
        command_output.print_json(entries)
    elif entries:
        print(table(_HEADER, [_row(entry, time.time()) for entry in entries], terminal_width()))
    elif run_catalog.places:
        print(f"{run_catalog.label} has no complete checkpoint", file=sys.stderr)
    return 0 if run_catalog.places or not run_catalog.problems else 1


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt checkpoint list`."""
    parser = options.parser("checkpoint list", "The complete checkpoints of a run, newest first.")
    options.add_run(parser)
    add_tier(parser)
    options.add_json(parser)
    return parser


def _entries(run_catalog: Catalog, whole: bool) -> list[dict[str, Any]]:
    journal = checkpoints.read(run_catalog.run) if run_catalog.run else Checkpoints()
    restored = journal.restored.checkpoint if journal.restored else None
    damaged = _damaged(run_catalog, journal)
    complete = run_catalog.checkpoints()
    entries = [_entry(each, restored, whole and each is complete[0], damaged.pop(each.name, [])) for each in complete]
    lost = [{**_nothing(name, restored), "damaged": reasons} for name, reasons in damaged.items()]
    return sorted(entries + lost, key=lambda entry: entry["step"], reverse=True)


def _damaged(run_catalog: Catalog, journal: Checkpoints) -> dict[str, list[list[str]]]:
    """The damaged checkpoints of each tier's ledger, with the journal's reason where there is one."""
    reasons = {(one.checkpoint, one.tier): one.reason for one in journal.damaged}
    aside: dict[str, list[list[str]]] = {}
    for place in run_catalog.places:
        for name in sorted(filter(_STEP.match, place.records.damaged)):
            reason = reasons.get((name, place.name)) or "set aside"
            aside.setdefault(name, []).append([place.name, reason])
    return aside


def _entry(each: Saved, restored: str | None, newest: bool, damaged: list[list[str]]) -> dict[str, Any]:
    commit = each.commit
    return {
        "step": commit.step,
        "checkpoint": commit.name,
        "attempt": commit.attempt,
        "time": commit.time if _finite(commit.time) else None,
        "world_size": commit.world_size,
        "tiers": {tier: {"new_bytes": of_tier.bytes} for tier, (_, of_tier) in each.places.items()},
        "bytes": commit.total_bytes,
        "metrics": {key: value if _finite(value) else None for key, value in commit.metrics.items()},
        "references": sorted({name for _, of_tier in each.places.values() for name in of_tier.references}),
        "restored": commit.name == restored,
        "next": newest,
        "damaged": damaged,
    }


def _nothing(name: str, restored: str | None) -> dict[str, Any]:
    """The entry of a checkpoint that is complete on no tier."""
    step = name.removeprefix("step-").partition("/")[0]
    blank = dict.fromkeys(("attempt", "time", "world_size", "bytes"))
    return {"step": int(step), "checkpoint": name, **blank, "tiers": {}, "metrics": {}, "references": []} | {
        "restored": name == restored,
        "next": False,
    }


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _row(entry: dict[str, Any], now: float) -> list[str]:
    sizes = [tier["new_bytes"] for tier in entry["tiers"].values()]
    return [
        f"{entry['step']:,}",
        one_line(entry["checkpoint"].rpartition("/")[2]),
        ",".join(entry["tiers"]) or "-",
        age(entry["time"], now),
        human_bytes(max(sizes)) if sizes else "-",
        "-" if entry["bytes"] is None else human_bytes(entry["bytes"]),
        one_line(" · ".join(_notes(entry))),
    ]


def _notes(entry: dict[str, Any]) -> list[str]:
    notes = [f"{key}={value:.4g}" for key, value in entry["metrics"].items() if value is not None]
    notes += ["next to be restored"] if entry["next"] else []
    notes += ["restored from here"] if entry["restored"] else []
    return notes + [f"DAMAGED on {tier}: {reason}" for tier, reason in entry["damaged"]]
