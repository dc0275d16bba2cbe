"""What S3Store asks for beside the bytes, on moto: the real server has no tags, classes, keys or stored checksums."""

from __future__ import annotations

import uuid
import zlib
from base64 import b64encode
from hashlib import md5
from typing import Any

import pytest

pytest.importorskip("boto3")

import boto3

from slurmopt.storage.s3 import parts
from slurmopt.storage.s3.store import S3Store

MIB = 1 << 20
EVERYTHING: dict[str, Any] = {
    "storage_class": "STANDARD_IA",
    "kms_key": "alias/checkpoints",
    "tags": {"run": "a b", "kept": "30 days"},
    "requester_pays": True,
}


@pytest.fixture
def client(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anybody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    return boto3.client("s3", endpoint_url=moto_endpoint, region_name="us-east-1")


@pytest.fixture
def bucket(client: Any) -> str:
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    client.create_bucket(Bucket=name)
    return name


def put(store: S3Store, kind: str, data: bytes) -> None:
    if kind == "small":
        assert store.put_new("key", data)
    else:
        store.write("key", [memoryview(data)])


@pytest.mark.parametrize("kind", ["small", "one put", "multipart"])
def test_tags_key_and_class_go_with_every_object(
    client: Any, moto_endpoint: str, bucket: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART", 5 * MIB)
    store = S3Store(f"s3://{bucket}/run", endpoint=moto_endpoint, region="us-east-1", **EVERYTHING)
    put(store, kind, b"x" * (12 * MIB if kind == "multipart" else 100))
    head = client.head_object(Bucket=bucket, Key="run/key")
    # Small files are read at any time, and are too small for the classes that cost less.
    assert head.get("StorageClass") == (None if kind == "small" else "STANDARD_IA")
    assert head["ServerSideEncryption"] == "aws:kms"
    assert head["SSEKMSKeyId"] == "alias/checkpoints"
    tags = client.get_object_tagging(Bucket=bucket, Key="run/key")["TagSet"]
    assert {tag["Key"]: tag["Value"] for tag in tags} == EVERYTHING["tags"]


@pytest.mark.parametrize("kind", ["small", "one put"])
def test_the_checksum_is_kept_beside_the_object(client: Any, moto_endpoint: str, bucket: str, kind: str) -> None:
    data = b"some bytes"
    put(S3Store(f"s3://{bucket}", endpoint=moto_endpoint, region="us-east-1"), kind, data)
    head = client.head_object(Bucket=bucket, Key="key", ChecksumMode="ENABLED")
    assert head["ChecksumCRC32"] == b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


def test_parts_are_what_was_written(
    client: Any, moto_endpoint: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART", 5 * MIB)
    data = bytes(range(256)) * (48 * 1024)
    put(S3Store(f"s3://{bucket}", endpoint=moto_endpoint, region="us-east-1"), "multipart", data)
    digests = b"".join(md5(data[start : start + 5 * MIB]).digest() for start in range(0, len(data), 5 * MIB))
    assert client.head_object(Bucket=bucket, Key="key")["ETag"] == f'"{md5(digests).hexdigest()}-3"'
    assert client.get_object(Bucket=bucket, Key="key")["Body"].read() == data


def test_put_new_is_conditional_there_too(moto_endpoint: str, bucket: str, client: Any) -> None:
    store = S3Store(f"s3://{bucket}/run", endpoint=moto_endpoint, region="us-east-1", **EVERYTHING)
    assert store.put_new("key", b"one")
    assert not store.put_new("key", b"two")
    assert store.list("") == ["key"]
    store.delete(["key"])
    assert store.list("") == []
