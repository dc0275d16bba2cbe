"""Who may commit and prune on a tier, whatever comes between two calls to its storage."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmopt.checkpoint.format import ledger
from slurmopt.checkpoint.format.ledger import Commit, Fenced, Ledger
from slurmopt.errors import StorageError
from slurmopt.storage.folder import FolderStore


def commit_of(step: int, attempt: int, number: int = 0) -> Commit:
    unique = f"a{attempt:04d}-{number:08x}"
    manifest = f"{ledger.checkpoint_name(step, unique)}/manifest.json"
    return Commit(step, unique, attempt, float(step), manifest, "0" * 32, 1, 1, 1)


def opened(store: FolderStore, attempt: int, owner: str = "") -> Ledger:
    found = Ledger(store, attempt, owner or f"owner of {attempt}")
    found.open()
    return found


def standing(store: FolderStore) -> list[str]:
    return [commit.name for commit in ledger.read(store).commits]


def test_an_older_attempt_can_neither_commit_nor_prune_once_a_newer_one_has_opened(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    older = opened(store, 3)
    first = commit_of(10, 3)
    older.commit(first)
    opened(store, 4)
    with pytest.raises(Fenced, match="attempt 3 saves nothing more"):
        older.commit(commit_of(20, 3))
    payload = tmp_path / first.name / "rank-00000.bin"
    payload.parent.mkdir(parents=True)
    payload.write_bytes(b"state")
    with pytest.raises(Fenced):
        older.prune([first.name], [f"{first.name}/rank-00000.bin"])
    assert standing(store) == [first.name]
    assert payload.read_bytes() == b"state"


def test_an_older_attempt_that_comes_late_is_told_so(tmp_path: Path) -> None:
    opened(FolderStore(tmp_path), 4)
    with pytest.raises(Fenced, match="attempt 4 has taken over; attempt 3 saves nothing more"):
        opened(FolderStore(tmp_path), 3)


def test_pruned_checkpoints_never_come_back(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    mine = opened(store, 0)
    for step in range(1, 6):
        mine.commit(commit_of(step, 0))
        mine.prune([commit_of(step - 1, 0).name], [])
        assert standing(store) == [commit_of(step, 0).name]
    assert len(store.list("commits/")) < 6, "what says nothing any more is forgotten"
    assert standing(store) == [commit_of(5, 0).name]


def test_what_was_set_aside_is_not_restored_and_not_forgotten(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    mine = opened(store, 0)
    for step in (1, 2):
        mine.commit(commit_of(step, 0))
    mine.set_aside([commit_of(2, 0).name])
    assert standing(store) == [commit_of(1, 0).name]
    assert ledger.read(store).damaged == {commit_of(2, 0).name}


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data.replace(b'"step": 2', b'"step": 9'),
        lambda data: data.replace(b'"total_bytes": 1', b'"total_bytes": 8'),
        lambda data: b"[" * 100_000,
        lambda data: b"\xff" + data[1:],
        lambda data: b"{}",
    ],
)
def test_a_damaged_record_is_named_and_the_checkpoint_before_it_counts(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    store = FolderStore(tmp_path)
    mine = opened(store, 0)
    for step in (1, 2):
        mine.commit(commit_of(step, 0))
    record = tmp_path / ledger.key(0, 2)
    record.write_bytes(damage(record.read_bytes()))
    records = ledger.read(store)
    assert [commit.step for commit in records.commits] == [1]
    assert records.unreadable == [ledger.key(0, 2)]
    opened(store, 1).commit(commit_of(3, 1))
    assert [commit.step for commit in ledger.read(store).commits] == [3, 1]
    with pytest.raises(Fenced):
        mine.commit(commit_of(4, 0))


class InDoubt(FolderStore):
    """Storage whose answer gets lost: the record may be there."""

    def __init__(self, root: Path, landed: bool) -> None:
        super().__init__(root)
        self._landed, self.fails = landed, False

    def put_new(self, key: str, data: bytes) -> bool:
        if self.fails:
            self.fails = False
            if self._landed:
                super().put_new(key, data)
            raise StorageError("the connection broke off")
        return super().put_new(key, data)


@pytest.mark.parametrize("landed", [True, False])
def test_a_put_in_doubt_fences_nobody_and_the_next_save_counts(tmp_path: Path, landed: bool) -> None:
    store = InDoubt(tmp_path, landed)
    mine = opened(store, 0)
    mine.commit(commit_of(1, 0))
    store.fails = True
    with pytest.raises(StorageError):
        mine.commit(commit_of(2, 0))
    mine.commit(commit_of(3, 0))
    mine.prune([commit_of(1, 0).name], [])
    assert standing(store) == [commit_of(step, 0).name for step in ((3, 2) if landed else (3,))]


def _race(root: str, attempt: int, barrier: Any, answers: Any) -> None:
    mine = Ledger(FolderStore(Path(root)), attempt, f"racer {attempt}")
    barrier.wait()
    done = []
    try:
        mine.open()
        for step in range(20):
            mine.commit(commit_of(step, attempt))
            done.append(commit_of(step, attempt).name)
    except Fenced:
        pass
    answers.put((attempt, done, mine.fenced))


@pytest.mark.slow
def test_of_eight_racing_attempts_the_newest_wins_and_nothing_that_was_committed_is_lost(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(8), context.Queue()
    racers = [context.Process(target=_race, args=(str(tmp_path), attempt, barrier, answers)) for attempt in range(8)]
    for racer in racers:
        racer.start()
    told = {attempt: (done, fenced) for attempt, done, fenced in (answers.get(timeout=120) for _ in racers)}
    for racer in racers:
        racer.join()
    assert told[7] == ([commit_of(step, 7).name for step in range(20)], False)
    assert {name for done, _ in told.values() for name in done} == set(standing(FolderStore(tmp_path)))


def _race_for_one_attempt(root: str, owner: int, barrier: Any, answers: Any) -> None:
    mine = Ledger(FolderStore(Path(root)), 0, f"owner {owner}")
    barrier.wait()
    done = []
    try:
        mine.open()
        for step in range(20):
            mine.commit(commit_of(step, 0, owner))
            done.append(commit_of(step, 0, owner).name)
    except Fenced:
        pass
    answers.put(done)


@pytest.mark.slow
def test_of_eight_processes_with_the_same_attempt_each_commit_counts_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(8), context.Queue()
    racers = [
        context.Process(target=_race_for_one_attempt, args=(str(tmp_path), owner, barrier, answers))
        for owner in range(8)
    ]
    for racer in racers:
        racer.start()
    told = [answers.get(timeout=120) for _ in racers]
    for racer in racers:
        racer.join()
    assert sorted(name for done in told for name in done) == sorted(standing(FolderStore(tmp_path)))
    assert max(map(len, told)) == 20, "somebody goes on"


class Memory:
    """A store whose every call waits for its turn, so that the calls of two attempts come in any order."""

    place = "memory"

    def __init__(self, files: dict[str, bytes], turn: Callable[[], None], doubtful: set[int]) -> None:
        self._files, self._turn, self._doubtful = files, turn, doubtful
        self._puts = 0

    def put_new(self, key: str, data: bytes) -> bool:
        self._turn()
        self._puts += 1
        new = self._files.setdefault(key, data) is data
        if self._puts in self._doubtful:
            raise StorageError("the connection broke off")
        return new

    def get(self, key: str, most: int | None = None) -> bytes:
        self._turn()
        if key not in self._files:
            raise FileNotFoundError(key)
        return self._files[key]

    def list(self, prefix: str) -> list[str]:
        self._turn()
        return sorted(key for key in self._files if key.startswith(prefix))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._turn()
            self._files.pop(key, None)


class Attempt:
    """What one attempt does, in a thread that takes one storage call at a time, when it is told to."""

    def __init__(self, files: dict[str, bytes], attempt: int, plan: list[str], doubtful: set[int]) -> None:
        self._go, self._came = threading.Semaphore(0), threading.Semaphore(0)
        self._dead = False
        self._number, self._plan = attempt, plan
        store: Any = Memory(files, self._turn, doubtful)
        self.attempt, self.ledger = attempt, Ledger(store, attempt, f"owner {attempt}")
        self.committed: list[str] = []
        self.pruned: set[str] = set()
        self.saw: set[str] | None = None
        self.over = False
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()
        self._came.acquire()

    def step(self) -> None:
        """One call to storage, and up to the next."""
        if not self.over:
            self._go.release()
            self._came.acquire()

    def kill(self) -> None:
        self._dead = True
        while not self.over:
            self.step()
        self._thread.join()

    def _turn(self) -> None:
        self._came.release()
        self._go.acquire()
        if self._dead:
            raise SystemExit

    def _live(self) -> None:
        with contextlib.suppress(Fenced, SystemExit):
            while self.saw is None:
                with contextlib.suppress(StorageError):
                    self.ledger.open()
                    self.saw = {commit.name for commit in self.ledger.records.commits}
            for number, word in enumerate(self._plan):
                with contextlib.suppress(StorageError):
                    self._do(word, number)
        self.over = True
        self._came.release()

    def _do(self, word: str, number: int) -> None:
        if word == "commit":
            commit = commit_of(10 * number, self._number)
            self.ledger.commit(commit)
            self.committed.append(commit.name)
        elif old := [commit.name for commit in self.ledger.records.commits][1:]:
            self.pruned.update(old)
            self.ledger.prune(old, [f"{name}/manifest.json" for name in old])


PLANS = st.lists(st.sampled_from(["commit", "commit", "prune"]), max_size=6)
DOUBTFUL = st.sets(st.integers(1, 8), max_size=2)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    plans=st.tuples(PLANS, PLANS, PLANS),
    doubtful=st.tuples(DOUBTFUL, DOUBTFUL, DOUBTFUL),
    order=st.lists(st.integers(0, 2), max_size=120),
    killed=st.sets(st.integers(0, 2), max_size=2),
)
def test_three_attempts_at_once_never_leave_two_truths(
    plans: tuple[list[str], ...], doubtful: tuple[set[int], ...], order: list[int], killed: set[int]
) -> None:
    files: dict[str, bytes] = {}
    attempts = [Attempt(files, number, plans[number], doubtful[number]) for number in range(3)]
    for which in order:
        attempts[which].step()
    for which in killed:
        attempts[which].kill()
    while not all(attempt.over for attempt in attempts):
        for attempt in attempts:
            attempt.step()
    everything: Any = Memory(files, lambda: None, set())
    left = {commit.name for commit in ledger.read(everything).commits}
    acknowledged = {name for attempt in attempts for name in attempt.committed}
    pruned = {name for attempt in attempts for name in attempt.pruned}
    assert acknowledged - pruned <= left, "a commit that was reported durable is lost"
    assert not acknowledged or left, "the newest is lost"
    for attempt in attempts:
        older = {name for name in left if int(name.rpartition("/a")[2][:4]) < attempt.attempt}
        assert attempt.saw is None or older <= attempt.saw, "an attempt that was shut out has committed"


@settings(max_examples=100, deadline=None)
@given(plan=PLANS, at=st.integers(0, 60), doubtful=DOUBTFUL)
def test_killed_at_any_call_no_pruned_checkpoint_comes_back(plan: list[str], at: int, doubtful: set[int]) -> None:
    files: dict[str, bytes] = {}
    first = Attempt(files, 0, [*plan, "commit", "prune"], doubtful)
    everything: Any = Memory(files, lambda: None, set())
    gone: set[str] = set()
    for _ in range(at):
        first.step()
        records = ledger.read(everything)
        standing_now = {commit.name for commit in records.commits}
        assert not standing_now & gone
        gone |= records.pruned
    first.kill()
    second = Attempt(files, 1, ["commit", "prune", "commit", "prune"], set())
    while not second.over:
        second.step()
        assert not {commit.name for commit in ledger.read(everything).commits} & gone
