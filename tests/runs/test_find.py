"""RUN in all its forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmopt.errors import RunError
from slurmopt.runs.all_runs import all_runs
from slurmopt.runs.find import find

RUNS = Path("runs")


@pytest.fixture
def three(make_run):
    first = make_run("mine", "20261121-120000-aaaa").submitted("101").folder
    second = make_run("other", "20261121-120001-bbbb").submitted("102_3").folder
    third = make_run("mine", "20261121-120002-cccc").submitted("local-55", backend="local").folder
    return first, second, third


def test_each_form_of_run_finds_it(three) -> None:
    first, second, third = three
    assert find(None, RUNS) == third
    assert find("mine", RUNS) == third
    assert find("other", RUNS) == second
    assert find("mine/20261121-120000-aaaa", RUNS) == first
    assert find("20261121-120001-bbbb", RUNS) == second
    assert find("20261121-120001", RUNS) == second
    assert find("mine/20261121-120000", RUNS) == first
    assert find(str(first.path), RUNS) == first
    assert find("./runs/other", RUNS) == second
    assert find("101", RUNS) == first
    assert find("102_3", RUNS) == second
    assert find("102", RUNS) == second
    assert find("local-55", RUNS) == third


def test_a_run_is_found_from_within_its_folder(three, monkeypatch) -> None:
    monkeypatch.chdir(three[0].path)
    assert find(".", RUNS) == three[0]


def test_a_name_is_found_as_it_was_typed_at_launch(make_run) -> None:
    made = make_run("my-run-v2")
    made.event("created", name="my run: v2", id=made.folder.id)
    assert find("my run: v2", RUNS) == made.folder
    with pytest.raises(RunError, match="no run '\\*my run\\* v2'"):
        find("*my run* v2", RUNS)


def test_a_job_id_that_was_used_again_means_the_later_run(make_run) -> None:
    make_run("old", "1-a").submitted("9")
    newer = make_run("new", "2-b").submitted("9").folder
    assert find("9", RUNS) == newer


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("mien", "did you mean 'mine'?"),
        ("20261121-1200", "write more characters of it"),
        ("999", "`slurmopt list` shows all"),
        ("", "valid: a name"),
        ("a\0b", "valid: a name"),
        ("x" * 5000, "no run"),
        ("\udcff\n", "no run '\\udcff\\n'"),
    ],
)
def test_what_is_not_found_says_what_would_be(three, word: str, says: str) -> None:
    with pytest.raises(RunError) as error:
        find(word, RUNS)
    assert says in str(error.value)


def test_without_any_run_the_next_step_is_named(make_run) -> None:
    with pytest.raises(RunError, match="slurmopt launch"):
        find(None, RUNS)
    with pytest.raises(RunError, match="slurmopt launch"):
        find("mine", RUNS)


def test_what_else_lies_there_is_no_run(make_run) -> None:
    run = make_run().folder
    (RUNS / "notes.txt").write_text("")
    (RUNS / "mine" / "scratch").mkdir()
    (RUNS / ".hidden" / "x").mkdir(parents=True)
    (RUNS / "dangling").symlink_to("nowhere")
    assert all_runs(RUNS) == [run]


@pytest.mark.parametrize("word", ["..", "../..", "./", "/"])
@pytest.mark.parametrize("has_runs", [True, False])
def test_a_folder_that_is_no_run_is_named_as_one(make_run, tmp_path, monkeypatch, word: str, has_runs: bool) -> None:
    if has_runs:
        make_run("mine")
    inside = tmp_path / "src" / "deep"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    there = (inside / word).resolve()
    with pytest.raises(RunError) as told:
        find(word, tmp_path / "runs")
    assert str(told.value) == (
        f"{word!r} is the folder {there}: neither a run nor the runs of one name; "
        f"if your runs are in it, add --folder {there}"
    )


def test_a_path_that_goes_up_is_shown_without_that(three, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(three[0].path)
    assert find("..", RUNS) == find("./../../mine", RUNS) == three[2]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(three[0].path)
    assert find("./link", RUNS).path == tmp_path / "link"
    assert find("./link/..", RUNS) == three[2]
    assert find("./link/../20261121-120000-aaaa", RUNS) == three[0]
