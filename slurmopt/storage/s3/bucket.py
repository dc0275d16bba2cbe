"""S3Bucket: object names below a prefix of a bucket, and requests that are retried during outages."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from slurmopt.errors import StorageRefused

try:
    import boto3  # noqa: F401
except ImportError:
    raise StorageRefused("checkpoints in S3 need boto3, which is not installed here: pip install boto3") from None

from slurmopt.storage.s3 import client, errors
from slurmopt.storage.s3.parallel import CONNECTIONS
from slurmopt.storage.s3.transport import DeadlineOver, Operation, operation
from slurmopt.storage.s3.url import split

T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0


class S3Bucket:
    """What all requests to `url` share; `S3Store` has the operations and documents the options."""

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
        self.bucket, self._root = split(url)
        self.deadline = deadline
        self.client = client.connect(url, endpoint, region, accelerate, CONNECTIONS)
        self._where = errors.Where(url, self.bucket, self.client.meta.endpoint_url)
        self.payer = {"RequestPayer": "requester"} if requester_pays else {}
        self.new_object = client.new_object(kms_key, tags)
        self.payload = {**self.new_object, **({"StorageClass": storage_class} if storage_class else {})}

    @property
    def place(self) -> str:
        """s3://BUCKET/PREFIX."""
        return self.url("").rstrip("/")

    def key(self, key: str) -> str:
        """The full name of the object `key`."""
        return self._root + key

    def url(self, key: str) -> str:
        """The s3:// URL of `key`."""
        return f"s3://{self.bucket}/{self._root}{key}"

    def size(self, key: str) -> int:
        """The size of `key` in bytes."""
        with operation(self.deadline):
            try:
                return int(self.attempt(lambda: self.request("head_object", key), key)["ContentLength"])
            except FileNotFoundError:
                # A response to HEAD has no body, which would tell a missing object from a missing bucket.
                self._check_bucket()
                raise

    def _check_bucket(self) -> None:
        try:
            self.attempt(lambda: self.client.head_bucket(Bucket=self.bucket), "")
        except FileNotFoundError:
            raise StorageRefused(f"{self.place}: there is no bucket {self.bucket} at {self._where.endpoint}") from None

    def request(self, name: str, key: str, **options: Any) -> Any:
        """Sends one request for one key, without retries; raises what botocore raises."""
        return getattr(self.client, name)(Bucket=self.bucket, Key=self._root + key, **options, **self.payer)

    def attempt(self, call: Callable[[], T], key: str) -> T:
        """Retries `call` until it succeeds, fails permanently, or the current operation's deadline passes."""
        with operation(self.deadline) as current:
            last: BaseException | None = None
            pause = FIRST_PAUSE
            while True:
                try:
                    current.remaining()
                    return call()
                except DeadlineOver:
                    raise errors.deadline_error(current.seconds, last, self._where, self.url(key)) from last
                except errors.FOREIGN as error:
                    if not errors.is_transient(error) and not current.cancelled.is_set():
                        raise errors.to_store_error(error, self._where, self.url(key)) from error
                    cut_off = current.cancelled.is_set() or (last is not None and current.is_over)
                    last = last if cut_off else error  # what the deadline cuts off tells nothing of S3
                self._pause(current, pause, last, key)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _pause(self, current: Operation, seconds: float, last: BaseException | None, key: str) -> None:
        try:
            current.pause(random.uniform(seconds / 2, seconds))  # noqa: S311 spreads writers, hides nothing
        except DeadlineOver:
            raise errors.deadline_error(current.seconds, last, self._where, self.url(key)) from last
