"""What became of a line of the script."""

from __future__ import annotations

from dataclasses import dataclass

MOVED, OWN, LEFT_OUT = "moved", "own", "left out"
"""It is in the experiment; slurmopt does it itself; it has no effect any more."""


@dataclass(frozen=True)
class Remark:
    """A line of the script, and where it is now."""

    line: int
    text: str
    became: str
    """`moved`, `own` or `left out`."""
    to: str
    """The keys of the experiment; or why there is none."""


@dataclass
class Remarks:
    """All remarks, in any order."""

    all: list[Remark]

    def moved(self, line: int, text: str, to: str) -> None:
        self.all.append(Remark(line, text, MOVED, to))

    def own(self, line: int, text: str, why: str = "slurmopt does this itself") -> None:
        self.all.append(Remark(line, text, OWN, why))

    def left_out(self, line: int, text: str, why: str) -> None:
        self.all.append(Remark(line, text, LEFT_OUT, why))

    def ordered(self) -> list[Remark]:
        """In the order of the script."""
        return sorted(self.all, key=lambda remark: remark.line)
