"""`slurmopt storage show` and `bench` of buckets: on a real S3 server, and on moto for what that does not know."""

from __future__ import annotations

import http.server
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from s3_server import BUCKET, S3Server
from storage.proxy import proxy

from slurmopt.cli import main

pytest.importorskip("boto3")

Answer = dict[str, dict[str, Any]]


@pytest.fixture
def server(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    def show(*words: str, status: int = 0) -> Answer:
        assert main(["storage", "show", *words, "--json"]) == status
        printed = capsys.readouterr().out
        assert "testing" not in printed, "a secret is shown"
        return {result["name"]: result for result in data_of(printed)["results"]}

    return show


def verdicts(results: Answer) -> dict[str, str]:
    return {name: result["verdict"] for name, result in results.items()}


def left(server: S3Server, prefix: str) -> list[Any]:
    client = server.client()
    objects = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
    return [*objects, *client.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix).get("Uploads", [])]


def test_permissions_are_tried_for_real_and_leave_nothing(server: S3Server, shown: Callable[..., Answer]) -> None:
    prefix = f"access/{uuid.uuid4().hex}"
    found = verdicts(shown(f"s3://{BUCKET}/{prefix}"))
    tried = ("write", "write once", "read", "list", "multipart upload", "list of uploads", "delete")
    assert {name: found[name] for name in ("reach", "identity", *tried)} == dict.fromkeys(
        ("reach", "identity", *tried), "pass"
    )
    assert found["lifecycle"] == "skipped"
    assert left(server, prefix) == []


def test_a_bucket_that_is_not_there(server: S3Server, shown: Callable[..., Answer]) -> None:
    found = shown("s3://no-such-bucket", status=1)
    assert found["reach"]["verdict"] == "fail"
    assert "aws s3api create-bucket --bucket no-such-bucket" in found["reach"]["mend"]
    assert found["permissions"]["verdict"] == "skipped"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("AWS_SECRET_ACCESS_KEY", "wrong", "the secret key does not fit the access key"),
        ("AWS_ACCESS_KEY_ID", "", "no credentials"),
    ],
)
def test_wrong_credentials(
    name: str,
    value: str,
    said: str,
    server: S3Server,
    shown: Callable[..., Answer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(name, value)
    if not value:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "")
    found = shown(f"s3://{BUCKET}", status=1)
    assert found["identity"]["verdict"] == "fail"
    assert said in found["identity"]["text"]
    assert "AWS_ACCESS_KEY_ID" in found["identity"]["mend"]


def test_an_endpoint_where_nobody_answers(server: S3Server, shown: Callable[..., Answer]) -> None:
    found = shown(f"s3://{BUCKET}", "--endpoint", "http://127.0.0.1:9", status=1)
    assert found["reach"]["verdict"] == "fail"
    assert "nobody answers at http://127.0.0.1:9" in found["reach"]["text"]
    assert "AWS_ENDPOINT_URL_S3" in found["reach"]["mend"]


def test_one_permission_that_is_missing_has_its_mend(server: S3Server, shown: Callable[..., Answer]) -> None:
    """SIMULATED: the real server has one user, who may do all; a line before it answers deletions with 403."""
    body = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>"
    refused = b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n%s"
    deletes = []

    def client(data: bytes, position: int) -> bytes:
        if b"?delete" in data.split(b"\r\n", 1)[0]:
            deletes.append(data)
        return data

    def server_answer(data: bytes, position: int) -> bytes:
        if not deletes or not data.startswith(b"HTTP/1.1 200"):
            return data
        deletes.clear()
        return refused % (len(body), body)

    with proxy(server.endpoint, client, spoil_answer=server_answer) as endpoint:
        found = shown(f"s3://{BUCKET}/denied", "--endpoint", endpoint, status=1)
    assert verdicts(found)["write"] == "pass"
    assert found["delete"]["verdict"] == "fail"
    assert found["delete"]["mend"] == f"allow s3:DeleteObject on arn:aws:s3:::{BUCKET}/denied/*"


def test_bench_of_a_bucket(server: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = f"bench/{uuid.uuid4().hex}"
    words = ["storage", "bench", f"s3://{BUCKET}/{prefix}", "--bytes", "40M", "--seconds", "0.5", "--json"]
    assert main(words) in (0, 1)
    told = data_of(capsys.readouterr().out)
    assert [rate["name"] for rate in told["rates"]] == [
        "write, one connection",
        "read, one connection",
        "write, parallel",
        "read, parallel",
    ]
    assert all(0 < rate["count"] <= 40 << 20 for rate in told["rates"])
    assert left(server, prefix) == []


def test_bench_where_nobody_answers(server: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storage", "bench", f"s3://{BUCKET}", "--endpoint", "http://127.0.0.1:9", "--json"]) == 1
    told = data_of(capsys.readouterr().out)
    assert (told["rates"], told["results"][0]["verdict"]) == ([], "fail")


@pytest.fixture
def moto(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    import boto3

    for name, value in {
        "AWS_ACCESS_KEY_ID": "key-of-test",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_S3": moto_endpoint,
    }.items():
        monkeypatch.setenv(name, value)
    return boto3.client("s3", endpoint_url=moto_endpoint, region_name="us-east-1")


@pytest.fixture
def bucket(moto: Any) -> str:
    name = f"bucket-{uuid.uuid4().hex}"
    moto.create_bucket(Bucket=name)
    return name


def rules(client: Any, bucket: str, *given: dict[str, Any]) -> None:
    for number, rule in enumerate(given):
        rule |= {"ID": f"rule-{number}", "Status": "Enabled"}
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": list(given)})


def test_without_lifecycle_rules_the_mend_is_a_rule(moto: Any, bucket: str, shown: Callable[..., Answer]) -> None:
    found = shown(f"s3://{bucket}/runs")
    assert found["lifecycle"]["verdict"] == "warn"
    rule = json.loads(found["lifecycle"]["mend"].split("replaces all): ")[1])
    moto.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
    again = shown(f"s3://{bucket}/runs")
    assert (again["lifecycle"]["verdict"], again["expiry"]["verdict"]) == ("pass", "pass")


def test_rules_that_take_checkpoints_away(moto: Any, bucket: str, shown: Callable[..., Answer]) -> None:
    rules(
        moto,
        bucket,
        {"Filter": {"Prefix": "runs/"}, "Expiration": {"Days": 30}},
        {"Filter": {"Prefix": ""}, "Transitions": [{"Days": 10, "StorageClass": "GLACIER"}]},
        {"Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 1}},
    )
    expiry = shown(f"s3://{bucket}/runs")["expiry"]
    assert expiry["verdict"] == "warn"
    assert (
        expiry["text"]
        == "rule rule-0 deletes objects after 30 days; rule rule-1 moves objects to GLACIER after 10 days"
    )


def test_objects_that_cannot_be_read_at_once(moto: Any, bucket: str, shown: Callable[..., Answer]) -> None:
    moto.put_object(Bucket=bucket, Key="runs/a", Body=b"x")
    moto.put_object(Bucket=bucket, Key="runs/b", Body=b"x", StorageClass="GLACIER")
    found = shown(f"s3://{bucket}/runs", status=1)
    assert found["storage classes"]["verdict"] == "fail"
    assert "1 GLACIER" in found["storage classes"]["text"]
    assert shown(f"s3://{bucket}/other")["storage classes"]["verdict"] == "pass"


def test_the_region_of_the_bucket(moto: Any, shown: Callable[..., Answer]) -> None:
    name = f"bucket-{uuid.uuid4().hex}"
    moto.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    found = shown(f"s3://{name}", status=1)
    assert found["region"]["verdict"] == "fail"
    assert "--region eu-central-1" in found["region"]["mend"]
    assert shown(f"s3://{name}", "--region", "eu-central-1")["region"]["verdict"] == "pass"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--endpoint", "nonsense"], "--endpoint: is not an address such as"),
        (["--endpoint", "https://name:secret@host"], "--endpoint: holds a name or password"),
        (["--region", "a b"], "'a b' is not a region"),
    ],
)
def test_bad_input(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storage", "show", "s3://bucket", *words]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert said in told
    assert "secret" not in told


def test_the_doctor_looks_at_a_bucket(server: S3Server, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def found(place: str, status: int) -> dict[str, dict[str, Any]]:
        assert main(["doctor", "--json", "--folder", str(tmp_path), place]) == status
        return {each["name"]: each for each in data_of(capsys.readouterr().out)}

    assert found(f"s3://{BUCKET}/{uuid.uuid4().hex}", status=0)["multipart upload"]["verdict"] == "pass"
    failed = found("s3://no-such-bucket/x", status=1)["reach"]
    assert failed["text"].startswith("s3://no-such-bucket/x: ")
    assert failed["mend"].startswith("aws s3api create-bucket")


def test_a_launch_asks_the_doctor_of_its_bucket(
    server: S3Server, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("launch", "task.command=[true]", "launch.backend=local", "launch.doctor=true")
    assert main([*words, "checkpoint.s3.url=s3://no-such-bucket/x"]) == 2
    assert "doctor: reach: s3://no-such-bucket/x: " in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*/*/events.jsonl"))


class _SaysNothing(http.server.BaseHTTPRequestHandler):
    """Answers each request with 200 and without a body, which no S3 server does."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - the names of http.server

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def silent_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _SaysNothing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_server_that_does_not_speak_s3(
    silent_server: str, shown: Callable[..., Answer], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["s3://bucket/x", "--endpoint", silent_server, "--region", "us-east-1"]
    results = shown(*words, status=1)
    assert results["multipart upload"]["text"] == "the server's answer is not one of S3: KeyError: 'UploadId'"
    assert results["storage classes"]["verdict"] == "pass"
    assert main(["storage", "bench", *words, "--bytes", "8M", "--json"]) == 1
    (failure,) = [one for one in data_of(capsys.readouterr().out)["results"] if one["verdict"] == "fail"]
    assert "8,388,608 bytes were written, and 0 are read back" in failure["text"]
