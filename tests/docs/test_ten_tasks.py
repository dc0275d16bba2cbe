"""The page of the ten commonest tasks: its numbers are those of what it shows, and it says where slurmopt is longer."""

from __future__ import annotations

import re
import subprocess
import sys

from docs.counted import PAGE, SCRIPT, counter

ROW = re.compile(
    r"^\| \[(\d+)\. [^|]+\| \**(\d+)\** · (\d+) \| \**(\d+)\** · (\d+) \| \**(\d+)\** · (\d+) \|$", re.MULTILINE
)


def test_the_table_is_the_count_of_what_is_typed() -> None:
    counter()
    checked = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, timeout=180)
    assert checked.returncode == 0, checked.stderr
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert [row[0] for row in rows] == [str(number) for number in range(1, 11)]


def test_slurmopt_is_the_shortest_but_where_the_page_says_so() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = [tuple(map(int, row)) for row in ROW.findall(page)]
    longer = {number for number, ours, _, slurms, _, submitits, _ in rows if ours >= min(slurms, submitits)}
    said = re.search(r"is not the shortest in (\d+) and (\d+)", page)
    assert said is not None
    assert longer == {int(number) for number in said.groups()}
    assert [number for number, _, ours, _, slurms, _, submitits in rows if ours > min(slurms, submitits)] == []


def test_the_count_is_of_each_character_that_is_typed() -> None:
    entries = [
        ("slurmopt", "console", "$ ab c\n"),
        ("sbatch", "console", "$ ab\n$ cd\n"),
        ("submitit", "python", "x = 1\n"),
    ]
    section = "\n".join(f"**{tool}**: `{text[2]}`\n\n```{kind}\n{text}```\n" for tool, kind, text in entries)
    ((_, counted),) = counter().tasks(f"## 1. Title\n\n{section}")
    assert [entry.count for entry in counted.values()] == [(4, 1), (5, 1), (5, 1)]
