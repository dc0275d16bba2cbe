"""A connection to a bucket for looking at it: requests with a short deadline, whose errors become verdicts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

from botocore import exceptions as boto

from slurmopt.checks.result import CheckResult
from slurmopt.errors import InputError, SlurmoptError, one_line
from slurmopt.storage.s3 import errors
from slurmopt.storage.s3.store import S3Store
from slurmopt.storage.s3.transport import Operation

T = TypeVar("T")
SECONDS = 10.0
_SHOWN = 200
"""For one request."""
ODD = (LookupError, TypeError, ValueError, AttributeError)
"""What reading an answer raises that lacks what S3 would have in it."""
_UNKNOWN = {"NotImplemented", "MethodNotAllowed", "NotSupported", "UnsupportedOperation", "501", "405"}


_OBJECT = re.compile(r"^s3://\S+: ")
"""Before the message of a store: the object, which is ours and means nothing to the user."""


class Probe:
    """A store on the place of a user, and plain requests to its bucket."""

    def __init__(self, url: str, endpoint: str | None, region: str | None, deadline: float = SECONDS) -> None:
        try:
            self.store = S3Store(
                url, endpoint=endpoint or os.environ.get("AWS_ENDPOINT_URL_S3"), region=region, deadline=deadline
            )
        except SlurmoptError as error:
            raise InputError(str(error).replace("checkpoint.s3.", "--")) from None
        self.url, self.bucket = url, self.store.bucket
        self.prefix = self.store.key("")
        self.client = self.store.client

    @property
    def endpoint(self) -> str:
        """The URL that requests go to."""
        return str(self.client.meta.endpoint_url)

    @property
    def is_aws(self) -> bool:
        """Whether that is Amazon's."""
        host = self.endpoint.split("://")[-1].split("/")[0].partition(":")[0]
        return host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws"))

    @property
    def credentials(self) -> Any:
        """botocore's: `access_key`, and `method`, where they are from; None where there are none."""
        return self.client._request_signer._credentials

    @property
    def region(self) -> str:
        """The region that requests are signed for."""
        return str(self.client.meta.region_name)

    def raw(self, name: str, **options: Any) -> Any:
        """One request on the bucket, without retries. Raises what botocore raises."""
        with Operation(SECONDS):
            return getattr(self.client, name)(Bucket=self.bucket, **options)

    def reason(self, error: BaseException) -> str:
        """The error in one line, without secrets."""
        if isinstance(error, errors.FOREIGN):
            where = errors.Where(self.url, self.bucket, self.endpoint)
            text = errors.reason(error, where)
        else:
            text = _OBJECT.sub("", str(error))
        return one_line(text.replace("set checkpoint.s3.region", "give --region"))

    def asked(self, name: str, call: Callable[[], list[CheckResult]]) -> list[CheckResult]:
        """The results of `call`; skipped, with the reason, where S3 refuses to tell or the server does not know it."""
        try:
            return call()
        except errors.FOREIGN as error:
            code = errors.code_of(error)
            if code in _UNKNOWN:
                return [CheckResult(name, "skipped", "this server does not have it")]
            mend = None
            if isinstance(error, boto.ClientError) and (code in errors.DENIED or code == "403"):
                mend = f"ask for the permission that {error.operation_name} needs on arn:aws:s3:::{self.bucket}"
            return [CheckResult(name, "skipped", f"not known: {self.reason(error)}", mend)]
        except SlurmoptError as error:
            return [CheckResult(name, "skipped", f"not known: {self.reason(error)}")]
        except ODD as error:
            return [CheckResult(name, "skipped", f"not known: {odd(error)}")]


def odd(error: BaseException) -> str:
    """What is said of an answer that S3 would not give."""
    return one_line(f"the server's answer is not one of S3: {type(error).__name__}: {error}"[:_SHOWN])
