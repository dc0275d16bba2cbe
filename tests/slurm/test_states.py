"""Slurm's words in ours."""

from __future__ import annotations

import pytest

from slurmopt.slurm.states import STATES, is_over, plain_reason, plain_state


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("RUNNING", "running"), ("R", "running"), ("PD", "pending"), ("COMPLETED", "finished"), ("F", "failed"),
        ("CANCELLED by 1000", "cancelled"), ("CANCELLED+", "cancelled"), ("TO", "timeout"), ("OOM", "out of memory"),
        ("NODE_FAIL", "node failure"), ("PR", "preempted"), ("RQ", "requeued"), ("REQUEUE_HOLD", "held"),
        ("SOMETHING_NEW", "something new"), ("", "unknown"),
    ],
)  # fmt: skip
def test_states(word: str, ours: str) -> None:
    assert plain_state(word) == ours


def test_no_compact_word_means_two_things() -> None:
    assert len({compact for compact, _ in STATES.values()}) == len(STATES)


def test_what_is_over() -> None:
    assert is_over("CANCELLED by 1000")
    assert is_over("TIMEOUT")
    assert not any(is_over(word) for word in ("PENDING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED", "CF", "?"))


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Priority", "jobs with a higher priority come first (Priority)"),
        ("(Resources)", "waiting for nodes to become free (Resources)"),
        ("QOSMaxJobsPerUserLimit", "a limit of the QOS on jobs per user is reached (QOSMaxJobsPerUserLimit)"),
        ("QOSMaxGRESPerUser", "a limit of the QOS on GPUs per user is reached (QOSMaxGRESPerUser)"),
        ("AssocGrpGRES", "a limit of your account on GPUs is reached (AssocGrpGRES)"),
        ("AssocGrpCPUMinutesLimit", "a limit of your account on CPUs is reached (AssocGrpCPUMinutesLimit)"),
        ("AssocMaxWallDurationPerJobLimit", "a limit of your account on time per job is reached"),
        ("MaxGRESPerAccount", "a limit of your account on GPUs per account is reached (MaxGRESPerAccount)"),
        (
            "ReqNodeNotAvail, UnavailableNodes:node[1-2]",
            "a node that it needs is down, drained, reserved or busy (ReqNodeNotAvail: node[1-2])",
        ),
        ("launch failed requeued held", "held, because it could not be started on its nodes; ask an administrator"),
        ("None", "Slurm has not looked at it yet"),
        ("SomethingNew", "SomethingNew"),
        ("a site's own words", "a site's own words"),
    ],
)
def test_reasons(reason: str, words: str) -> None:
    told = plain_reason(reason)
    assert told is not None
    assert told.startswith(words)


@pytest.mark.parametrize("reason", [None, "", "()", "N/A", "(null)"])
def test_no_reason(reason: str | None) -> None:
    assert plain_reason(reason) is None
