"""The ledger: every allocated GPU-millisecond in one bucket, whatever happened and whatever is left of the files."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_histories import T, damaged, history

from slurmopt.ledger import buckets, record
from slurmopt.ledger.account import account
from slurmopt.ledger.apportion import apportion
from slurmopt.ledger.ledger import Ledger, total
from slurmopt.ledger.record import AttemptRecord, RankRecord, Sample
from slurmopt.restart import causes

LIFE = {"starting": 5.0, "checking": 2.0, "waiting": 3.0, "first step": 10.0, "running": 60.0, "input": 15.0}


def rank(number: int = 0, node: str = "node1", gpus: float = 1.0, **fields: object) -> RankRecord:
    """A rank that started 5 s after its attempt, and ended 100 s after that."""
    spent = {**LIFE, "saving": 5.0}
    base = RankRecord(number, node, gpus, T + 5, T + 105, True, spent, 1, 100, (), {}, "ended", T + 25, T + 100)
    return replace(base, **fields)  # type: ignore[arg-type]


def attempt(*ranks: RankRecord, number: int = 0, **fields: object) -> AttemptRecord:
    """An attempt of 110 s on a node with a GPU for each rank."""
    gpus = {"node1": float(max(1, len(ranks)))}
    base = AttemptRecord(number, T, T + 110, gpus, ranks, cause="finished")
    return replace(base, **fields)  # type: ignore[arg-type]


def check(ledger: Ledger) -> None:
    """What holds for every ledger."""
    for one in ledger.attempts:
        seconds = max(0, round(max(one.end, 0) * 1000) - round(max(one.start, 0) * 1000))
        assert one.allocated == sum(one.buckets.values())
        assert sum(of_node.allocated for of_node in one.nodes.values()) == one.allocated
        assert one.allocated >= 0 if seconds else one.allocated == 0
        for of_node in [*one.nodes.values(), *one.ranks.values()]:
            assert of_node.allocated == sum(of_node.buckets.values())
            assert all(amount > 0 for amount in of_node.buckets.values())
        assert sum(one.phases.values()) == one[buckets.PHASES]
        assert set(one.buckets) <= set(buckets.BUCKETS)
    assert ledger.allocated == sum(ledger.buckets.values()) == sum(one.allocated for one in ledger.attempts)
    assert all(amount > 0 for amount in ledger.buckets.values())
    assert total(ledger.nodes.values()).buckets == ledger.buckets


def allocated(attempts: list[AttemptRecord]) -> int:
    """What Slurm allocated, in GPU-milliseconds."""
    return sum(
        round(gpus * max(0, round(one.end * 1000) - round(one.start * 1000)))
        for one in attempts
        for gpus in one.gpus.values()
    )


def test_each_second_of_a_rank_is_in_the_bucket_of_what_it_did() -> None:
    ledger = account([attempt(rank())])
    check(ledger)
    assert {bucket: amount / 1000 for bucket, amount in ledger.in_order()} == {
        buckets.COMPUTE: 60, buckets.INPUT: 15, buckets.STARTUP: 10, buckets.HEALTH: 2, buckets.RENDEZVOUS: 3,
        buckets.FIRST_STEPS: 10, buckets.WIND_DOWN: 10,
    }  # fmt: skip
    assert not ledger.provisional


def test_a_phase_of_the_training_keeps_its_name() -> None:
    spent = {**LIFE, "running": 30.0, "evaluation": 20.0, "lost": 10.0}
    ledger = account([attempt(rank(spent=spent))])
    check(ledger)
    assert ledger.phases == {"evaluation": 20_000, "lost": 10_000}
    assert ledger[buckets.LOST] == 0


def test_the_steps_that_the_next_attempt_does_again_are_lost() -> None:
    """75 s in steps 1 to 100, of which the last quarter was done again."""
    first = attempt(rank(ended=False, spent=LIFE, seen=T + 100), cause="preemption", durable_step=75)
    second = attempt(rank(started=T + 205, seen=T + 305), number=1, start=T + 200, end=T + 310, restored_step=75)
    before = account([first])
    check(before)
    assert before.provisional
    at_risk = before.attempts[0].at_risk
    ledger = account([first, second])
    check(ledger)
    assert not ledger.provisional
    lost = ledger.attempts[0][buckets.LOST]
    assert lost == at_risk
    # step 75 was done between the first (after 25 s) and the hundredth (after 100 s), in proportion
    assert lost == pytest.approx(1000 * 75 * 25 / 99, abs=2)
    assert ledger.attempts[0][buckets.COMPUTE] + ledger.attempts[0][buckets.INPUT] == pytest.approx(
        75_000 - lost, abs=2
    )


def test_what_came_after_the_save_that_the_next_attempt_continued_from_is_lost() -> None:
    """The save of step 75 began at second 60: the journal knows that better than reports of steps do."""
    told = {"cause": "preemption", "durable_step": 75, "durable_since": T + 60}
    first = attempt(rank(ended=False, spent=LIFE, seen=T + 100), **told)
    second = attempt(rank(started=T + 205, seen=T + 305), number=1, start=T + 200, end=T + 310, restored_step=75)
    ledger = account([first, second])
    check(ledger)
    assert ledger.attempts[0][buckets.LOST] == 40_000
    earlier = attempt(rank(started=T + 205, seen=T + 305), number=1, start=T + 200, end=T + 310, restored_step=50)
    assert account([first, earlier]).attempts[0][buckets.LOST] < 40_000, "its time is not that of step 50"


def test_samples_tell_when_a_step_was_done() -> None:
    """The steps became slow after the fiftieth."""
    spent = {**LIFE, "running": 75.0, "input": 0.0}
    quick = Sample(T + 40, 50, {**LIFE, "running": 15.0, "input": 0.0})
    slow = rank(ended=False, spent=spent, seen=T + 100, samples=(quick,))
    second = attempt(rank(started=T + 205, seen=T + 305), number=1, start=T + 200, end=T + 310, restored_step=50)
    ledger = account([attempt(slow, cause="node failure"), second])
    check(ledger)
    assert ledger.attempts[0][buckets.LOST] == 60_000


def test_a_fall_back_to_an_older_checkpoint_loses_what_earlier_attempts_did() -> None:
    """The second attempt begins at step 100, the third at 50: half of the first is lost too."""
    again = {"restored_step": 100, "start": T + 200, "end": T + 310, "cause": "node failure"}
    second = attempt(rank(started=T + 205, seen=T + 305, first_step=101, step=110), number=1, **again)
    third = attempt(rank(started=T + 405, seen=T + 505), number=2, start=T + 400, end=T + 510, restored_step=50)
    ledger = account([attempt(rank(), cause="time limit"), second, third])
    check(ledger)
    assert ledger.attempts[0][buckets.LOST] > 30_000
    assert ledger.attempts[1][buckets.COMPUTE] == 0  # all its steps


def test_an_attempt_from_scratch_loses_all_steps_before_it_but_not_the_start() -> None:
    second = attempt(rank(started=T + 205, seen=T + 305), number=1, start=T + 200, end=T + 310)
    ledger = account([attempt(rank(), cause="preemption"), second])
    check(ledger)
    first = ledger.attempts[0]
    assert first[buckets.LOST] == 85_000
    assert first[buckets.STARTUP] == 10_000


def test_a_hang_is_stalled_from_its_last_step_on() -> None:
    hung = rank(ended=False, spent={**LIFE, "running": 660.0}, seen=T + 700, activity="running", step_time=T + 100)
    ledger = account([attempt(hung, end=T + 710, cause="hang", stalled_seconds=600.0, stalled_since=T + 100)])
    check(ledger)
    assert ledger[buckets.STALLED] == 610_000


def test_exposed_communication_is_taken_out_of_compute_and_is_never_more() -> None:
    counted = {"steps": 100.0, "ddp_sampled": 4.0, "ddp_exposed": 0.8}
    ledger = account([attempt(rank(counted=counted))])
    check(ledger)
    assert (ledger[buckets.COMMUNICATION], ledger[buckets.COMPUTE]) == (20_000, 40_000)
    ledger = account([attempt(rank(counted={**counted, "ddp_exposed": 1e9}))])
    check(ledger)
    assert (ledger[buckets.COMMUNICATION], ledger[buckets.COMPUTE]) == (60_000, 0)


def test_the_rank_that_waits_least_is_the_slowest() -> None:
    def of(number: int, node: str, exposed: float) -> RankRecord:
        return rank(number, node, counted={"steps": 100.0, "ddp_sampled": 10.0, "ddp_exposed": exposed})

    gpus = {"node1": 2.0, "node2": 2.0}
    ranks = [of(0, "node1", 1.0), of(1, "node1", 1.1), of(2, "node2", 0.1), of(3, "node2", 0.9)]
    slow = account([attempt(*ranks, gpus=gpus)]).attempts[0]
    assert (slow.slowest_rank, slow.slowest_node) == (2, "node2")
    even = account([attempt(*(of(number, "node1", 1.0) for number in range(4)))]).attempts[0]
    assert even.slowest_rank is None
    few = [replace(one, counted={**one.counted, "ddp_sampled": 9.0}) for one in ranks]
    assert account([attempt(*few, gpus=gpus)]).attempts[0].slowest_rank is None, "nine steps are too few"


def test_a_clock_that_jumps_makes_no_time_and_loses_none() -> None:
    """An hour forward, an hour back, and a node an hour ahead: the rank's own clock counts."""
    plain = account([attempt(rank())]).buckets
    for jump in (
        {"seen": T + 105 - 3600},
        {"started": T + 3605, "seen": T + 3705},
        {"started": T - 3595, "seen": T - 3495},
    ):
        ledger = account([attempt(rank(**jump))])
        check(ledger)
        for bucket in (buckets.COMPUTE, buckets.INPUT, buckets.FIRST_STEPS, buckets.RENDEZVOUS):
            assert ledger[bucket] == plain[bucket]
        assert ledger.allocated == 110_000


def test_what_a_rank_does_not_account_for_is_unknown() -> None:
    """It reported 100 s after its start, of which it accounts for 40."""
    ledger = account([attempt(rank(spent={"running": 40.0}))])
    check(ledger)
    assert ledger[buckets.UNKNOWN] == 60_000
    assert (buckets.UNKNOWN, 60_000) in ledger.in_order()


def test_a_rank_that_was_killed_leaves_unknown_time() -> None:
    ledger = account([attempt(rank(ended=False, spent=LIFE, seen=T + 100), cause="killed")])
    check(ledger)
    assert ledger[buckets.UNKNOWN] == 10_000


def test_a_running_rank_does_what_it_did_when_it_last_reported() -> None:
    alive = {"alive": True, "cause": None}
    ledger = account([attempt(rank(ended=False, spent=LIFE, seen=T + 100, activity="evaluation"), **alive)])
    check(ledger)
    assert (ledger[buckets.UNKNOWN], ledger.phases) == (0, {"evaluation": 10_000})
    silent = account([attempt(rank(ended=False, spent=LIFE, seen=T + 100, activity="running"), end=T + 900, **alive)])
    assert silent[buckets.UNKNOWN] == 800_000


def test_gpus_that_no_rank_uses() -> None:
    ledger = account([attempt(rank(), gpus={"node1": 4.0, "node2": 4.0})])
    check(ledger)
    assert ledger[buckets.UNUSED] == 7 * 110_000
    assert ledger.nodes["node2"].buckets == {buckets.UNUSED: 440_000}


def test_ranks_that_share_a_gpu_divide_its_seconds() -> None:
    thirds = [rank(number, gpus=1 / 3, spent=LIFE | {"running": 60.0 + number}) for number in range(3)]
    ledger = account([attempt(*thirds, gpus={"node1": 1.0})])
    check(ledger)
    assert ledger.allocated == 110_000
    assert [one.allocated for one in ledger.attempts[0].ranks.values()] == pytest.approx([36_667] * 3, abs=1)


@pytest.mark.parametrize(
    ("began", "alive", "bucket"),
    [(False, False, buckets.STARTUP), (None, True, buckets.STARTUP), (None, False, buckets.UNKNOWN)],
)
def test_an_attempt_without_ranks(began: bool | None, alive: bool, bucket: str) -> None:
    ledger = account([attempt(began=began, alive=alive, cause=None, gpus={"node1": 8.0})])
    check(ledger)
    assert ledger.buckets == {bucket: 880_000}


def test_attempts_on_other_nodes_are_summed_by_node() -> None:
    """Elastic: two nodes, then one."""
    both = attempt(rank(0), rank(1, "node2"), gpus={"node1": 1.0, "node2": 1.0}, cause="node failure", queued=T - 30)
    one = attempt(
        rank(started=T + 205, seen=T + 305, first_step=101, step=200), number=1, start=T + 200, end=T + 310,
        restored_step=100, queued=T + 120,
    )  # fmt: skip
    ledger = account([both, one])
    check(ledger)
    assert {node: of_node.allocated for node, of_node in ledger.nodes.items()} == {"node1": 220_000, "node2": 110_000}
    assert ledger.queue_seconds == 30 + 80
    assert ledger.allocated == 330_000  # the queue is no part of it


def test_without_gpus_cpus_are_counted() -> None:
    cpus = attempt(rank(gpus=4.0), unit="CPU", gpus={"node1": 4.0})
    ledger = account([cpus])
    check(ledger)
    assert (ledger.unit, ledger.allocated) == ("CPU", 440_000)
    mixed = account([cpus, attempt(rank(), number=1)])
    assert (mixed.unit, mixed.allocated) == ("GPU", 110_000)
    assert mixed.notes == ("attempt 0: it had no GPUs, and is left out of the sums",)


def test_no_attempts() -> None:
    ledger = account([])
    check(ledger)
    assert (ledger.allocated, ledger.in_order(), ledger.share(buckets.COMPUTE)) == (0, [], 0.0)


def test_the_words_are_those_of_the_causes() -> None:
    assert (record.FINISHED, record.HANG) == (causes.FINISHED, causes.HANG)


def test_a_thousand_histories() -> None:
    """Of undamaged files the amounts are true too; of damaged ones the sums."""
    random = Random(12)
    for _ in range(1000):
        happenings = history(random)
        attempts = [happening.record for happening in happenings]
        ledger = account(attempts)
        check(ledger)
        assert ledger.allocated == allocated(attempts)
        for happening, of_attempt in zip(happenings[:-1], ledger.attempts[:-1], strict=True):
            gpus = sum(happening.record.gpus.values()) * 1000
            assert of_attempt[buckets.STALLED] >= happening.stalled * gpus - 1
            pace = 7.5 * gpus
            assert of_attempt[buckets.LOST] == pytest.approx(happening.lost * gpus, abs=pace)
        torn = [damaged(random, one) for one in attempts]
        ledger = account(torn)
        check(ledger)
        assert ledger.allocated == allocated(torn)


AMOUNTS = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1e5)
TIMES = st.floats(T - 1e4, T + 1e4) | st.floats(-1e12, 1e12)
STEPS = st.none() | st.integers(-10, 10**6)
SPENT = st.dictionaries(st.sampled_from([*buckets.OF_ACTIVITY, "evaluation", "lost", "\x1b[2J"]), AMOUNTS, max_size=6)
RANKS = st.builds(
    RankRecord,
    rank=st.integers(0, 9),
    node=st.sampled_from(["node1", "node2", "elsewhere"]),
    gpus=AMOUNTS,
    started=TIMES,
    seen=TIMES,
    ended=st.booleans(),
    spent=SPENT,
    first_step=STEPS,
    step=STEPS,
    samples=st.lists(st.builds(Sample, time=TIMES, step=STEPS, spent=SPENT), max_size=3).map(tuple),
    counted=st.dictionaries(st.sampled_from(["steps", "ddp_exposed", "ddp_sampled"]), AMOUNTS),
    activity=st.none() | st.sampled_from(["running", "evaluation"]),
    first_step_time=st.none() | TIMES,
    step_time=st.none() | TIMES,
)
ATTEMPTS = st.builds(
    AttemptRecord,
    number=st.integers(0, 5),
    start=TIMES,
    end=TIMES,
    gpus=st.dictionaries(st.sampled_from(["node1", "node2"]), st.floats(0, 100)),
    ranks=st.lists(RANKS, max_size=5).map(tuple),
    alive=st.booleans(),
    cause=st.sampled_from([None, "finished", "hang", "preemption"]),
    stalled_seconds=st.floats(0, 1e6),
    restored_step=STEPS,
    durable_step=STEPS,
    began=st.none() | st.booleans(),
    stalled_since=st.none() | TIMES,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(ATTEMPTS, max_size=4))
def test_whatever_the_records_say_the_sum_is_the_allocation(attempts: list[AttemptRecord]) -> None:
    check(account(attempts))


@given(st.integers(0, 10**16), st.lists(st.floats(0, 1e9), min_size=1, max_size=30))
def test_shares_are_proportional_and_sum_to_the_total(whole: int, weights: list[float]) -> None:
    if not any(weights):
        return
    shares = apportion(whole, weights)
    assert sum(shares) == whole
    for share, weight in zip(shares, weights, strict=True):
        assert share == pytest.approx(whole * weight / sum(weights), rel=1e-6, abs=2 + whole * 1e-9)
