#!/usr/bin/env python3
"""Counts what is typed on docs/ten-tasks.md, and writes the page's table of characters and concepts.

scripts/ten_tasks.py            write the table
scripts/ten_tasks.py --check    exit 1 if the table differs from the count, or a concept is not in what is typed
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "ten-tasks.md"
TOOLS = ("slurmopt", "sbatch", "submitit")
TABLE = re.compile(r"(?<=scripts/ten_tasks\.py -->\n).*?(?=<!-- end)", re.DOTALL)
TASK = re.compile(r"^## (\d+)\. (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
ENTRY = re.compile(r"^\*\*(\w+)\*\*: (.*?)\n\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    """What is typed for one task with one tool."""

    typed: str
    concepts: tuple[str, ...]

    @property
    def count(self) -> tuple[int, int]:
        """Characters, without prompts and the last line end; concepts."""
        return len(self.typed), len(self.concepts)


def tasks(page: str) -> Iterator[tuple[str, dict[str, Entry]]]:
    """The title of each task, and its entries by tool."""
    for number, title, section in TASK.findall(page):
        found = {
            tool: Entry(
                re.sub(r"^\$ ", "", typed, flags=re.MULTILINE).rstrip("\n"), tuple(re.findall("`(.+?)`", words))
            )
            for tool, words, typed in ENTRY.findall(section)
        }
        if tuple(found) != TOOLS:
            raise SystemExit(f"{PAGE.name}, {number}: {', '.join(found)} instead of {', '.join(TOOLS)}")
        yield f"[{number}. {title}](#{anchor(f'{number}. {title}')})", found


def anchor(title: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def table(page: str) -> str:
    """The table in Markdown; the smallest count of a row is bold."""
    lines = [f"| | {' | '.join(TOOLS)} |", "|---|---|---|---|"]
    for title, entries in tasks(page):
        least = min(entry.count[0] for entry in entries.values())
        cells = (cell(*entry.count, entry.count[0] == least) for entry in entries.values())
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n" + "\n".join(lines) + "\n\n"


def cell(characters: int, concepts: int, shortest: bool) -> str:
    """The counts of one entry."""
    return f"{f'**{characters}**' if shortest else characters} · {concepts}"


def strangers(page: str) -> list[str]:
    """The concepts that are not in what is typed."""
    return [
        f"{title}: {tool}: {concept}"
        for title, entries in tasks(page)
        for tool, entry in entries.items()
        for concept in entry.concepts
        if concept not in entry.typed
    ]


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    if wrong := strangers(page):
        print("\n".join(wrong), file=sys.stderr)
        return 1
    counted = TABLE.sub(lambda _: table(page), page)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(counted, encoding="utf-8")
    elif counted != page:
        print(f"{PAGE.name}: the table differs from what is typed; run scripts/ten_tasks.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
