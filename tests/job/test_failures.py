"""Errors that say only that another rank is gone are nobody's mistake, and never the first cause."""

from __future__ import annotations

import os
import resource

import pytest

from slurmopt.errors import CheckpointError, RanksLost
from slurmopt.job.failures import is_peer_lost, outcome_of
from slurmopt.run_folder.outcome import INFRASTRUCTURE, USER_ERROR


@pytest.mark.parametrize(
    "reason", ["Connection closed by peer", "No route to host", "Connection timed out", "Network is unreachable"]
)
def test_a_peer_that_vanishes_is_a_symptom_whatever_its_kernel_still_said(reason: str) -> None:
    error = RuntimeError(f"[…/gloo/transport/tcp/pair.cc:547] Read error [10.0.0.2]:4711: {reason}")
    outcome = outcome_of(error)
    assert outcome.outcome == INFRASTRUCTURE
    assert is_peer_lost(outcome.error)


def test_ranks_that_do_not_come_to_a_checkpoint_are_lost_for_whatever_reason() -> None:
    pytest.importorskip("torch")
    from slurmopt.checkpoint.collectives import collective_call

    with pytest.raises(RanksLost) as caught, collective_call():
        raise RuntimeError("some words that no table knows")
    outcome = outcome_of(caught.value)
    assert outcome.outcome == INFRASTRUCTURE
    assert is_peer_lost(outcome.error)
    assert outcome_of(CheckpointError("the model lacks the tensor weight")).outcome == USER_ERROR


def test_a_rank_that_may_open_no_more_files_has_met_a_limit_of_the_node() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
        with pytest.raises(OSError, match="Too many open files") as caught:
            os.open("/dev/null", os.O_RDONLY)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert outcome_of(caught.value).outcome == INFRASTRUCTURE
