"""What completion answers: candidates with their descriptions, or that the shell had better offer files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from slurmopt.errors import one_line

NONE, FILES, FOLDERS = "none", "files", "folders"
_HARMLESS = re.compile(r"[\w./=+:@%,~-]+")
"""The shell puts a candidate on the line as it is."""
_LONGEST = 100


class Candidate(NamedTuple):
    """A word that is accepted, and what it means."""

    word: str
    text: str = ""


class Answer(NamedTuple):
    """Candidates; `files` says whether the shell should offer files or folders beside them."""

    candidates: Sequence[Candidate] = ()
    files: str = NONE

    def beginning_with(self, current: str) -> Answer:
        """The candidates that begin with `current`, each once, and only those that need no quotes."""
        kept: dict[str, Candidate] = {}
        for one in self.candidates:
            if one.word.startswith(current) and _HARMLESS.fullmatch(one.word):
                kept.setdefault(one.word, Candidate(one.word, plain(one.text)))
        return Answer(list(kept.values()), self.files)


def words(names: Iterable[object], text: str = "") -> Answer:
    """Candidates that share a description."""
    return Answer([Candidate(str(name), text) for name in names])


def plain(text: str) -> str:
    """A description as one short line, without the marks of code."""
    line = one_line(" ".join(text.split())).replace("`", "")
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
