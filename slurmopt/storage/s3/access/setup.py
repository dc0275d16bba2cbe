"""How a bucket is set up: lifecycle rules, abandoned uploads, storage classes."""

from __future__ import annotations

import datetime
import json
import shlex
from collections import Counter
from typing import Any

from slurmopt.checks.result import CheckResult
from slurmopt.storage.s3 import errors
from slurmopt.storage.s3.access.probe import Probe

_ABANDONED = datetime.timedelta(days=1)
_DAYS = 7
_COLD = {"GLACIER", "DEEP_ARCHIVE"}
"""Classes whose objects have to be restored, for hours, before they are read."""
_CHECKED = 1000
"""Objects whose class is looked at: one answer of S3."""


def lifecycle(probe: Probe) -> list[CheckResult]:
    """Whether abandoned uploads are removed, and whether a rule takes checkpoints away."""
    rules = _rules(probe)
    if rules is None:
        return [CheckResult("lifecycle", "skipped", "this server does not have it")]
    return [_aborts(probe, rules), _keeps(rules)]


def abandoned(probe: Probe) -> list[CheckResult]:
    """Uploads below the prefix that began over a day ago: their parts cost as objects do, and are in no list."""
    answer = probe.raw("list_multipart_uploads", Prefix=probe.prefix)
    now = datetime.datetime.now(datetime.timezone.utc)
    old = [entry for entry in answer.get("Uploads", []) if now - entry["Initiated"] > _ABANDONED]
    if not old:
        return [CheckResult("abandoned uploads", "pass", "none is older than a day")]
    more = "or more " if answer.get("IsTruncated") else ""
    entry = old[0]
    mend = (
        f"aws s3api abort-multipart-upload --bucket {shlex.quote(probe.bucket)} --key {shlex.quote(entry['Key'])} "
        f"--upload-id {shlex.quote(entry['UploadId'])}, and so on; or the rule for abandoned uploads"
    )
    return [CheckResult("abandoned uploads", "warn", f"{len(old):,} {more}are older than a day", mend)]


def storage_classes(probe: Probe) -> list[CheckResult]:
    """The classes of the objects below the prefix."""
    answer = probe.raw("list_objects_v2", Prefix=probe.prefix, MaxKeys=_CHECKED)
    counted = Counter(entry.get("StorageClass", "STANDARD") for entry in answer.get("Contents", []))
    if not counted:
        return [CheckResult("storage classes", "pass", "no object is there yet")]
    text = ", ".join(f"{count:,} {name}" for name, count in counted.most_common())
    if answer.get("IsTruncated"):
        text += f" among the first {_CHECKED:,} objects"
    cold = sorted(_COLD & {*counted})
    if not cold:
        return [CheckResult("storage classes", "pass", text)]
    place = shlex.quote(f"s3://{probe.bucket}/{probe.prefix}")
    mend = f"aws s3api restore-object for each, then aws s3 cp --recursive --storage-class STANDARD {place} {place}"
    return [CheckResult("storage classes", "fail", f"{text}: {' and '.join(cold)} cannot be read at once", mend)]


def _rules(probe: Probe) -> list[dict[str, Any]] | None:
    """The enabled rules that hold for the prefix. None from a server that does not know the request, and lists the
    bucket instead."""
    try:
        rules = probe.raw("get_bucket_lifecycle_configuration").get("Rules")
    except errors.FOREIGN as error:
        if errors.code_of(error) == "NoSuchLifecycleConfiguration":
            return []
        raise
    if rules is None:
        return None
    return [rule for rule in rules if rule.get("Status") == "Enabled" and _holds(rule, probe.prefix)]


def _holds(rule: dict[str, Any], prefix: str) -> bool:
    """Whether the rule's prefix contains ours; a rule for tagged objects or sizes holds for some, which is enough."""
    condition = rule.get("Filter", {})
    of_rule = rule.get("Prefix", condition.get("Prefix", condition.get("And", {}).get("Prefix", "")))
    return prefix.startswith(of_rule) or of_rule.startswith(prefix)


def _aborts(probe: Probe, rules: list[dict[str, Any]]) -> CheckResult:
    days = [rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] for rule in rules if _aborts_uploads(rule)]
    if days:
        return CheckResult("lifecycle", "pass", f"abandoned uploads are removed after {min(days)} days")
    rule = {
        "ID": "abandoned-uploads",
        "Status": "Enabled",
        "Filter": {"Prefix": probe.prefix},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": _DAYS},
    }
    # The request replaces all rules of the bucket, so a command that has only the new one would delete the others.
    mend = f"add to the bucket's lifecycle rules (put-bucket-lifecycle-configuration replaces all): {json.dumps(rule)}"
    text = "no rule removes abandoned uploads: their parts cost as objects do, for ever"
    return CheckResult("lifecycle", "warn", text, mend)


def _aborts_uploads(rule: dict[str, Any]) -> bool:
    return "AbortIncompleteMultipartUpload" in rule


def _keeps(rules: list[dict[str, Any]]) -> CheckResult:
    """Rules that delete current objects, or move them to where they are not read at once."""
    found = []
    for rule in rules:
        name = rule.get("ID", "without a name")
        if "Days" in rule.get("Expiration", {}):
            found.append(f"rule {name} deletes objects after {rule['Expiration']['Days']} days")
        elif "Date" in rule.get("Expiration", {}):
            found.append(f"rule {name} deletes objects on {rule['Expiration']['Date']:%Y-%m-%d}")
        for move in rule.get("Transitions", []):
            if move.get("StorageClass") in _COLD:
                found.append(f"rule {name} moves objects to {move['StorageClass']} after {move.get('Days', '?')} days")
    if not found:
        return CheckResult("expiry", "pass", "no rule deletes or freezes objects of this prefix")
    mend = "give checkpoints a prefix of their own, or take it out of these rules"
    return CheckResult("expiry", "warn", "; ".join(found), mend)
