"""A sweep that cannot be read keeps no command from the others."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from json_answer import data_of

from slurmopt.cli import main
from slurmopt.slurm.cluster import cache


def sparse(sweep: Any) -> None:
    """Its journal says that it has 5 GiB."""
    os.truncate(sweep.folder.events, 5 << 30)


def strange(sweep: Any) -> None:
    """A file has the name of the folder with its array tasks."""
    sweep.folder.tasks.write_text("")


@pytest.fixture
def failed(make_sweep: Callable[..., Any], tmp_path: Any) -> Any:
    """One with a failed point and one that nobody brings back, where Slurm has no job any more."""
    squeue = tmp_path / ".tools" / "squeue"
    squeue.write_text("#!/bin/bash\n")
    squeue.chmod(0o755)
    plain = {"cluster": "mini", "version": "", "controllers": [], "max_array_size": 1001, "job_requeue": True}
    rights = {"enforces_accounts": False, "enforces_qos": False, "accounts": None, "partitions": []}
    cache.write("facts", {**plain, **rights, "accounting": False}, time.time())
    made = make_sweep("good", "b", a=[1, 2, 3]).submitted("0-2", "7")
    made.ended(0)
    made.ended(1, "user error")
    made.ended(2, "requeue", cause="preemption", next="submit")
    return made


@pytest.mark.parametrize("damage", [sparse, strange])
def test_tend_goes_on_to_the_others(make_sweep: Callable[..., Any], failed: Any, capsys, damage: Any) -> None:
    damage(make_sweep("bad", "a", a=[1, 2]).submitted("0-1", "6"))

    assert main(["tend", "--dry-run", "--json"]) == 1
    out, err = capsys.readouterr()
    assert [(deed["name"], deed["id"], deed["did"]) for deed in data_of(out)] == [
        ("bad", "a", "failed"),
        ("good", "b/2", "submitted"),
    ]
    assert "Traceback" not in err
    assert main(["tend", "bad/a", "good/b", "--dry-run", "--json"]) == 1
    assert [deed["did"] for deed in data_of(capsys.readouterr().out)] == ["failed", "submitted"]


def test_retry_of_all_that_failed_goes_on_to_the_others(make_sweep: Callable[..., Any], failed: Any, capsys) -> None:
    sparse(make_sweep("bad", "a", a=[1, 2]).submitted("0-1", "6"))

    assert main(["retry", "--failed", "--dry-run", "--json"]) == 1
    bad, good = data_of(capsys.readouterr().out)
    assert (bad["name"], bad["id"]) == ("bad", "a")
    assert "it has more than 4096 MiB" in bad["error"]
    assert (good["name"], good["id"], good["points"]) == ("good", "b", "1")


def test_status_of_all_goes_on_to_the_others(make_sweep: Callable[..., Any], failed: Any, capsys) -> None:
    sparse(make_sweep("bad", "a", a=[1, 2]).submitted("0-1", "6"))

    assert main(["status", "--all", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [(one["name"], one["id"]) for one in data_of(out)] == [("good", "b")]
    assert err.startswith("slurmopt: bad/a: ")
    assert main(["status", "bad/a"]) == 1


def linked(path: Any) -> None:
    (path.parent / "secret").write_text("1-2")
    path.symlink_to("secret")


def linked_text(path: Any) -> None:
    (path.parent / "secret").write_text("my secret")
    path.symlink_to("secret")


def binary(path: Any) -> None:
    path.write_bytes(b"\xff\x00\x1b]0;my secret")


def words(path: Any) -> None:
    path.write_text("my secret")


@pytest.mark.parametrize("damage", [linked, linked_text, binary, words, os.mkfifo, os.mkdir])
@pytest.mark.parametrize("alone", [True, False])
def test_a_list_of_cancelled_points_that_is_none_hides_nothing_and_shows_nothing_else(
    make_sweep: Callable[..., Any], tmp_path: Any, capsys, damage: Any, alone: bool
) -> None:
    bad = make_sweep("bad", "a", a=[1, 2]).submitted("0-1", "6")
    if not alone:
        make_sweep("good", "b", a=[1, 2]).submitted("0-1", "7").ended(0)
    damage(bad.folder.cancelled)
    for command in (["status", "--all"], ["status", "--all", "--json"], ["list"]):
        assert main(command) == 0
        out, err = capsys.readouterr()
        assert ("good" in out) != alone
        assert f"slurmopt: bad/a: {bad.folder.cancelled} is damaged: it is " in err
        assert "secret" not in out + err
    assert main(["status", "bad/a"]) == 2
    error = capsys.readouterr().err
    assert error.endswith("; move it away, and repeat slurmopt cancel bad/a/POINTS\n")
    assert error.count("\n") == 1
    assert "secret" not in error


def test_a_page_of_results_has_no_command_where_the_words_of_the_launch_are_none(
    make_sweep: Callable[..., Any], tmp_path: Any, capsys: Any
) -> None:
    made = make_sweep("odd", "c", a=[1, 2]).submitted("0-1", "7")
    made.ended(0, metrics={"loss": 0.5})
    held = json.loads(made.folder.points_file.read_text())
    made.folder.points_file.write_text(json.dumps({**held, "line": [{"a": 1}]}))
    assert main(["results", "odd", "--html", str(tmp_path / "page.html")]) == 0, capsys.readouterr().err
    assert "<title>" in (tmp_path / "page.html").read_text()
