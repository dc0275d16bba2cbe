"""`slurmopt checkpoint export`: writes one checkpoint as a torch.save file, as safetensors, or as a DCP folder.

`--json` prints one object: `checkpoint`, `tier`, `path`, `format`, and
`weights_only`: whether `torch.load` reads it so.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from slurmopt import command_output
from slurmopt.checkpoint.format.index import load_items
from slurmopt.checkpoint.format.manifest import Manifest
from slurmopt.checkpoint.format.manifest_reader import decode
from slurmopt.commands.checkpoint.catalog import add_checkpoint, add_tier, catalog
from slurmopt.errors import CheckpointError, FolderError, InputError
from slurmopt.runs import options
from slurmopt.slow_notice import slow_notice
from slurmopt.storage.folder import sync_folder
from slurmopt.storage.store import Store

FORMATS = ("torch", "safetensors", "dcp")
_NOT_PLAIN = "; torch.load needs weights_only=False for it, as it holds more than tensors and plain values"


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    if importlib.util.find_spec("torch") is None:
        raise InputError("checkpoint export needs torch, which this Python lacks: pip install torch")
    target = Path(os.path.abspath(args.to.expanduser()))
    if os.path.lexists(target):
        raise FolderError(f"{target} is there already; name something that is not")
    if not target.parent.is_dir():
        raise FolderError(f"{target.parent} is not a folder; make it first")
    saved = catalog(args).find(args.checkpoint)
    place, commit = next(iter(saved.places.values()))
    manifest = load_items(place.store, decode(place.store.get(commit.manifest), commit))
    is_plain = _into_place(target, lambda path: _export(args.format, place.store, manifest, path, args.key))
    if args.json:
        where = {"checkpoint": saved.name, "tier": place.name, "path": str(target), "format": args.format}
        command_output.print_json({**where, "weights_only": is_plain})
    else:
        print(f"{saved.name} from {place.name} is in {target} as {args.format}{'' if is_plain else _NOT_PLAIN}")
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt checkpoint export`."""
    parser = options.parser("checkpoint export", "Convert one checkpoint to the format of another library.")
    add_checkpoint(parser)
    parser.add_argument("--format", choices=FORMATS, required=True, help="of torch.save, tensors only, or a DCP folder")
    parser.add_argument(
        "--to", type=Path, required=True, metavar="PATH", help="the file to create; for dcp, the folder"
    )
    parser.add_argument("--key", help="one entry of the state, such as model; default: all of it")
    add_tier(parser, "as it lies on this tier; default: the fastest that has it")
    options.add_json(parser)
    return parser


def _export(kind: str, store: Store, manifest: Manifest, path: Path, key: str | None) -> bool:
    """Writes to `path`. Returns whether it holds nothing but tensors and plain values."""
    if kind == "dcp":
        from slurmopt.checkpoint.dcp.export_dcp import to_dcp

        to_dcp(store, manifest, path, key)
        return True
    from slurmopt.checkpoint.dcp import export

    if kind == "safetensors":
        export.to_safetensors(store, manifest, path, key)
        return True
    return export.to_torch(store, manifest, path, key)


def _into_place(target: Path, write: Callable[[Path], bool]) -> bool:
    """Writes in a private folder, syncs, and renames to `target`, so that it is complete once it exists."""
    private = None
    try:
        private = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        temporary = private / target.name
        with slow_notice(f"exporting to {target}"):
            is_plain = write(temporary)
        _sync(temporary)
        os.rename(temporary, target)
        sync_folder(target.parent)
        return is_plain
    except FileNotFoundError as error:
        raise CheckpointError(f"{error.filename or error} is missing") from error
    except OSError as error:
        raise FolderError(f"{target}: {error.strerror or error}") from error
    finally:
        if private is not None:
            shutil.rmtree(private, ignore_errors=True)


def _sync(path: Path) -> None:
    for each in [*path.rglob("*"), path] if path.is_dir() else [path]:
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
