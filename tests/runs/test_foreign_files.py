"""Whatever a foreign hand has put where a run's files stand: looking at it ends soon, in bounded memory, with words."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from chaos_runs.looks.looker import Looker

CONFIG = "task: {command: [true]}\nresources: {time: '00:10:00'}\n"
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]\n" for at in range(1, 12)
)
YAML = {
    "bomb": BOMB,
    "circle": "task: &a {x: *a}\n",
    "merged circle": "&a {<<: *a}\n",
    "brackets": f"task: {'[' * 10000}\n",
    "nested": f"task: {'[' * 10000}{']' * 10000}\n",
    "300 levels": f"task: {'[' * 300}{']' * 300}\n",
    "merged twice": "a0: &a0 {x: 1}\n"
    + "".join(f"a{at}: &a{at} {{<<: [*a{at - 1}, *a{at - 1}]}}\n" for at in range(1, 30)),
    "base 60": f"task: 1{':1' * 200000}\n",
    "many": f"task: [{'1,' * 4000000}1]\n",
    "list as key": "? [1, 2]\n: 3\n",
    "text in a text": "'!!bool foo'\n",
    "nonsense": "task: !!bool perhaps\n",
    "day": "task: !!timestamp yesterday\n",
    "empty number": 'task: !!int ""\n',
    "long number": f"task: {'9' * 5000}\n",
    "python": "task: !!python/object/apply:os.system ['touch planted']\n",
    "list": "[1, 2]\n",
    "text": "only a text\n",
    "control": "task: \x01\n",
}
LOOKS = (
    ["status"],
    ["status", "--json"],
    ["list"],
    ["list", "--json"],
    ["history"],
    ["logs"],
    ["logs", "--errors"],
    ["logs", "--rank", "all"],
    ["tend", "--dry-run"],
    ["retry"],
    ["cancel"],
    ["checkpoint", "list"],
    ["checkpoint", "verify"],
)
FILES = (
    "config.yaml",
    "overrides.yaml",
    "job.sbatch",
    "events.jsonl",
    "result.json",
    "logs/job-7.log",
    "logs/attempt-0/rank-0.log",
    "heartbeat/attempt-0/rank-0.json",
    "heartbeat/attempt-0/hang.json",
    "heartbeat/attempt-0/slurm",
    "checkpoints/commits/0000-000000.json",
)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def folder(path: Path) -> None:
    path.mkdir()


def circle(path: Path) -> None:
    path.symlink_to(path.name)


PUT: tuple[Callable[[Path], None], ...] = (fifo, device, sparse, folder, circle)


@pytest.fixture(scope="module")
def looker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looker]:
    """Where no Slurm is to be found."""
    env = {**os.environ, "PATH": "/nowhere", "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}
    with Looker(env) as made:
        yield made


@pytest.fixture
def run(make_run: Any) -> Path:
    made = make_run().submitted().attempt(rank_0="hello\n").beat(step=3).end("user_error", rank=0, error="no luck")
    folder: Path = made.folder.path
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "overrides.yaml").write_text("- a=1\n")
    (folder / "job.sbatch").write_text("#!/bin/bash\n")
    (folder / "result.json").write_text('{"attempt": 0, "outcome": "user_error", "rank": 0}\n')
    (folder / "logs" / "job-7.log").write_text("hello\n")
    (folder / "checkpoints" / "commits").mkdir(parents=True)
    return folder


def replaced(folder: Path, name: str, put: Callable[[Path], None]) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    put(path)


def judge(looker: Looker, words: list[str], cwd: Path) -> None:
    seen = looker.look(words, cwd)
    assert not seen.wrong(), f"slurmopt {' '.join(words)}: {seen.wrong()}\n{seen.err[-3000:]}"
    assert "[Errno" not in seen.out + seen.err, f"slurmopt {' '.join(words)}: {seen.err[:2000]}"
    assert len(seen.err) < 5000, f"slurmopt {' '.join(words)}: {seen.err[:2000]}"


@pytest.mark.parametrize("put", PUT, ids=lambda put: put.__name__)
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_run_that_is_none(run: Path, looker: Looker, name: str, put: Callable[[Path], None]) -> None:
    replaced(run, name, put)
    for words in LOOKS:
        judge(looker, words, run.parents[2])


@pytest.mark.parametrize("text", YAML.values(), ids=list(YAML))
def test_a_config_that_is_none(run: Path, looker: Looker, text: str) -> None:
    (run / "config.yaml").write_text(text)
    (run / "overrides.yaml").write_text(text)
    for words in LOOKS:
        judge(looker, words, run.parents[2])
    assert not (run.parents[2] / "planted").exists()
