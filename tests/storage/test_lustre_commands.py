"""lfs and lctl as slurmopt calls them, beside a SIMULATED pair that refuses what the manual pages do not have."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from storage.simulated_lustre import SimulatedLustre

from slurmopt.storage.lustre import checks, commands, hsm
from slurmopt.storage.lustre.commands import LustreError
from slurmopt.storage.lustre.tree import Entry, walk

RELEASED = {"released", "exists", "archived"}


@pytest.fixture
def lustre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedLustre:
    return SimulatedLustre(tmp_path, monkeypatch)


def files_of(lustre: SimulatedLustre) -> list[Entry]:
    return [entry for entry in walk(str(lustre.root)) if not entry.is_folder]


@pytest.mark.parametrize(
    "words",
    [
        ["setstripe", "--bogus", "1", "ROOT"],
        ["setstripe", "-E", "1G", "-c", "1", "-E", "100M", "-c", "4", "ROOT"],
        ["setstripe", "-c", "many", "ROOT"],
        ["setstripe", "ROOT"],
        ["setstripe", "-c", "1"],
        ["getstripe"],
        ["hsm_state"],
        ["hsm_restore", "-x", "ROOT"],
        ["quota", "-u", "0"],
        ["fsck", "ROOT"],
    ],
)
def test_the_stand_in_refuses_what_is_not_documented(lustre: SimulatedLustre, words: list[str]) -> None:
    done = subprocess.run(["lfs", *(word.replace("ROOT", str(lustre.root)) for word in words)], capture_output=True)
    assert done.returncode not in (0, 126, 127)


def test_targets_with_what_is_wrong(lustre: SimulatedLustre) -> None:
    lustre.set(osts=4, flags={"1": "D", "2": "DR"}, free={"3": 100_000})
    found = commands.targets(str(lustre.root))
    assert [target.kind for target in found].count("OST") == 4
    assert [target.states for target in found][1:] == [(), ("degraded",), ("degraded", "read-only"), ()]
    state, balance = checks.target_checks(str(lustre.root))[1:]
    assert state.verdict == "warn"
    assert "abcd-OST0002 is degraded and read-only" in state.text
    assert "abcd-OST0003 has 97.7 MiB free" in state.text
    assert balance.verdict == "warn"


@pytest.mark.parametrize(
    ("line", "left", "verdict"),
    [
        ("4096 0 0 - 12 0 0 -", None, "pass"),
        ("1000 0 2000 - 12 0 0 -", 1000 * 1024, "pass"),
        ("1950* 1900 2000 6d23h 12 0 100 -", 0, "fail"),
    ],
)
def test_the_quota(lustre: SimulatedLustre, line: str, left: int | None, verdict: str) -> None:
    lustre.set(quota=line)
    quota = commands.user_quota(str(lustre.root), 0)
    assert quota is not None
    assert quota.bytes_left == left
    assert checks.lustre_quota_check(str(lustre.root)).verdict == verdict


def test_lfs_on_another_file_system_says_so_itself(lustre: SimulatedLustre, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    states = commands.hsm_states([str(tmp_path / "file")])
    assert "Inappropriate ioctl for device" in str(states[str(tmp_path / "file")])
    with pytest.raises(LustreError, match=r"^lfs setstripe -c 1 failed: error on ioctl .* Inappropriate ioctl"):
        commands.set_layout(str(tmp_path), ["-c", "1"])


def test_without_the_programs_all_is_skipped_with_a_reason(lustre: SimulatedLustre) -> None:
    lustre.uninstall()
    results = [
        *checks.target_checks(str(lustre.root)),
        checks.layout_check(str(lustre.root)),
        checks.lustre_quota_check(str(lustre.root)),
        *checks.client_checks(96, 1 << 40),
    ]
    assert {result.verdict for result in results} == {"skipped"}
    assert all("is not installed here" in result.text for result in results)


def test_settings_of_a_large_client(lustre: SimulatedLustre) -> None:
    lustre.set(
        parameters={
            "osc.abcd-OST0000-osc-ffff8803c9c0f000.max_rpcs_in_flight": "8",
            "osc.abcd-OST0001-osc-ffff8803c9c0f000.max_rpcs_in_flight": "64",
            "mdc.abcd-MDT0000-mdc-ffff8803c9c0f000.max_rpcs_in_flight": "64",
            "ldlm.namespaces.abcd-OST0000-osc-ffff.lru_max_age": "3900000",
        }
    )
    results = {result.name: result for result in checks.client_checks(96, 1 << 40)}
    rpcs = results["osc.*OST*.max_rpcs_in_flight"]
    assert (rpcs.verdict, rpcs.mend) == (
        "warn",
        "ask the administrator: sudo lctl set_param 'osc.*OST*.max_rpcs_in_flight=32'",
    )
    assert results["mdc.*.max_rpcs_in_flight"].verdict == "pass"
    assert results["ldlm.namespaces.*.lru_max_age"].verdict == "warn"
    assert results["ldlm.namespaces.*.lru_size"].verdict == "skipped"
    small = [result.name for result in checks.client_checks(8, 16 << 30)]
    assert small == ["llite.*.statahead_max"]
    assert lustre.calls("lctl")
    assert {words[1] for words in lustre.calls("lctl")} == {"get_param"}, "nothing but reading"


def test_states_of_files_with_odd_names(lustre: SimulatedLustre) -> None:
    names = ["plain", "a: (0x0000000d) released", "two\nlines", "-c", "\udcff"]
    for name in names:
        lustre.in_s3(name)
    (lustre.root / "here").write_text("loaded")
    gone = str(lustre.root / "gone")
    paths = [str(lustre.root / name) for name in names]
    states = commands.hsm_states([paths[0], gone, *paths[1:], str(lustre.root / "here")])
    assert states[gone] == f"can't get hsm state for {gone}: No such file or directory"
    assert [states[path] for path in paths] == [RELEASED] * len(paths)
    assert states[str(lustre.root / "here")] == set()


def test_loading_is_bounded_and_counted(lustre: SimulatedLustre) -> None:
    for number in range(8):
        lustre.in_s3(f"part-{number}", size=1000)
    found = hsm.find_unloaded(files_of(lustre))
    assert (len(found.files), found.bytes) == (8, 8_000)
    loading = hsm.Loading(found.files, at_once=4)
    told: list[int] = []
    assert loading.run(60, told.append)
    assert (loading.loaded_files, loading.loaded_bytes, sum(told), loading.failed) == (8, 8_000, 8_000, {})
    assert lustre.state["most_at_once"] <= 4
    assert hsm.find_unloaded(files_of(lustre)).loaded == 8


def test_what_is_not_loaded_is_named(lustre: SimulatedLustre, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hsm, "STALLED_SECONDS", 0.2)
    lustre.in_s3("good")
    gone = lustre.in_s3("gone-from-the-bucket", is_gone=True)
    vanished = lustre.in_s3("vanished")
    entries = files_of(lustre)
    vanished.unlink()
    loading = hsm.Loading(entries, at_once=10)
    assert loading.run(60)
    assert loading.loaded_files == 1
    assert set(loading.failed) == {str(gone), str(vanished)}
    assert "it was not loaded" in loading.failed[str(gone)]


def test_a_lost_copy_is_not_requested(lustre: SimulatedLustre) -> None:
    lost = lustre.in_s3("lost", state="(0x0000004d) released exists archived lost_from_hsm, archive_id:1")
    found = hsm.find_unloaded(files_of(lustre))
    assert found.files == []
    assert found.failed == {str(lost): "its copy in S3 is lost"}


def test_the_walk_follows_no_link(lustre: SimulatedLustre, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("not below the folder")
    (lustre.root / "link").symlink_to(tmp_path / "secret")
    (lustre.root / "folder").symlink_to(tmp_path)
    (lustre.root / "file").write_text("x")
    assert [Path(entry.path).name for entry in files_of(lustre)] == ["file"]
