"""What runs need, out of what earlier ones took: the arithmetic, and the command on real runs."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from statistics import NormalDist

import pytest
from json_answer import data_of

from slurmopt.planning.right_size import (
    Used,
    cores_needed,
    memory_needed,
    quantile,
    time_needed,
    time_quantile,
)


def of(*seconds: float, finished: bool = True) -> list[Used]:
    return [Used(seconds=each, finished=finished) for each in seconds]


def test_a_quantile_is_a_value_that_was_seen() -> None:
    assert quantile([5, 1, 4, 2, 3], 0.5) == 3
    assert quantile(list(range(1, 101))) == 90
    assert quantile([7]) == 7


def test_without_lower_bounds_it_is_the_plain_quantile() -> None:
    assert time_quantile(of(*range(1, 101))) == 90


def test_runs_that_hit_their_limit_are_no_short_runs() -> None:
    """Averaged in, they would say that an hour is enough."""
    ended, cut = of(600, 1200, 1800, 2400), of(*[3600] * 6, finished=False)
    assert time_quantile([*ended, *cut]) is None
    assert time_needed([*ended, *cut]) is None
    assert time_quantile([*ended, *of(3000, 7200)]) == 7200


def test_censoring_gives_back_the_quantile_of_the_whole() -> None:
    draw = random.Random(3)
    whole = [draw.lognormvariate(8, 0.5) for _ in range(4000)]
    limits = [draw.lognormvariate(8.5, 0.5) for _ in whole]
    seen = [Used(seconds=min(a, b), finished=a <= b) for a, b in zip(whole, limits, strict=True)]
    truth = NormalDist(8, 0.5).inv_cdf(0.9)
    found = time_quantile(seen)
    assert found is not None
    assert found == pytest.approx(2.718281828**truth, rel=0.05)
    assert quantile([one.seconds for one in seen]) < 0.93 * found


def test_the_time_is_rounded_up_to_five_minutes() -> None:
    assert time_needed(of(1000, 1000, 1000)) == 1200
    assert time_needed(of(1000, 1000)) is None


def test_memory_is_the_largest_and_cores_a_quantile() -> None:
    runs = [Used(seconds=1, finished=True, memory=m, cores=c) for m, c in ((10.0, 2.0), (30.0, 3.1), (20.0, 2.5))]
    assert memory_needed(runs) == pytest.approx(36)
    assert cores_needed(runs) == 4
    assert memory_needed(runs[:2]) is None
    assert cores_needed(of(1, 2, 3)) is None


TRAIN = """
import time
from slurmopt import progress

def main(config):
    if config.fails:  # early: a run that fails late tells nothing of the longest ones
        raise ValueError("bad luck")
    held = bytearray(b"x") * (200 << 20)
    end = time.time() + 4
    while time.time() < end:
        progress(1)
        time.sleep(0.1)

main.makes_process_group = True  # without torch
"""
EXPERIMENT = """# @package _global_
task: {_target_: train.main}
launch: {backend: local, wait: true}
resources: {time: 8h, memory: 64GB, cpus_per_task: 16}
monitor: {every: 1s}
fails: false
"""


def slurmopt(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "slurmopt", *words]
    return subprocess.run(argv, cwd=place, capture_output=True, text=True, timeout=180)


def test_what_real_runs_used(tmp_path: Path) -> None:
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(EXPERIMENT)
    (tmp_path / "train.py").write_text(TRAIN)
    for fails in ("false", "true", "false"):
        slurmopt(tmp_path, "launch", "+experiment=mine", f"fails={fails}")
    done = slurmopt(tmp_path, "plan", "size", "mine")
    assert done.returncode == 0, done.stderr
    assert "unknown   resources.time: 2 runs finished; 3 or more tell" in done.stdout
    assert slurmopt(tmp_path, "launch", "+experiment=mine").returncode == 0
    found = data_of(slurmopt(tmp_path, "plan", "size", "mine", "--json").stdout)
    assert (found["runs"], found["finished"]) == (4, 3)
    needs = {need["key"]: need for need in found["needs"]}
    assert needs["resources.time"]["override"] == "resources.time=00:05:00"
    assert 4 <= needs["resources.time"]["used"] < 120
    if "resources.memory" in needs:  # where the sampler can tell it of the run alone
        assert needs["resources.memory"]["used"] > 200 << 20
        assert needs["resources.memory"]["override"] is not None
    cores = needs["resources.cpus_per_task"]
    assert cores["asked"] == 16
    assert cores["enough"] < 16
    (waste,) = (each for each in found["wasted"] if each["unit"] == "core-hours")
    assert waste["amount"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nope",), "no runs of the name nope here; slurmopt list shows all"),
        (("../..",), "no runs of the name ../.. here"),
        ((), "plan size: needs NAME, a sweep, or --all; valid: slurmopt plan size NAME"),
        (("nope", "--all"), "plan size: NAME and --all exclude each other"),
        (("--all",), "no runs of yours here; slurmopt list --everywhere shows those in your other folders"),
    ],
)
def test_a_name_without_runs_is_one_line(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = slurmopt(tmp_path, "plan", "size", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
