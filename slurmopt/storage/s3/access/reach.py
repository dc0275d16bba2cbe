"""Whether a bucket answers, from which region, and as whom it is asked."""

from __future__ import annotations

import re
import shlex
from typing import Any

from slurmopt.checks.result import CheckResult
from slurmopt.storage.s3 import errors
from slurmopt.storage.s3.access.probe import SECONDS, Probe
from slurmopt.storage.s3.transport import DeadlineOver

_REGION = re.compile(r"s3[.-](?:dualstack\.|fips[.-])?([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.")
_NEW_KEYS = "set the right AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or profile (AWS_PROFILE)"
_OF_CREDENTIALS = {
    "InvalidAccessKeyId": _NEW_KEYS,
    "SignatureDoesNotMatch": _NEW_KEYS,
    "InvalidToken": "set AWS_SESSION_TOKEN that belongs to the keys, or unset it",
    "ExpiredToken": "aws sso login, or get new keys",
    "TokenRefreshRequired": "aws sso login, or get new keys",
    "RequestTimeTooSkewed": "have the clock of this machine set: sudo chronyc makestep",
}
"""Code → the mend."""
_NO_ANSWER = (*errors.FOREIGN, DeadlineOver)


def reach(probe: Probe) -> list[CheckResult]:
    """Whether the bucket answers, and is where requests go."""
    answer, error = _asked(probe, "head_bucket")
    region = _header(answer, "x-amz-bucket-region")
    return [_reached(probe, error), _region(probe, region)]


def _asked(probe: Probe, name: str, **request: Any) -> tuple[Any, BaseException | None]:
    try:
        return probe.raw(name, **request), None
    except _NO_ANSWER as failure:
        return getattr(failure, "response", {}), failure


def identity(probe: Probe) -> list[CheckResult]:
    """Whose credentials are used, and where they are from. Names no secret, and no key whole."""
    credentials = probe.credentials
    if credentials is None:
        mend = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile in ~/.aws, or an instance role"
        return [CheckResult("identity", "fail", "no credentials", mend)]
    text = f"access key …{credentials.access_key[-4:]}, from {credentials.method}"
    # A response to HEAD has no body, which would tell wrong credentials from a permission that is missing.
    _, error = _asked(probe, "list_objects_v2", Prefix=probe.prefix, MaxKeys=1)
    if error is not None and (code := errors.code_of(error)) in _OF_CREDENTIALS:
        return [CheckResult("identity", "fail", f"{probe.reason(error)} ({text})", _OF_CREDENTIALS[code])]
    if not probe.is_aws:
        return [CheckResult("identity", "pass", f"{text}; only AWS tells whose it is")]
    return probe.asked("identity", lambda: [CheckResult("identity", "pass", f"{_who(probe)}, {text}")])


def _who(probe: Probe) -> str:
    import botocore.config
    import botocore.session

    # STS has no store of ours to go through: plain botocore, with short timeouts and one try.
    config = botocore.config.Config(connect_timeout=5, read_timeout=5, retries={"total_max_attempts": 1})
    client = botocore.session.Session().create_client("sts", region_name=probe.region, config=config)
    return str(client.get_caller_identity()["Arn"])


def _reached(probe: Probe, error: BaseException | None) -> CheckResult:
    where = f"{probe.bucket} at {probe.endpoint}"
    if error is None:
        return CheckResult("reach", "pass", f"{where} answers")
    if isinstance(error, DeadlineOver):
        return CheckResult("reach", "fail", f"{where}: no answer within {SECONDS:g} s", _NETWORK)
    answer = getattr(error, "response", {})
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status in (301, 307, 400) and _header(answer, "x-amz-bucket-region"):
        return CheckResult("reach", "pass", f"{where} answers, from another region")
    if status == 404:
        mend = f"aws s3api create-bucket --bucket {shlex.quote(probe.bucket)}, or mend the name"
        return CheckResult("reach", "fail", f"there is no bucket {where}", mend)
    if status == 403:
        mend = f"allow s3:ListBucket on arn:aws:s3:::{probe.bucket}, or use other credentials"
        return CheckResult("reach", "warn", f"{where} answers: access denied, or wrong credentials", mend)
    return CheckResult("reach", "fail", f"{where}: {probe.reason(error)}", _NETWORK if status == 0 else None)


_NETWORK = "mend --endpoint (AWS_ENDPOINT_URL_S3), the network's route to it, or the proxy (HTTPS_PROXY, NO_PROXY)"


def _region(probe: Probe, region: str | None) -> CheckResult:
    in_url = _REGION.search(probe.endpoint)
    if in_url and in_url[1] != probe.region:
        text = f"the endpoint is in {in_url[1]}, requests are signed for {probe.region}"
        return CheckResult("region", "fail", text, f"--region {in_url[1]} (checkpoint.s3.region={in_url[1]})")
    if region is None:
        return CheckResult("region", "skipped", "the server does not name the region of the bucket")
    if region != probe.region:
        text = f"the bucket is in {region}, requests go to {probe.region}"
        mend = f"--region {region} (checkpoint.s3.region={region}); from another region each byte costs money"
        return CheckResult("region", "fail", text, mend)
    return CheckResult("region", "pass", region)


def _header(answer: Any, name: str) -> str | None:
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}) if isinstance(answer, dict) else {}
    return headers.get(name) or None
