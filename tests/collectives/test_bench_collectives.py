"""`slurmopt bench collectives` between real ranks of this machine, and what it says of bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from collectives.nccl_texts import ALL_REDUCE, FAILS
from json_answer import data_of, errors_of

from slurmopt.cli import main
from slurmopt.run_folder.process import module_words

COMMAND = [sys.executable, "-m", "slurmopt", "bench", "collectives"]
FAULTY_NETWORK = """
import os

if os.environ.get("RANK") == "1":
    import torch.distributed as dist

    original = dist.all_reduce

    def all_reduce(tensor, *words, **options):
        work = original(tensor, *words, **options)
        if tensor.numel() == 1024:
            tensor[5] += 1
        return work

    dist.all_reduce = all_reduce
"""
GOOD = {"format": "slurmopt collectives 1", "world": 2, "nodes": ["a"], "backend": "gloo", "time": 1.0}
ROW = {"collective": "all_reduce", "size": 4096, "seconds": 1e-3, "world": 2}
PROGRAM = "#!/bin/sh\ncat <<'END'\n{}END\nexit {}\n"


@pytest.mark.slow
def test_it_measures_checks_saves_and_compares(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    programs = tmp_path / "build"
    programs.mkdir()
    for name, text, status in (("all_reduce_perf", ALL_REDUCE, 0), ("alltoall_perf", FAILS, 3)):
        (programs / name).write_text(PROGRAM.format(text, status))  # what answers in the place of a GPU
        (programs / name).chmod(0o755)
    words = ["--ranks", "3", "--sizes", "4K,1M", "--iterations", "3", "--json", "--save", "first.json"]
    done = _run([*words, "--nccl-tests", str(tmp_path)], tmp_path)
    assert done.returncode == 1  # the text of nccl-tests has wrong values
    answer = data_of(done.stdout)
    own = [row for row in answer["rows"] if row["source"] == "torch"]
    assert {(row["collective"], row["size"]) for row in own} == {
        (name, size)
        for name, sizes in {"all_reduce": (4096, 1048576), "broadcast": (4096, 1048576)}.items()
        for size in sizes
    } | {(name, size) for name in ("all_gather", "reduce_scatter", "all_to_all") for size in (4092, 1048572)}
    assert all(row["wrong"] == 0 and row["busbw"] > 0 for row in own)
    for row in own:
        factor = {"all_reduce": 4 / 3, "broadcast": 1}.get(row["collective"], 2 / 3)
        assert row["algbw"] == pytest.approx(row["size"] / row["seconds"] / 1e9)
        assert row["busbw"] == pytest.approx(row["algbw"] * factor)
    assert [(link["first"], link["second"]) for link in answer["links"]] == sorted(
        [("rank 0", "rank 1"), ("rank 0", "rank 2"), ("rank 1", "rank 2")], key=lambda link: _place(answer, link)
    )
    assert set(answer["fits"]) == {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"}
    assert len([row for row in answer["rows"] if row["source"] == "nccl-tests"]) == 6
    notes = "\n".join(answer["notes"])
    assert "all_gather: 4,096 bytes do not divide evenly among 3 ranks; measured with 4,092" in notes
    assert "alltoall_perf measured nothing: alltoall_perf: no table of nccl-tests in it: gpu-01: Test CUDA" in notes
    _compare_with_itself(tmp_path)


def _place(answer: dict[str, Any], link: tuple[str, str]) -> int:
    return [(each["first"], each["second"]) for each in answer["links"]].index(link)


def _compare_with_itself(folder: Path) -> None:
    """And with a recording in which all was faster."""
    held = json.loads((folder / "first.json").read_text())
    for row in held["rows"]:
        row["seconds"] /= 2
    (folder / "faster.json").write_text(json.dumps({**held, "torch": "2.0"}))
    done = _run(["--read", "first.json", "--against", "faster.json"], folder)
    assert "earlier: median ratio 0.50 of" in done.stdout
    assert "slower: all_reduce has 50% of its earlier bus bandwidth" in done.stdout
    assert ", earlier 2.0" in done.stdout
    assert "NCCL-TESTS" in done.stdout
    assert "3 WRONG" not in done.stdout  # that of nccl-tests is an error on standard error
    assert "all_reduce of 16,777,216 bytes (nccl-tests) gave 3 wrong values" in done.stderr


def test_an_output_of_nccl_tests_beside_a_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("out.txt").write_text(ALL_REDUCE)
    ours = {**ROW, "world": 4, "size": 4194304, "seconds": 100e-6, "in_place": True}
    Path("ours.json").write_text(json.dumps({**GOOD, "world": 4, "rows": [ours]}))
    assert main(["bench", "collectives", "--read", "out.txt", "--against", "ours.json"]) == 1  # it has wrong values
    shown = capsys.readouterr().out
    assert "4 ranks on 2 nodes (gpu-01, gpu-02), nccl, NVIDIA H100 80GB HBM3\n" in shown
    (line,) = [line for line in shown.splitlines() if "4.0 MiB" in line]
    assert line.split() == ["all_reduce", "4.0", "MiB", "84.1", "µs", "49.87", "74.81", "62.91", "1.19", "20"]
    assert "differs: backend: nccl, earlier gloo" in shown


@pytest.mark.slow
def test_a_wrong_value_is_an_error_with_rank_and_size(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "sitecustomize.py").write_text(FAULTY_NETWORK)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = ["--collectives", "all_reduce,broadcast", "--sizes", "1K,4K", "--iterations", "1", "--json", "--no-pairs"]
    done = _run(words, tmp_path, PYTHONPATH=path)
    assert done.returncode == 1
    (error,) = errors_of(done.stdout)
    wanted = "all_reduce of 4,096 bytes (torch) gave 1 wrong values; rank 1: element 5 is 12, not 11"
    assert error == wanted  # 2 * (5 mod 251) + 0 + 1
    assert done.stderr.endswith(f"slurmopt: error: {wanted}\n")
    rows = {(row["collective"], row["size"]): row["wrong"] for row in data_of(done.stdout)["rows"]}
    assert rows == {("all_reduce", 1024): 0, ("all_reduce", 4096): 1, ("broadcast", 1024): 0, ("broadcast", 4096): 0}


def _run(words: list[str], folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*COMMAND, *words], cwd=folder, env={**os.environ, **env}, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "slurm', "damaged, or no recording"),
        ("[1, 2]", "no recording of slurmopt bench collectives; valid: "),
        ('{"loss": 0.5}', "no recording of slurmopt bench collectives; valid: "),
        (json.dumps({"format": "other 7"}), "its format is 'other 7'; this version reads 'slurmopt collectives 1'"),
        (json.dumps({**GOOD, "world": "two"}), "a damaged recording: world is 'two'"),
        (json.dumps({**GOOD, "rows": {}}), "a damaged recording: rows is no list"),
        (json.dumps({**GOOD, "rows": [{**ROW, "collective": "gather\x1b[2J"}]}), "no collective 'gather\\x1b[2J'"),
        (json.dumps({**GOOD, "rows": [{**ROW, "seconds": -1}]}), "a damaged recording: seconds is '-1'"),
        (json.dumps({**GOOD, "rows": [{"size": 1}]}), "a damaged recording: no 'collective'"),
        (json.dumps({**GOOD, "rows": [{**ROW, "seconds": 10**400}]}), "a damaged recording: seconds is"),
        (json.dumps({**GOOD, "rows": [{**ROW, "seconds": 5e-324}]}), "a damaged recording: seconds is '5e-324'"),
        (json.dumps({**GOOD, "rows": [{**ROW, "source": "mpi"}]}), "no source 'mpi'; valid: torch, nccl-tests"),
        (json.dumps({**GOOD, "rows": [{**ROW, "collective": ["all_reduce"]}]}), "no collective '['all_reduce']'"),
        ("[" * 100_000, "damaged, or no recording"),
    ],
    ids=range(14),
)
@pytest.mark.parametrize("option", ["--read", "--against"])
def test_a_foreign_or_damaged_recording(
    option: str,
    text: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.json").write_text(text)
    assert main(["bench", "collectives", option, "old.json"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("slurmopt: error: old.json: ")
    assert message in told.err
    assert told.err.count("\n") == 1


def test_a_run_that_failed_of_a_wrong_value_is_shown_from_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "bench" / "one"
    (run / "logs" / "attempt-0").mkdir(parents=True)
    (run / "config.yaml").write_text("task: {_target_: slurmopt.benchmarks.collectives.run}\n")
    (run / "events.jsonl").write_text("")
    (run / "result.json").write_text(json.dumps({"outcome": "failed", "attempt": 0, "result": None, "error": "wrong"}))
    log = run / "logs" / "attempt-0" / "rank-0.log"
    log.write_text("a warning\n")
    assert main(["bench", "collectives", "--read", "bench/one"]) == 2
    assert capsys.readouterr().err.endswith("bench/one has no recording of slurmopt bench collectives: wrong\n")
    log.write_text("a warning\n" + json.dumps({**GOOD, "rows": [{**ROW, "wrong": 2, "fault": "rank 1: x"}]}) + "\n")
    assert main(["bench", "collectives", "--read", "bench/one"]) == 1
    assert "all_reduce of 4,096 bytes (torch) gave 2 wrong values; rank 1: x" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ranks", "1"], "one rank has nobody to talk to; valid: --ranks 2 or more"),
        (["--ranks", "0"], "--ranks 0 is not valid; valid: 2 to 256"),
        (["--collectives", "all_reduce,allgather"], "--collectives: no collective 'allgather'; valid: all_reduce, "),
        (["--sizes", "1Q"], "--sizes: '1Q' is no size"),
        (["--plot", "plot.pdf"], "--plot 'plot.pdf' is not valid; valid: a name that ends in .html or .png"),
        (["--save", "gone/new.json"], "gone/new.json: there is no folder gone"),
        (["--save", "/"], "/: is a folder; give the name of a file"),
        (["--save", "/proc/self/new.json"], "/proc/self/new.json: this user may not write to /proc/self"),
        (["--nccl-tests", "gone"], "--nccl-tests gone has no program of nccl-tests that may be executed"),
        (["--read", "old.json", "--sizes", "1K"], "--sizes is for a measurement; --read measures nothing"),
        (["--read", "gone.json"], "gone.json: no such file or directory"),
        (["--read", "/dev/null"], "/dev/null is no regular file"),
        (["--read", "gone"], "no runs in 'runs'"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_bad_input_is_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "collectives", *words]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("slurmopt: error: ")
    assert message in told.err
    assert told.err.count("\n") == 1


def test_without_torch(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, package=None: None if name == 'torch' else find(name, package)\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(COMMAND, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"slurmopt: error: bench collectives: {sys.executable} has no torch, which does")
    assert done.stderr.count("\n") == 1


def test_a_file_in_the_current_folder_is_not_run(tmp_path: Path) -> None:
    """Others may have put one there, as into /tmp."""
    for name in ("typing", "torch", "json"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'was-run')!r}, 'w')\n")
    words = ["--sizes", "1K", "--collectives", "broadcast", "--no-pairs", "--iterations", "1", "--warmup", "0"]
    words = [sys.executable, *module_words("slurmopt"), "bench", "collectives", *words, "--ranks", "2"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "was-run").exists()
