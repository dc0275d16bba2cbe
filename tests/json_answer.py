"""Reads what a command has printed with `--json`."""

from __future__ import annotations

import json
from typing import Any

KEYS = ["command", "data", "warnings", "errors"]


def data_of(printed: str | bytes) -> Any:
    """The answer of a command that came to one; the object around it is that of all commands."""
    (answer,) = printed.splitlines()
    whole = json.loads(answer)
    assert list(whole) == KEYS
    assert all(isinstance(line, str) for line in whole["warnings"])
    assert all(list(error) == ["type", "message"] for error in whole["errors"])
    return whole["data"]


def errors_of(printed: str) -> list[str]:
    """The messages of its errors."""
    return [error["message"] for error in json.loads(printed)["errors"]]
