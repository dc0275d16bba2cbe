"""What another user of the machine can do to the files that slurmopt writes where both may write: two real users.

The victim is root, as the tests are; the attacker is a user without rights who may write to the same folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from private_cluster import unprivileged_user

from slurmopt.run_folder import events
from slurmopt.run_folder.access import open_folders
from slurmopt.run_folder.access.files import open_append, replace_text

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="two users need root")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that both may write to, as a project's with umask 002; without the sticky bit of /tmp."""
    with tempfile.TemporaryDirectory(prefix="slurmopt-shared-", dir="/tmp") as folder:
        path = Path(folder)
        path.chmod(0o777)
        yield path


@pytest.fixture
def victims(tmp_path: Path) -> Path:
    """A file of the victim's own that the attacker would have overwritten."""
    path = tmp_path / "authorized_keys"
    path.write_text("mine\n")
    return path


def attack(command: str, *words: object) -> None:
    subprocess.run(["bash", "-c", command, "attack", *map(str, words)], user=unprivileged_user(), check=True)


def test_a_link_at_the_name_of_a_temporary_file_overwrites_nothing(shared: Path, victims: Path) -> None:
    target = shared / "plot.html"
    attack('ln -s "$1" "$2"; ln -s "$1" "$3"', victims, shared / f".plot.html.{os.getpid()}", target)

    replace_text(target, "<html>", mode=0o644)

    assert victims.read_text() == "mine\n"
    assert target.read_text() == "<html>"
    assert not target.is_symlink()


OPENS = """
import os, sys
from pathlib import Path
from slurmopt.run_folder.access.files import replace_text
target = Path(sys.argv[1])
def note(event, words):
    if event == "open" and str(words[0]).startswith(str(target.parent)):
        print(words[0], words[2] & (os.O_EXCL | os.O_NOFOLLOW) == os.O_EXCL | os.O_NOFOLLOW)
sys.addaudithook(note)
replace_text(target, "1")
replace_text(target, "2")
"""


def test_a_temporary_name_cannot_be_foreseen_and_is_never_shared(shared: Path) -> None:
    done = subprocess.run([sys.executable, "-c", OPENS, shared / "x"], capture_output=True, text=True, check=True)

    names, exclusive = zip(*(line.split() for line in done.stdout.splitlines()), strict=True)
    assert len(set(names)) == 2
    assert set(exclusive) == {"True"}
    assert os.listdir(shared) == ["x"]


@pytest.mark.parametrize("how", ["ln -s {victims} {path}", "mkfifo -m 666 {path}"])
def test_what_is_added_to_a_journal_goes_nowhere_else_and_waits_for_nobody(
    shared: Path, victims: Path, how: str
) -> None:
    journal = shared / "events.jsonl"
    attack(how.format(victims=victims, path=journal))

    with pytest.raises(OSError, match=r"events\.jsonl"):
        events.append(journal, "created")
    with pytest.raises(OSError, match=r"events\.jsonl"):
        open_append(journal)

    assert victims.read_text() == "mine\n"


def test_who_holds_a_folder_writes_there_wherever_it_is(
    shared: Path, victims: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_folders, "_held", [])
    run = shared / "run"
    run.mkdir()
    open_folders.hold(run)
    events.append(run / "events.jsonl", "created")
    attack('mv "$1" "$1.gone" && mkdir "$1" && ln -s "$2" "$1/events.jsonl"', run, victims)

    events.append(run / "events.jsonl", "attempt")
    replace_text(run / "result.json", "{}")

    gone = shared / "run.gone"
    assert [event["event"] for event in events.read(gone / "events.jsonl")] == ["created", "attempt"]
    assert (gone / "result.json").read_text() == "{}"
    assert os.listdir(run) == ["events.jsonl"]
    assert victims.read_text() == "mine\n"
    open_folders.release()


def test_a_held_folder_whose_descriptor_is_lost_is_opened_anew_but_none_in_its_place(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_folders, "_held", [])
    run = shared / "run"
    run.mkdir()
    open_folders.hold(run)
    os.close(int(open_folders.held(run).name))
    replace_text(run / "result.json", "{}")
    assert (run / "result.json").read_text() == "{}"
    attack('mv "$1" "$1.gone" && mkdir -m 777 "$1"', run)
    os.close(int(open_folders.held(run).name))
    with pytest.raises(FileNotFoundError, match=r"result\.json"):
        replace_text(run / "result.json", "{}")
    assert os.listdir(run) == []
