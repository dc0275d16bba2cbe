"""S3Store: a prefix of an S3 bucket, or of an S3-compatible server, as a Store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slurmopt.errors import StorageError
from slurmopt.storage.s3 import download, errors, upload
from slurmopt.storage.s3.body import Body
from slurmopt.storage.s3.bucket import S3Bucket
from slurmopt.storage.s3.transport import operation

DELETED_AT_ONCE = 1000
"""Keys in one DeleteObjects request; the limit of S3."""


class S3Store(S3Bucket):
    """A Store on `url`, s3://BUCKET or s3://BUCKET/PREFIX, with boto3's default chain of credentials.

    A call that fails because of an outage is retried, with exponential backoff and jitter, for `deadline` seconds;
    then, or at once where a retry cannot succeed, it raises StorageError. The bucket must exist. `storage_class`
    applies to what `write` uploads, but not to small files, which must always be readable; `kms_key` (SSE-KMS: id, ARN
    or alias), `tags` and `requester_pays` apply to all objects.
    """

    def put_new(self, key: str, data: bytes) -> bool:
        """One conditional put. After a StorageError it is unknown whether the object exists.

        The server must arbitrate concurrent puts, as S3 does; OpenStack Swift by itself does not.
        """
        body = Body([memoryview(data)])
        tries = 0

        def put() -> None:
            nonlocal tries
            tries += 1
            self.request("put_object", key, Body=body, IfNoneMatch="*", **body.checksum(), **self.new_object)

        with operation(self.deadline):
            try:
                self.attempt(put, key)
            except FileExistsError:
                # An earlier attempt may have succeeded although its response was lost.
                return tries > 1 and self.get(key) == data
            return True

    def get(self, key: str, most: int | None = None) -> bytes:
        """The content of a small object. ValueError, before it is read, where it has more than `most` bytes."""

        def fetch() -> bytes:
            answer = self.request("get_object", key)
            if most is not None and answer.get("ContentLength", 0) > most:
                answer["Body"].close()
                raise ValueError(f"{self.url(key)} has {answer['ContentLength']:,} bytes")
            return bytes(answer["Body"].read())

        with operation(self.deadline):
            return self.attempt(fetch, key)

    def delete(self, keys: Iterable[str]) -> None:
        """Removes `keys`; a missing key is not an error."""
        wanted = [{"Key": self._root + key} for key in keys]
        with operation(self.deadline):
            for start in range(0, len(wanted), DELETED_AT_ONCE):
                self._delete(wanted[start : start + DELETED_AT_ONCE])

    def _delete(self, batch: list[dict[str, str]]) -> None:
        request = {"Objects": batch, "Quiet": True}
        answer = self.attempt(
            lambda: self.client.delete_objects(Bucket=self.bucket, Delete=request, **self.payer), batch[0]["Key"]
        )
        failed = [entry for entry in answer.get("Errors", []) if entry.get("Code") not in errors.MISSING_KEY]
        if failed:
            key, code = failed[0].get("Key"), failed[0].get("Code")
            raise StorageError(f"s3://{self.bucket}/{key}: S3 did not delete it, nor {len(failed) - 1} more: {code}")

    def write(self, key: str, pieces: Iterable[memoryview]) -> None:
        """One put, or a multipart upload that sends its parts in parallel, without copying the memory of `pieces`.

        A piece must not change until this returns. S3 verifies a CRC-32 of each part before it accepts it.
        """
        with operation(self.deadline) as current:
            upload.upload(self, current, key, pieces)

    def read_into(self, key: str, offset: int, buffer: memoryview) -> None:
        """Fills `buffer`, with parallel requests where it is large."""
        with operation(self.deadline) as current:
            download.fill(self, current, key, offset, buffer.cast("B"))

    def abort_abandoned(self, prefix: str) -> int:
        """Aborts unfinished multipart uploads below `prefix`; returns how many.

        The caller must ensure that nobody is writing there.
        """
        with operation(self.deadline):
            return upload.abort_abandoned(self, prefix)

    def list(self, prefix: str) -> list[str]:
        """Every key that starts with `prefix`, sorted."""
        keys: list[str] = []
        continuation: dict[str, str] = {}

        def page() -> Any:
            full_prefix = self._root + prefix
            return self.client.list_objects_v2(Bucket=self.bucket, Prefix=full_prefix, **continuation, **self.payer)

        with operation(self.deadline):
            while True:
                answer = self.attempt(page, prefix)
                keys += [entry["Key"][len(self._root) :] for entry in answer.get("Contents", [])]
                if not answer.get("IsTruncated"):
                    return sorted(keys)
                continuation = {"ContinuationToken": answer["NextContinuationToken"]}


def open_store(root: str, **options: Any) -> S3Store:
    """The store on `root`, an s3:// URL; `options` are those of S3Store."""
    return S3Store(root, **options)
