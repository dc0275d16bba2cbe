"""The group `checkpoint`: what is refused and how, what waits for the job's environment, and how the job reads it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from slurmopt import launch
from slurmopt.config.checkpoint import Checkpoint, checkpoint_of
from slurmopt.config.composition.settings import load
from slurmopt.errors import ConfigError
from slurmopt.launching import run_plan
from slurmopt.units import INTERVAL_FORMS, steps_or_seconds

LOCAL = ["+experiment=mine", "launch.backend=local"]
URL = "checkpoint.s3.url=s3://our-bucket/runs"


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (50, ("steps", 50)),
        ("50", ("steps", 50)),
        (" 50 steps ", ("steps", 50)),
        ("1 step", ("steps", 1)),
        ("10min", ("seconds", 600)),
        ("1d 12h", ("seconds", 129600)),
        ("90s", ("seconds", 90)),
        ("00:10:00", ("seconds", 600)),
        ("auto", ("auto", 0)),
        ("AUTO", ("auto", 0)),
    ],
)
def test_how_often(value: Any, meaning: tuple[str, int]) -> None:
    assert steps_or_seconds(value) == meaning


@pytest.mark.parametrize("value", ["", "0", "-5", "1.5", 1.5, "soon", "0min", True, None, "50 stairs", "9" * 5000, "²"])
def test_how_often_is_refused_with_the_valid_forms(value: Any) -> None:
    with pytest.raises(ValueError, match="not a number of steps or a time") as refused:
        steps_or_seconds(value)
    assert INTERVAL_FORMS in str(refused.value)


@given(st.text())
def test_no_text_crashes_the_reading_of_how_often(text: str) -> None:
    with contextlib.suppress(ValueError):
        kind, amount = steps_or_seconds(text)
        assert (kind == "auto") == (amount == 0)


REFUSED = [
    (["checkpoint.scratch.every=soon"], "checkpoint.scratch.every: not a number of steps or a time: 'soon'; valid: "),
    (["checkpoint.s3.every=0"], "checkpoint.s3.every: not a number of steps"),
    (["checkpoint.shared.every=1.5"], "checkpoint.shared.every: not a number of steps"),
    (["checkpoint.shared.every=null"], "checkpoint.shared.every"),
    (["checkpoint.shared.keep=0"], "checkpoint.shared.keep: 0 is not valid; valid: a whole number, 1 or more"),
    (["checkpoint.shared.keep=many"], "checkpoint.shared.keep: "),
    (["checkpoint.shared.keep_every=0"], "checkpoint.shared.keep_every: 0 is not valid"),
    (["checkpoint.s3.best=-1"], "checkpoint.s3.best: -1 is not valid"),
    (["checkpoint.s3.best=1"], "checkpoint.s3.best: needs checkpoint.metric"),
    (["checkpoint.s3.compression=gzip"], "checkpoint.s3.compression: 'gzip' is not valid; valid: zstd"),
    (["checkpoint.scratch.path=scratch"], "checkpoint.scratch.path: 'scratch' is not an absolute path"),
    (["checkpoint.scratch.path=''"], "checkpoint.scratch.path: '' is not valid; valid: a text, or null"),
    (
        ["checkpoint.shared.path=Auto"],
        "checkpoint.shared.path: 'Auto' is not an absolute path; valid: auto, or an absolute",
    ),
    (
        ["checkpoint.s3.url=our-bucket"],
        "checkpoint.s3.url: 'our-bucket' is not a bucket's URL; valid: s3://BUCKET/PREFIX",
    ),
    (["checkpoint.s3.url=s3://ab/runs"], "checkpoint.s3.url: 's3://ab/runs' is not a bucket's URL"),
    (["checkpoint.s3.url=s3://Our_Bucket"], "checkpoint.s3.url: 's3://Our_Bucket' is not a bucket's URL"),
    (["checkpoint.s3.url=https://our-bucket/x"], "checkpoint.s3.url: 'https://our-bucket/x' is not a bucket's URL"),
    (["checkpoint.s3.url=s3://our-bucket/a//b"], "checkpoint.s3.url: 's3://our-bucket/a//b' has an empty or dotted"),
    (["checkpoint.s3.url=s3://our-bucket/../b"], "checkpoint.s3.url: 's3://our-bucket/../b' has an empty or dotted"),
    (
        ["checkpoint.s3.endpoint=minio:9000"],
        "checkpoint.s3.endpoint: 'minio:9000' is not a server; valid: https://HOST",
    ),
    (["checkpoint.s3.endpoint=http://minio:port"], "checkpoint.s3.endpoint: 'http://minio:port' is not a server"),
    (["checkpoint.s3.storage_class=STANDARD-IA"], "(did you mean 'STANDARD_IA'?)"),
    (["checkpoint.s3.storage_class=DEEP_ARCHIVE"], "checkpoint.s3.storage_class: 'DEEP_ARCHIVE' is not valid"),
    (["checkpoint.s3.accelerate=true", "checkpoint.s3.url=s3://our.bucket"], "accelerate: needs a bucket without dots"),
    (["checkpoint.s3.accelerate=true", "checkpoint.s3.endpoint=http://x"], "only one of these can be set"),
    ([f"+checkpoint.s3.tags={{{','.join(f't{n}:x' for n in range(11))}}}"], "checkpoint.s3.tags: has 11 tags"),
    ([f"+checkpoint.s3.tags.a={'x' * 300}"], "valid: a text of up to 256 characters"),
    (["checkpoint.mode=less"], "checkpoint.mode: 'less' is not valid; valid: min, max"),
    (["checkpoint.durable=s3"], "checkpoint.durable: the tier 's3' is off; valid: auto, shared"),
    (["checkpoint.durable=s4"], "checkpoint.durable: 's4' is not valid"),
    (["checkpoint.buffers=3"], "checkpoint.buffers: 3 is not valid; valid: a whole number, 1 to 2"),
    (["checkpoint.failures=0"], "checkpoint.failures: 0 is not valid"),
    (["checkpoint.deadline=never"], "checkpoint.deadline: not a time: 'never'"),
    (["checkpoint.mtbf=24hours"], "checkpoint.mtbf: not a time: '24hours'"),
    (["checkpoint.incremental=maybe"], "checkpoint.incremental: "),
    (["checkpoint.s3.kep=2"], "checkpoint.s3.kep: unknown key (did you mean 'keep'?); valid in 'checkpoint.s3': "),
    (["+checkpoint.s4.url=x"], "checkpoint.s4: unknown key; valid in 'checkpoint': scratch"),
    (["+checkpoint.s3.aws_access_key_id=AKIA"], "checkpoint.s3.aws_access_key_id: unknown key"),
    (["+checkpoint.s3.secret=x"], "checkpoint.s3.secret: unknown key"),
    (["checkpoint.s3=null"], "checkpoint.s3"),
    (["checkpoint.scratch.path='${oc.decode:${oc.env:HOME}}'"], "checkpoint.scratch.path: uses oc.env inside another"),
]


@pytest.mark.parametrize(("words", "expected"), REFUSED)
def test_one_clear_line(words: list[str], expected: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = launch.main([*LOCAL, *words])
    output = capsys.readouterr()
    assert expected in output.err
    assert len(output.err.splitlines()) == 1
    assert status == 2
    assert not (project / "runs").exists()


def test_credentials_in_an_endpoint_are_refused_and_not_repeated(project: Path, capsys) -> None:
    assert launch.main([*LOCAL, "checkpoint.s3.endpoint=http://me:s3cret@host"]) == 2
    said = capsys.readouterr().err
    assert "checkpoint.s3.endpoint: has credentials in it" in said
    assert "s3cret" not in said


def settings_of(*words: str) -> Checkpoint:
    return run_plan.plan([*LOCAL, *words]).job.settings.checkpoint


def test_which_tiers_are_on_and_which_one_is_waited_for(project: Path) -> None:
    assert [*settings_of().tiers] == ["shared"]
    off = settings_of("checkpoint.shared.path=null")
    assert (off.tiers, off.durable_tier) == ({}, None)
    every = settings_of("checkpoint.scratch.path=/tmp", URL)
    assert [*every.tiers] == ["scratch", "shared", "s3"]
    assert every.durable_tier == "shared"
    assert settings_of("checkpoint.scratch.path=/tmp", URL, "checkpoint.shared.path=null").durable_tier == "s3"
    assert settings_of(URL, "checkpoint.durable=s3").durable_tier == "s3"


def test_good_values_arrive(project: Path) -> None:
    found = settings_of(
        URL,
        "checkpoint.scratch.every=50",
        "checkpoint.s3.every=10min",
        "checkpoint.s3.best=2",
        "checkpoint.metric=val_loss",
        "checkpoint.s3.storage_class=COLD",
        "checkpoint.s3.endpoint=https://minio.example:9000",
        "+checkpoint.s3.tags={team: vision, cost: 7}",
    )
    assert (found.scratch.every, found.s3.every, found.scratch.keep, found.s3.keep) == ("50", "10min", 2, 3)
    assert found.s3.tags == {"team": "vision", "cost": "7"}
    assert found.s3.storage_class == "COLD"


def test_the_jobs_own_environment_fills_in_the_places(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At launch nothing is asked for, not even whether it is set; the job has its own values."""
    monkeypatch.delenv("BUCKET", raising=False)
    monkeypatch.setenv("TMPDIR", "/of/the/login/node")
    words = [
        "+mine=${oc.env:TMPDIR}/deep",
        "checkpoint.scratch.path=${mine}",
        "checkpoint.s3.url='s3://${oc.env:BUCKET}/runs'",
        "checkpoint.s3.region='${oc.env:REGION,eu-west-1}'",
        "+checkpoint.s3.tags.team=${oc.env:TEAM}",
    ]
    assert launch.main([*LOCAL, *words]) == 0
    (config,) = project.glob("runs/*/*/config.yaml")
    assert "/of/the/login/node" not in config.read_text() + config.with_name("job.sbatch").read_text()
    stored, typed = load(config)
    assert stored["checkpoint"]["s3"]["url"] == "s3://${oc.env:BUCKET}/runs"
    assert typed.checkpoint.scratch.path == "${oc.env:TMPDIR}/deep"

    group = OmegaConf.load(config).checkpoint
    with pytest.raises(ConfigError, match=r"checkpoint\.s3\.url: .*BUCKET.* not found"):
        checkpoint_of(group)
    for name, value in {"TMPDIR": "/local", "BUCKET": "their-bucket", "TEAM": "vision"}.items():
        monkeypatch.setenv(name, value)
    found = checkpoint_of(group)
    assert (found.scratch.path, found.s3.url) == ("/local/deep", "s3://their-bucket/runs")
    assert (found.s3.region, found.s3.tags) == ("eu-west-1", {"team": "vision"})
    monkeypatch.setenv("BUCKET", "NO")
    with pytest.raises(ConfigError, match=r"^checkpoint\.s3\.url: 's3://NO/runs' is not a bucket's URL"):
        checkpoint_of(group)
    with pytest.raises(ConfigError, match=r"^checkpoint\.scratch\.path: .* is not filled in"):
        checkpoint_of(typed.checkpoint)


def test_the_job_reads_it_from_whatever_training_code_has(project: Path) -> None:
    typed = settings_of(URL, "checkpoint.scratch.every=50")
    untyped = OmegaConf.create({"checkpoint": asdict(typed)}).checkpoint
    for given_value in (typed, untyped, OmegaConf.structured(typed), asdict(typed)):
        assert asdict(checkpoint_of(given_value)) == asdict(typed)
    assert checkpoint_of({}) == Checkpoint()
    assert checkpoint_of({"scratch": {"path": "/local", "every": 50}}).scratch.every == "50"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            {"s3": {"kep": 2}},
            r"^checkpoint\.s3\.kep: unknown key \(did you mean 'keep'\?\); valid in 'checkpoint\.s3': ",
        ),
        ({"scrach": {}}, r"^checkpoint\.scrach: unknown key \(did you mean 'scratch'\?\)"),
        ({"s3": {"aws_secret_access_key": "x"}}, r"^checkpoint\.s3\.aws_secret_access_key: unknown key"),
        ({7: 1}, r"^checkpoint\.7: unknown key"),
        (None, r"^checkpoint: is not a group but a NoneType"),
        ({"s3": "s3://x"}, r"^checkpoint\.s3: is not a group but a str"),
        ({"shared": {"keep": "3"}}, r"^checkpoint\.shared\.keep: '3' is not valid; valid: a whole number"),
        ({"shared": {"keep": True}}, r"^checkpoint\.shared\.keep: True is not valid"),
        ({"shared": {"every": None}}, r"^checkpoint\.shared\.every: not a number of steps"),
        ({"shared": {"path": 5}}, r"^checkpoint\.shared\.path: 5 is not valid"),
        ({"shared": {"compression": ["zstd"]}}, r"^checkpoint\.shared\.compression: "),
        ({"s3": {"tags": ["a"]}}, r"^checkpoint\.s3\.tags: \['a'\] is not a mapping"),
        ({"s3": {"tags": {"aws:x": "1"}}}, r"^checkpoint\.s3\.tags\.aws:x: is not a name for a tag"),
        ({"s3": {"tags": {"a": 1}}}, r"^checkpoint\.s3\.tags\.a: 1 is not valid"),
        ({"s3": {"accelerate": "yes"}}, r"^checkpoint\.s3\.accelerate: 'yes' is not valid; valid: true, false"),
        ({"deadline": None}, r"^checkpoint\.deadline: not a time"),
        ({"mode": 1}, r"^checkpoint\.mode: '1' is not valid"),
        ({"buffers": 1.5}, r"^checkpoint\.buffers: 1\.5 is not valid"),
        (OmegaConf.create({"s3": {"url": "???"}}), r"^s3\.url: .*Missing"),
    ],
)
def test_a_plain_mapping_is_checked_as_strictly(value: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        checkpoint_of(value)


def test_the_jobs_python_needs_neither_hydra_nor_omegaconf() -> None:
    code = (
        "import sys; from slurmopt.config.checkpoint import checkpoint_of; checkpoint_of({'buffers': 1});"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'hydra', 'omegaconf', 'yaml', 'torch'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
