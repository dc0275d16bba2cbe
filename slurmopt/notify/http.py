"""Posts JSON to a web server. No error has the URL or a header in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from slurmopt.errors import one_line
from slurmopt.notify.hook_error import HookError

SECONDS = 10
_WEB = ("http://", "https://")


def post(address: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
    """Posts `body`. Raises HookError unless the server accepts it within 10 seconds.

    A redirect is an answer like others: following it would drop the body, and could give a token to another host.
    """
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request

    if not address.startswith(_WEB):
        raise HookError("is not a URL; valid: https://…")
    try:
        request = Request(address, json.dumps(body).encode(), {**_HEADERS, **(headers or {})})  # noqa: S310  checked
        with _opener().open(request, timeout=SECONDS):
            pass
    except HTTPError as error:
        error.close()
        raise HookError(f"the server answered {error.code}") from error
    except TimeoutError as error:
        raise HookError(f"no answer within {SECONDS} s") from error
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        why = reason.strerror if isinstance(reason, OSError) else None
        raise HookError(f"cannot be reached: {one_line((why or type(reason).__name__).lower())}") from error
    except (HTTPException, ValueError) as error:  # their words have the URL in them
        raise HookError("is not a URL, or what answers there is no web server") from error


_HEADERS = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "slurmopt"}


def _opener() -> Any:
    from urllib.request import HTTPRedirectHandler, build_opener

    class Refused(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    return build_opener(Refused)
