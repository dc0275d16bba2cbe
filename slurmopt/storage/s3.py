"""Checkpoints in a bucket of S3, or of anything that speaks its language."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from slurmopt.errors import StorageError, StorageRefused

try:
    import boto3  # noqa: F401
except ImportError:
    raise StorageRefused("checkpoints in S3 need boto3, which is not installed here: pip install boto3") from None

from slurmopt.storage import s3_client, s3_download, s3_errors, s3_upload
from slurmopt.storage.s3_body import Body
from slurmopt.storage.s3_transport import DeadlineOver, Operation, operation

T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
DELETED_AT_ONCE = 1000
"""What one DeleteObjects takes."""


class S3Store:
    """The Store protocol on `url`, s3://BUCKET or s3://BUCKET/PREFIX, with the default chain of credentials.

    A call that meets an outage tries again, with growing and random pauses, until `deadline` seconds are over; then,
    or at once where trying again cannot help, StorageError. The bucket has to be there. `storage_class` goes to what
    `write` puts and not to the small files, which have to be read at any time; `kms_key` (SSE-KMS: id, ARN or alias),
    `tags` and `requester_pays` go to everything.
    """

    def __init__(
        self,
        url: str,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        storage_class: str | None = None,
        kms_key: str | None = None,
        tags: Mapping[str, str] | None = None,
        accelerate: bool = False,
        requester_pays: bool = False,
        deadline: float = 600.0,
    ) -> None:
        self.bucket, self._root = s3_client.split(url)
        self.deadline = deadline
        self.client = s3_client.connect(url, endpoint, region, accelerate, s3_upload.CONNECTIONS)
        self._where = s3_errors.Where(url, self.bucket, self.client.meta.endpoint_url)
        self._payer = {"RequestPayer": "requester"} if requester_pays else {}
        self.new_object = s3_client.new_object(kms_key, tags)
        self.payload = {**self.new_object, **({"StorageClass": storage_class} if storage_class else {})}

    @property
    def place(self) -> str:
        """s3://BUCKET/PREFIX."""
        return self.url("").rstrip("/")

    def key(self, key: str) -> str:
        """`key` as S3 knows it."""
        return self._root + key

    def url(self, key: str) -> str:
        """`key` as a person would name it."""
        return f"s3://{self.bucket}/{self._root}{key}"

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

    def size(self, key: str) -> int:
        """Bytes of `key`."""
        with operation(self.deadline):
            try:
                return int(self.attempt(lambda: self.request("head_object", key), key)["ContentLength"])
            except FileNotFoundError:
                # The answer to HEAD has no body that would tell a missing object from a missing bucket.
                self._check_bucket()
                raise

    def _check_bucket(self) -> None:
        try:
            self.attempt(lambda: self.client.head_bucket(Bucket=self.bucket), "")
        except FileNotFoundError:
            raise StorageRefused(f"{self.place}: there is no bucket {self.bucket} at {self._where.endpoint}") from None

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

    def request(self, name: str, key: str, **options: Any) -> Any:
        """One request for one key, sent once; raises what botocore raises."""
        return getattr(self.client, name)(Bucket=self.bucket, Key=self._root + key, **options, **self._payer)

    def attempt(self, call: Callable[[], T], key: str) -> T:
        """Calls until it works, cannot work, or the time of the operation under way is over."""
        with operation(self.deadline) as current:
            last: BaseException | None = None
            pause = FIRST_PAUSE
            while True:
                try:
                    current.left()
                    return call()
                except DeadlineOver:
                    raise s3_errors.over(current.seconds, last, self._where, self.url(key)) from last
                except s3_errors.FOREIGN as error:
                    if not s3_errors.passing(error) and not current.given_up.is_set():
                        raise s3_errors.told(error, self._where, self.url(key)) from error
                    last = last if current.given_up.is_set() else error
                self._pause(current, pause, last, key)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _pause(self, current: Operation, seconds: float, last: BaseException | None, key: str) -> None:
        try:
            current.pause(random.uniform(seconds / 2, seconds))  # noqa: S311 spreads writers, hides nothing
        except DeadlineOver:
            raise s3_errors.over(current.seconds, last, self._where, self.url(key)) from last

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
