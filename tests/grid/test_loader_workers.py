"""How many workers a search tries and answers, against loaders whose speed is a formula."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from slurmopt.grid.search.loader_workers import FAST, Answer, Trial, answer, following

BATCH, MOST = 8, 32


@dataclass
class Machine:
    """Seconds of a step, of making a batch, and the part of that in which a CPU is used."""

    step: float
    service: float
    computed: float = 0.0
    cpus: int = 2
    measured: bool = True
    cold: float = 1.0
    """The service time of the first trial is so many times as long."""

    def tried(self, workers: int, is_first: bool) -> Trial:
        service = self.service * (self.cold if is_first else 1.0)
        if workers == 0:
            seconds = self.step + service
        else:
            busy = service * self.computed
            seconds = max(self.step, service / workers, busy / self.cpus)
        known = {"service": service, "computed": self.service * self.computed, "cpus": float(self.cpus)}
        wait = {"step": self.step, "wait": seconds - self.step}
        return Trial(workers=workers, rate=BATCH / seconds, **(wait | known if self.measured else {}))

    def search(self, most: int = MOST) -> tuple[list[int], Answer]:
        tried: list[Trial] = []
        while (workers := following(tried, 0, most)) is not None:
            assert 0 <= workers <= most
            assert workers not in {trial.workers for trial in tried}
            tried.append(self.tried(workers, not tried))
        found = answer(tried)
        assert found is not None
        return [trial.workers for trial in tried], found

    def best(self, most: int = MOST) -> float:
        return max(self.tried(workers, False).rate or 0.0 for workers in range(most + 1))


@pytest.mark.parametrize("step", [0.002, 0.01, 0.1])
@pytest.mark.parametrize("service", [0.0001, 0.005, 0.03, 0.2])
@pytest.mark.parametrize("computed", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("cpus", [2, 16])
def test_the_answer_is_close_to_the_best_after_few_trials(
    step: float, service: float, computed: float, cpus: int
) -> None:
    machine = Machine(step, service, computed, cpus)
    tried, found = machine.search()
    assert len(tried) <= 5
    assert (found.best.rate or 0.0) >= 0.95 * machine.best()


def test_a_loader_that_nobody_waits_for_needs_no_workers_and_one_trial() -> None:
    assert Machine(0.01, 0.0002).search()[0] == [0]


def test_the_first_guess_is_the_service_time_over_the_step_and_one() -> None:
    tried, found = Machine(0.01, 0.032).search()
    assert tried[:2] == [0, 5]
    assert found.best.workers == 5
    assert found.gain == pytest.approx(4.2 - 1)


def test_computing_workers_are_no_more_than_the_cpus() -> None:
    assert Machine(0.01, 0.1, computed=1.0, cpus=2).search()[0][1] == 2
    assert Machine(0.01, 0.1, computed=0.25, cpus=2).search()[0][1] == 8


def test_without_a_measurement_the_rate_alone_decides() -> None:
    machine = Machine(0.01, 0.03, measured=False)
    tried, found = machine.search()
    assert (found.best.rate or 0.0) >= FAST * max(machine.tried(workers, False).rate or 0.0 for workers in tried)
    assert len(tried) <= 5


def test_samples_out_of_the_page_cache_are_told_apart() -> None:
    _, found = Machine(0.01, 0.01, cold=6.0).search()
    assert found.cold == 7
    assert found.best.workers < 7
    assert Machine(0.01, 0.01).search()[1].cold is None


def test_no_more_than_is_allowed() -> None:
    assert max(Machine(0.001, 0.1).search(most=6)[0]) == 6


def test_a_training_that_fails_ends_the_search() -> None:
    assert following([Trial(workers=0, error="no")], 0, MOST) is None
    assert answer([Trial(workers=0, error="no")]) is None
