"""A sweep larger than the user may submit: on a real Slurm with accounting, whose QOS has MaxSubmitJobsPerUser."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from json_answer import data_of
from launching.conftest import Project
from private_cluster import PrivateCluster, unprivileged_user, wait_until

EXPERIMENT = """
# @package _global_
task: {command: [bash, -c, "echo ${seed} >> started"]}
resources: {time: 5m, memory: 100M, qos: tight}
seed: 0
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateCluster]:
    """Its QOS `tight` takes four jobs of a user."""
    user = unprivileged_user()
    with PrivateCluster.running("--nodes", "2", "--gpus", "0", "--accounting", "--limits", "--user", user) as made:
        made.run(["sacctmgr", "-i", "add", "qos", "tight", "set", "MaxSubmitJobsPerUser=4"])
        made.run(["sacctmgr", "-i", "modify", "user", user, "set", "qos=normal,tight"])
        yield made


def test_a_sweep_larger_than_the_users_limit_goes_on_as_room_is_made(project: Project) -> None:
    folder = project.path / "conf" / "experiment"
    folder.mkdir(parents=True)
    (folder / "points.yaml").write_text(textwrap.dedent(EXPERIMENT))
    answer = project.submit("-m", "+experiment=points", "seed=range(10)")
    assert answer["waiting"] >= 6
    started = project.path / "started"

    def finished() -> bool:
        (told,) = data_of(project.slurmopt("status", answer["run"], "--json").stdout)
        return told["states"] == {"finished": 10}

    wait_until(finished, 120, "all have finished", lambda: started.read_text() if started.exists() else "")
    assert sorted(map(int, started.read_text().split())) == list(range(10))
    assert not (Path(answer["run"]) / "more").exists()
