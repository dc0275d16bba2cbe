"""Finds the captures of a run and reads their traces, and traces from elsewhere."""

from __future__ import annotations

import gzip
import io
import os
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slurmopt.errors import InputError, RunError, RunNotFound, one_line, why_failed
from slurmopt.profiling.analysis import Profile, analyse
from slurmopt.profiling.trace import Trace, read
from slurmopt.run_folder.access.files import open_regular, read_json
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.json_values import number, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.traced_ranks import is_number
from slurmopt.runs import options
from slurmopt.runs.find import find

_TRACE = re.compile(r".*\.json(\.gz)?")
_OTHER = re.compile(r"capture\.json|.*\.memory\.json")
_RANK = re.compile(r"rank[-_]?(\d{1,9})")
_MOST_RANKS = 64
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Source:
    """Traces that belong together."""

    label: str
    folder: Path
    files: dict[int, Path]
    """Rank → file."""
    failed: dict[int, str]
    """Ranks without a trace → why."""
    reason: str | None = None
    """Why slurmopt made the capture; None for traces from elsewhere."""


def source_of(word: str | None, folder: Path, capture: str | None = None) -> Source:
    """The traces that an argument names: a file, a folder of traces, or a run (None: the latest one), and of that the
    newest capture with a trace unless `capture` names another. Raises InputError."""
    path = Path(word or "")
    if word and path.is_file():
        return Source(one_line(word), path.parent, {0: path}, {})
    if word and path.is_dir() and (path / "capture.json").exists():
        return _capture(path, one_line(word))
    if word and path.is_dir() and (files := _files_in(path)):
        return Source(one_line(word), path, files, {})
    try:
        run = find(word, folder)
    except RunNotFound as error:
        raise RunNotFound(f"{error}; nor a trace, or a folder of traces") from None
    return _of_run(run, capture)


def captures_of(run: RunFolder) -> list[Source]:
    """The captures of a run, the newest first."""
    try:
        names = os.listdir(held(run.traces))
    except OSError:
        return []
    found = [_capture(run.capture(name), name) for name in names if (run.capture(name) / "capture.json").exists()]
    return sorted(found, key=_requested, reverse=True)


def _of_run(run: RunFolder, name: str | None) -> Source:
    label = one_line(f"{run.name}/{run.id}")
    found = captures_of(run)
    if not found:
        raise RunError(
            f"{label} has no traces; while it runs, slurmopt profile {options.run_arg(run, label)} makes some"
        )
    whole = [one for one in found if one.files and name in (None, one.folder.name)]
    if not whole:
        valid = ", ".join(one.label for one in found if one.files)
        why = (
            "none of its captures has a trace; a record of its memory is shown by slurmopt profile memory RUN --stored"
            if name is None
            else f"no capture {name!r} with a trace; there is: {valid}"
        )
        raise RunError(f"{label}: {one_line(why)}")
    return replace(whole[0], label=f"{label}, {whole[0].label}")


def _capture(folder: Path, label: str) -> Source:
    told = read_json(folder / "capture.json") or {}
    ranks = told.get("ranks")
    ranks = ranks if isinstance(ranks, dict) else {}
    failed = {
        int(rank): one_line(str(result["error"]))
        for rank, result in ranks.items()
        if is_number(rank) and isinstance(result, dict) and "error" in result
    }
    return Source(one_line(label), folder, _files_in(folder), failed, text(told.get("reason")))


def _requested(source: Source) -> float:
    at = number((read_json(source.folder / "capture.json") or {}).get("requested_at"))
    return 0.0 if at is None else at


def _files_in(folder: Path) -> dict[int, Path]:
    """The traces in a folder: by the rank in their names, else in their order."""
    names = sorted(name for name in os.listdir(folder) if _TRACE.fullmatch(name) and not _OTHER.fullmatch(name))
    by_name = {int(match[1]): folder / name for name in names if (match := _RANK.search(name))}
    files = by_name if len(by_name) == len(names) else {at: folder / name for at, name in enumerate(names)}
    if len(files) > _MOST_RANKS:
        raise InputError(f"{one_line(str(folder))}: {len(files)} traces; at most {_MOST_RANKS} are read together")
    return files


def read_all(source: Source, tell: Callable[[str], None]) -> Profile:
    """Reads and examines them, one after the other. `tell` gets a line for each."""
    traces: dict[int, Trace] = {}
    for rank, path in sorted(source.files.items()):
        tell(f"reading {one_line(path.name)}")
        traces[rank] = read_file(path)
    told = {trace.rank for trace in traces.values()} - {None}
    if len(told) == len(traces):  # files of torch.profiler say their rank themselves
        traces = {trace.rank if trace.rank is not None else at: trace for at, trace in traces.items()}
    return analyse(traces)


def read_file(path: Path) -> Trace:
    """Reads one trace, compressed or not. Raises InputError."""
    name = one_line(str(path))
    try:
        with open_regular(path) as raw:
            start = raw.read(2)
            raw.seek(0)
            stream: Any = gzip.GzipFile(fileobj=raw) if start == _GZIP else raw
            return read(io.TextIOWrapper(stream, encoding="utf-8", errors="replace"), name)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{name}: the trace is not complete: {one_line(str(error))}") from None
    except OSError as error:
        raise InputError(f"{name}: {why_failed(error)}") from None
