"""Something else lies where a run is expected: what it is is said, and that nobody has to repeat a launch for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from slurmopt.cli import main

LAUNCH = ["launch", "launch.backend=local", "task.command=[env]", "launch.name=mine", "launch.id=1"]


def put_empty_folder(place: Path) -> None:
    place.mkdir()


def put_torn_copy(place: Path) -> None:
    place.mkdir()
    (place / "events.jsonl").touch()
    (place / "config.yaml").touch()


def put_file(place: Path) -> None:
    place.touch()


def put_link_to_nothing(place: Path) -> None:
    place.symlink_to("nothing")


@pytest.mark.parametrize(
    ("put", "launched", "looked"),
    [
        (
            put_empty_folder,
            "is not a run: it has no config.yaml, no job.sbatch, no events.jsonl",
            "has no events.jsonl",
        ),
        (
            put_torn_copy,
            "is not a run: it has no job.sbatch",
            "it is not a run that a launch made: it has no job.sbatch",
        ),
        (put_file, "is a file", "has no events.jsonl"),
        (put_link_to_nothing, "is a broken link", "has no events.jsonl"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_is_no_run_is_told_by_launch_and_status(
    tmp_path: Path, make_run: Any, capsys: Any, put: Any, launched: str, looked: str
) -> None:
    place = tmp_path / "runs" / "mine" / "1"
    place.parent.mkdir(parents=True)
    put(place)
    assert main(LAUNCH) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"slurmopt: error: launch.id: '1' is taken: {place} {launched}; move it away, or choose ")
    assert said.count("\n") == 1
    main(["status", "mine/1"])
    seen = capsys.readouterr()
    assert looked in seen.out + seen.err
    assert "launch broke off" not in seen.out + seen.err
    assert "slurmopt launch" not in seen.out + seen.err


@pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: giving files to another user needs root")
def test_a_run_that_somebody_else_put_there_says_whose_it_is(tmp_path: Path, make_run: Any, capsys: Any) -> None:
    planted = make_run("mine", "1").folder
    os.chown(planted.path, 65534, 65534)
    assert main(["status", "mine/1"]) == 0
    seen = capsys.readouterr().out
    assert "its journal names no job; it belongs to another user (nobody)" in seen
    assert "slurmopt launch" not in seen
    assert main(LAUNCH) == 2
    assert "belongs to another user (nobody)" in capsys.readouterr().err


def test_a_launch_that_broke_off_is_to_be_repeated(make_run: Any, capsys: Any) -> None:
    run = make_run("mine", "1").folder
    run.config.write_text("{}\n")
    run.script.write_text("#!/bin/bash\n")
    assert main(["status", "mine/1"]) == 0
    assert "the launch broke off; repeat it with launch.id=1" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "kept"), [("../x", "x"), ("my run", "my-run"), ("...", "run"), ("plain", "plain")])
def test_a_name_that_cannot_be_a_folders_is_told(make_run: Any, capsys: Any, name: str, kept: str) -> None:
    assert main([*LAUNCH[:3], f"launch.name='{name}'", "launch.dry_run=true"]) == 0
    seen = capsys.readouterr()
    assert f"/runs/{kept}/" in seen.err
    told = [line for line in seen.err.splitlines() if line.startswith(f"slurmopt: launch.name: {name!r} cannot be ")]
    assert len(told) == (name != kept)
    assert all(line.endswith(f"the run is named {kept}") for line in told)
