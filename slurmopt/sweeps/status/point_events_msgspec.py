"""Lines of journals by msgspec: a module of its own, for few commands need what its import costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from slurmopt.run_folder.json_values import LARGEST
from slurmopt.sweeps.status.point_event import ABSENT, PointEvent

_Whole = Annotated[int, msgspec.Meta(gt=-(2**53), lt=2**53)]
_Number = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]


class Short(msgspec.Struct, gc=False):
    """The fields of `PointEvent`, but for metrics and result, which are skipped."""

    event: str
    time: _Number | None = None
    job: str | None = None
    point: _Whole | None = None
    state: str | None = None
    attempt: _Whole | None = None
    outcome: str | None = None
    cause: str | None = None
    next: str | None = ABSENT
    error: str | None = None
    reason: str | None = None
    rank: _Whole | None = None
    seconds: _Number | None = None
    pruned: bool = False
    by: str | None = ABSENT


class Whole(Short, gc=False):
    """With both."""

    metrics: Any = None
    result: Any = None


def decoder(metrics: bool) -> Callable[[bytes], PointEvent]:
    """What decodes a line. It raises ValueError or RecursionError where only json can tell what the line is."""
    decode: Callable[[bytes], Any] = msgspec.json.Decoder(Whole if metrics else Short).decode
    return decode
