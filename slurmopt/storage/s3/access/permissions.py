"""Tries what checkpoints do in a bucket, for real, with small objects that are removed again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from slurmopt.checks.result import CheckResult
from slurmopt.errors import SlurmoptError
from slurmopt.storage.s3 import errors
from slurmopt.storage.s3.access.probe import ODD, Probe, odd
from slurmopt.storage.s3.body import Body

_DENIED = errors.DENIED | {"403"}
_CONTENT = b"slurmopt storage show: a try, which may be deleted\n"


def permissions(probe: Probe) -> list[CheckResult]:
    """A verdict on each permission that checkpoints need."""
    key = f".slurmopt-check-{os.urandom(6).hex()}"
    results: list[CheckResult] = []
    try:
        for name, needed, call in _tries(probe, key):
            results.append(_tried(probe, name, needed, call))
    finally:
        with contextlib.suppress(SlurmoptError, FileNotFoundError):
            probe.store.delete([key])
    return results


def _tries(probe: Probe, key: str) -> Iterator[tuple[str, str, Callable[[], str]]]:
    """Each with the permission that it needs."""
    store = probe.store

    def put() -> str:
        assert store.put_new(key, _CONTENT)
        return "an object was written"

    def put_again() -> str:
        if store.put_new(key, b"other"):
            raise _Unfit(
                "the server takes a second writer of the same object: two attempts could commit one checkpoint"
            )
        return "a second writer is refused (If-None-Match)"

    def get() -> str:
        if store.get(key) != _CONTENT:
            raise _Unfit("the object has other bytes than were written")
        return "it was read back"

    def names() -> str:
        return "its name is listed" if key in store.list(key) else _unfit("it is not listed")

    yield "write", "s3:PutObject", put
    yield "write once", "s3:PutObject", put_again
    yield "read", "s3:GetObject", get
    yield "list", "s3:ListBucket", names
    yield "multipart upload", "s3:PutObject", lambda: _multipart(probe, f"{key}-parts")
    yield "list of uploads", "s3:ListBucketMultipartUploads", lambda: _uploads(probe)
    yield "delete", "s3:DeleteObject", lambda: _delete(probe, key)


class _Unfit(SlurmoptError):
    """The server permits it, and does not do what it should."""


def _unfit(text: str) -> str:
    raise _Unfit(text)


def _multipart(probe: Probe, key: str) -> str:
    """Begins an upload, sends a part, and aborts it."""
    store = probe.store
    upload = store.attempt(lambda: store.request("create_multipart_upload", key, **store.payload), key)["UploadId"]
    try:
        body = Body([memoryview(_CONTENT)])
        part = {"UploadId": upload, "PartNumber": 1, "Body": body, **body.checksum()}
        store.attempt(lambda: store.request("upload_part", key, **part), key)
    finally:
        store.attempt(lambda: store.request("abort_multipart_upload", key, UploadId=upload), key)
    return "a part was sent, and the upload aborted"


def _uploads(probe: Probe) -> str:
    probe.store.attempt(lambda: probe.client.list_multipart_uploads(Bucket=probe.bucket, Prefix=probe.prefix), "")
    return "unfinished uploads are listed"


def _delete(probe: Probe, key: str) -> str:
    probe.store.delete([key])
    return "the object is gone" if not probe.store.list(key) else _unfit("the object is still there")


def _tried(probe: Probe, name: str, needed: str, call: Callable[[], str]) -> CheckResult:
    try:
        return CheckResult(name, "pass", call())
    except (SlurmoptError, FileNotFoundError, FileExistsError) as error:
        is_denied = error.__cause__ is not None and errors.code_of(error.__cause__) in _DENIED
        return CheckResult(name, "fail", probe.reason(error), _mend(probe, needed) if is_denied else None)
    except ODD as error:
        return CheckResult(name, "fail", odd(error))


def _mend(probe: Probe, needed: str) -> str:
    resource = f"arn:aws:s3:::{probe.bucket}"
    if needed not in ("s3:ListBucket", "s3:ListBucketMultipartUploads"):
        resource += f"/{probe.prefix}*"
    return f"allow {needed} on {resource}"
