"""Checkpoints in a bucket of S3, or of anything that speaks its language."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slurmopt.errors import StorageError
from slurmopt.storage import s3_download, s3_errors, s3_upload
from slurmopt.storage.s3_body import Body
from slurmopt.storage.s3_bucket import S3Bucket
from slurmopt.storage.s3_transport import operation

DELETED_AT_ONCE = 1000
"""What one DeleteObjects takes."""


class S3Store(S3Bucket):
    """The Store protocol on `url`, s3://BUCKET or s3://BUCKET/PREFIX, with the default chain of credentials.

    A call that meets an outage tries again, with growing and random pauses, until `deadline` seconds are over; then,
    or at once where trying again cannot help, StorageError. The bucket has to be there. `storage_class` goes to what
    `write` puts and not to the small files, which have to be read at any time; `kms_key` (SSE-KMS: id, ARN or alias),
    `tags` and `requester_pays` go to everything.
    """

    def put_new(self, key: str, data: bytes) -> bool:
        """One conditional put. After a StorageError nobody knows whether the object is there.

        The server has to decide between puts that race, as S3 does; OpenStack Swift by itself does not.
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
                # An earlier try may have come through although its answer did not.
                return tries > 1 and self.get(key) == data
            return True

    def get(self, key: str, most: int | None = None) -> bytes:
        """A small object, whole. ValueError, before a byte of it is read, where it has more than `most` bytes."""

        def fetch() -> bytes:
            answer = self.request("get_object", key)
            if most is not None and answer.get("ContentLength", 0) > most:
                answer["Body"].close()
                raise ValueError(f"{self.url(key)} has {answer['ContentLength']:,} bytes")
            return bytes(answer["Body"].read())

        with operation(self.deadline):
            return self.attempt(fetch, key)

    def delete(self, keys: Iterable[str]) -> None:
        """Removes what is there of `keys`."""
        wanted = [{"Key": self._root + key} for key in keys]
        with operation(self.deadline):
            for start in range(0, len(wanted), DELETED_AT_ONCE):
                self._delete(wanted[start : start + DELETED_AT_ONCE])

    def _delete(self, batch: list[dict[str, str]]) -> None:
        order = {"Objects": batch, "Quiet": True}
        answer = self.attempt(
            lambda: self.client.delete_objects(Bucket=self.bucket, Delete=order, **self._payer), batch[0]["Key"]
        )
        failed = [entry for entry in answer.get("Errors", []) if entry.get("Code") not in s3_errors.MISSING_KEY]
        if failed:
            key, code = failed[0].get("Key"), failed[0].get("Code")
            raise StorageError(f"s3://{self.bucket}/{key}: S3 did not delete it, nor {len(failed) - 1} more: {code}")

    def write(self, key: str, pieces: Iterable[memoryview]) -> None:
        """One put, or a multipart upload whose parts go out in parallel, straight from the memory of `pieces`.

        A piece has to stay as it is until this returns. S3 compares a CRC-32 with each part before it takes it.
        """
        with operation(self.deadline) as current:
            s3_upload.upload(self, current, key, pieces)

    def read_into(self, key: str, offset: int, buffer: memoryview) -> None:
        """Fills `buffer`, in parallel where it is large."""
        with operation(self.deadline) as current:
            s3_download.fill(self, current, key, offset, buffer.cast("B"))

    def abort_abandoned(self, prefix: str) -> int:
        """Removes the parts of uploads below `prefix` that never ended; returns how many uploads that were.

        Only the caller can know that nobody still writes there.
        """
        with operation(self.deadline):
            return s3_upload.abort_abandoned(self, prefix)

    def list(self, prefix: str) -> list[str]:
        """Every key that starts with `prefix`, sorted."""
        found: list[str] = []
        more: dict[str, str] = {}

        def page() -> Any:
            prefix_there = self._root + prefix
            return self.client.list_objects_v2(Bucket=self.bucket, Prefix=prefix_there, **more, **self._payer)

        with operation(self.deadline):
            while True:
                answer = self.attempt(page, prefix)
                found += [entry["Key"][len(self._root) :] for entry in answer.get("Contents", [])]
                if not answer.get("IsTruncated"):
                    return sorted(found)
                more = {"ContinuationToken": answer["NextContinuationToken"]}


def open_store(root: str, **options: Any) -> S3Store:
    """The store on `root`, an s3:// URL; `options` are those of S3Store."""
    return S3Store(root, **options)
