"""`storage.stage` in real ranks: who copies, who waits, what a failure becomes, and what stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from job.harness import DEADLINE, Runner, wait_for

import slurmopt
from slurmopt.config.storage import StagedSource, StagePlan
from slurmopt.errors import JobError
from slurmopt.storage.staging.node_folder import choose, open_root, report_progress
from slurmopt.storage.staging.record import Head, this_boot
from slurmopt.storage.staging.source import open_source

LIST = 'ls "$SLURMOPT_STAGED_DATA" | tr "\\n" " "'


def word(source: Path | str, into: Path | str, keep: bool = False, name: str = "data") -> tuple[str, str]:
    entry = StagedSource(source=str(source), into=str(into), keep=keep)
    return "--stage", StagePlan(entries={name: entry}).to_json_arg()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return tmp_path / "node"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.getuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]).returncode:
        pytest.skip("NOT TESTED: no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def copies(node: Path) -> list[str]:
    return sorted(path.name for path in node.glob("*/*/data/*"))


def test_the_ranks_of_a_node_copy_once_and_remove_it_at_the_end(runner: Runner, source: Path, node: Path) -> None:
    assert runner.run(3, *word(source, node), "--", "sh", "-c", LIST) == 0
    assert [runner.log(rank).splitlines()[-1] for rank in range(3)] == ["one two "] * 3
    said = [runner.log(rank).count(f"storage.stage.data: 2 files, 6 B, of {source}: at {node}/") for rank in range(3)]
    assert said == [1, 0, 0]
    assert "; 2 files, 6 B copied, " in runner.log(0)
    assert copies(node) == []
    beat = runner.beat(0)
    assert beat is not None
    assert {"staging", "running"} <= beat.phases.keys()
    assert beat.spent["staging"] > 0


def test_a_function_finds_it_and_another_name_is_told(runner: Runner, source: Path, node: Path) -> None:
    runner.lone_function(
        "train",
        "import slurmopt\ndef main(config):\n    return [(slurmopt.staged('data') / 'one').read_text(), config.home]",
    )
    runner.environment["TEST_HOME"] = "${oc.env:SLURMOPT_STAGED_DATA}"
    runner.folder.config.write_text("home: ${oc.env:SLURMOPT_STAGED_DATA}\n")
    assert runner.run(1, *word(source, node, keep=True), "--function", "train.main") == 0
    content, place = runner.result()["result"]
    assert (content, Path(place).name, copies(node)) == ("one", "set", ["set"])
    with pytest.raises(JobError, match=r"staged: 'data' is not in storage.stage of this run; nothing is staged here"):
        slurmopt.staged("data")


def test_all_nodes_wait_for_the_last_one(runner: Runner, source: Path, node: Path) -> None:
    """Each with a disk of its own, by its name."""
    words = [*word(source, f"{node}/${{oc.env:SLURMD_NODENAME}}"), "--heartbeat", "0.3", "--", "sh", "-c", LIST]
    runner.make_folders()

    def start(rank: int) -> subprocess.Popen[bytes]:
        numbers = {
            "RANK": rank,
            "NODE_RANK": rank,
            "WORLD_SIZE": 2,
            "LOCAL_RANK": 0,
            "LOCAL_WORLD_SIZE": 1,
            "NNODES": 2,
        }
        environment = {name: str(number) for name, number in numbers.items()} | {"SLURMD_NODENAME": f"node{rank}"}
        with runner.folder.rank_log(0, rank).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "slurmopt.job", str(runner.folder.path), *words],
                cwd=runner.code,
                env=runner._environment() | environment,
                stdout=log,
                stderr=log,
            )

    first = start(0)
    awaits = "staging on other nodes: 1 of 2 are ready"
    wait_for(lambda: (beat := runner.beat(0)) is not None and beat.awaits == awaits, "node0 waits")
    assert copies(node / "node0") == ["set"]
    second = start(1)
    assert [process.wait(DEADLINE) for process in (first, second)] == [0, 0]
    assert [runner.log(rank).splitlines()[-1] for rank in range(2)] == ["one two "] * 2
    marks = sorted(path.name for path in runner.folder.staged(0).iterdir())
    assert marks == ["node-0.json", "node-1.json"]


def test_what_another_job_copies_is_waited_for_and_a_stop_ends_the_wait(
    runner: Runner, source: Path, node: Path
) -> None:
    """This test is the other job, which does not come to an end."""
    there = open_source(str(source))
    head = Head(there.identity, there.listing().fingerprint, boot=this_boot())
    copy = choose(open_root(str(node)), head)
    with copy.alone(lambda text: None) as lock:
        report_progress(lock, f"staging {source}: 40 % of 1.2 TiB, 1.2 GiB/s")
        process = runner.start(2, "--heartbeat", "0.3", *word(source, node), "--", "sh", "-c", LIST)

        def awaits(rank: int) -> str | None:
            beat = runner.beat(rank)
            return beat.awaits if beat is not None and beat.phase == "staging" else None

        words = f"another job stages it here: staging {source}: 40 % of 1.2 TiB, 1.2 GiB/s"
        wait_for(lambda: awaits(0) == words, "rank 0 waits for the other job")
        wait_for(lambda: awaits(1) == "the first rank of this node stages", "rank 1 waits for rank 0")
        process.send_signal(signal.SIGUSR1)
        assert runner.finish(process) == 75
    beat = runner.beat(0)
    assert beat is not None
    assert beat.outcome is not None
    assert beat.outcome["error"] == "it was asked to stop while it staged"


def test_what_was_staged_stays_for_the_next_attempt(runner: Runner, source: Path, node: Path) -> None:
    assert runner.run(1, *word(source, node), "--", "sh", "-c", "exit 75") == 75
    assert copies(node) == ["set"]
    runner.attempt = 1
    assert runner.run(1, *word(source, node), "--", "sh", "-c", LIST) == 0
    assert "; nothing had to be copied, " in runner.log(0)
    assert copies(node) == []


def test_a_wrong_source_is_the_users_error(runner: Runner, source: Path, node: Path) -> None:
    assert runner.run(2, *word(source / "three", node), "--", "sh", "-c", LIST) == 1
    end = runner.last_event()
    assert (end["cause"], end["rank"]) == ("user error", 0)
    where = f"(from {source}/three to {node})"
    reason = f"storage.stage.data: {source}/three cannot be read: no such file or directory {where}"
    assert end["error"] == f"staging: {os.uname().nodename}: {reason}"
    assert "one two" not in runner.log(1)


def test_a_disk_that_others_fill_is_of_the_node_and_one_that_is_too_small_of_the_user(
    runner: Runner, source: Path, disk: Path
) -> None:
    (disk / "of others").write_bytes(bytes(700_000))
    (source / "large").write_bytes(bytes(900_000))
    assert runner.run(1, *word(source, disk), "--", "sh", "-c", LIST) == 69
    end = runner.last_event()
    assert (end["cause"], end["node"]) == ("infrastructure", os.uname().nodename)
    assert "no room for" in end["error"]
    assert "other files fill it, or a quota limits it" in end["error"]
    (source / "large").write_bytes(bytes(1_100_000))
    runner.attempt = 1
    assert runner.run(1, *word(source, disk), "--", "sh", "-c", LIST) == 1
    assert runner.last_event()["cause"] == "user error"
    assert "its disk has 1.0 MiB: stage less, or choose a larger disk" in runner.last_event()["error"]


def test_an_unset_variable_and_a_relative_place_are_told(runner: Runner, source: Path) -> None:
    assert runner.run(1, *word(source, "${oc.env:NO_SUCH_VARIABLE}"), "--", "sh", "-c", LIST) == 1
    assert "storage.stage.data.into: '${oc.env:NO_SUCH_VARIABLE}' needs the environment variable" in runner.log(0)
    runner.environment["PLACE"] = "relative"
    runner.attempt = 1
    assert runner.run(1, *word(source, "${oc.env:PLACE}"), "--", "sh", "-c", LIST) == 1
    assert "storage.stage.data.into: 'relative' is not an absolute path" in runner.log(0)


def test_a_mark_names_the_places(runner: Runner, source: Path, node: Path) -> None:
    assert (
        runner.run(1, *word(source, node, keep=True, name="imageNet"), "--", "printenv", "SLURMOPT_STAGED_IMAGENET")
        == 0
    )
    mark = json.loads((runner.folder.staged(0) / "node-0.json").read_text())
    assert mark["places"]["imageNet"]["path"] == runner.log(0).splitlines()[-1]
