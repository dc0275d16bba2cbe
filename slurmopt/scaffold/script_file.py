"""Reads a batch script, and the lists that it takes lines from. Nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePath

from slurmopt.errors import InputError, one_line
from slurmopt.importing.shell.not_known import NotKnown
from slurmopt.scaffold.regular_file import read_regular_file

LARGEST = 1 << 20
"""Bytes of a script, and of a list."""
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh", "csh", "tcsh", "fish")


def read_script(path: Path) -> tuple[str, list[str]]:
    """The text of a script, and the words of its first line that start its shell. InputError if it is none."""
    text = _text(path)
    if "\r\n" in text:
        raise InputError(f"{path} has DOS line endings, which sbatch refuses too; dos2unix {path}")
    return text, _shell(path, text)


def _text(path: Path) -> str:
    shown = one_line(str(path))
    data = read_regular_file(path, LARGEST, "a batch script")
    if b"\0" in data:
        raise InputError(f"{shown} is a binary file; valid: a batch script")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{shown} is not UTF-8 (byte {error.start}); iconv -f latin1 -t utf8 converts it") from error


def _shell(path: Path, text: str) -> list[str]:
    first = text.partition("\n")[0]
    if not text.strip():
        raise InputError(f"{one_line(str(path))} is empty")
    if not first.startswith("#!"):
        raise InputError(f"{one_line(str(path))} is no shell script: its first line is not #!/bin/bash or the like")
    words = first[2:].split()
    if words and PurePath(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-S")]
    if not words or PurePath(words[0]).name not in _SHELLS:
        raise InputError(
            f"{one_line(str(path))} is no shell script: it begins with {one_line(first[:60])!r}; valid: #!/bin/bash"
        )
    return [PurePath(words[0]).name, *words[1:]]


def list_reader(folder: Path) -> Callable[[str], list[str]]:
    """A function that reads the lines of a text file, relative to `folder`; it raises NotKnown if it cannot."""

    def lines_of(name: str) -> list[str]:
        try:
            return re.sub(r"\n$", "", _text(folder / name)).split("\n")
        except InputError as error:
            raise NotKnown(str(error)) from error

    return lines_of
