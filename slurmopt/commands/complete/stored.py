"""Keeps what completion has worked out: a tab has no time to import a command or to compose a config.

It is in the cache of Slurm's answers, with a fingerprint of the files that it was made of.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import slurmopt
from slurmopt.slurm.cluster import cache

PACKAGE = Path(slurmopt.__file__).resolve().parent
_NAME = "completion"
_MOST_FILES = 2000
_MOST_KEPT = 60


def remembered(parts: Iterable[str], places: Iterable[Path], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `make` returned for the same `parts`, unless a YAML or Python file in `places` has changed since."""
    name = f"{_NAME}-{_fingerprint([slurmopt.__version__, *parts], places)}"
    kept = cache.read(name, float("inf"))
    if kept is not None and isinstance(kept[0], dict):
        return kept[0]
    began = time.time()
    made = make()
    cache.write(name, made, began)
    _forget_old()
    return made


def _fingerprint(parts: Iterable[str], places: Iterable[Path]) -> str:
    facts = [*parts, *(fact for place in places for fact in _facts(place))]
    return hashlib.sha256("\0".join(facts).encode(errors="replace")).hexdigest()[:16]


def _facts(place: Path) -> Iterator[str]:
    yield str(place)
    if place.is_file():
        yield _fact(str(place))
    seen = 0
    for folder, names, files in os.walk(place):
        names[:] = sorted(name for name in names if name[:1] not in (".", "_"))
        for file in sorted(files):
            if file.endswith((".yaml", ".py")):
                yield _fact(os.path.join(folder, file))
                seen += 1
        if seen > _MOST_FILES:
            return


def _fact(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return path
    return f"{path} {status.st_mtime_ns} {status.st_size}"


def _forget_old() -> None:
    place = cache.place(_NAME)
    if place is None:
        return
    with contextlib.suppress(OSError):
        kept = sorted(place.parent.glob(f"{_NAME}-*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in kept[_MOST_KEPT:]:
            path.unlink()
