"""What a bench found: tables for people, raw numbers for programs, and the targets that were missed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.measure import Sample, Samples, median


@dataclass(frozen=True)
class Target:
    """A promise, and what was measured."""

    what: str
    measured: float
    limit: float
    unit: str
    """`x`, `ms`, `s`, `calls` or `modules`."""
    binding: bool = True
    """Whether scripts/bench ends with status 1 where it is missed."""

    @property
    def met(self) -> bool:
        return self.measured <= self.limit

    def __str__(self) -> str:
        verdict = "ok    " if self.met else "MISSED"
        return f"{verdict} {self.what}: {self.measured:.4g} {self.unit}, at most {self.limit:g}"


@dataclass
class Report:
    """Grows as the benches go; each says what it found at once."""

    raw: dict[str, dict[str, list[dict[str, float | None]]]] = field(default_factory=dict)
    notes: dict[str, dict[str, str]] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    details: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What single benches keep beside that."""

    def table(self, bench: str, samples: Samples, notes: dict[str, str] | None = None) -> None:
        """Takes in and prints one bench's samples; `notes` has words for some of its cases."""
        notes = notes or {}
        self.raw[bench] = {name: [asdict(sample) for sample in found] for name, found in samples.items()}
        self.notes[bench] = notes
        rows = [_row(name, found, notes.get(name, "")) for name, found in samples.items()]
        _print_table([(bench, "median s", "min - max", "peak MiB", ""), *rows])

    def target(self, what: str, measured: float, limit: float, unit: str, binding: bool = True) -> None:
        """Takes in and prints whether a promise was kept."""
        self.targets.append(Target(what, measured, limit, unit, binding))
        print(f"  {self.targets[-1]}", flush=True)

    def skip(self, what: str) -> None:
        """Takes in and prints what could not be measured here."""
        self.skipped.append(what)
        print(f"skipped: {what}", flush=True)

    @property
    def missed(self) -> list[Target]:
        return [target for target in self.targets if not target.met]

    def as_dict(self) -> dict[str, Any]:
        """Raw numbers: seconds and MiB of every run."""
        targets = [{**asdict(target), "met": target.met} for target in self.targets]
        return {
            "benches": self.raw,
            "details": self.details,
            "notes": self.notes,
            "targets": targets,
            "skipped": self.skipped,
        }


def _row(name: str, samples: Sequence[Sample], note: str) -> tuple[str, ...]:
    seconds = [sample.seconds for sample in samples]
    peaks = [sample.peak_mib for sample in samples if sample.peak_mib is not None]
    spread = f"{min(seconds):.3f} - {max(seconds):.3f}"
    return name, f"{median(samples):.3f}", spread, f"{max(peaks):.0f}" if peaks else "", note


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    print()
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), flush=True)
