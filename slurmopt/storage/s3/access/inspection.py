"""All verdicts on a bucket; a part that is not known does not hide the others."""

from __future__ import annotations

from slurmopt.checks.result import CheckResult, has_failed
from slurmopt.storage.s3.access.permissions import permissions
from slurmopt.storage.s3.access.probe import Probe
from slurmopt.storage.s3.access.reach import identity, reach
from slurmopt.storage.s3.access.setup import abandoned, lifecycle, storage_classes

_REST = ("permissions", "lifecycle", "abandoned uploads", "storage classes")


def inspect(url: str, endpoint: str | None, region: str | None) -> list[CheckResult]:
    """What the bucket of `url` is and permits. Raises InputError for a malformed URL, endpoint or region."""
    probe = Probe(url, endpoint, region)
    results = identity(probe)
    if probe.credentials is not None:
        results = [*reach(probe), *results]
    if has_failed(results):
        return [*results, *(CheckResult(name, "skipped", "the above comes first") for name in _REST)]
    results += permissions(probe)
    results += probe.asked("lifecycle", lambda: lifecycle(probe))
    results += probe.asked("abandoned uploads", lambda: abandoned(probe))
    results += probe.asked("storage classes", lambda: storage_classes(probe))
    return results
