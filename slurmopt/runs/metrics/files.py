"""Gives the series of an attempt out for other programs: CSV, JSON, Parquet.

A zero is a measured zero everywhere. What was not measured is null; in CSV, and in the metadata of Parquet's columns,
it is one of the words `not supported`, `not allowed`, `not measured`.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import os
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import repeat
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from slurmopt.errors import InputError
from slurmopt.run_folder.access.files import NotRegular
from slurmopt.run_folder.access.temporary import temporary_name
from slurmopt.run_folder.series.series import NOT_MEASURED, Series
from slurmopt.runs.metrics.query import AttemptSeries

_FIXED = ("node", "time", "seconds")


def json_pieces(found: AttemptSeries) -> Iterator[str]:
    """One JSON object, a node at a time."""
    yield f'{{"run": {json.dumps(str(found.run.path))}, "attempt": {found.attempt}, "nodes": ['
    for number, one in enumerate(found.nodes(detail=True)):
        yield ("," if number else "") + json.dumps(_as_dict(one), default=str)
    yield f'], "problems": {json.dumps(found.problems)}}}'


def _as_dict(series: Series) -> dict[str, Any]:
    return {
        "node": series.node,
        "facts": series.facts,
        "absent": series.absent,
        "events": series.events,
        "times": series.times,
        "seconds": series.seconds,
        "values": series.values,
    }


def write_csv(found: AttemptSeries, file: TextIO) -> None:
    """Writes a row for each interval of each node."""
    columns = found.columns()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*_FIXED, *columns])
    for one in found.nodes(detail=True):
        lists = [_words(one, column) for column in columns]
        for time, seconds, *values in zip(one.times, one.seconds, *lists, strict=True):
            writer.writerow([one.node, time, seconds, *values])


def _words(series: Series, column: str) -> Iterable[float | str]:
    """The values of a column, with the reason where there is none. Of the columns that other nodes have, which are
    thousands, no list is made."""
    why, values = series.absent.get(column, NOT_MEASURED), series.values.get(column)
    if not values:
        return repeat(why, len(series.times))
    return [why if value is None else value for value in values]


def write_parquet(found: AttemptSeries, path: Path) -> None:
    """Writes a Parquet file with a row for each interval of each node, and a row group for each node. InputError where
    pyarrow is not installed; OSError."""
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError("--parquet needs pyarrow (pip install pyarrow); --csv and --json need nothing") from error
    columns = found.columns()
    schema = pyarrow.schema([*_fields(pyarrow, columns)])
    with new_file(path) as file, parquet.ParquetWriter(file, schema) as writer:
        for one in found.nodes(detail=True):
            nothing = [None] * len(one.times)
            lists = [[one.node] * len(one.times), one.times, one.seconds]
            lists += [one.values.get(column) or nothing for column in columns]
            arrays = [pyarrow.array(values, kind.type) for values, kind in zip(lists, schema, strict=True)]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


def _fields(pyarrow: Any, columns: dict[str, list[str]]) -> Iterator[Any]:
    yield pyarrow.field("node", pyarrow.string())
    yield from (pyarrow.field(name, pyarrow.float64()) for name in _FIXED[1:])
    for name, whys in columns.items():
        metadata = {"absent": ", ".join(whys)} if whys else None
        yield pyarrow.field(name, pyarrow.float64(), metadata=metadata)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its place once it is complete: not through a link there. OSError."""
    if path.exists() and not path.is_file():
        raise NotRegular(errno.EINVAL, "it is no regular file", str(path))
    temporary = temporary_name(path.absolute())
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o640), "wb") as file:
        try:
            yield file
            file.flush()
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
