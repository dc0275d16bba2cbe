"""A batch of jobs as the points of a sweep. Its columns are for people: each job composes its own config."""

from __future__ import annotations

import os
import time
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from slurmopt.grid.axes import Axis, Column
from slurmopt.grid.bases import Base
from slurmopt.grid.points import Points


def points_of(jobs: list[list[str]], first: int, stored: dict[str, Any]) -> Points:
    """One point a job, all with the config `stored`; `first` is the number of the first job in the whole multirun."""
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
    """What all jobs have in common, and the keys in which they differ; neither where their keys are not the same."""
    keys = [word.partition("=")[0] for word in jobs[0]]
    if any([word.partition("=")[0] for word in words] != keys for words in jobs):
        return [], []
    parse = OverridesParser.create().parse_override
    same, columns = [], []
    for words in zip(*jobs, strict=True):
        distinct = {word: parse(word) for word in dict.fromkeys(words)}
        if len(distinct) == 1:
            same.append(words[0])
        else:
            columns.append(_column(words, distinct))
    return same, columns


def _column(words: tuple[str, ...], parsed: dict[str, Override]) -> Column:
    return Column(
        key=words[0].partition("=")[0].lstrip("+~"),
        prefix=words[0][: len(words[0]) - len(words[0].lstrip("+~"))],
        values=[_plain(parsed[word]) for word in words],
        words={index: word.partition("=")[2] for index, word in enumerate(words)},
    )


def _plain(override: Override) -> Any:
    value = override.value()
    return value if value is None or isinstance(value, (bool, int, float, str)) else override.get_value_element_as_str()
