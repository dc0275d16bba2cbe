"""Whether a change has helped, as the report on the next run tells it."""

from __future__ import annotations

import pytest
from ledger.findings import wasteful
from ledger.findings.attempts import Attempt, attempt, evidence, without_series

from slurmopt.ledger.findings.comparison import compare_findings, speed_line
from slurmopt.ledger.findings.diagnosis import diagnose, diagnose_run
from slurmopt.ledger.findings.finding import Diagnosis


def of(made: Attempt) -> Diagnosis:
    return diagnose(evidence(made))


def waiting(share: float, **options: object) -> Diagnosis:
    return of(attempt(gpus=1, spent={"input": share}, **options))  # type: ignore[arg-type]


def verdicts(before: Diagnosis, after: Diagnosis) -> dict[str, str]:
    return {change.kind: change.verdict for change in compare_findings(before, after)}


def test_a_finding_that_is_gone() -> None:
    (change,) = compare_findings(waiting(0.4), waiting(0.02))
    assert (change.kind, change.verdict, change.after) == ("input-bound", "gone", None)
    assert change.line == "input-bound: gone; it cost 39 % of the allocation before"


def test_one_that_costs_less_although_the_run_was_longer() -> None:
    (change,) = compare_findings(waiting(0.4), waiting(0.2, seconds=36000))
    assert change.verdict == "smaller"
    assert change.line == "input-bound: less; 39 % of the allocation before, 20 % now"


def test_one_that_stayed_and_one_that_grew() -> None:
    assert verdicts(waiting(0.4), waiting(0.38)) == {"input-bound": "same"}
    assert verdicts(waiting(0.2), waiting(0.4)) == {"input-bound": "larger"}


def test_a_new_one() -> None:
    assert verdicts(waiting(0.01), waiting(0.3)) == {"input-bound": "new"}


def test_a_run_without_the_signals_is_not_called_better() -> None:
    after = without_series(attempt(gpus=1))
    after["ranks"][0]["spent"].pop("input")
    assert verdicts(waiting(0.4), of(after)) == {"input-bound": "unknown"}


def test_a_run_that_has_hardly_trained_is_not_called_better() -> None:
    for after in (of(attempt(gpus=1, seconds=110, startup=100)), diagnose_run([])):
        (change,) = compare_findings(waiting(0.4), after)
        assert change.verdict == "unknown"
        assert change.line == "input-bound: not known; this run has not trained for long enough"


SEEN_BY_THE_SAMPLER = (
    "host-bound", "memory-bandwidth-bound", "throttled", "idle GPUs", "unused GPU memory", "unused memory",
    "out of memory", "XID", "foreign processes", "leak",
)  # fmt: skip


@pytest.mark.parametrize("kind", SEEN_BY_THE_SAMPLER)
def test_what_only_the_sampler_sees_is_not_called_gone_without_it(kind: str) -> None:
    made = next(
        made for made, expected in (build() for build in wasteful.SCENARIOS.values()) if expected["kind"] == kind
    )
    before = diagnose_run([evidence(one) for one in made])
    (first,) = [change for change in compare_findings(before, of(without_series(attempt()))) if change.kind == kind]
    assert first.line == f"{kind}: not known; this run lacks the signals"
    measured = [change for change in compare_findings(before, of(attempt())) if change.kind == kind]
    assert [change.verdict for change in measured] == ["gone"]


def test_the_speed_of_both() -> None:
    faster = speed_line(of(attempt(gpus=1, step=0.5)), of(attempt(gpus=1, step=0.25)))
    assert faster == "4 steps/s, 2 before (+100 %)"
    assert speed_line(Diagnosis(), of(attempt())) is None
