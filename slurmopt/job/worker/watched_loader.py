"""Measures how long a training waits for its input: a wrapper around the iterable that it loops over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, cast

from slurmopt.job.heartbeat.activity_clock import ActivityClock
from slurmopt.job.worker import current_run

_Iterable = TypeVar("_Iterable", bound=Iterable[Any])


def watch(loader: _Iterable) -> _Iterable:
    """`loader` (a DataLoader, a generator, any iterable) with the time measured that a loop over it waits for the next
    item, as the activity `input`. Everything else is the loader's: items, length, attributes, errors.

    Returns `loader` itself outside a slurmopt job, and in processes that report no progress. Wrap last what the loop
    iterates: a library that makes a loader of its own from it (accelerate's `prepare`) leaves the wrapper out. Input
    that another thread fetches meanwhile is not waited for, and is not counted.
    """
    meter = current_run.meter()
    if meter is None or issubclass(type(loader), (_Watched, _WatchedIterator)):
        return loader
    watched = _watched_iterator(loader, meter.clock) if hasattr(loader, "__next__") else _watched(loader)
    return cast(_Iterable, watched)


def _watched(loader: Any) -> _Watched:
    return (_SizedWatched if hasattr(loader, "__len__") else _Watched)(loader)


def _watched_iterator(iterator: Any, clock: ActivityClock) -> _WatchedIterator:
    return (_SizedWatchedIterator if hasattr(iterator, "__len__") else _WatchedIterator)(iterator, clock)


class _Watched:
    """Stands for a loader. It says that it has the loader's class, as libraries look for a DataLoader by that."""

    __slots__ = ("__weakref__", "_loader")

    def __init__(self, loader: Any) -> None:
        object.__setattr__(self, "_loader", loader)

    def __iter__(self) -> Iterator[Any]:
        meter = current_run.meter()  # of this process: a DataLoader's worker may have got this object
        if meter is None:
            return iter(self._loader)
        outer = meter.clock.begin_input()  # the workers are started now
        try:
            iterator = iter(self._loader)
        finally:
            meter.clock.resume(outer)
        return _watched_iterator(iterator, meter.clock)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._loader, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._loader, name)

    def __dir__(self) -> list[str]:
        return dir(self._loader)

    def __repr__(self) -> str:
        return repr(self._loader)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return watch, (self._loader,)


class _SizedWatched(_Watched):
    __slots__ = ()

    def __len__(self) -> int:
        return len(self._loader)


class _WatchedIterator:
    """An iterator whose `next` is measured; its other methods, such as a generator's `close`, are the iterator's."""

    __slots__ = ("__weakref__", "_clock", "_iterator", "_next")

    def __init__(self, iterator: Any, clock: ActivityClock) -> None:
        self._iterator, self._clock, self._next = iterator, clock, iterator.__next__

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        outer = self._clock.begin_input()
        try:
            return self._next()
        finally:
            self._clock.resume(outer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


class _SizedWatchedIterator(_WatchedIterator):
    __slots__ = ()

    def __len__(self) -> int:
        return len(self._iterator)
