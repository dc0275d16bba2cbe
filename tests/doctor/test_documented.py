"""Every finding of the doctor, with the mend, has its place in the documentation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import slurmopt

CODE, DOCS = Path(slurmopt.__file__).parent, Path(__file__).parents[2] / "docs"
PAGES = ("doctor.md", "storage.md", "fsx-and-s3.md")
NO_FINDING = {"place", "Python"}
"""The first is what a user has typed; of the second nothing is ever wrong."""


def names(folder: Path) -> Iterator[str]:
    """The names of the results that code in `folder` makes."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in ("CheckResult", "Check", "failed")
                and node.args
            ) and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value)


def test_each_finding_is_in_a_table() -> None:
    cells = [
        word.strip().lower()
        for page in PAGES
        for line in (DOCS / page).read_text().splitlines()
        if line.startswith("|")
        for word in re.split(r"[,;:]| and | or ", line.split("|")[1])
    ]
    documented = " | ".join(cells)
    found = {*names(CODE / "doctor"), *names(CODE / "storage")} - NO_FINDING
    assert len(found) > 40
    missing = {name for name in found if name.lower().removeprefix("gpu ") not in documented}
    assert not missing
