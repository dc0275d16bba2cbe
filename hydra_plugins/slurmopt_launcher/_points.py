"""Represents a batch of jobs as the points of a sweep. The columns are only displayed: each job composes its config."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from slurmopt.grid.axes import Axis, Column
from slurmopt.grid.base_configs import Base
from slurmopt.grid.points import Points


def points_of(jobs: list[list[str]], first: int, stored: dict[str, Any]) -> Points:
    """Returns one point per job, all with the config `stored`. `first`: the number of the first job in the multirun."""
    same, columns = _told_apart(jobs)
    if not columns:
        columns = [Column(key="job", values=range(first, first + len(jobs)))]
    return Points(
        axes=[Axis(tuple(columns))],
        bases=[Base(picks=[], config=stored, choices={})],
        hydra=[{}],
        line=[*same, *range(len(columns))],
        kind="hydra",
        described=time.time(),
        cwd=os.getcwd(),
    )


def _told_apart(jobs: list[list[str]]) -> tuple[list[str], list[Column]]:
    """Returns the overrides that all jobs share, and a column for each key that differs. Both are empty if the jobs do
    not have the same keys."""
    keys = [word.partition("=")[0] for word in jobs[0]]
    if any([word.partition("=")[0] for word in words] != keys for words in jobs):
        return [], []
    same, columns = [], []
    for words in zip(*jobs, strict=True):
        if len(set(words)) == 1:
            same.append(words[0])
        else:
            columns.append(_column(words))
    return same, columns


def _column(words: tuple[str, ...]) -> Column:
    key = words[0].partition("=")[0]
    bare = key.lstrip("+~")
    typed = [word.partition("=")[2] for word in words]
    return Column(
        key=bare,
        prefix=key.removesuffix(bare),
        values=[_plain(text) for text in typed],
        words={at: text for at, text in enumerate(typed) if _plain(text) == text},
    )


def _plain(text: str) -> Any:
    """Returns the number in `text` if its string equals `text`, else `text`. Hydra's parser takes milliseconds per
    word."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            if str(value := kind(text)) == text:
                return value
    return text
