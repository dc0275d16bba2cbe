"""Budgets per cause, and the rule that a run which gets nowhere ends."""

from __future__ import annotations

import pytest

from slurmopt.restart import causes
from slurmopt.restart.decision import BY_SLURM, REQUEUE, budget_left, decide
from slurmopt.restart.policy import Policy, from_word
from slurmopt.run_folder.attempts import Attempt

BUDGETS = Policy().budgets


def attempt(number: int, cause: str, durable: int | None = None, step: int | None = None, **more: object) -> Attempt:
    return Attempt(number, durable=durable, end={"cause": cause, "step": step}, **more)  # type: ignore[arg-type]


def story(*ends: str) -> list[Attempt]:
    """Attempts that each made progress."""
    return [attempt(number, cause, durable=100 * (number + 1)) for number, cause in enumerate(ends)]


def test_timeouts_and_preemptions_come_back_for_ever_while_there_is_progress() -> None:
    for cause in (causes.TIME_LIMIT, causes.PREEMPTION, causes.REQUEUED, causes.ASKED):
        assert decide(story(*[cause] * 50), cause, BUDGETS, 2).next == REQUEUE


@pytest.mark.parametrize(("cause", "budget"), [(causes.NODE_FAILURE, 10), (causes.HANG, 3), (causes.INFRASTRUCTURE, 5)])
def test_each_cause_has_its_own_budget(cause: str, budget: int) -> None:
    others = [causes.TIME_LIMIT] * 20
    assert decide(story(*others, *[cause] * budget), cause, BUDGETS, 2).next == REQUEUE
    over = decide(story(*others, *[cause] * (budget + 1)), cause, BUDGETS, 2)
    assert over.next is None
    assert f"restart.budgets.{causes.key(cause)} is {budget}" in over.reason


def test_what_will_happen_again_is_not_tried_again() -> None:
    for cause in (causes.USER_ERROR, causes.OUT_OF_MEMORY, causes.GPU_OUT_OF_MEMORY):
        assert decide(story(cause), cause, BUDGETS, 2).next is None


def test_a_cancelled_and_a_finished_run_stay_ended() -> None:
    for cause in (causes.CANCELLED, causes.FINISHED):
        assert decide(story(cause), cause, {}, 2).next is None


def test_two_attempts_without_a_new_checkpoint_end_the_run_whatever_the_budgets() -> None:
    stuck = [attempt(0, causes.TIME_LIMIT, 100), attempt(1, causes.TIME_LIMIT, 100), attempt(2, causes.PREEMPTION)]
    assert decide(stuck[:2], causes.TIME_LIMIT, BUDGETS, 2).next == REQUEUE
    ended = decide(stuck, causes.PREEMPTION, BUDGETS, 2)
    assert ended.next is None
    assert "no progress" in ended.reason
    again = [*stuck[:2], attempt(2, causes.PREEMPTION, 101)]
    assert decide(again, causes.PREEMPTION, BUDGETS, 2).next == REQUEUE


def test_steps_beyond_the_last_checkpoint_are_no_progress_where_there_are_checkpoints() -> None:
    stuck = [attempt(0, causes.HANG, 100, 150), attempt(1, causes.HANG, 100, 180), attempt(2, causes.HANG, 100, 190)]
    assert decide(stuck, causes.HANG, BUDGETS, 2).next is None


def test_without_checkpoints_a_rising_step_is_progress_and_else_a_newer_file() -> None:
    rising = [attempt(0, causes.TIME_LIMIT, step=10), attempt(1, causes.TIME_LIMIT, step=20)]
    assert decide(rising, causes.TIME_LIMIT, BUDGETS, 1).next == REQUEUE
    level = [attempt(0, causes.TIME_LIMIT, step=20), attempt(1, causes.TIME_LIMIT, step=20)]
    assert decide(level, causes.TIME_LIMIT, BUDGETS, 1).next is None
    files = [attempt(0, causes.TIME_LIMIT), attempt(1, causes.TIME_LIMIT)]
    for number, one in enumerate(files):
        assert one.end is not None
        one.end["mark"] = 1000.0 + number
    assert decide(files, causes.TIME_LIMIT, BUDGETS, 1).next == REQUEUE


def kept_away(number: int, cause: str = causes.INFRASTRUCTURE) -> Attempt:
    """An attempt whose task was never started."""
    return Attempt(number, end={"cause": cause, "step": None, "began": False})


def test_attempts_that_never_came_to_their_task_are_none_without_progress() -> None:
    away = [attempt(0, causes.TIME_LIMIT, 100), *(kept_away(number) for number in range(1, 5))]
    assert decide(away, causes.INFRASTRUCTURE, BUDGETS, 1).next == REQUEUE
    stuck = [*away, attempt(5, causes.PREEMPTION), attempt(6, causes.PREEMPTION)]
    assert decide(stuck[:-1], causes.PREEMPTION, BUDGETS, 2).next == REQUEUE
    assert "no progress" in decide(stuck, causes.PREEMPTION, BUDGETS, 2).reason
    over = decide([kept_away(number) for number in range(6)], causes.INFRASTRUCTURE, BUDGETS, 2)
    assert over.reason == "restart.budgets.infrastructure is 5, and used up"
    for cause in (causes.TIME_LIMIT, causes.KILLED):  # the limit is too short for the start; it may have begun just now
        assert decide([kept_away(number, cause) for number in range(2)], cause, BUDGETS, 2).next is None


def test_where_no_node_is_at_fault_the_next_attempt_waits_longer_each_time() -> None:
    away = [kept_away(number) for number in range(8)]
    pauses = [decide(away[: count + 1], causes.INFRASTRUCTURE, {}, 2).pause for count in range(8)]
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert decide(away, causes.INFRASTRUCTURE, {}, 2, node="node1").pause == 0, "another node may be all right"
    assert decide([*away, attempt(8, causes.INFRASTRUCTURE, 1)], causes.INFRASTRUCTURE, {}, 2).pause == 0
    many = decide([kept_away(number) for number in range(1200)], causes.INFRASTRUCTURE, {}, 2)
    assert (many.next, many.pause) == (REQUEUE, 3600), "a site may allow any number of them"
    assert "it comes back in 2m00s at the earliest" in decide(away[:2], causes.INFRASTRUCTURE, BUDGETS, 2).reason


def test_after_a_retry_budgets_count_anew() -> None:
    before = [attempt(n, causes.HANG, 100 * (n + 1), since_retry=False) for n in range(4)]
    now = [*before, attempt(4, causes.HANG, 500)]
    assert decide(now, causes.HANG, BUDGETS, 2).next == REQUEUE
    assert budget_left(now, causes.HANG, BUDGETS) == 2
    assert budget_left(now, causes.PREEMPTION, BUDGETS) is None


def test_who_brings_it_back_is_said() -> None:
    assert decide(story(causes.NODE_FAILURE), causes.NODE_FAILURE, BUDGETS, 2, BY_SLURM).next == BY_SLURM


def test_a_policy_is_one_word_and_back() -> None:
    policy = Policy(budgets={"hang": None}, patterns={'it\'s "quoted" $HOME': "infrastructure"}, excluded="node[1-2]")
    assert from_word(policy.to_json_arg()) == policy
    with pytest.raises(ValueError, match="not a JSON object"):
        from_word("[]")
