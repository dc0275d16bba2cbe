"""Jobs that slurmopt did not launch: what Slurm writes, what jobstats packs into it, what is said to be missing."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from slurmopt.report.foreign import foreign_job, jobstats
from slurmopt.report.output import terminal, text
from slurmopt.slurm.job_usage import JobUsage, clock, gpus_of, size, tres

STATS = {
    "gpus": 2,
    "total_time": 11540,
    "nodes": {
        "della-l04g11": {
            "cpus": 8, "total_memory": 268435456000, "total_time": 11423.0 * 4, "used_memory": 10614919168,
            "gpu_total_memory": {"1": 85899345920, "2": 85899345920}, "gpu_utilization": {"1": 90.0, "2": 0},
            "gpu_used_memory": {"1": 21474836480, "2": 0},
        }
    },
}  # fmt: skip


def packed(value: Any) -> str:
    return "JS1:" + base64.b64encode(gzip.compress(json.dumps(value).encode(), mtime=0)).decode()


USAGE = JobUsage(
    "46915114", "train", "aturing", state="COMPLETED", exit_code="0:0", submitted=1681342000.0, started=1681342706.0,
    ended=1681354246.0, elapsed=11540.0, nodes="della-l04g11", cpus=8.0, gpus=2.0, gpu_kind="a100", memory=250 * 2**30,
)  # fmt: skip


def test_a_comment_that_jobstats_itself_has_written_is_read() -> None:
    """From jobstats' own tests."""
    comment = (
        "JS1:H4sIADelIWcC/1WNQQqDMBBF7zLrtEzG0ZhcphQzqGBM0bgQyd0bUii4fe8//gVr9LKDuyDNo2yPibpBr00FMb2XV5AQtxOcRtMY1j0xKjh28X/"
        "TdsRMhRfxa9IcBJyxbPsnKRg+R3lgzPk+ICSrYKwW8xcnjeJ8iwAAAA=="
    )
    (node,) = jobstats.parse(comment) or []
    assert node.cpus == 40
    assert node.cpu_seconds == 79498.2
    assert node.used_memory == 5624422400


@pytest.mark.parametrize(
    "comment",
    [None, "", "JS1:Short", "JS1:None", "JS1:@@@", "JS1:" + base64.b64encode(b"no gzip").decode(), packed([1]), "hello",
     packed({"nodes": 7})],
)  # fmt: skip
def test_other_comments_are_none_of_jobstats(comment: str | None) -> None:
    assert jobstats.parse(comment) is None


def test_a_comment_that_unpacks_to_gigabytes_is_not_unpacked() -> None:
    bomb = gzip.compress(b'{"nodes": {}, "x": "' + b"a" * (64 << 20) + b'"}')
    assert jobstats.parse("JS1:" + base64.b64encode(bomb).decode()) is None


def test_with_jobstats_the_gpus_are_known() -> None:
    report = foreign_job.of_usage(JobUsage(**{**USAGE.__dict__, "admin_comment": packed(STATS)}), 1.7e9)
    told = {usage.name: usage for usage in report.usage}
    assert told["GPU activity"].share == pytest.approx(0.45)
    assert told["GPU memory"].share == pytest.approx(0.25)
    assert told["CPU"].share == pytest.approx(4 * 11423 / (8 * 11540))
    assert report.node_rows[0].remark == "GPU 2 did nothing"
    assert report.device_seconds == 2 * 11540


def test_without_it_the_report_says_what_is_missing() -> None:
    report = foreign_job.of_usage(USAGE, 1.7e9)
    page = terminal.plain(text.lines(report, 80))
    assert "job 46915114  finished" in page
    assert "not measured" in page
    assert "what the GPUs did is not known" in page.replace("\n    ", " ")
    assert "slurmopt monitor -- COMMAND" in page.replace("\n    ", " ")


def test_slurms_sizes_and_times() -> None:
    assert size("10G") == 10 * 2**30
    assert size("1234K") == 1234 * 1024
    assert size("500Mn") == 500 * 2**20
    assert size("0") == 0
    assert size("") is None
    assert clock("1-02:03:04") == 93784
    assert clock("02:03.500") == 123.5
    assert clock("00:00:08") == 8
    assert clock("") is None


@pytest.mark.parametrize(
    ("allocated", "gpus", "kind"),
    [
        ("billing=4,cpu=4,gres/gpu=4,mem=10G,node=1", 4, None),
        ("cpu=4,gres/gpu:a100=2,gres/gpu:v100=1,mem=10G", 3, "a100, v100"),
        ("cpu=4,gres/gpu=2,gres/gpu:a100=2,node=1", 2, "a100"),
        ("cpu=4,mem=10G,node=1", 0, None),
    ],
)
def test_typed_gpus_are_not_counted_twice(allocated: str, gpus: int, kind: str | None) -> None:
    assert gpus_of(tres(allocated)) == (gpus, kind)
