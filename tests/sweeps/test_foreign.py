"""A sweep that another user has planted is never submitted: its script and words would run as you."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from slurmopt.cli import main
from slurmopt.errors import RunError
from slurmopt.runs.ownership import refuse_foreign
from slurmopt.sweeps.submit import backlog

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root can make files of another user")


def test_ones_own_may_be_submitted(make_sweep: Any) -> None:
    refuse_foreign(make_sweep().folder)


@needs_root
@pytest.mark.parametrize("name", ["", "points.json", "job.sbatch", "config.yaml", "events.jsonl"])
def test_what_another_user_owns_is_refused(make_sweep: Any, name: str) -> None:
    sweep = make_sweep().folder
    os.chown(sweep.path / name, 65534, 65534)
    with pytest.raises(RunError, match="belongs to another user"):
        refuse_foreign(sweep)


@needs_root
def test_a_link_of_ones_own_is_what_it_leads_to_and_one_of_another_user_is_refused(
    make_sweep: Any, tmp_path: Path
) -> None:
    sweep = make_sweep().folder
    mine = sweep.script.rename(tmp_path / "job.sbatch")
    sweep.script.symlink_to(mine)
    refuse_foreign(sweep)
    mine.chmod(0o660)  # nobody else reaches what is in the sweep, but who knows where it leads to
    with pytest.raises(RunError, match="may be written by others"):
        refuse_foreign(sweep)
    mine.chmod(0o640)
    os.lchown(sweep.script, 65534, 65534)
    with pytest.raises(RunError, match="belongs to another user"):
        refuse_foreign(sweep)


@needs_root
def test_what_waits_in_a_planted_sweep_is_not_looked_at(make_sweep: Any, capsys: Any) -> None:
    sweep = make_sweep().folder
    sweep.more.touch()
    os.chown(sweep.path, 65534, 65534)
    assert backlog.main([str(sweep.path)]) == 1
    assert "belongs to another user" in capsys.readouterr().err
    assert not (sweep.path / ".submission").exists()


@needs_root
@pytest.mark.parametrize(
    "words",
    [
        ["logs", "--errors"],
        ["logs", "{label}/0", "--errors"],
        ["logs", "{label}/1"],
        ["status"],
        ["status", "{label}/0-2"],
        ["status", "{label}/2"],
        ["status", "--all"],
        ["list"],
        ["results"],
        ["results", "--csv"],
        ["results", "--json"],
        ["results", "--sort", "nothing"],
        ["history", "{label}/0"],
        ["retry"],
        ["cancel"],
        ["throttle", "{label}", "1"],
    ],
    ids=" ".join,
)
def test_a_planted_sweep_does_nothing_to_the_terminal(make_sweep: Any, capsys: Any, words: list[str]) -> None:
    nasty = "\x1b]0;title\x07\x9b2J\x7f\u202e"
    made = make_sweep(name=f"n{nasty}", **{f"a{nasty}": [f"{nasty}1", f"={nasty}2", "\r3"]}).submitted("0-2", "17")
    trace = f"Traceback (most recent call last):\n\t{nasty}\nValueError: {nasty}\n"
    made.ended(0, "user error", log=trace, error=nasty, cause=nasty, rank=0, reason=nasty)
    made.ended(1, log=f"{nasty}\r\n", metrics={f"m{nasty}": 1.0}, step=1)
    for path in (made.folder.path, *made.folder.path.rglob("*")):
        os.chown(path, 65534, 65534)
    main([word.format(label=made.label) for word in words])
    seen = capsys.readouterr()
    assert all(char.isprintable() or char in "\n\t" for char in seen.out + seen.err), repr(seen)
    assert seen.out or seen.err


@needs_root
def test_commands_that_are_printed_about_a_planted_sweep_do_nothing_but_look(
    make_sweep: Any, capsys: Any, tmp_path: Path
) -> None:
    """Its name is the planter's choice, and its stored words would be those of a launch."""
    made = make_sweep(name="m$(touch pwned)")
    made.folder.run.overrides.write_text("[task._target_=os.system]")
    for path in (made.folder.path, *made.folder.path.rglob("*")):
        os.chown(path, 65534, 65534)
    assert main(["status", str(made.folder.path)]) in (0, 1)
    assert main(["status", str(made.folder.path / "2")]) in (0, 1)
    assert main(["results", str(made.folder.path)]) in (0, 1)
    shown = capsys.readouterr().out
    assert "os.system" not in shown
    commands = [line.partition("slurmopt ")[2] for line in shown.splitlines() if "slurmopt " in line]
    assert commands
    assert all(command.split("'")[1].startswith("m$(touch pwned)/") for command in commands)
