"""Translates errors of S3, botocore and the network into one-line errors of this package."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

import urllib3.exceptions as network
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from slurmopt.errors import StorageError, StorageRefused, one_line

FOREIGN = (boto.BotoCoreError, boto.ClientError, ResponseParserError, network.HTTPError, OSError)
"""Every exception that a request can raise."""

TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504}
TRANSIENT_CODES = {
    "SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "ThrottlingException",
    "RequestLimitExceeded", "OperationAborted", "ConditionalRequestConflict",
    # The data was corrupted in transit.
    "BadDigest", "IncompleteBody", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch",
}  # fmt: skip
WRONG_CREDENTIALS = {
    "InvalidAccessKeyId": "S3 does not know the access key",
    "SignatureDoesNotMatch": "the secret key does not fit the access key",
    "ExpiredToken": "the credentials have expired",
    "InvalidToken": "the session token is not valid",
    "TokenRefreshRequired": "the credentials have expired",
}
MISSING_KEY = {"NoSuchKey", "NotFound", "404"}
DENIED = {"AccessDenied", "AllAccessDisabled", "Forbidden"}
OTHER_REGION = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301"}
PERMISSIONS = {
    "PutObject": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "ListObjectsV2": "s3:ListBucket",
    "HeadBucket": "s3:ListBucket",
    "DeleteObjects": "s3:DeleteObject",
}


@dataclass(frozen=True)
class Where:
    """The places that error messages name."""

    url: str
    bucket: str
    endpoint: str


def code_of(error: BaseException) -> str:
    """The error code of S3; empty where the error did not come from S3."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, boto.ClientError) else ""


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed if it is retried."""
    if isinstance(error, boto.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return code_of(error) in TRANSIENT_CODES or status in TRANSIENT_STATUS
    if _is_certificate_error(error) or isinstance(error, network.LocationValueError):
        return False
    streaming = (boto.HTTPClientError, boto.IncompleteReadError, ResponseParserError)
    return isinstance(error, (*streaming, network.HTTPError, OSError))


def _is_certificate_error(error: BaseException) -> bool:
    return isinstance(error, (ssl.SSLCertVerificationError, network.SSLError)) and "CERTIFICATE" in str(error).upper()


def to_store_error(error: BaseException, where: Where, url: str) -> Exception:
    """The exception that a store raises for `error`; `url` is the object of the request."""
    if isinstance(error, boto.ClientError):
        return _response_error(error, where, url)
    return StorageRefused(f"{url}: {reason(error, where)}")


def deadline_error(seconds: float, last: BaseException | None, where: Where, url: str) -> StorageError:
    """The exception for an exceeded deadline; `last` is the last error before it."""
    why = f"; last: {reason(last, where)}" if last else ""
    return StorageError(f"{url}: not done within {seconds:g} s{why}")


def reason(error: BaseException, where: Where) -> str:
    """A short description without addresses, ids or secrets."""
    if isinstance(error, boto.ClientError):
        return _describe(error, where)
    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError | boto.CredentialRetrievalError):
        return (
            "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile in ~/.aws, or an instance role"
        )
    if isinstance(error, boto.ProfileNotFound | boto.SSOError | boto.TokenRetrievalError | boto.ParamValidationError):
        return one_line(str(error))
    if _is_certificate_error(error):
        return f"the TLS certificate of {where.endpoint} is not trusted here; AWS_CA_BUNDLE may name another bundle"
    if isinstance(error, network.NameResolutionError):
        return f"no such host: {where.endpoint}"
    if isinstance(error, network.NewConnectionError | network.ConnectTimeoutError | network.ProxyError):
        return f"nobody answers at {where.endpoint}"
    if isinstance(error, network.ReadTimeoutError | boto.ReadTimeoutError | TimeoutError):
        return f"{where.endpoint} stopped answering"
    if isinstance(error, boto.BotoCoreError) and not isinstance(error, boto.HTTPClientError | boto.IncompleteReadError):
        return f"{type(error).__name__}: {one_line(str(error))}"
    return f"the connection to {where.endpoint} broke off"


def _response_error(error: boto.ClientError, where: Where, url: str) -> Exception:
    code = code_of(error)
    if code in MISSING_KEY:
        return FileNotFoundError(f"{url}: no such object")
    if code in ("PreconditionFailed", "412"):
        return FileExistsError(f"{url}: exists already")
    return StorageRefused(f"{url}: {_describe(error, where)}")


def _describe(error: boto.ClientError, where: Where) -> str:
    code, operation = code_of(error), error.operation_name
    if code == "NoSuchBucket":
        return f"there is no bucket {where.bucket} at {where.endpoint}"
    if code in WRONG_CREDENTIALS:
        return f"wrong credentials: {WRONG_CREDENTIALS[code]}"
    if code == "403":  # a response to HEAD has no more detail
        return "access denied, or wrong credentials"
    if code in DENIED:
        return f"access denied; the credentials need {PERMISSIONS.get(operation, operation)} there"
    if code in OTHER_REGION:
        return "the bucket lies in another region; set checkpoint.s3.region"
    if code == "InvalidRange":
        return "it is too short to hold the bytes asked for"
    if code == "RequestTimeTooSkewed":
        return "S3 refuses the request: this machine's clock is wrong"
    message = str(error.response.get("Error", {}).get("Message", ""))
    return one_line(f"S3 refuses {operation}: {code} {message}".rstrip())
