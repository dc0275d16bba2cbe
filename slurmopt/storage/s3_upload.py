"""Large objects to S3: one put, or a multipart upload in parallel."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from slurmopt.errors import StorageError
from slurmopt.storage import s3_parallel
from slurmopt.storage.s3_body import MIB, Body, parts
from slurmopt.storage.s3_bucket import S3Bucket
from slurmopt.storage.s3_errors import code_of
from slurmopt.storage.s3_transport import Operation

PART = 32 * MIB
"""Size of the first parts."""
ABORT_SHARE, ABORT_SECONDS = 0.2, 30.0
"""Time for cleaning up after a failure: this share of the deadline, and no more than these seconds."""


def upload(store: S3Bucket, current: Operation, key: str, pieces: Iterable[memoryview]) -> None:
    """Puts `pieces` as one object; what fails is aborted."""
    found = parts(pieces, PART)
    first = next(found)
    second = next(found, None)
    if second is None:
        body = Body(first)
        options = {"Body": body, **body.checksum(), **store.payload}
        store.attempt(lambda: store.request("put_object", key, **options), key)
        return
    upload_id = _create(store, key)
    try:
        calls = _calls(store, key, upload_id, itertools.chain([first, second], found))
        _complete(store, key, upload_id, s3_parallel.run(current, calls))
    except BaseException:
        _abort_after_failure(store, key, upload_id)
        raise


def _create(store: S3Bucket, key: str) -> str:
    answer = store.attempt(
        lambda: store.request("create_multipart_upload", key, ChecksumAlgorithm="CRC32", **store.payload), key
    )
    return str(answer["UploadId"])


def _calls(
    store: S3Bucket, key: str, upload_id: str, found: Iterator[list[memoryview]]
) -> Iterator[Callable[[], dict[str, Any]]]:
    for number, part in enumerate(found, 1):
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
            # An earlier try came through although its answer did not: nobody else writes this key.
            if code_of(error) != "NoSuchUpload" or not _is_there(store, key, total):
                raise

    store.attempt(complete, key)


def _is_there(store: S3Bucket, key: str, total: int) -> bool:
    try:
        return store.size(key) == total
    except FileNotFoundError:
        return False


def _abort_after_failure(store: S3Bucket, key: str, upload_id: str) -> None:
    # What is raised is why the upload failed; parts that are left now are what abort_abandoned finds later.
    seconds = min(ABORT_SECONDS, ABORT_SHARE * store.deadline)
    with Operation(seconds), contextlib.suppress(StorageError, FileNotFoundError):
        store.attempt(lambda: store.request("abort_multipart_upload", key, UploadId=upload_id), key)


def abort_abandoned(store: S3Bucket, prefix: str) -> int:
    """Aborts every upload below `prefix`; how many."""
    ended = 0
    while found := _unfinished(store, prefix):
        for key, upload_id in found:
            abort = partial(store.request, "abort_multipart_upload", key, UploadId=upload_id)
            with contextlib.suppress(FileNotFoundError):
                store.attempt(abort, key)
            ended += 1
    return ended


def _unfinished(store: S3Bucket, prefix: str) -> list[tuple[str, str]]:
    root = store.key("")
    answer = store.attempt(
        lambda: store.client.list_multipart_uploads(Bucket=store.bucket, Prefix=store.key(prefix)), prefix
    )
    return [(entry["Key"][len(root) :], entry["UploadId"]) for entry in answer.get("Uploads", [])]
