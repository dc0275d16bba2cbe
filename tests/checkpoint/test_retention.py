"""What a tier may delete, and what it never may."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmopt.checkpoint.commit.retention import expired
from slurmopt.checkpoint.format.ledger import Commit


def commit(
    step: int, attempt: int = 0, time: float | None = None, references: tuple[str, ...] = (), **metrics: float
) -> Commit:
    unique = f"a{attempt:04d}-{step:08x}"
    return Commit(
        step=step, unique=unique, attempt=attempt, time=step if time is None else time,
        manifest=f"step-{step:08d}/{unique}/manifest.json", manifest_xxh3="0" * 32, bytes=1, total_bytes=1,
        world_size=1, references=references, metrics=metrics,
    )  # fmt: skip


def kept_steps(commits: list[Commit], **rules: Any) -> list[int]:
    gone = set(expired(commits, **rules))
    return sorted(commit.step for commit in commits if commit.name not in gone)


def test_the_last_ones_stay_and_the_oldest_goes_first() -> None:
    commits = [commit(step) for step in (40, 10, 30, 20)]
    assert expired(commits, keep=2) == [commit(10).name, commit(20).name]
    assert expired(commits, keep=4) == []
    assert expired([], keep=1) == []


def test_a_step_saved_again_counts_once_and_its_newest_stays() -> None:
    first, again = commit(20, attempt=0), commit(20, attempt=1)
    commits = [commit(10), first, again]
    assert expired(commits, keep=2) == [first.name]
    assert expired(commits, keep=1) == [commit(10).name, first.name]


def test_after_a_rollback_the_new_ones_stay_beside_the_old() -> None:
    commits = [commit(step) for step in (100, 200, 300)]
    commits += [commit(step, attempt=1) for step in (110, 120, 130)]
    assert kept_steps(commits, keep=1) == [130, 300]
    assert kept_steps(commits, keep=2) == [120, 130, 200, 300]


def test_every_nth_stays_for_ever() -> None:
    commits = [commit(step) for step in range(0, 1001, 50)]
    assert kept_steps(commits, keep=1, keep_every=250) == [0, 250, 500, 750, 1000]


def test_a_rhythm_that_misses_the_multiples_leaves_milestones_too() -> None:
    commits = [commit(step) for step in (137, 512, 1043, 1498, 2011, 2444, 4001, 4500)]
    assert kept_steps(commits, keep=1, keep_every=1000) == [1043, 2011, 4001, 4500]


def test_the_best_stay_by_the_mode() -> None:
    losses = {10: 0.9, 20: 0.3, 30: math.nan, 40: 0.5, 50: 0.3, 60: -math.inf, 70: 0.8}
    commits = [commit(step, loss=loss) for step, loss in losses.items()] + [commit(80), commit(90)]
    assert kept_steps(commits, keep=1, best=1, metric="loss") == [50, 90], "of equals the newer"
    assert kept_steps(commits, keep=1, best=2, metric="loss") == [20, 50, 90]
    assert kept_steps(commits, keep=1, best=2, metric="loss", mode="max") == [10, 70, 90]
    assert kept_steps(commits, keep=1, best=9, metric="loss") == [10, 20, 40, 50, 70, 90]
    assert kept_steps(commits, keep=1, best=9, metric="accuracy") == [90]
    assert kept_steps(commits, keep=1, best=9) == [90]


def test_what_is_referenced_or_protected_stays() -> None:
    base, middle = commit(10), commit(20, references=(commit(10).name,))
    commits = [base, middle, commit(30), commit(40, references=(middle.name, "step-00000001/another-run"))]
    assert expired(commits, keep=1) == [commit(30).name], "20 is referenced, and 20 cannot be loaded without 10"
    assert expired([base, middle, commit(50)], keep=1, protected=[middle.name]) == []
    assert expired([base, middle, commit(50)], keep=1) == [base.name, middle.name]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"keep": 0}, "keep: 0 is too few"),
        ({"keep": 1, "keep_every": 0}, "keep_every: 0 is too few"),
        ({"keep": 1, "best": -1}, "best: -1 is too few"),
        ({"keep": 1, "mode": "least"}, "mode: 'least' is unknown; valid are min, max"),
    ],
)
def test_a_rule_that_cannot_be(rules: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        expired([commit(10)], **rules)


@st.composite
def ledgers(draw: st.DrawFn) -> list[Commit]:
    """Commits of several attempts, some of the same step, some referring to others, some measured, on a bad clock."""
    names = draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), unique=True, max_size=14))
    commits: list[Commit] = []
    for step, attempt in names:
        earlier = draw(st.lists(st.sampled_from(commits), max_size=2)) if commits else []
        loss = draw(st.none() | st.sampled_from([0.1, 0.2, 0.3, math.nan, math.inf]))
        metrics = {} if loss is None else {"loss": loss}
        references = tuple(other.name for other in earlier)
        commits.append(commit(step, attempt, float(draw(st.integers(0, 50))), references, **metrics))
    return commits


rules = st.fixed_dictionaries(
    {
        "keep": st.integers(1, 5),
        "keep_every": st.none() | st.integers(1, 20),
        "best": st.integers(0, 3),
        "metric": st.sampled_from(["loss", None]),
        "mode": st.sampled_from(["min", "max"]),
    }
)


@settings(deadline=None)
@given(ledgers(), rules, st.data())
def test_promises(commits: list[Commit], rules: dict[str, Any], data: st.DataObject) -> None:
    names = [commit.name for commit in commits]
    protected = data.draw(st.lists(st.sampled_from(names), max_size=2)) if names else []
    gone = expired(commits, protected=protected, **rules)
    left = [commit for commit in commits if commit.name not in gone]

    assert len(set(gone)) == len(gone)
    assert set(gone) <= set(names)
    assert not set(gone) & set(protected)
    if commits:
        assert max(commits, key=lambda one: (one.step, one.attempt, one.time)) in left, "the newest step"
        assert max(commits, key=lambda one: (one.attempt, one.time, one.step)) in left, "the last that was committed"
        steps = {one.step for one in commits}
        assert sorted(steps)[-rules["keep"] :] == sorted({one.step for one in left})[-rules["keep"] :]
    assert not set(gone) & {name for one in left for name in one.references}, "what stays can be loaded"

    assert expired(commits, protected=protected, **rules) == gone
    shuffled = commits.copy()
    random.Random(data.draw(st.integers())).shuffle(shuffled)
    assert expired(shuffled, protected=protected, **rules) == gone
    assert expired(left, protected=protected, **rules) == [], "nothing more goes until something comes"
    # Cut off in the middle of deleting, oldest first: the next prune comes to the same.
    rest = [commit for commit in commits if commit.name not in gone[: len(gone) // 2]]
    assert expired(rest, protected=protected, **rules) == gone[len(gone) // 2 :]
