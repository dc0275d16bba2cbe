"""The output of nccl-tests as rows. The texts are simulated: see `nccl_texts`."""

from __future__ import annotations

import pytest
from collectives.nccl_texts import ALL_REDUCE, EARLIER_ALL_GATHER, FAILS

from slurmopt.collectives import nccl_tests
from slurmopt.errors import InputError


def test_the_rows_and_the_bandwidths_are_those_of_the_table() -> None:
    found = nccl_tests.read(ALL_REDUCE, "out.txt")
    assert (found.world, found.nodes, found.device) == (4, ["gpu-01", "gpu-02"], "NVIDIA H100 80GB HBM3")
    first, in_place = found.rows[:2]
    assert (first.collective, first.size, first.iterations, first.in_place) == ("all_reduce", 1048576, 20, False)
    assert in_place.in_place
    printed = [line.split() for line in ALL_REDUCE.splitlines() if "sum" in line]
    shown = [(float(words[6]), float(words[7]), float(words[10]), float(words[11])) for words in printed]
    rows = [(a.algbw, a.busbw, b.algbw, b.busbw) for a, b in zip(found.rows[::2], found.rows[1::2], strict=True)]
    for ours, theirs in zip(rows, shown, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3)
    assert [row.wrong for row in found.rows] == [0, 0, 0, 0, 3, 0]


def test_earlier_versions_have_fewer_columns_and_do_not_name_the_collective() -> None:
    found = nccl_tests.read(EARLIER_ALL_GATHER, "all_gather.txt", "all_gather")
    assert (found.world, found.nodes) == (2, ["gpu-07"])
    assert [row.busbw for row in found.rows] == pytest.approx([13.11, 13.27, 20.97, 21.16], rel=2e-3)
    with pytest.raises(InputError, match="does not say which collective"):
        nccl_tests.read(EARLIER_ALL_GATHER, "out.txt")


def test_two_outputs_in_one_file() -> None:
    gather = ALL_REDUCE.replace("all_reduce_perf", "all_gather_perf")
    found = nccl_tests.read(ALL_REDUCE + gather, "both.txt")
    assert [row.collective for row in found.rows] == ["all_reduce"] * 6 + ["all_gather"] * 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FAILS, "no table of nccl-tests in it: gpu-01: Test CUDA failure common.cu:892"),
        (ALL_REDUCE.replace("all_reduce_perf", "sendrecv_perf"), "sendrecv_perf is no collective of this benchmark"),
        (ALL_REDUCE.replace("52.40 ", "oops "), "a damaged line of nccl-tests: 1048576 262144 float sum -1 oops"),
        (ALL_REDUCE.replace(" 1048576 ", f" {'9' * 5000} "), "a damaged line of nccl-tests: 9999"),
        (ALL_REDUCE.replace(" 1048576 ", " 1000000000000000000 "), "a damaged line of nccl-tests: 1000000000000000000"),
        (
            "\n".join(line for line in ALL_REDUCE.splitlines() if "Rank " not in line),
            "one rank: nothing was communicated",
        ),
        ("", "no table of nccl-tests"),
    ],
)
def test_what_cannot_be_read_is_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        nccl_tests.read(text, "out.txt")
    assert str(raised.value).startswith("out.txt: ")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_absurd_numbers_of_ranks_and_calls_are_not_read() -> None:
    lines = f"#  Rank  {'9' * 5000} Group 0 Pid 1 on evil device 0 [0000] X\n# nThread 1 iters: {'9' * 5000}\n"
    found = nccl_tests.read(lines + ALL_REDUCE, "out.txt")
    assert found.rows == nccl_tests.read(ALL_REDUCE, "out.txt").rows
