"""`slurmopt checkpoint fetch`: copies one checkpoint, and what it references, to a folder.

The folder is a tier like any other: `verify` and `export` accept it as RUN, and a Checkpointer restores from it.
`--json` prints one object: `checkpoint`, `tier`, `folder`, `bytes`, and `copied`: false where it was there already.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from slurmopt import command_output
from slurmopt.checkpoint.format import ledger
from slurmopt.checkpoint.format.index import load_items
from slurmopt.checkpoint.format.ledger import Commit, Ledger
from slurmopt.checkpoint.format.manifest import INLINE_FORMAT, Item
from slurmopt.checkpoint.format.manifest_reader import decode
from slurmopt.checkpoint.format.rank_payload import Block, PayloadWriter, RankPayload, merged, stored_blocks
from slurmopt.commands.checkpoint.catalog import Place, Saved, add_checkpoint, catalog
from slurmopt.commands.checkpoint.progress import progress
from slurmopt.errors import CheckpointError, FolderError, RunError, one_line
from slurmopt.run_folder.access.files import open_append
from slurmopt.runs import options
from slurmopt.storage.folder import FolderStore
from slurmopt.storage.kinds import KINDS
from slurmopt.units import human_bytes

_FILES = 4
"""The number of payload files of the copy, which are read and written in parallel."""
_MARK = ".fetching"
_OURS = re.compile(r"step-\d{8,}/[A-Za-z0-9-]+/(?:rank-\d{5,}\.bin|manifest\.json)|commits/\d{4,}-\d{6,}\.json")


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    run_catalog = catalog(args)
    saved = run_catalog.find(args.checkpoint)
    place, commit = _source(saved, getattr(args, "from"))
    root = Path(os.path.abspath(args.to.expanduser()))
    is_copied = fetch(place, commit, root)
    if args.json:
        where = {"checkpoint": saved.name, "tier": place.name, "folder": str(root)}
        command_output.print_json({**where, "bytes": commit.total_bytes, "copied": is_copied})
    elif is_copied:
        print(f"{saved.name} ({human_bytes(commit.total_bytes)}) from {place.name} is in {root}, whole and verified")
    else:
        print(f"{saved.name} is in {root} already")
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt checkpoint fetch`."""
    parser = options.parser("checkpoint fetch", "Copy one checkpoint to a folder, and verify it.")
    add_checkpoint(parser)
    *tiers, last = KINDS
    parser.add_argument(
        "--from", choices=KINDS, metavar="TIER", help=f"{', '.join(tiers)} or {last}; default: the fastest"
    )
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="a new or empty folder")
    options.add_json(parser)
    return parser


def fetch(place: Place, commit: Commit, root: Path) -> bool:
    """Copies a checkpoint to `root`, and commits it once all files are durable. Returns False where it exists already.

    Raises FolderError where `root` contains something else, Damaged where the source is corrupt.
    """
    store = FolderStore(root)
    if _is_there(store, commit):
        return False
    with _exclusive(root):
        leftovers = store.list("")  # of an interrupted fetch
        if foreign := [key for key in leftovers if not _OURS.fullmatch(key)]:
            raise FolderError(
                f"{root} holds {one_line(foreign[0])} besides a fetch that broke off; take another folder"
            )
        store.delete(leftovers)
        _copy(place, commit, store)
        (root / _MARK).unlink()
    return True


def _is_there(store: FolderStore, commit: Commit) -> bool:
    return [each.name for each in ledger.read(store).commits] == [commit.name]


def _source(saved: Saved, tier: str | None) -> tuple[Place, Commit]:
    if tier is None:
        return next(iter(saved.places.values()))
    if tier not in saved.places:
        raise RunError(f"{saved.name} is not on {tier}; it is on {', '.join(saved.places)}")
    return saved.places[tier]


@contextlib.contextmanager
def _exclusive(root: Path) -> Iterator[None]:
    """Allows one fetch to a folder at a time. A mark file shows a later fetch that the files may be deleted."""
    try:
        new = not root.exists() or not any(root.iterdir())
        if not new and not (root / _MARK).exists():
            raise FolderError(f"{root} is not empty; valid: a new or empty folder")
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = open_append(root / _MARK, 0o600)
    except OSError as error:
        raise FolderError(f"{root}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise FolderError(f"{root}: another fetch is at work there") from error
    finally:
        os.close(descriptor)


def _copy(place: Place, commit: Commit, store: FolderStore) -> None:
    manifest = load_items(place.store, decode(place.store.get(commit.manifest), commit))
    shares = _shares(manifest.items)
    with progress(f"fetching {commit.name}", commit.total_bytes) as done, ThreadPoolExecutor(_FILES) as pool:
        jobs = [
            pool.submit(
                _write, place, store, RankPayload(manifest.files, items), f"{commit.name}/rank-{index:05d}.bin", done
            )
            for index, items in enumerate(shares)
        ]
        try:
            whole = merged([job.result() for job in jobs])
        except FileNotFoundError as error:
            raise CheckpointError(f"{place.store.place}: {error.filename or error} is missing") from error
    copy = replace(manifest, files=whole.files, items=whole.items, format=INLINE_FORMAT)
    encoded = copy.encode()
    store.put_new(copy.key, encoded)
    # Attempt 0: a run that resumes from this folder has no lower number, so the copy fences none.
    own_ledger = Ledger(store, 0, f"fetch:{secrets.token_hex(4)}")
    own_ledger.open()
    own_ledger.commit(copy.commit(encoded))


def _write(place: Place, store: FolderStore, part: RankPayload, key: str, done: Callable[[int], None]) -> RankPayload:
    writer = PayloadWriter(key, None, {})
    blocks = _counted(stored_blocks(place.store, part), done)
    store.write(key, writer.pieces(blocks))
    return writer.part()


def _counted(blocks: Iterator[Block], done: Callable[[int], None]) -> Iterator[Block]:
    for block in blocks:
        yield block
        done(sum(length for _, _, length in block.segments))


def _shares(items: list[Item]) -> list[list[Item]]:
    """Divides the items into lists of about equal size."""
    shares: list[list[Item]] = [[] for _ in range(_FILES)]
    sizes = [0] * _FILES
    for item in sorted(items, key=lambda item: item.bytes, reverse=True):
        least = sizes.index(min(sizes))
        shares[least].append(item)
        sizes[least] += item.bytes
    return [share for share in shares if share]
