"""What one benchmark measured, as it is kept: in result.json of a run, in a file of `--save`, in an answer of `--json`.

Everything that is concluded from it (fits, outliers, comparisons) is computed when it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from slurmopt.collectives.definitions import COLLECTIVES, algbw, busbw
from slurmopt.collectives.outliers import Link
from slurmopt.errors import InputError, one_line

FORMAT = "slurmopt collectives 1"
"""In the key `format`."""
_HOLDERS = ("data", "recording", "result")
"""Keys of the answer of `--json` and of result.json that have the recording in them."""
TORCH, NCCL_TESTS = SOURCES = ("torch", "nccl-tests")
LEAST, LIMIT = 1e-12, 1e18
"""Seconds, bytes/s and counts that are not 0 lie between these: what is computed from others may be no number."""
_MOST_ROWS = 100_000
_SHOWN = 80


@dataclass(frozen=True)
class Row:
    """One collective with one size."""

    collective: str
    size: int
    """S in bytes (`slurmopt.collectives.definitions.Collective`)."""
    seconds: float
    """Of one call: the mean over the calls, then over the ranks, as nccl-tests has it by default."""
    world: int
    iterations: int = 0
    wrong: int | None = 0
    """Elements with a wrong value, over all ranks; None where nothing was checked."""
    fault: str = ""
    """The first wrong value: its rank, place and value."""
    source: str = TORCH
    """A word of SOURCES."""
    in_place: bool = False
    """Whether the result replaced the input: all_reduce and broadcast of torch do so."""

    @property
    def algbw(self) -> float:
        """GB/s."""
        return algbw(self.size, self.seconds)

    @property
    def busbw(self) -> float:
        """GB/s."""
        return busbw(self.collective, self.size, self.seconds, self.world)


@dataclass
class Recording:
    """All of one benchmark."""

    world: int
    nodes: list[str]
    """In the order of their ranks, each once."""
    backend: str
    device: str = ""
    """Such as the GPU's name, or `cpu`."""
    torch: str = ""
    time: float = 0.0
    """When it began: seconds since 1970."""
    rows: list[Row] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """As `recording_of` reads it, with the bandwidths for other programs."""
        rows = [{**asdict(row), "algbw": row.algbw, "busbw": row.busbw} for row in self.rows]
        return {"format": FORMAT, **asdict(self), "rows": rows}

    def of(self, collective: str, source: str = "torch") -> list[Row]:
        """The rows of a collective, the smallest size first."""
        found = [row for row in self.rows if row.collective == collective and row.source == source]
        return sorted(found, key=lambda row: row.size)

    @property
    def wrong(self) -> list[Row]:
        return [row for row in self.rows if row.wrong]


def recording_of(text: str, place: str) -> Recording:
    """The recording in the JSON `text` from `place`. InputError where there is none, or where it is damaged."""
    try:
        held = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = one_line(str(error))[:_SHOWN]
        raise InputError(f"{place}: damaged, or no recording of slurmopt bench collectives: {reason}") from error
    for _ in _HOLDERS:
        if isinstance(held, dict) and "format" not in held:
            held = next((held[key] for key in _HOLDERS if isinstance(held.get(key), dict)), held)
    if not isinstance(held, dict) or "format" not in held:
        raise InputError(f"{place}: no recording of slurmopt bench collectives; valid: what its --save wrote, its "
                         "--json printed, or a finished run of bench_collectives")  # fmt: skip
    if held["format"] != FORMAT:
        raise InputError(f"{place}: its format is '{_text(held['format'])[:_SHOWN]}'; this version reads {FORMAT!r}")
    try:
        return _recording(held)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{place}: a damaged recording: {one_line(reason)[:_SHOWN]}") from error


def _recording(held: Mapping[str, Any]) -> Recording:
    rows, links = _list(held, "rows"), _list(held, "links")
    return Recording(
        world=_number(held, "world", int, 1),
        nodes=[_text(node) for node in _list(held, "nodes")],
        backend=_text(held["backend"]),
        device=_text(held.get("device", "")),
        torch=_text(held.get("torch", "")),
        time=_number(held, "time", float, 0),
        rows=[_row(row) for row in rows],
        links=[_link(link) for link in links],
        notes=[_text(note) for note in _list(held, "notes")],
    )


def _list(held: Mapping[str, Any], key: str) -> list[Any]:
    value = held.get(key, [])
    if not isinstance(value, list) or len(value) > _MOST_ROWS:
        raise TypeError(f"{key} is no list of at most {_MOST_ROWS:,}")
    return value


def _row(held: Any) -> Row:
    known = _known(held, Row)
    collective, source = _text(known["collective"]), _text(known.get("source", TORCH))
    if collective not in COLLECTIVES:
        raise ValueError(f"no collective '{collective}'")
    if source not in SOURCES:
        raise ValueError(f"no source '{source}'; valid: {', '.join(SOURCES)}")
    wrong = None if known.get("wrong", 0) is None else _number(known, "wrong", int, 0, 0)
    return Row(
        collective, _number(known, "size", int, 1), _number(known, "seconds", float, 0),
        _number(known, "world", int, 1), _number(known, "iterations", int, 0, 0), wrong,
        _text(known.get("fault", "")), source, known.get("in_place") is True,
    )  # fmt: skip


def _link(held: Any) -> Link:
    known = _known(held, Link)
    return Link(
        _text(known["first"]), _text(known["second"]), _number(known, "latency", float, 0),
        _number(known, "bandwidth", float, 0), _number(known, "size", int, 0, 0),
    )  # fmt: skip


def _known(held: Any, kind: type) -> dict[str, Any]:
    if not isinstance(held, dict):
        raise TypeError(f"a {kind.__name__.lower()} is no object")
    names = {each.name for each in fields(kind)}
    return {key: value for key, value in held.items() if key in names}


def _number(held: Mapping[str, Any], key: str, kind: type, least: float, default: float | None = None) -> Any:
    value = held[key] if default is None else held.get(key, default)
    is_number = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
    if not is_number or not least <= value < LIMIT or 0 < value < LEAST:
        raise ValueError(f"{key} is '{_text(value)}'")
    return kind(value)


def _text(value: Any) -> str:
    return one_line(str(value))[: _SHOWN * 4]
