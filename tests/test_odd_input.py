"""A seeded slice of `scripts/chaos looks`: damaged run folders and odd command lines are answered soon, in words."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmopt.slurm.hostlist import expand

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from chaos_runs.looks.looker import Looker  # noqa: E402

DEEP = "[" * 10_000
NODES = "node[1-" + "9" * 400 + "]"
WORDS = (
    f"a={DEEP}",
    f"+a={'[' * 400}{']' * 400}",
    DEEP,
    f"resources.exclude={NODES}",
    f"x{DEEP}=1",
    "resources.nodes={a: 1",
)
WAYS = (["launch"], ["launch", "-m"], ["launch", "--cfg", "job"], ["retry"])


@pytest.fixture(scope="module")
def looker() -> Iterator[Looker]:
    """Where no Slurm is to be found."""
    with Looker({**os.environ, "PATH": "/nowhere"}) as made:
        yield made


def test_damaged_folders_and_odd_command_lines() -> None:
    words = [sys.executable, str(SCRIPTS / "chaos"), "looks", "--seed", "10", "--mutations", "40", "--lines", "60"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800, cwd="/")
    assert done.returncode == 0, done.stderr[-6000:] + done.stdout
    assert " 0 wrong;" in done.stdout


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word[:24])
@pytest.mark.parametrize("words", WAYS, ids=" ".join)
def test_deep_and_long_words_are_told_in_one_line(looker: Looker, words: list[str], word: str, tmp_path: Path) -> None:
    if "--cfg" in words and "=" not in word:
        pytest.skip("Hydra answers that itself")
    last = ["launch.dry_run=true", "task.command=[true]"] if words[0] == "launch" else ["--dry-run"]
    seen = looker.look([*words, word, *last], tmp_path, seconds=60)
    assert not seen.wrong(seconds=60)
    assert seen.status == 0 or len(seen.err) < 3000


def test_a_long_range_of_nodes_is_told_in_short() -> None:
    with pytest.raises(ValueError, match="more than 65536 nodes") as raised:
        expand(NODES)
    assert len(str(raised.value)) < 200
