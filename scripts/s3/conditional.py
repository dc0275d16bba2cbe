"""A filter of Swift's proxy: conditional puts of one key come one after the other, and so have one winner, as in S3.

Swift by itself looks whether the object is there, then takes the body, syncs and renames it; of eight writers that put
with `If-None-Match: *` at the same moment, up to eight are told that they won.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from eventlet.semaphore import Semaphore  # type: ignore[import-not-found]

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class OneAtATime:
    """There is one proxy process, so its green threads are all that have to wait."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._turns: dict[str, Any] = defaultdict(Semaphore)

    def __call__(self, environment: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environment["REQUEST_METHOD"] != "PUT" or "HTTP_IF_NONE_MATCH" not in environment:
            return self._application(environment, start_response)
        with self._turns[environment["PATH_INFO"]]:
            return list(self._application(environment, start_response))


def filter_factory(_: dict[str, str], **__: str) -> Callable[[Application], OneAtATime]:
    """What PasteDeploy calls."""
    return OneAtATime
