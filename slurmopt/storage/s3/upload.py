"""Uploads large objects: one put, or a multipart upload in parallel."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from slurmopt.errors import StorageError
from slurmopt.storage.s3 import parallel
from slurmopt.storage.s3.body import Body
from slurmopt.storage.s3.bucket import S3Bucket
from slurmopt.storage.s3.errors import code_of
from slurmopt.storage.s3.parts import parts
from slurmopt.storage.s3.transport import Operation

ABORT_SHARE, ABORT_SECONDS = 0.2, 30.0
"""Time limit for the cleanup after a failure: a share of the deadline, and seconds."""


def upload(store: S3Bucket, current: Operation, key: str, pieces: Iterable[memoryview]) -> None:
    """Uploads `pieces` as one object; aborts the upload where it fails."""
    upload_parts = parts(pieces)
    first = next(upload_parts)
    second = next(upload_parts, None)
    if second is None:
        body = Body(first)
        options = {"Body": body, **body.checksum(), **store.payload}
        store.attempt(lambda: store.request("put_object", key, **options), key)
        return
    upload_id = _create(store, key)
    try:
        calls = _calls(store, key, upload_id, itertools.chain([first, second], upload_parts))
        _complete(store, key, upload_id, parallel.run(current, calls))
    except BaseException:
        _abort_after_failure(store, key, upload_id)
        raise


def _create(store: S3Bucket, key: str) -> str:
    answer = store.attempt(
        lambda: store.request("create_multipart_upload", key, ChecksumAlgorithm="CRC32", **store.payload), key
    )
    return str(answer["UploadId"])


def _calls(
    store: S3Bucket, key: str, upload_id: str, upload_parts: Iterator[list[memoryview]]
) -> Iterator[Callable[[], dict[str, Any]]]:
    for number, part in enumerate(upload_parts, 1):
        yield partial(_send, store, key, upload_id, number, part)


def _send(store: S3Bucket, key: str, upload_id: str, number: int, part: list[memoryview]) -> dict[str, Any]:
    body = Body(part)
    options = {"UploadId": upload_id, "PartNumber": number, "Body": body, **body.checksum()}
    answer = store.attempt(lambda: store.request("upload_part", key, **options), key)
    return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumCRC32": options["ChecksumCRC32"], "bytes": len(body)}


def _complete(store: S3Bucket, key: str, upload_id: str, sent: list[dict[str, Any]]) -> None:
    total = sum(part.pop("bytes") for part in sent)

    def complete() -> None:
        try:
            store.request("complete_multipart_upload", key, UploadId=upload_id, MultipartUpload={"Parts": sent})
        except store.client.exceptions.ClientError as error:
            # An earlier attempt succeeded although its response was lost: nobody else writes this key.
            if code_of(error) != "NoSuchUpload" or not _exists(store, key, total):
                raise

    store.attempt(complete, key)


def _exists(store: S3Bucket, key: str, total: int) -> bool:
    try:
        return store.size(key) == total
    except FileNotFoundError:
        return False


def _abort_after_failure(store: S3Bucket, key: str, upload_id: str) -> None:
    # The caller raises the error of the upload. Parts that remain are removed by a later abort_abandoned.
    seconds = min(ABORT_SECONDS, ABORT_SHARE * store.deadline)
    with Operation(seconds), contextlib.suppress(StorageError, FileNotFoundError):
        store.attempt(lambda: store.request("abort_multipart_upload", key, UploadId=upload_id), key)


def abort_abandoned(store: S3Bucket, prefix: str) -> int:
    """Aborts every upload below `prefix`; returns how many."""
    aborted = 0
    while uploads := _unfinished(store, prefix):
        for key, upload_id in uploads:
            abort = partial(store.request, "abort_multipart_upload", key, UploadId=upload_id)
            with contextlib.suppress(FileNotFoundError):
                store.attempt(abort, key)
            aborted += 1
    return aborted


def _unfinished(store: S3Bucket, prefix: str) -> list[tuple[str, str]]:
    root = store.key("")
    answer = store.attempt(
        lambda: store.client.list_multipart_uploads(Bucket=store.bucket, Prefix=store.key(prefix)), prefix
    )
    return [(entry["Key"][len(root) :], entry["UploadId"]) for entry in answer.get("Uploads", [])]
