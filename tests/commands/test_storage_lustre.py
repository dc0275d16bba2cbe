"""`slurmopt storage` on a SIMULATED Lustre: stand-ins of lfs and lctl that refuse what the manual pages do not have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from storage.simulated_lustre import SimulatedLustre

from slurmopt.cli import main


@pytest.fixture
def lustre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedLustre:
    return SimulatedLustre(tmp_path, monkeypatch)


def answer(words: list[str], capsys: pytest.CaptureFixture[str], status: int = 0) -> Any:
    assert main(["storage", *words, "--json"]) == status
    return data_of(capsys.readouterr().out)


def refusal(words: list[str], capsys: pytest.CaptureFixture[str], status: int = 2) -> str:
    assert main(["storage", *words]) == status
    told = capsys.readouterr()
    assert told.err.count("slurmopt: error: ") == 1
    return told.err


def test_show_has_a_verdict_on_each_part(lustre: SimulatedLustre, capsys: pytest.CaptureFixture[str]) -> None:
    lustre.set(osts=6, flags={"2": "S"}, quota="100 0 0 - 5 0 0 -")
    told = answer(["show", str(lustre.root)], capsys)
    results = {result["name"]: result for result in told["results"]}
    assert told["kind"] == "lustre"
    assert results["OSTs"]["text"].startswith("6 active")
    assert results["flock"]["verdict"] == "pass"
    assert "out of space" in results["state of the OSTs"]["text"]
    assert results["quota"]["text"].startswith("user ")
    assert "stripe_count: 1" in results["layout"]["text"]
    assert results["client settings"]["verdict"] == "skipped"


def test_a_mount_without_flock_has_its_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lustre = SimulatedLustre(tmp_path, monkeypatch, options="rw,lazystatfs")
    assert main(["storage", "show", str(lustre.root)]) == 0
    assert f"mount -t lustre -o flock 10.0.1.5@tcp:/abcd {lustre.root}" in capsys.readouterr().out


def test_plan_goes_by_the_files_that_are_there(lustre: SimulatedLustre, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        with open(lustre.root / f"shard-{number}", "wb") as file:
            file.truncate(4 << 30)
    told = answer(["plan", str(lustre.root), "--kind", "datasets"], capsys)
    assert (told["files"], told["file_bytes"], told["osts"]) == (3, 4 << 30, 8)
    assert " ".join(told["options"]) == "-E 100M -c 1 -E 1G -c 4 -E -1 -c 8"
    assert lustre.calls("lfs", "setstripe") == [], "a plan changes nothing"


def test_plan_prints_the_command(lustre: SimulatedLustre, capsys: pytest.CaptureFixture[str]) -> None:
    folder = lustre.root / "my data"
    folder.mkdir()
    words = ["plan", str(folder), "--kind", "checkpoints", "--file-size", "600M", "--files", "4"]
    assert main(["storage", *words]) == 0
    command, reason, following = capsys.readouterr().out.splitlines()
    assert command == f"lfs setstripe -E 100M -c 1 -E -1 -c 2 '{folder}'"
    assert reason.startswith("4 files of 600.0 MiB on 8 OSTs: ")
    assert following.startswith(f"next: slurmopt storage stripe '{folder}' --kind checkpoints ")


def test_stripe_makes_the_folder(lustre: SimulatedLustre, capsys: pytest.CaptureFixture[str]) -> None:
    folder = lustre.root / "new"
    told = answer(["stripe", str(folder), "--kind", "checkpoints", "--file-size", "8G", "--files", "2"], capsys)
    assert told["changed"]
    assert folder.is_dir()
    assert lustre.state["layouts"] == {str(folder): told["options"]}
    again = answer(["stripe", str(folder), "--kind", "logs"], capsys)
    assert again["options"] == ["-c", "1"]


def test_a_refused_layout_leaves_no_folder(lustre: SimulatedLustre, capsys: pytest.CaptureFixture[str]) -> None:
    lustre.set(denied=["new"])
    folder = lustre.root / "new"
    assert "Permission denied" in refusal(["stripe", str(folder), "--kind", "logs"], capsys, status=1)
    assert not folder.exists()


def test_a_folder_with_files_is_migrated_only_on_request(
    lustre: SimulatedLustre, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = lustre.root / "data"
    (folder / "sub").mkdir(parents=True)
    for name in ("one", "sub/two", "busy"):
        (folder / name).write_bytes(bytes(5000))
    (tmp_path / "outside").write_text("x")
    (folder / "link").symlink_to(tmp_path / "outside")
    unloaded = lustre.in_s3("data/unloaded")
    lustre.set(busy=["busy"])
    words = ["stripe", str(folder), "--kind", "datasets", "--file-size", "8G", "--files", "2"]
    assert "--migrate moves these too" in refusal(words, capsys)
    assert answer([*words, "--migrate", "--dry-run"], capsys)["changed"] is False
    assert lustre.state["layouts"] == {}
    told = answer([*words, "--migrate"], capsys, status=1)
    assert (told["migrated"]["files"], told["migrated"]["bytes"]) == (2, 10_000)
    failed = told["migrated"]["failed"]
    assert set(failed) == {str(folder / "busy"), str(unloaded)}
    assert "Device or resource busy" in failed[str(folder / "busy")]
    moved = {str(Path(path).relative_to(folder)) for path in lustre.state["layouts"]}
    assert moved == {".", "sub", "one", "sub/two"}


def test_prefetch(lustre: SimulatedLustre, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        lustre.in_s3(f"data/part-{number}", size=1000)
    (lustre.root / "data" / "loaded").write_text("here")
    words = ["prefetch", str(lustre.root / "data")]
    counted = answer([*words, "--dry-run"], capsys)
    assert (counted["files"], counted["bytes"], counted["loaded_files"]) == (3, 3000, 0)
    assert lustre.calls("lfs", "hsm_restore") == []
    told = answer([*words, "--at-once", "2"], capsys)
    assert (told["loaded_files"], told["loaded_bytes"], told["already_loaded"], told["failed"]) == (3, 3000, 1, {})
    assert lustre.state["most_at_once"] <= 2
    assert answer(words, capsys)["files"] == 0


def test_prefetch_without_the_permission(lustre: SimulatedLustre, capsys: pytest.CaptureFixture[str]) -> None:
    lustre.in_s3("one")
    lustre.set(root_only=True)
    told = refusal(["prefetch", str(lustre.root)], capsys, status=1)
    assert "Operation not permitted; restoring is for root there" in told


def test_prefetch_of_more_than_there_is_space(lustre: SimulatedLustre, capsys: pytest.CaptureFixture[str]) -> None:
    lustre.in_s3("large", size=1 << 43)
    assert "8.0 TiB are in S3 only" in refusal(["prefetch", str(lustre.root)], capsys)
    assert lustre.calls("lfs", "hsm_restore") == []


def test_prefetch_gives_up_in_time(lustre: SimulatedLustre, capsys: pytest.CaptureFixture[str]) -> None:
    lustre.in_s3("never", is_gone=True)
    assert "1 files were not loaded within 1s" in refusal(
        ["prefetch", str(lustre.root), "--timeout", "1s"], capsys, status=124
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "ROOT", "--kind", "datasets"], "has no files to go by; give --file-size and --files"),
        (["plan", "ROOT", "--kind", "films"], "invalid choice: 'films'"),
        (["plan", "ROOT", "--kind", "logs", "--files", "0"], "'0' is not a number from 1"),
        (["plan", "ROOT", "--kind", "logs", "--file-size", "big"], "not a size: 'big'"),
        (["plan", "ROOT/gone", "--kind", "logs"], "no such file or folder"),
        (["stripe", "ROOT/no/parent", "--kind", "logs"], "no such file or folder"),
        (["stripe", "ROOT/file", "--kind", "logs"], "is not a folder"),
        (["prefetch", "ROOT", "--timeout", "soon"], "--timeout: not a time: 'soon'"),
    ],
)
def test_bad_input(lustre: SimulatedLustre, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    if "file" in words[1]:
        (lustre.root / "file").touch()
    assert said in refusal([word.replace("ROOT", str(lustre.root)) for word in words], capsys)


def test_an_lfs_that_is_not_there(lustre: SimulatedLustre, capsys: pytest.CaptureFixture[str]) -> None:
    lustre.uninstall()
    assert "lfs, which Lustre's client package brings, is not installed here; --osts N plans without lfs" in refusal(
        ["plan", str(lustre.root), "--kind", "logs"], capsys
    )
    assert main(["storage", "plan", str(lustre.root), "--kind", "logs", "--osts", "4"]) == 0
    capsys.readouterr()
    assert main(["storage", "show", str(lustre.root)]) == 0, "the other parts are told all the same"
    assert "space" in capsys.readouterr().out
    assert os.listdir(lustre.root) == []
