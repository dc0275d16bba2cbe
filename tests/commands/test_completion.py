"""Completion, as the shells themselves do it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands.terminal import Terminal

from slurmopt import cli
from slurmopt.commands import COMMANDS, completion
from slurmopt.commands.complete.main import answer, candidates
from slurmopt.commands.parsers import parser_of, shown_options, subcommands
from slurmopt.slurm.cluster import cache

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(project: Path) -> Path:
    """A project with two runs, and `slurmopt` on the PATH."""
    for name, run_id in (("mine", "20261121-aaaa"), ("other", "20261121-bbbb")):
        run = project / "runs" / name / run_id
        run.mkdir(parents=True)
        (run / "events.jsonl").write_text('{"event": "created", "time": 1.0}\n')
    script = project / "bin" / "slurmopt"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m slurmopt "$@"\n')
    script.chmod(0o755)
    return project


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("slurmopt st", ["status", "storage"]),
        ("slurmopt completion ", ["bash", "zsh", "fish"]),
        ("slurmopt logs m", ["mine"]),
        ("slurmopt logs other/", ["other/20261121-bbbb"]),
        ("slurmopt cancel 20261121-a", ["20261121-aaaa"]),
        ("slurmopt status mine --j", ["--json"]),
        ("slurmopt logs --rank ", []),
        ("slurmopt logs mine o", []),
        ("slurmopt status mine o", ["other"]),
        ("slurmopt retry --more-time 2 mine --more-m", ["--more-memory"]),
        ("slurmopt results --plot ", []),
        ("slurmopt checkpoint export mine --format s", ["safetensors"]),
        ("slurmopt checkpoint prune --keep 2 o", ["other"]),
        ("slurmopt storage plan --kind d", ["datasets"]),
        ("slurmopt nonsense ", []),
        ("slurmopt help st", ["status", "storage"]),
        ("slurmopt help checkpoint ex", ["export"]),
        ("slurmopt status mine ", ["other"]),
        ("slurmopt logs mine --folder=nowhere o", []),
        ("slurmopt status --json --", ["--all", "--color", "--folder", "--help"]),
        ("slurmopt export cloudwatch --dimension a=b --dim", ["--dimension"]),
        ("slurmopt checkpoint export mine --format=s", ["--format=safetensors"]),
        ("slurmopt retry mi", ["mine"]),
        ("slurmopt retry mine resources.parti", ["resources.partition="]),
        ("slurmopt retry mine launch.na", []),
        ("slurmopt retry mine task.per=n", ["task.per=node"]),
        ("slurmopt logs 'mi", []),
        ("slurmopt run --set launch.dry_run=f", ["launch.dry_run=false", "launch.dry_run=full"]),
        ("slurmopt run --set a=1 --set resources.nodes", ["resources.nodes="]),
        ("slurmopt run --cluster lo", ["local"]),
        ("slurmopt throttle other 3 ", ["--folder", "--help", "--json"]),
        ("slurmopt run -G 1 --gp", []),
        ("slurmopt run -G 1 -p x --par", []),
    ],
)
def test_commands_options_and_runs(folder: Path, line: str, expected: list[str]) -> None:
    assert candidates(line) == expected


def test_runs_of_another_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").rename(tmp_path / "moved")
    assert candidates("slurmopt logs --folder moved mi") == ["mine"]
    assert candidates("slurmopt logs mi") == []


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("+experiment=mi", {"+experiment=mine"}),
        ("+experiment=mine l", {"launch.", "lr="}),
        ("+experiment=mine resources.nodes", {"resources.nodes="}),
        ("cluster=l", {"cluster=local"}),
        ("no.such.key=1 resources.nodes", {"resources.nodes="}),
        ("resources.nodes=2 resources.node", {"resources.nodelist="}),
        ("launch.dry_run=", {"launch.dry_run=true", "launch.dry_run=false", "launch.dry_run=full"}),
        ("health.enabled=t", {"health.enabled=true"}),
        ("notify.format=d", {"notify.format=discord"}),
        (
            "+experiment=mine +experiment=",
            {f"+experiment={name}" for name in ("mine", "bench_collectives", "quickstart")},
        ),
        ("+experiment=mine +env", {"+environment."}),
        ("+experiment=mine +environment.v", {"+environment.variables."}),
        ("+experiment=mine ~l", {"~lr"}),
        ("++resources.nodes", {"++resources.nodes="}),
        ("-m restart.forward=USR1,USR", {"restart.forward=USR1,USR2"}),
        ("launch.run=ot", {"launch.run=other"}),
        ("--cfg ", {"job", "hydra", "all"}),
        ("--conf", {"--config-dir"}),
        ("--local --b", set()),
        ("--wait --no", set()),
        ("--backend l", {"local"}),
    ],
)
def test_overrides_of_a_launch(folder: Path, typed: str, expected: set[str]) -> None:
    assert set(candidates(f"slurmopt launch {typed}")) == expected


def test_overrides_with_a_config_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "conf").rename(tmp_path / "configs")
    assert candidates("slurmopt launch +experiment=mi") == []
    assert candidates("slurmopt launch --config-dir configs +experiment=mi") == ["+experiment=mine"]


def test_a_key_is_offered_as_soon_as_it_is_in_the_config(folder: Path) -> None:
    assert candidates("slurmopt launch +experiment=mine lr_") == []
    config = folder / "conf" / "experiment" / "mine.yaml"
    config.write_text(config.read_text() + "lr_decay: true\n")
    assert candidates("slurmopt launch +experiment=mine lr_") == ["lr_decay="]
    assert candidates("slurmopt launch +experiment=mine lr_decay=") == ["lr_decay=true", "lr_decay=false"]


def test_what_the_cluster_has_is_offered_without_asking_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tool in ("scontrol", "sinfo", "sacctmgr", "squeue"):
        (folder / "bin" / tool).write_text(f"#!/bin/sh\ntouch {folder}/asked\n")
        (folder / "bin" / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    assert candidates("slurmopt launch resources.partition=") == []
    nodes = {"nodes": "n[1-4]", "count": 4, "usable": 4, "cpus": 8, "memory": 1, "gpus": {"h100": 8}}
    big = {"name": "big", "state": "up", "default": True, "max_time": 86400, "groups": [nodes]}
    accounts = {"vision": ["normal", "high"], "speech": ["normal"]}
    cache.write("facts", {"partitions": [big], "accounts": accounts}, time.time() - 86400)
    found = answer("slurmopt launch resources.partition=").candidates
    assert found == [("resources.partition=big", "the default, 4 nodes, 8 h100 GPUs, up to 1-00:00:00")]
    assert candidates("slurmopt launch resources.account=v") == ["resources.account=vision"]
    assert candidates("slurmopt launch resources.qos=") == ["resources.qos=normal", "resources.qos=high"]
    assert candidates("slurmopt retry mine resources.gpu_type=") == ["resources.gpu_type=h100"]
    assert not (folder / "asked").exists()


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("slurmopt monitor -- python ", "files"),
        ("slurmopt logs --folder ", "folders"),
        ("slurmopt logs ./ru", "folders"),
        ("slurmopt results --plot ", "files"),
        ("slurmopt launch launch.template=", "files"),
        ("slurmopt launch --config-dir ", "folders"),
        ("slurmopt launch resources.nodes=", "none"),
        ("slurmopt logs mine ", "none"),
        ("slurmopt nonsense ", "none"),
    ],
)
def test_files_are_offered_only_where_they_are_accepted(folder: Path, line: str, files: str) -> None:
    assert answer(line).files == files


def test_points_of_a_sweep(folder: Path) -> None:
    sweep = folder / "runs" / "grid" / "20261122-cccc"
    sweep.mkdir(parents=True)
    (sweep / "events.jsonl").write_text('{"event": "created", "time": 1.0, "points": 12}\n')
    (sweep / "points.json").write_text("{}")
    assert candidates("slurmopt logs grid/20261122-cccc/1") == [f"grid/20261122-cccc/{n}" for n in (1, 10, 11)]
    assert candidates("slurmopt logs grid/") == ["grid/20261122-cccc"]
    assert candidates("slurmopt results ") == ["grid"]
    assert candidates("slurmopt throttle grid/20261122-cccc/1") == []


def _commands() -> list[tuple[str, str]]:
    below = [
        (f"{name} {sub}", home) for name, (at, _) in COMMANDS.items() for sub, (home, _) in subcommands(at).items()
    ]
    return [(name, module) for name, (module, _) in COMMANDS.items() if not subcommands(module)] + below


@pytest.mark.parametrize(("command", "module"), _commands())
def test_each_command_offers_its_options_each_once(folder: Path, command: str, module: str) -> None:
    parser = parser_of(module)
    assert parser is not None
    long = {name for action in shown_options(parser) for name in action.option_strings if name.startswith("--")}
    found = candidates(f"slurmopt {command} --")
    assert sorted(found) == sorted(long)
    assert "--from-job" not in found


@pytest.mark.parametrize("line", ["slurmopt launch +experiment=mine l", "slurmopt report --h", "slurmopt retry m"])
def test_a_second_tab_imports_neither_hydra_nor_the_command(folder: Path, line: str) -> None:
    candidates(line)
    code = (
        "import sys; from slurmopt.cli import main; main(sys.argv[1:]);"
        "print([name for name in ('hydra', 'omegaconf', 'yaml', 'slurmopt.commands.report', 'argparse', 'subprocess')"
        " if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, "_complete", "--shell", line]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "text", ["a: [", "\t", "defaults: [nowhere]", "a: ${b}\nb: ${a}", "lr: !!bool maybe", "\udcff"]
)
def test_a_config_that_does_not_compose_is_no_error(
    folder: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "conf" / "experiment" / "mine.yaml").write_bytes(text.encode(errors="surrogateescape"))
    assert cli.main(["_complete", "--shell", "slurmopt launch +experiment=mine resources.no"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert {"resources.nodes=", "resources.nodelist="} <= {line.split("\t")[0] for line in shown.out.splitlines()}


def test_names_that_a_shell_would_read_otherwise_are_left_out(folder: Path) -> None:
    (folder / "conf" / "experiment" / "$(touch x).yaml").write_text("# @package _global_\n# \x1b[31mred\n")
    (folder / "conf" / "experiment" / "red.yaml").write_text("# @package _global_\n# \x1b[31mred\tand more\n")
    assert candidates("slurmopt launch +experiment=") == [
        "+experiment=bench_collectives",
        "+experiment=quickstart",
        "+experiment=mine",
        "+experiment=red",
    ]
    (red,) = answer("slurmopt launch +experiment=r").candidates
    assert red.text == "\\x1b[31mred and more"


@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", ".local/share/bash-completion/completions/slurmopt"),
        ("zsh", ".local/share/zsh/site-functions/_slurmopt"),
        ("fish", ".config/fish/completions/slurmopt.fish"),
    ],
)
def test_install_writes_one_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shell: str, place: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".bashrc").write_text("mine\n")
    assert completion.main([shell, "--install"]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {tmp_path / place}\n")
    assert (tmp_path / place).read_text() == completion._SCRIPTS[shell]
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {tmp_path / place, tmp_path / ".bashrc"}
    assert (tmp_path / ".bashrc").read_text() == "mine\n"


def environment(folder: Path) -> dict[str, str]:
    own = {"HOME": str(folder), "ZDOTDIR": str(folder), "PS1": "READY> ", "TERM": "xterm"}
    return {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **own}


def run_shell(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.slow
def test_bash_replaces_only_what_follows_its_word_breaks(folder: Path) -> None:
    script = """
eval "$(slurmopt completion bash)"
complete -p slurmopt
try() { COMP_LINE=$1; COMP_POINT=${#1}; _slurmopt slurmopt; echo "${COMPREPLY[*]}"; }
try "slurmopt sta"
try "slurmopt launch +experiment=mi"
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
try "slurmopt launch +experiment=mi"
try "slurmopt logs other/"
try "slurmopt logs mine x"
COMP_TYPE=63
try "slurmopt sta"
try "slurmopt checkpoint e"
COLUMNS=40
COMP_TYPE=63
try "slurmopt checkpoint v"
try "slurmopt t"
"""
    lines = run_shell(folder, "bash", "--norc", "-c", script).splitlines()
    assert lines[0] == "complete -F _slurmopt slurmopt"
    assert lines[1:6] == ["status", "mine", "+experiment=mine", "other/20261121-bbbb", ""]
    assert lines[6:9] == ["status", "export", "verify"]
    shown = "top       (all runs on the whole termi throttle  (limit the array tasks of a "
    assert lines[9].startswith(shown)
    assert lines[9][len(shown) :].startswith(" tend")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish(folder: Path) -> None:
    (folder / "train.py").touch()
    script = "slurmopt completion fish | source\n"
    lines = ("slurmopt sta", "slurmopt launch +experiment=mi", "slurmopt monitor -- tra", "slurmopt logs --folder ru")
    script += "\n".join(f'complete -C "{line}"' for line in (*lines, "slurmopt logs mine x"))
    assert run_shell(folder, "fish", "-c", script).splitlines() == [
        "status\tstate and progress of runs and sweeps, and why they wait or failed",
        "+experiment=mine",
        "train.py",
        "runs/",
    ]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh(folder: Path) -> None:
    script = """
compdef() { echo "$@"; }
compadd() { print -r -- ${(P)@[-1]} "|" ${(P)@[3]}; }
compset() { : }
_files() { echo files "$@"; }
eval "$(slurmopt completion zsh)"
try() { words=("$@"); CURRENT=$#; PREFIX=$@[-1]; _slurmopt; }
try slurmopt sta
try slurmopt launch +experiment=mi
try slurmopt logs nobody
try slurmopt monitor -- x
try slurmopt logs --folder x
"""
    assert run_shell(folder, "zsh", "-f", "-c", script).splitlines() == [
        "_slurmopt slurmopt",
        "status | status  -- state and progress of runs and sweeps, and why they wait or failed",
        "+experiment=mine | +experiment=mine",
        "files",
        "files -/",
    ]


@pytest.mark.slow
def test_two_tabs_in_bash_list_what_the_commands_are_for(folder: Path) -> None:
    shell = Terminal(["bash", "--norc", "--noprofile", "-i"], environment(folder), folder)
    shell.until("READY> ")
    shell.type('eval "$(slurmopt completion bash)"; echo do"ne"\n')
    shell.until("done\r\n", "READY> ")
    shell.type("slurmopt c\t\t")
    shell.until("cancel      (stop a run, a sweep or points of it)", "slurmopt c")
    shell.type("\x15slurmopt launch +experiment=mi\t")
    shell.until("+experiment=mine")
    shell.type("\x15slurmopt monitor -- tra\t")
    shell.until("train.py")
    shell.close()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_a_tab_in_zsh_lists_what_the_commands_are_for(folder: Path) -> None:
    (folder / ".zshrc").write_text(
        f'autoload -U compinit; compinit -u -d {folder}/dump\neval "$(slurmopt completion zsh)"\nPS1="READY> "\n'
    )
    shell = Terminal(["zsh", "-d", "-i"], environment(folder), folder)
    shell.until("READY> ")
    shell.type("slurmopt c\t")
    shell.until("cancel  -- stop a run, a sweep or points of it")
    shell.type("\x15slurmopt monitor -- tra\t")
    shell.until("in.py")
    shell.close()
