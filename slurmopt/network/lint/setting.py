"""A variable that is set somewhere, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FAIL, WARN = "fail", "warn"
SECRETS = frozenset({"NCCL_PSK"})
"""Variables whose values are never shown."""


@dataclass(frozen=True)
class Setting:
    """A variable and its value."""

    name: str
    value: str | None
    """None: known only where it runs, as with `$VALUE`."""
    place: str
    """The file, or `environment`. Variables of one place are compared with each other."""
    line: int | None = None

    def shown(self) -> str:
        """`NAME=value`; a secret, and what is not known, is `…`."""
        return f"{self.name}={self.shown_value() or ('…' if self.value != '' else '')}"

    def shown_value(self) -> str | None:
        """The value, unless it is a secret."""
        return None if self.name in SECRETS else self.value


@dataclass(frozen=True)
class Finding:
    """What is wrong with a setting."""

    setting: Setting
    verdict: str
    """`fail`: dangerous, or breaks the job; `warn`: no effect, deprecated, misspelt, slow."""
    what: str
    mend: str
    source: str | None = None
    """The page that says so; None where no page was found."""

    def place(self) -> str:
        """`FILE:LINE`, or the place without a line."""
        return self.setting.place if self.setting.line is None else f"{self.setting.place}:{self.setting.line}"

    def as_json(self) -> dict[str, Any]:
        """The finding as `--json` has it."""
        setting = self.setting
        return {
            "file": setting.place,
            "line": setting.line,
            "name": setting.name,
            "value": setting.shown_value(),
            "verdict": self.verdict,
            "what": self.what,
            "mend": self.mend,
            "source": self.source,
        }
