"""The layout that each kind of data gets, and why."""

from __future__ import annotations

import pytest

from slurmopt.storage.lustre.layouts import plan

KIB, MIB, GIB = 1024, 1024**2, 1024**3


@pytest.mark.parametrize(
    ("kind", "file_bytes", "files", "osts", "options", "reason"),
    [
        ("logs", 10 * GIB, 4, 16, "-c 1", "appending"),
        ("datasets", 100 * KIB, 10, 16, "-c 1", "below 1 MiB"),
        ("datasets", 500 * MIB, 1000, 16, "-c 1", "use all OSTs with one each"),
        ("datasets", 500 * MIB, 4, 16, "-E 100M -c 1 -E -1 -c 4", "as its size is worth"),
        ("datasets", 8 * GIB, 4, 16, "-E 100M -c 1 -E 1G -c 4 -E -1 -c 8", "as its size is worth"),
        ("datasets", 50 * GIB, 1000, 16, "-E 100M -c 1 -E 1G -c 4 -E 10G -c 8 -E -1 -c -1", "as its size is worth"),
        ("datasets", 50 * GIB, 1, 8, "-E 100M -c 1 -E 1G -c 4 -E -1 -c -1", "as its size is worth"),
        ("datasets", 50 * MIB, 1, 8, "-c 1", "one OST is enough"),
        ("datasets", 50 * GIB, 1, 1, "-c 1", "there is one OST"),
        ("checkpoints", 8 * GIB, 8, 32, "-E 100M -c 1 -E -1 -c 4", "4 OSTs is the share"),
        ("checkpoints", 8 * GIB, 64, 32, "-c 1", "no more than one OST"),
        ("checkpoints", 0, 0, 32, "-c 1", "below 1 MiB"),
    ],
)
def test_the_layout_and_its_reason(
    kind: str, file_bytes: int, files: int, osts: int, options: str, reason: str
) -> None:
    found = plan(kind, file_bytes, files, osts)  # type: ignore[arg-type]
    assert " ".join(found.options) == options
    assert reason in found.reason


def test_many_small_files_are_better_packed() -> None:
    assert "shards" in (plan("datasets", 20 * KIB, 1_000_000, 8).advice or "")
    assert plan("datasets", 20 * KIB, 1000, 8).advice is None
