"""`slurmopt checkpoint verify`: reads every byte of checkpoints and compares every checksum.

Exit status 1 where anything is damaged or cannot be read, with a line for each such file. `--json` prints one object:
`checkpoints` (the names of those that were read), `damaged` (a list of `file` and `reason`) and `bytes_read`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from slurmopt import command_output
from slurmopt.checkpoint.format.index import load_items
from slurmopt.checkpoint.format.ledger import Commit
from slurmopt.checkpoint.format.manifest import File, Manifest, Segment
from slurmopt.checkpoint.format.manifest_reader import decode
from slurmopt.checkpoint.format.segments import Extent, extents, read_extent
from slurmopt.commands.checkpoint.catalog import Catalog, Place, Saved, add_checkpoint, add_tier, catalog
from slurmopt.commands.checkpoint.progress import progress
from slurmopt.errors import CheckpointError, InputError, StorageError, one_line
from slurmopt.runs import options
from slurmopt.storage.memory import staging
from slurmopt.storage.store import Store
from slurmopt.units import human_bytes

_READERS = 4


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    if args.all and args.checkpoint is not None:
        raise InputError("checkpoint verify: give a CHECKPOINT, or --all")
    run_catalog = catalog(args)
    chosen = run_catalog.checkpoints() if args.all else [run_catalog.find(args.checkpoint)]
    broken, read = _verify(run_catalog, chosen)
    if args.json:
        damaged = [{"file": file, "reason": reason} for file, reason in broken]
        names = [saved.name for saved in chosen]
        command_output.print_json({"checkpoints": names, "damaged": damaged, "bytes_read": read})
    else:
        for file, reason in broken:
            print(one_line(f"{file}: {reason}"))
    print(_summary(chosen, broken, read), file=sys.stderr)
    return 1 if broken or (run_catalog.problems and not run_catalog.places) else 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt checkpoint verify`."""
    parser = options.parser(
        "checkpoint verify", "Read every byte of a checkpoint, on each tier that has it, and compare every checksum."
    )
    add_checkpoint(parser)
    parser.add_argument("--all", action="store_true", help="all checkpoints")
    add_tier(parser)
    options.add_json(parser)
    return parser


def _verify(run_catalog: Catalog, chosen: list[Saved]) -> tuple[list[tuple[str, str]], int]:
    """Each damaged file with the reason, and the number of bytes read."""
    broken: list[tuple[str, str]] = []
    read = 0
    for place in run_catalog.places:
        commits = [each.places[place.name][1] for each in chosen if place.name in each.places]
        of_place, bytes_read = _verify_place(place, commits)
        broken += of_place
        read += bytes_read
    return broken, read


def _verify_place(place: Place, commits: list[Commit]) -> tuple[list[tuple[str, str]], int]:
    wanted: dict[tuple[str, int, str], tuple[str, File, Segment]] = {}
    broken: dict[str, str] = {}
    for commit in commits:
        try:
            manifest = load_items(place.store, decode(place.store.get(commit.manifest), commit))
        except (CheckpointError, StorageError, FileNotFoundError) as error:
            broken[commit.manifest] = _reason(commit.manifest, error)
            continue
        # Segments that several checkpoints share are read once.
        for file, segment in _segments(manifest):
            wanted[file.key, segment.offset, segment.xxh3] = (file.key, file, segment)
    ranges = extents(wanted.values())
    total = sum(extent.length for extent in ranges)
    broken |= _sizes(place.store, {file.key: file for _, file, _ in wanted.values()})
    with progress(f"verifying {place.name}", total) as done:
        broken = {**read_all(place.store, ranges, done), **broken}
    return [(f"{place.store.place}/{key}", reason) for key, reason in sorted(broken.items())], total


def _segments(manifest: Manifest) -> list[tuple[File, Segment]]:
    return [(manifest.files[segment.file], segment) for item in manifest.items for segment in item.segments]


def _sizes(store: Store, files: dict[str, File]) -> dict[str, str]:
    broken = {}
    for key, file in files.items():
        try:
            size = store.size(key)
        except (FileNotFoundError, StorageError) as error:
            broken[key] = _reason(key, error)
            continue
        if size != file.bytes:
            broken[key] = f"has {size:,} bytes instead of {file.bytes:,}"
    return broken


def read_all(store: Store, ranges: list[Extent[str]], done: Callable[[int], None]) -> dict[str, str]:
    """The first error of each file, by key."""
    broken: dict[str, str] = {}

    def read(share: list[Extent[str]]) -> None:
        longest = max((extent.length for extent in share), default=0)
        memory = staging(longest)
        for extent in share:
            try:
                for _ in read_extent(store, extent, memory):
                    pass
            except (CheckpointError, StorageError, FileNotFoundError) as error:
                broken.setdefault(extent.file.key, _reason(extent.file.key, error))
            done(extent.length)

    with ThreadPoolExecutor(_READERS, thread_name_prefix="slurmopt-verify") as pool:
        for reader in [pool.submit(read, ranges[first::_READERS]) for first in range(_READERS)]:
            reader.result()
    return broken


def _reason(key: str, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "is missing"
    return str(error).removeprefix(key).strip() or type(error).__name__


def _summary(chosen: list[Saved], broken: list[tuple[str, str]], read: int) -> str:
    what = chosen[0].name if len(chosen) == 1 else f"{len(chosen)} checkpoints"
    if broken:
        return f"{what}: {len(broken)} file{'s' if len(broken) > 1 else ''} damaged or not readable"
    return f"{what}: whole, {human_bytes(read)} read"
