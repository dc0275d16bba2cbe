"""Node lists as Slurm writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmopt.slurm.hostlist import expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1", ["node1"]),
        ("node[1-3,5]", ["node1", "node2", "node3", "node5"]),
        ("node[08-11]", ["node08", "node09", "node10", "node11"]),
        ("node[8-11]", ["node8", "node9", "node10", "node11"]),
        ("gpu-[01-02]-[1-2]", ["gpu-01-1", "gpu-01-2", "gpu-02-1", "gpu-02-2"]),
        ("a[1-2]-ib,b", ["a1-ib", "a2-ib", "b"]),
        ("node[1-3,5],gpu-[01-02]-[1-2],x", 9),
        ("", []),
        (" a , b,", ["a", "b"]),
    ],
)
def test_expands(text: str, names: list[str] | int) -> None:
    assert (len(expand(text)) if isinstance(names, int) else expand(text)) == names


@pytest.mark.parametrize("text", ["n[", "n]", "n[1", "n[a-b]", "n[3-1]", "n[]", "n[[1]]", "n[1-]", "n[1,,2]", "n[-1]"])
def test_what_is_no_list_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"brackets|range"):
        expand(text)


@pytest.mark.parametrize("text", ["n[0-99999999999]", "n[1-1000][1-1000]", "n[1-9][1-9][1-9][1-9][1-9][1-9]"])
def test_a_list_beyond_all_measure_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="more than 65536 nodes"):
        expand(text)


@pytest.mark.parametrize("text", ["a" * 256, "a" * 250 + "[1-65536]-x", f"n[{'0' * 300}1-2]"])
def test_a_name_that_no_host_has_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"longer than 255|is no number"):
        expand(text)


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[a-z][a-z0-9.-]{0,6}", fullmatch=True),
            st.lists(st.tuples(st.integers(0, 999), st.integers(0, 20), st.integers(1, 4)), max_size=3),
            st.sampled_from(["", "-ib", ".local"]),
        ),
        max_size=4,
    )
)
def test_every_number_of_every_range_is_there(groups: list[tuple[str, list[tuple[int, int, int]], str]]) -> None:
    texts, names = [], []
    for prefix, ranges, suffix in groups:
        if not ranges:
            texts.append(prefix + suffix)
            names.append(prefix + suffix)
            continue
        words = [f"{first:0{width}d}-{first + more:0{width}d}" for first, more, width in ranges]
        texts.append(f"{prefix}[{','.join(words)}]{suffix}")
        names += [
            f"{prefix}{number:0{width}d}{suffix}"
            for first, more, width in ranges
            for number in range(first, first + more + 1)
        ]
    assert expand(",".join(texts)) == names
