"""The golden set: made-up attempts with one right answer each, and healthy ones without any finding.

`scripts/test tests/ledger/findings/test_golden.py --update-golden` writes golden/ anew from the builders.
"""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path
from typing import Any

import pytest
from ledger.findings import healthy, wasteful
from ledger.findings.attempts import evidence

from slurmopt.ledger.findings.diagnosis import diagnose_run
from slurmopt.ledger.findings.finding import KINDS, Diagnosis, Finding

GOLDEN = Path(__file__).parent / "golden"
NAMES = [*wasteful.SCENARIOS, *healthy.SCENARIOS]
SEEDS = range(20)


def built(name: str) -> dict[str, Any]:
    if name in healthy.SCENARIOS:
        attempts, expected = healthy.SCENARIOS[name](), None
    else:
        attempts, expected = wasteful.SCENARIOS[name]()
    return json.loads(json.dumps({"simulated": True, "name": name, "expected": expected, "attempts": attempts}))


def golden(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


def place(finding: Finding) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in ("kind", "cause", "node", "rank", "gpu")}


def check(scenario: dict[str, Any], diagnosis: Diagnosis) -> None:
    """One finding, the right one; where a place is left open in the answer, it may be any."""
    found, expected = [place(item) for item in diagnosis.findings], scenario["expected"]
    if expected is None:
        assert found == []
        return
    assert [item["kind"] for item in found] == [expected["kind"]], diagnosis.findings
    open_places = [name for name in ("rank", "gpu") if expected[name] is None and expected["kind"] == "throttled"]
    assert found == [expected | {name: found[0][name] for name in open_places}]


@pytest.mark.parametrize("name", NAMES)
def test_the_golden_file_is_what_the_builder_makes(name: str, request: pytest.FixtureRequest) -> None:
    made = built(name)
    if request.config.getoption("--update-golden"):
        source = Path(request.config.rootpath) / "tests/ledger/findings/golden" / f"{name}.json"
        source.write_text(json.dumps(made, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
    assert golden(name) == made


@pytest.mark.parametrize("name", NAMES)
def test_the_one_right_answer(name: str) -> None:
    scenario = golden(name)
    check(scenario, diagnose_run([evidence(attempt) for attempt in scenario["attempts"]]))


@pytest.mark.parametrize("name", NAMES)
def test_noise_does_not_change_the_answer(name: str) -> None:
    scenario = golden(name)
    for seed in SEEDS:
        noise = random.Random(f"{name} {seed}")
        check(scenario, diagnose_run([evidence(attempt, noise) for attempt in scenario["attempts"]]))


@pytest.mark.parametrize("name", NAMES)
def test_no_finding_costs_more_than_was_allocated(name: str) -> None:
    diagnosis = diagnose_run([evidence(attempt) for attempt in golden(name)["attempts"]])
    for item in diagnosis.findings:
        assert item.cost is None or 0 < item.cost <= diagnosis.hours
        assert item.kind in KINDS
        assert item.evidence
        assert shlex.split(item.change, comments=True)


def test_the_golden_set_is_complete() -> None:
    assert len(wasteful.SCENARIOS) >= 30
    assert len(healthy.SCENARIOS) >= 10
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(NAMES)
    kinds = {golden(name)["expected"]["kind"] for name in wasteful.SCENARIOS}
    assert kinds == set(KINDS)
