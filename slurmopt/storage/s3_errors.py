"""What S3, botocore and the network answer, as one line of ours. The only place that knows their errors."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

import urllib3.exceptions as network
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from slurmopt.errors import StorageError, StorageRefused, one_line

FOREIGN = (boto.BotoCoreError, boto.ClientError, ResponseParserError, network.HTTPError, OSError)
"""Everything that a request can raise."""

PASSING_STATUS = {408, 425, 429, 500, 502, 503, 504}
PASSING = {
    "SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "ThrottlingException",
    "RequestLimitExceeded", "OperationAborted", "ConditionalRequestConflict",
    # What arrived is not what was sent.
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
    """What messages name."""

    url: str
    bucket: str
    endpoint: str


def code_of(error: BaseException) -> str:
    """S3's word for it, or nothing where the answer did not come from S3."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, boto.ClientError) else ""


def passing(error: BaseException) -> bool:
    """Whether the same request may well succeed a little later."""
    if isinstance(error, boto.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return code_of(error) in PASSING or status in PASSING_STATUS
    if _certificate(error) or isinstance(error, network.LocationValueError):
        return False
    streaming = (boto.HTTPClientError, boto.IncompleteReadError, ResponseParserError)
    return isinstance(error, (*streaming, network.HTTPError, OSError))


def _certificate(error: BaseException) -> bool:
    return isinstance(error, (ssl.SSLCertVerificationError, network.SSLError)) and "CERTIFICATE" in str(error).upper()


def told(error: BaseException, where: Where, url: str) -> Exception:
    """The error that a caller of a store sees; `url` is what was asked for."""
    if isinstance(error, boto.ClientError):
        return _answer(error, where, url)
    return StorageRefused(f"{url}: {reason(error, where)}")


def over(seconds: float, last: BaseException | None, where: Where, url: str) -> StorageError:
    """The deadline has passed; `last` is what went wrong before."""
    why = f"; last: {reason(last, where)}" if last else ""
    return StorageError(f"{url}: not done within {seconds:g} s{why}")


def reason(error: BaseException, where: Where) -> str:
    """What went wrong, in a few words without addresses, ids or secrets."""
    if isinstance(error, boto.ClientError):
        return _words(error, where)
    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError | boto.CredentialRetrievalError):
        return (
            "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile in ~/.aws, or an instance role"
        )
    if isinstance(error, boto.ProfileNotFound | boto.SSOError | boto.TokenRetrievalError | boto.ParamValidationError):
        return one_line(str(error))
    if _certificate(error):
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


def _answer(error: boto.ClientError, where: Where, url: str) -> Exception:
    code = code_of(error)
    if code in MISSING_KEY:
        return FileNotFoundError(f"{url}: no such object")
    if code in ("PreconditionFailed", "412"):
        return FileExistsError(f"{url}: exists already")
    return StorageRefused(f"{url}: {_words(error, where)}")


def _words(error: boto.ClientError, where: Where) -> str:
    code, operation = code_of(error), error.operation_name
    if code == "NoSuchBucket":
        return f"there is no bucket {where.bucket} at {where.endpoint}"
    if code in WRONG_CREDENTIALS:
        return f"wrong credentials: {WRONG_CREDENTIALS[code]}"
    if code == "403":  # the answer to HEAD says no more
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
