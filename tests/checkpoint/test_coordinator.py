"""What the writers of several ranks tell each other, when one is late, and when a stranger comes by."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from slurmopt.checkpoint.commit.coordinator import Coordinator, TierTerms
from slurmopt.checkpoint.writer.coordinator_client import CoordinatorClient

SECONDS = 30.0
SAVE = {"name": "step-00000001/a0000-00000000", "tier": "shared", "step": 1}


class Heard:
    """A member, and the verdicts that it hears."""

    def __init__(self, coordinator: Coordinator, rank: int) -> None:
        self.verdicts: list[dict[str, Any]] = []
        self.came = threading.Event()
        key = bytes.fromhex(coordinator.key)
        hands = (lambda _: {}), (lambda _: None), self._hear, (lambda: None)
        self.member = CoordinatorClient(rank, "127.0.0.1", coordinator.port, key, *hands)

    def _hear(self, verdict: dict[str, Any]) -> None:
        self.verdicts.append(verdict)
        self.came.set()


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator(
        2, {"shared": TierTerms([0], 600.0), "s3": TierTerms([0], 600.0)}, lambda _: None, host="127.0.0.1"
    )


def test_a_stranger_that_says_nothing_keeps_nobody_out(coordinator: Coordinator) -> None:
    with socket.create_connection(("127.0.0.1", coordinator.port)):
        heard: list[Heard] = []
        meeting = threading.Thread(target=lambda: heard.append(Heard(coordinator, 0)), daemon=True)
        meeting.start()
        meeting.join(5.0)  # less than a stranger is given
        assert heard


def test_a_verdict_is_said_again_to_whoever_comes_too_late(coordinator: Coordinator) -> None:
    """One rank fails while the other still copies: that one's part comes when the save is settled already."""
    first, second = Heard(coordinator, 0), Heard(coordinator, 1)
    first.member.send({"failed": "no room", **SAVE})
    assert first.came.wait(SECONDS)
    assert second.came.wait(SECONDS)
    second.came.clear()
    second.member.send({"part": {"files": [], "items": []}, **SAVE})
    assert second.came.wait(SECONDS)
    assert [verdict["is"] for verdict in second.verdicts] == ["failed", "failed"]


def test_a_save_announced_after_it_failed_is_not_waited_for(coordinator: Coordinator) -> None:
    first, second = Heard(coordinator, 0), Heard(coordinator, 1)
    for tier in ("shared", "s3"):
        second.member.send({"failed": "no room", **SAVE, "tier": tier})
    for heard in (first, second):
        assert heard.came.wait(SECONDS)
    coordinator.announce(SAVE["name"], 1, ["shared", "s3"], {})
    done = threading.Thread(target=coordinator.wait_settled, daemon=True)
    done.start()
    done.join(SECONDS)
    assert not done.is_alive()


def test_the_clock_of_a_save_runs_only_once_the_saves_before_it_are_settled() -> None:
    settled: list[dict[str, Any]] = []
    done = threading.Event()

    def report(verdict: dict[str, Any]) -> None:
        settled.append(verdict)
        if len(settled) == 2:
            done.set()

    coordinator = Coordinator(1, {"s3": TierTerms([0], 1.0)}, report, host="127.0.0.1")
    heard = Heard(coordinator, 0)
    for step in (1, 2):
        coordinator.announce(f"step-0000000{step}/a0000-00000000", step, ["s3"], {})
    assert done.wait(SECONDS)
    assert [verdict["step"] for verdict in settled] == [1, 2]
    assert all("rank 0 has not written" in verdict["reason"] for verdict in settled)
    assert settled[1]["seconds"] >= settled[0]["seconds"] + 1.4  # its own time, after the other's
    assert heard.came.is_set()
