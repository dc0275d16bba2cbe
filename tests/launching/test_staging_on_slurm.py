"""`storage.stage` on a real Slurm: two nodes with two ranks each. The nodes share one machine, so each has a folder of
its own by its name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from launching.conftest import Project

SHOW = (
    "import os; place = os.environ['SLURMOPT_STAGED_SET']; "
    "print(os.environ['SLURMD_NODENAME'], os.stat(place).st_ino, sorted(os.listdir(place)))"
)
TWO_BY_TWO = ("resources.nodes=2", "resources.tasks_per_node=2", "resources.time=5m")


def rank_log(answer: dict[str, Any], rank: int) -> str:
    return (Path(answer["run"]) / "logs" / "attempt-0" / f"rank-{rank}.log").read_text()


def test_each_node_copies_once_and_all_its_ranks_find_it(project: Project) -> None:
    source, local = project.path / "set", project.path / "local"
    source.mkdir()
    for number in range(50):
        (source / str(number)).write_text("x" * number)
    local.mkdir(mode=0o777)
    local.chmod(0o777)
    entry = f"{{source:{source},into:'{local}/${{oc.env:SLURMD_NODENAME}}'}}"
    words = json.dumps(["python3", "-c", SHOW])
    answer = project.submit(f"task.command={words}", f"+storage.stage.set={entry}", *TWO_BY_TWO, "launch.name=staged")
    status = project.wait_for(answer, "finished", "failed")
    assert status["state"] == "finished", status
    logs = [rank_log(answer, rank) for rank in range(4)]
    said = [log.splitlines()[-1].split(" ", 2) for log in logs]
    files = str(sorted(map(str, range(50))))
    assert [each[2] for each in said] == [files] * 4
    assert said[0][:2] == said[1][:2] != said[2][:2] == said[3][:2]  # node and inode: one copy for each node
    assert ["; 50 files, 1.2 KiB copied, " in log for log in logs] == [True, False, True, False]
    left = [name for _, folders, names in os.walk(local) for name in (*folders, *names) if name != ".lock"]
    assert {name for name in left if "slurmopt-staged-" not in name} == {said[0][0], said[2][0]}


def test_a_node_that_cannot_stage_ends_the_attempt_with_its_name(project: Project) -> None:
    """On one of two nodes a file is where the folder of the copies is to be."""
    source, local = project.path / "set", project.path / "local"
    source.mkdir()
    (source / "one").write_text("x")
    local.mkdir(mode=0o777)
    local.chmod(0o777)
    for node in ("node1", "node2", "node3", "node4"):
        (local / node).mkdir(mode=0o777)
        (local / node).chmod(0o777)
    (local / "node2" / "scratch").write_text("no folder")
    entry = f"{{source:{source},into:'{local}/${{oc.env:SLURMD_NODENAME}}/scratch'}}"
    words = ("task.command=[true]", f"+storage.stage.set={entry}", "resources.exclude='node[3-4]'")
    answer = project.submit(*words, *TWO_BY_TWO, "launch.name=unstaged")
    status = project.wait_for(answer, "finished", "failed")
    assert status["state"] == "failed"
    end = json.loads((Path(answer["run"]) / "result.json").read_text())
    assert end["node"] == "node2"
    assert end["error"].startswith("staging: node2: storage.stage.set: ")
    assert end["error"].endswith(f"(from {source} to {local}/node2/scratch)")
