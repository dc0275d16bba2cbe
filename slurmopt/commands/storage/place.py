"""The arguments that the commands of `slurmopt storage` share: a path or a bucket, sizes and numbers."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from slurmopt.checks.in_thread import within
from slurmopt.errors import InputError, one_line, why_failed
from slurmopt.option_parser import OptionParser
from slurmopt.runs import options
from slurmopt.storage.filesystem.mounts import Mount, mount_of
from slurmopt.storage.lustre.layouts import KINDS
from slurmopt.storage.s3.url import split
from slurmopt.units import byte_count

_SECONDS = 15.0
"""For a file system to answer at all."""
_MOST = 10**9


def parser(command: str, description: str, path_help: str) -> argparse.ArgumentParser:
    """A parser for `slurmopt storage COMMAND`, with PATH and --json."""
    parser = OptionParser(f"slurmopt storage {command}", description=description)
    parser.add_argument("path", metavar="PATH", help=path_help)
    options.add_json(parser)
    return parser


def add_s3(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a bucket."""
    parser.add_argument("--endpoint", metavar="URL", help="of an S3-compatible server (default: $AWS_ENDPOINT_URL_S3)")
    parser.add_argument("--region", help="of the bucket (default: $AWS_REGION, $AWS_DEFAULT_REGION or ~/.aws)")


def add_layout(parser: argparse.ArgumentParser) -> None:
    """Adds the options that a layout is planned by."""
    parser.add_argument("--kind", choices=KINDS, required=True, help="what is stored there")
    parser.add_argument(
        "--file-size", type=size, metavar="SIZE", help="of one file, such as 4G (default: as found there)"
    )
    parser.add_argument(
        "--files", type=number, metavar="N", help="how many (default: as found there; checkpoints: ranks)"
    )
    parser.add_argument("--osts", type=number, metavar="N", help="of the file system (default: as lfs df counts them)")


def size(text: str) -> int:
    """An option's number of bytes."""
    try:
        return byte_count(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def number(text: str) -> int:
    """An option's count, from 1 on."""
    if not text.isascii() or not text.isdecimal() or not 0 < int(text[:12]) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from 1 to {_MOST:,}")
    return int(text)


def seconds(text: str) -> float:
    """An option's seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of seconds from 0.05 to 3600")
    return value


def is_s3(word: str) -> bool:
    """Whether `word` names a bucket. Raises InputError for another URL, and for a malformed one."""
    scheme, colon, _ = word.partition("://")
    if not colon and not word.startswith("s3:"):
        return False
    if scheme != "s3" and not word.startswith("s3:"):
        raise InputError(
            one_line(f"{word!r}: storage at {scheme}:// is not known; valid: a path, or s3://BUCKET/PREFIX")
        )
    split(word, None)
    return True


def local_only(command: str, word: str) -> None:
    """Raises InputError where a command for file systems gets a bucket."""
    if is_s3(word):
        raise InputError(one_line(f"storage {command}: {word} is a bucket; give a path"))


def existing(word: str) -> Path:
    """The path, with links followed, which exists and answers. Raises InputError."""
    try:
        within(_SECONDS, lambda: os.stat(word))
        return Path(os.path.realpath(word))
    except FileNotFoundError:
        bucket = "" if word.startswith(("/", ".", "~")) else f"; a bucket is written s3://{word}"
        raise InputError(one_line(f"{word}: no such file or folder{bucket}")) from None
    except TimeoutError:
        raise InputError(one_line(f"{word}: its file system did not answer within {_SECONDS:g} s")) from None
    except (OSError, ValueError) as error:
        raise InputError(one_line(f"{word}: {why_failed(error)}")) from None


def folder(word: str) -> Path:
    """The folder, which exists. Raises InputError."""
    path = existing(word)
    if not path.is_dir():
        raise InputError(one_line(f"{word} is not a folder"))
    return path


def lustre_mount(path: Path, why: str) -> Mount:
    """The mount of `path`. Raises InputError where it is not Lustre."""
    mount = mount_of(path)
    if mount is not None and mount.kind == "lustre":
        return mount
    kind = mount.kind if mount else "an unknown file system"
    raise InputError(one_line(f"{path} is on {kind}, not on Lustre, {why}"))
