"""A trace recorded on an NVIDIA H100 (torch 2.11, no simulation): its shares are those of an independent count.

Six steps of four layers in bf16: a copy from pinned memory, 2 ms of sleep in the mark `augment`, forward and backward
pass, a fused AdamW, and `loss.item()`.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from slurmopt.profiling.analysis import Profile, RankProfile, analyse
from slurmopt.profiling.sentences import sentences
from slurmopt.profiling.steps import steps_of, window_of
from slurmopt.runs.profiling.traces import read_file

TRACE = Path(__file__).parent / "recorded" / "h100.json.gz"
INSTANTS = 20_000
WIDTH, LAYERS, STEPS = 2048, 4, 5


@pytest.fixture(scope="module")
def profile() -> Profile:
    return analyse({0: read_file(TRACE)})


@pytest.fixture(scope="module")
def one(profile: Profile) -> RankProfile:
    return profile.ranks[0]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(TRACE.read_bytes()))["traceEvents"]
    return [row for row in found if row.get("ph") == "X"]


def covers(rows: list[dict[str, Any]], first: float, last: float, *categories: str, name: str = "") -> list[bool]:
    """At evenly spaced instants, whether any row of these categories covers the instant."""
    step = (last - first) / INSTANTS
    found = [False] * INSTANTS
    for row in rows:
        if row.get("cat") in categories and name in row["name"]:
            begin, end = (row["ts"] - first) / step - 0.5, (row["ts"] + row["dur"] - first) / step - 0.5
            for at in range(max(0, -int(-begin // 1)), min(INSTANTS, -int(-end // 1))):
                found[at] = True
    return found


def test_compute_copies_and_the_mark_are_those_of_an_independent_count(
    one: RankProfile, rows: list[dict[str, Any]]
) -> None:
    trace = read_file(TRACE)
    first, last = window_of(trace, steps_of(trace))
    kernels = covers(rows, first, last, "kernel")
    copies = covers(rows, first, last, "gpu_memcpy", "gpu_memset")
    augment = covers(rows, first, last, "user_annotation", name="augment")
    counted = {
        "compute": sum(kernels),
        "copies": sum(copy and not kernel for copy, kernel in zip(copies, kernels, strict=True)),
        "augment": sum(
            mark and not (copy or kernel) for mark, copy, kernel in zip(augment, copies, kernels, strict=True)
        ),
    }
    whole = one.breakdown
    assert whole.seconds == pytest.approx((last - first) / 1e6)
    assert whole.steps == STEPS
    for name, count in counted.items():
        assert whole.shares[name] / whole.seconds == pytest.approx(count / INSTANTS, abs=0.002), name
    idle = 1 - sum(kernel or copy for kernel, copy in zip(kernels, copies, strict=True)) / INSTANTS
    others = sum(seconds for name, seconds in whole.shares.items() if name not in ("compute", "copies"))
    assert others / whole.seconds == pytest.approx(idle, abs=0.002)
    assert whole.unexplained == 0


def test_products_have_the_shapes_of_the_model_and_a_possible_rate(one: RankProfile) -> None:
    """Per step: LAYERS forward, and of the backward pass two each, without the input's of the first layer."""
    calls = {each.operator: each.calls for each in one.products}
    assert calls == {"aten::addmm": LAYERS * STEPS, "aten::mm": (2 * LAYERS - 1) * STEPS}
    for each in one.products:
        assert (each.m, each.n, each.k, each.type) == (WIDTH, WIDTH, WIDTH, "bf16")
        limit = each.limit(one.device)
        assert limit == 989e12
        assert 0.5 < each.rate / limit < 1


def test_what_it_says(profile: Profile) -> None:
    said = [each.text for each in sentences(profile)]
    assert said[0].startswith("5 steps, 5.14 ms each: the GPU computes 14% of the time")
    assert any(text.endswith("% of the time, in augment") for text in said)
    assert any("busy with Python" in text for text in said)
    assert any(text.startswith("the GPU only copies memory") for text in said)
    assert any(text.endswith("of what the GPU can do in bf16") for text in said)
