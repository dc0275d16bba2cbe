"""Amdahl's and Gustafson's laws: the numbers of their papers, and intervals that are honest."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

from slurmopt.cli import main
from slurmopt.planning.scaling import Probe, fit
from slurmopt.planning.scaling_laws import Law, gustafson, laws
from slurmopt.run_folder import events
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder


def of(name: str, probes: list[Probe]) -> Law:
    (found,) = (law for law in laws(fit(probes, weak=name == "gustafson")) if law.name == name)
    return found


@pytest.mark.parametrize(("speedup", "fraction"), [(1021, 0.0029), (1020, 0.0039), (1016, 0.0078)])
def test_the_speedups_of_gustafsons_paper(speedup: int, fraction: float) -> None:
    """ "Reevaluating Amdahl's Law", CACM 31 (1988), page 532: on 1,024 processors the scaled speedups of three programs
    were 1,021, 1,020 and 1,016. The fractions are (1024 - S) / 1023."""
    found = gustafson([Probe(1, 1.0), Probe(1024, 1024 / speedup)])
    assert found.values["f"] == pytest.approx(fraction, abs=0.00005)


def test_amdahl_in_words() -> None:
    found = of("amdahl", [Probe(n, 0.2 + 3.8 / n) for n in (1, 2, 4)])
    assert found.values["f"] == pytest.approx(0.05)
    assert found.meaning.endswith("S is 20 at most")
    assert of("amdahl", [Probe(1, 4.0), Probe(2, 1.9)]).meaning.endswith("no limit of S is seen")


def test_gustafson_of_a_quarter() -> None:
    """With f = 1/4 two nodes do 2 - 1/4 = 7/4 as much in a step, and eight 8 - 7/4 = 25/4."""
    found = of("gustafson", [Probe(1, 7.0), Probe(2, 7 * 2 / (7 / 4)), Probe(8, 7 * 8 / (25 / 4))])
    assert found.values == {"f": pytest.approx(0.25), "one": pytest.approx(7.0)}
    assert "many nodes do 75% of n times the work of one" in found.meaning


@pytest.mark.parametrize(
    ("times", "fraction"), [((1.0, 0.9), 0.0), ((1.0, 1.0), 0.0), ((1.0, 2.0), 1.0), ((1, 9), 1.0)]
)
def test_a_fraction_stays_between_nothing_and_all(times: tuple[float, float], fraction: float) -> None:
    found = gustafson([Probe(1, times[0]), Probe(2, times[1])])
    assert found.values["f"] == pytest.approx(fraction, abs=1e-12)
    assert found.fraction is not None
    assert 0 <= found.fraction.low <= found.fraction.high <= 1


@pytest.mark.parametrize("name", ["amdahl", "gustafson"])
@pytest.mark.parametrize("nodes", [(1, 2), (1, 4), (1, 2, 4), (2, 4, 8)])
def test_intervals_of_fractions_are_honest(name: str, nodes: tuple[int, ...]) -> None:
    """Probes that differ by 3 %, as the error that predictions assume (5 % at a 90 % interval) says."""
    draw, inside = random.Random(7), 0
    for _ in range(1000):
        f = draw.uniform(0, 0.5)
        step = (
            (lambda n, f=f: 4 * (f + (1 - f) / n)) if name == "amdahl" else (lambda n, f=f: 4 * n / (n - f * (n - 1)))
        )
        found = of(name, [Probe(n, step(n) * (1 + draw.gauss(0, 0.03))) for n in nodes]).fraction
        assert found is not None
        inside += found.low <= f <= found.high
    assert 850 <= inside <= 950


def test_probes_that_are_farther_apart_tell_more() -> None:
    near, far = (of("gustafson", [Probe(1, 1.0), Probe(n, n / (n - 0.2 * (n - 1)))]).fraction for n in (2, 16))
    assert near is not None
    assert far is not None
    assert far.high - far.low < near.high - near.low


def probe_run(folder: Path, nodes: int, seconds: float) -> None:
    """A probe that has made 60 steps."""
    run = RunFolder(folder / "runs" / f"mine-probe-{nodes}" / "20261101-120000-abcd")
    run.make()
    run.config.write_text("resources: {nodes: 1}\n")
    run.script.write_text("#!/bin/bash\n")
    events.append(run.events, event="attempt", attempt=0, job="7", nodes="n1", time=1.0)
    events.append(run.events, event="end", attempt=0, cause="cancelled", outcome="cancelled", time=1.7e9)
    run.attempt_logs(0).mkdir(parents=True)
    beat = Heartbeat(rank=0, world_size=1, node="n1", pid=1, started=1.0)
    beat.first_step, beat.first_step_time, beat.step, beat.step_time = 0, 1.0, 60, 1.0 + 60 * seconds
    path = run.heartbeat(0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    beat.write(path)


@pytest.fixture
def probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for nodes, seconds in ((1, 7.0), (2, 8.0)):
        probe_run(tmp_path, nodes, seconds)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["plan", "probe", "--read", "mine", *words]) == 0
    return data_of(capsys.readouterr().out)


def test_the_command_shows_both_laws_of_weak_scaling(probes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--weak", "--json")
    assert [law["name"] for law in found["laws"]] == ["logarithm", "gustafson"]
    assert found["laws"][0]["values"] == {"parallel": pytest.approx(7.0), "serial": pytest.approx(1.0)}
    assert found["laws"][0]["fraction"] is None
    assert found["laws"][1]["values"]["f"] == pytest.approx(0.25)
    assert found["laws"][1]["fraction"][0] < 0.25 < found["laws"][1]["fraction"][1]
    assert found["serial_fraction"] is None
    assert main(["plan", "probe", "--read", "mine", "--weak"]) == 0
    shown = capsys.readouterr().out
    assert "logarithm T(n) = parallel + serial·log₂(n), parallel = 7 s, serial = 1 s\n" in shown
    assert "gustafson S(n) = n - f·(n - 1), f = 25.0% (" in shown


def test_the_command_shows_amdahls_law_of_strong_scaling(probes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probe_run(probes, 4, 4.0)
    found = answer(capsys, "--json")
    (law,) = found["laws"]
    assert (law["name"], law["values"]["f"]) == ("amdahl", found["serial_fraction"])
    assert main(["plan", "probe", "--read", "mine"]) == 0
    assert "amdahl    S(n) = 1 / (f + (1 - f)/n), f = " in capsys.readouterr().out


def test_a_clock_that_was_set_is_one_line(probes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probe_run(probes, 4, 2e9)
    assert main(["plan", "probe", "--read", "mine"]) == 2
    assert "a probe of 4 nodes took" in capsys.readouterr().err
