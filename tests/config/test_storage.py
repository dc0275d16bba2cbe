"""The group `storage`: short and long form, what is wrong with it in one line, and what ranks are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurmopt.config.checkpoint import Checkpoint
from slurmopt.config.composition.compose import compose
from slurmopt.config.composition.settings import settings
from slurmopt.config.schema import Settings
from slurmopt.config.stage_check import check_per_job, check_sources
from slurmopt.config.storage import StagedSource, Storage, from_word, stage_plan
from slurmopt.config.task import Task
from slurmopt.config.tiers import Scratch
from slurmopt.errors import ConfigError


def composed(project: Path, *words: str) -> Settings:
    return settings(compose(["task.command=[true]", *words]))


def test_the_short_and_the_long_form(project: Path) -> None:
    words = ("+storage.stage.one=/data/one", "+storage.stage.two={source:'s3://bucket/two',keep:true,verify:checksum}")
    assert composed(project, *words).storage.stage == {
        "one": StagedSource(source="/data/one"),
        "two": StagedSource(source="s3://bucket/two", keep=True, verify="checksum"),
    }


def test_variables_are_for_the_job(project: Path) -> None:
    typed = composed(project, "+storage.stage.a={source:'${oc.env:DATA}/a',into:'${oc.env:TMPDIR}'}")
    plan = stage_plan(typed.storage, typed.checkpoint)
    assert plan is not None
    assert (plan.entries["a"].source, plan.entries["a"].into) == ("${oc.env:DATA}/a", "${oc.env:TMPDIR}")
    assert from_word(plan.to_json_arg()) == plan


def test_the_folder_is_that_of_scratch_checkpoints_else_the_nodes_own() -> None:
    storage = Storage(stage={"a": "/data/a/"})
    plans = [
        stage_plan(storage, checkpoint) for checkpoint in (Checkpoint(), Checkpoint(scratch=Scratch(path="/nvme")))
    ]
    entries = [plan.entries["a"] for plan in plans if plan is not None]
    assert [(entry.source, entry.into) for entry in entries] == [
        ("/data/a", "${oc.env:TMPDIR,/tmp}"),
        ("/data/a", "/nvme"),
    ]
    assert stage_plan(Storage(), Checkpoint()) is None


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({"a-b": "/x"}, "storage.stage.a-b: is not a name; valid: up to 64 letters, digits and underscores"),
        ({"a": "x"}, "storage.stage.a.source: 'x' is not valid; valid: an absolute path, or s3://BUCKET/PREFIX"),
        ({"a": "gs://x/y"}, "storage.stage.a.source: 'gs://x/y' is not valid; valid: an absolute path"),
        ({"a": "s3://x"}, "storage.stage.a.source: 's3://x' is not a place in S3"),
        ({"a": 3}, "storage.stage.a.source: 3 is not valid"),
        ({"a": {"into": "/x"}}, "storage.stage.a.source: is missing"),
        ({"a": {"source": "/x", "sorce": "/y"}}, "storage.stage.a.sorce: unknown key (did you mean 'source'?)"),
        ({"a": {"source": "/x", "into": "y"}}, "storage.stage.a.into: 'y' is not an absolute path"),
        ({"a": {"source": "/x", "into": "/x/y"}}, "storage.stage.a.into: '/x/y' is inside of the source '/x'"),
        (
            {"a": {"source": "/x/y", "into": "/x"}},
            "storage.stage.a.source: '/x/y' is in '/x', the folder of the copies",
        ),
        ({"a": {"source": "/x", "verify": "crc"}}, "storage.stage.a.verify: 'crc' is not valid; valid: size, checksum"),
        ({"a": {"source": "/x", "keep": "no"}}, "storage.stage.a.keep: 'no' is not valid; valid: true, false"),
        ({"set": "/x", "SET": "/y"}, "storage.stage.SET: has the same variable SLURMOPT_STAGED_SET as 'set'"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(stage: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Storage(stage=stage)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_source_that_does_not_exist_is_told_at_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "mounted").mkdir()

    def check(source: str) -> list[str]:
        return check_sources(Settings(storage=Storage(stage={"a": source})))

    assert check(f"{tmp_path}/set") == check("s3://bucket/x") == check("${oc.env:NOT_SET_HERE}/x") == []
    monkeypatch.setenv("PLACE", str(tmp_path))
    with pytest.raises(ConfigError, match=r"^storage.stage.a.source: '.*/st' does not exist; what exists is '.*'$"):
        check("${oc.env:PLACE}/st")
    with pytest.raises(ConfigError, match=r"^storage.stage.a.source: '.*/broken' is a link to nothing$"):
        check(f"{tmp_path}/broken")
    for unseen in ("/no-such-mount/data", f"{tmp_path}/mounted/data"):
        assert check(unseen) == [f"storage.stage.a.source: {unseen!r} is not seen from this machine; not checked"]


def test_once_per_job_nothing_would_copy_on_the_other_nodes() -> None:
    def check(nodes: int, per: str) -> None:
        typed = Settings(storage=Storage(stage={"a": "/x"}), task=Task(command=["true"], per=per))
        typed.resources.nodes = typed.resources.most_nodes = nodes
        check_per_job(typed)

    check(1, "job")
    check(2, "node")
    with pytest.raises(ConfigError, match=r"^storage.stage: with task.per=job .*valid: task.per=rank or node"):
        check(2, "job")
