"""`slurmopt checkpoint`: looking at what a run has saved, verifying, fetching and pruning it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint.ranks import alone
from json_answer import data_of
from s3_server import BUCKET, S3Server, new_folder

from slurmopt.checkpoint import Checkpointer
from slurmopt.checkpoint.format import ledger
from slurmopt.checkpoint.format.ledger import Ledger
from slurmopt.cli import main
from slurmopt.commands.complete.main import candidates
from slurmopt.run_folder import events
from slurmopt.storage.folder import FolderStore

CONFIG = {"shared": {"every": 1, "keep": 10}}


class Terminal(io.StringIO):
    """Standard input with somebody before it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that has ended and saved steps 1 to 4; `frozen` lies in step 1's files."""
    folder = tmp_path / "runs" / "mine" / "0001"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    (folder / "config.yaml").write_text(json.dumps({"checkpoint": CONFIG}))
    events.append(folder / "events.jsonl", "created", name="mine", id="0001")
    train(folder, 4)
    return folder


def train(folder: Path, steps: int, attempt: int = 0, config: dict[str, Any] = CONFIG) -> int:
    """Saves each step up to `steps`; returns the step that it went on from."""
    state = {"frozen": torch.arange(3_000_000.0), "moving": torch.zeros(3000), "step": 0}
    with Checkpointer(config, alone(folder, attempt)) as checkpointer:
        began = checkpointer.restore(state)
        for step in range(began + 1, steps + 1):
            state["moving"] += 1
            state["step"] = step
            checkpointer.save(step, state, metrics={"loss": 1 / step}, force=True)
            assert checkpointer.wait()
    return began


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`said("list", "mine")`: standard output of a command that ended well; `status=2`: standard error of one that
    did not."""

    def call(*words: str, status: int = 0) -> str:
        capsys.readouterr()
        assert main(["checkpoint", *words]) == status
        shown = capsys.readouterr()
        return shown.out if status == 0 else shown.out + shown.err

    return call


def damage(folder: Path, step: int, at: int = 5000) -> Path:
    (payload,) = (folder / "checkpoints" / f"step-{step:08d}").glob("*/rank-00000.bin")
    data = bytearray(payload.read_bytes())
    data[at] ^= 1
    payload.write_bytes(data)
    return payload


def steps(folder: Path) -> list[int]:
    return [commit.step for commit in ledger.read(FolderStore(folder / "checkpoints")).commits]


def test_list(run: Path, said: Callable[..., str]) -> None:
    lines = said("list", "mine").splitlines()
    assert [line.split()[0] for line in lines] == ["STEP", "4", "3", "2", "1"]
    assert "next to be restored" in lines[1]
    assert "loss=0.25" in lines[1]
    assert "11.5 MiB" in lines[4]
    newest, *_, oldest = data_of(said("list", "mine", "--json"))
    assert newest["tiers"]["shared"]["new_bytes"] < 1 << 20 < oldest["tiers"]["shared"]["new_bytes"]
    assert newest["references"] == [oldest["checkpoint"]]
    assert (newest["next"], oldest["next"], oldest["damaged"]) == (True, False, [])


def test_list_tells_what_was_damaged_and_where_the_run_went_on(run: Path, said: Callable[..., str]) -> None:
    damage(run, 4)
    assert train(run, 3, attempt=1) == 3
    shown = {entry["step"]: entry for entry in data_of(said("list", "mine", "--json"))}
    assert (shown[3]["next"], shown[3]["restored"]) == (True, True)
    ((tier, reason),) = shown[4]["damaged"]
    assert tier == "shared"
    assert "rank-00000.bin is damaged at byte" in reason
    assert shown[4]["tiers"] == {}
    text = said("list", "mine")
    assert "DAMAGED on shared" in text
    assert "restored from here" in text


def test_tiers_that_cannot_be_reached_are_told_and_the_rest_goes_on(
    run: Path, said: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"scratch": {"path": "${oc.env:ONLY_ON_NODES}"}, **CONFIG, "durable": "scratch"}
    (run / "config.yaml").write_text(json.dumps({"checkpoint": config}))
    main(["checkpoint", "list", "mine"])
    shown = capsys.readouterr()
    assert "scratch: only the job knows where it is: Environment variable 'ONLY_ON_NODES' not found" in shown.err
    assert len(shown.out.splitlines()) == 5
    config["scratch"] = {"path": "/nowhere/at/all"}
    (run / "config.yaml").write_text(json.dumps({"checkpoint": config}))
    main(["checkpoint", "list", "mine"])
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert "scratch: /nowhere/at/all/mine/0001 is not on this machine" in shown.err
    assert "mine/0001 has no tier s3; it has: scratch, shared" in said("list", "mine", "--tier", "s3", status=2)


def test_show(run: Path, said: Callable[..., str]) -> None:
    text = said("show", "mine", "3")
    assert "step 3, saved" in text
    assert "of an earlier checkpoint" in text
    assert ["frozen", "float32", "3000000", "11.4", "MiB"] in [line.split() for line in text.splitlines()]
    shown = data_of(said("show", "mine", "--json"))
    assert (shown["step"], shown["tensors"]["moving"]) == (4, {"dtype": "float32", "shape": [3000], "bytes": 12000})
    assert set(shown["objects"]) == {"frozen", "moving", "step"}


def test_which_checkpoint_is_meant(run: Path, said: Callable[..., str]) -> None:
    name = data_of(said("show", "mine", "2", "--json"))["checkpoint"]
    assert f"{name}\n" in said("show", "mine", name)
    assert f"{name}\n" in said("show", "mine", name.rpartition("/")[2])
    assert "mine/0001 has no checkpoint '9'; there are steps 4, 3, 2, 1" in said("show", "mine", "9", status=2)
    assert "can be step-" in said("show", "mine", "a0000", status=2)
    assert "no command 'lst' (did you mean 'list'?)" in said("lst", status=2)


def test_verify(run: Path, said: Callable[..., str]) -> None:
    said("verify", "mine", "--all")
    first, third = damage(run, 1), damage(run, 3)
    lines = said("verify", "mine", "--all", status=1).splitlines()
    assert [line for line in lines if line.startswith(str(first))]
    assert [line for line in lines if line.startswith(str(third))]
    assert len(lines) == 3
    # Step 2 needs the first one's file, and step 3's own is its own affair.
    assert said("verify", "mine", "2", status=1).splitlines()[0].startswith(f"{first}: is damaged at byte")


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: os.truncate(path, path.stat().st_size - 4096), "bytes instead of"),
        (lambda path: path.write_bytes(path.read_bytes() + b"more"), "bytes instead of"),
    ],
)
def test_verify_finds_files_that_are_gone_or_cut(
    run: Path, said: Callable[..., str], harm: Callable[[Path], Any], told: str
) -> None:
    (payload,) = (run / "checkpoints" / "step-00000004").glob("*/rank-00000.bin")
    harm(payload)
    (line, summary) = said("verify", "mine", "4", status=1).splitlines()
    assert line.startswith(f"{payload}: ")
    assert told in line
    assert "1 file damaged" in summary


def test_verify_finds_a_manifest_of_another_checkpoint(run: Path, said: Callable[..., str]) -> None:
    (one,) = (run / "checkpoints" / "step-00000003").glob("*/manifest.json")
    (other,) = (run / "checkpoints" / "step-00000004").glob("*/manifest.json")
    other.write_bytes(one.read_bytes())
    assert f"{other}: is not the file that was saved (checksum)" in said("verify", "mine", status=1)


def test_fetched_whole(run: Path, tmp_path: Path, said: Callable[..., str]) -> None:
    said("fetch", "mine", "3", "--to", "copy")
    assert "is in" in said("fetch", "mine", "3", "--to", "copy")  # already
    (run / "checkpoints").rename(tmp_path / "gone")
    (entry,) = data_of(said("list", "copy", "--json"))
    assert (entry["step"], entry["references"], entry["metrics"]) == (3, [], {"loss": 1 / 3})
    said("verify", "copy")
    # And a run goes on from it.
    said("fetch", "copy", "--to", str(run / "checkpoints"))
    assert train(run, 5, attempt=0) == 3
    assert steps(run) == [5, 4, 3]


def test_a_tensor_that_changed_in_part_is_fetched_in_its_own_order(run: Path, said: Callable[..., str]) -> None:
    """Its first 8 MiB lie in a newer file than the rest of it."""
    tensor = torch.arange(6_000_000.0)
    with Checkpointer(CONFIG, alone(run, 1)) as checkpointer:
        for step in (7, 8):
            tensor[0] = step
            checkpointer.save(step, {"tensor": tensor}, force=True)
            assert checkpointer.wait()
    assert len(data_of(said("show", "mine", "--json"))["references"]) == 1
    said("fetch", "mine", "--to", "copy")
    said("export", "copy", "--format", "torch", "--to", "copy.pt")
    assert torch.equal(torch.load("copy.pt", weights_only=True)["tensor"], tensor)


def test_a_damaged_checkpoint_is_not_fetched(run: Path, tmp_path: Path, said: Callable[..., str]) -> None:
    damage(run, 1)
    assert "is damaged at byte" in said("fetch", "mine", "3", "--to", "copy", status=1)
    said("show", "copy", status=2)
    # What was damaged is as it was: the next try begins again in the same folder.
    damage(run, 1)
    said("fetch", "mine", "3", "--to", "copy")
    said("verify", "copy")


def test_a_fetch_that_is_killed_is_no_checkpoint_and_begins_again(run: Path, said: Callable[..., str]) -> None:
    """Killed once the first payload is there: nothing is committed by then."""
    code = """
import os, signal
from slurmopt.commands.checkpoint import fetch
from slurmopt.storage.folder import FolderStore
write = FolderStore.write
def dying(self, key, pieces):
    write(self, key, pieces)
    os.kill(os.getpid(), signal.SIGKILL)
FolderStore.write = dying
fetch.main(["mine", "2", "--to", "copy"])
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert list(Path("copy").glob("step-*/*/rank-*.bin"))
    said("show", "copy", status=2)
    said("fetch", "mine", "2", "--to", "copy")
    said("verify", "copy")


def test_fetch_leaves_other_things_alone(run: Path, said: Callable[..., str]) -> None:
    said("fetch", "mine", "3", "--to", "copy")
    before = sorted(Path("copy").rglob("*"))
    for target in ("copy", "runs", str(run / "checkpoints")):
        assert "is not empty; valid: a new or empty folder" in said("fetch", "mine", "4", "--to", target, status=2)
    assert sorted(Path("copy").rglob("*")) == before
    assert steps(run) == [4, 3, 2, 1]


def test_prune_by_number(run: Path, said: Callable[..., str], journal_of: Callable[[Path], list[str]]) -> None:
    assert said("prune", "mine", "--keep", "2", "--dry-run").split()[:2] == ["shared", step_name(run, 2)]
    assert steps(run) == [4, 3, 2, 1]
    said("prune", "mine", "--keep", "2", "--yes")
    assert steps(run) == [4, 3, 1]  # 1 holds what the others refer to
    assert journal_of(run)[-1:] == [["shared", 1]]
    said("verify", "mine", "--all")
    assert train(run, 5, attempt=1) == 4


def step_name(folder: Path, step: int) -> str:
    (path,) = (folder / "checkpoints" / f"step-{step:08d}").iterdir()
    return f"{path.parent.name}/{path.name}"


@pytest.fixture
def journal_of() -> Callable[[Path], list[list[Any]]]:
    def read(folder: Path) -> list[list[Any]]:
        found = [event for event in events.read(folder / "events.jsonl") if event["event"] == "checkpoint-pruned"]
        return [[event["tier"], len(event["checkpoints"])] for event in found]

    return read


def test_prune_of_what_is_needed_is_refused(run: Path, said: Callable[..., str]) -> None:
    assert "is the newest on shared, and always stays" in said("prune", "mine", "4", "--yes", status=2)
    assert "is the newest on shared" in said("prune", "mine", "latest", "--yes", status=2)
    assert f"{step_name(run, 1)} on shared holds a part of" in said("prune", "mine", "1", "--yes", status=2)
    assert "name what to delete" in said("prune", "mine", "--yes", status=2)
    assert "--keep 0 is too few" in said("prune", "mine", "--keep", "0", "--yes", status=2)
    assert steps(run) == [4, 3, 2, 1]


def test_prune_keeps_the_best(run: Path, said: Callable[..., str]) -> None:
    config = {"shared": {**CONFIG["shared"], "best": 1}, "metric": "loss", "mode": "max"}
    (run / "config.yaml").write_text(json.dumps({"checkpoint": config}))
    said("prune", "mine", "--keep", "1", "--yes")
    assert steps(run) == [4, 1]


def test_prune_of_the_damaged(run: Path, said: Callable[..., str]) -> None:
    damage(run, 4)
    assert train(run, 3, attempt=1) == 3
    assert list((run / "checkpoints").glob("step-00000004/*/rank-*.bin"))
    said("prune", "mine", "--damaged", "--yes")
    assert not list((run / "checkpoints").glob("step-00000004"))
    assert steps(run) == [3, 2, 1]


@pytest.mark.parametrize(("answer", "left"), [("y\n", [4, 3, 1]), ("\n", [4, 3, 2, 1]), ("", [4, 3, 2, 1])])
def test_prune_asks(
    run: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch, answer: str, left: list[int]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    said("prune", "mine", "2")
    assert steps(run) == left


def test_prune_where_nobody_can_be_asked(run: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert "there is no terminal to confirm on; add --yes" in said("prune", "mine", "2", status=2)
    assert steps(run) == [4, 3, 2, 1]


def test_prune_of_a_run_that_is_alive(run: Path, said: Callable[..., str]) -> None:
    with Checkpointer(CONFIG, alone(run, 1)):
        assert "still saves checkpoints of mine/0001" in said("prune", "mine", "2", "--yes", status=2)
    said("prune", "mine", "2", "--yes")


def test_prune_against_an_attempt_that_begins_meanwhile(
    run: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person answers, and by then the next attempt is at work: nothing is deleted."""

    class Late(Terminal):
        def readline(self, size: int = -1) -> str:
            Ledger(FolderStore(run / "checkpoints"), 1, "elsewhere").open()
            return "y\n"

    monkeypatch.setattr("sys.stdin", Late())
    assert "attempt 1 has taken over" in said("prune", "mine", "2", status=1)
    assert steps(run) == [4, 3, 2, 1]
    said("verify", "mine", "--all")


def test_an_older_attempt_that_is_still_alive_is_shut_out_by_a_prune(run: Path, said: Callable[..., str]) -> None:
    store = FolderStore(run / "checkpoints")
    zombie = Ledger(store, 0, "elsewhere:1:1:aa")
    zombie.open()
    said("prune", "mine", "2", "--yes")
    with pytest.raises(ledger.Fenced):
        zombie.prune([step_name(run, 4)], store.list(f"{step_name(run, 4)}/"))
    said("verify", "mine", "--all")


def test_looking_needs_no_torch_and_no_boto3(run: Path) -> None:
    code = """
import sys
from slurmopt.cli import main
for words in (["list"], ["show"], ["verify", "mine"], ["fetch", "mine", "--to", "copy"],
              ["prune", "mine", "--keep", "2", "--yes"]):
    assert main(["checkpoint", *words]) == 0
print({"torch", "boto3", "numpy", "zstandard"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    server = S3Server.start(new_folder())
    yield server
    server.stop()


@pytest.fixture
def in_s3(
    run: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> dict[str, Any]:
    """The run has a bucket too, and steps 5 and 6 in it."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    url = f"s3://{BUCKET}/{request.node.name}/{run.parents[2].name}"  # another one when the test is run again
    config = {**CONFIG, "s3": {"url": url, "every": 1, "endpoint": s3_server.endpoint}, "durable": "s3"}
    (run / "config.yaml").write_text(json.dumps({"checkpoint": config}))
    assert train(run, 6, attempt=1, config=config) == 4
    return config


def test_fetched_from_s3(run: Path, in_s3: dict[str, Any], said: Callable[..., str]) -> None:
    newest = data_of(said("list", "mine", "--json"))[0]
    assert (newest["step"], list(newest["tiers"])) == (6, ["shared", "s3"])
    assert "whole" not in said("verify", "mine", "6", "--tier", "s3")
    said("fetch", "mine", "6", "--from", "s3", "--to", "copy")
    said("verify", "copy")
    assert "is not on s3; it is on shared" in said("fetch", "mine", "2", "--from", "s3", "--to", "two", status=2)
    # All that is left is the bucket.
    (run / "checkpoints").rename(run / "elsewhere")
    said("fetch", "mine", "--to", str(run / "checkpoints"))
    assert steps(run) == [6]
    said("prune", "mine", "--keep", "1", "--tier", "s3", "--yes")
    assert said("verify", "mine", "--all") == ""


def test_without_credentials_the_other_tiers_are_shown(
    run: Path, in_s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    capsys.readouterr()
    assert main(["checkpoint", "list", "mine", "--json"]) == 0
    shown = capsys.readouterr()
    (line,) = [line for line in shown.err.splitlines() if not line.endswith(" …")]  # those come where it takes long
    assert line.startswith("slurmopt: s3: ")
    assert "credentials" in line
    assert [list(entry["tiers"]) for entry in data_of(shown.out)] == [["shared"]] * 6


def test_completion(run: Path) -> None:
    assert candidates("slurmopt checkpoint f") == ["fetch"]
    assert candidates("slurmopt checkpoint show m") == ["mine"]
    assert candidates("slurmopt checkpoint export mine --form") == ["--format"]
    assert candidates("slurmopt checkpoint export --format s") == ["safetensors"]
    assert candidates("slurmopt checkpoint fetch mine --to ") == []


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint"]) == 0
    assert "verify  read every byte" in capsys.readouterr().out


def test_a_run_without_checkpoints(run: Path, said: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    (run / "checkpoints").rename(run / "elsewhere")
    assert said("list", "mine") == ""
    assert data_of(said("list", "mine", "--json")) == []
    assert "mine/0001 has no complete checkpoint on shared" in said("verify", "mine", status=2)
