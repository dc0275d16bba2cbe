"""Which settings of a loader a search tries and answers, against loaders whose speed is a formula."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pytest

from slurmopt.grid.search.loader_settings import FAST, Answer, Setting, Space, Trial, answer, following

BATCH, MOST = 8, 32
ALL = Space(low=0, high=MOST, prefetch=(4, 8), pins=True)


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
    uneven: float = 0.0
    """Seconds of each step in which no batch is ready, although workers are enough; a prefetch factor of 4 halves it,
    and one of 8 brings nothing more."""
    gpu: bool = False
    unpinned: float = 0.0
    """Seconds that a step takes longer without pinned memory."""

    def tried(self, setting: Setting, is_first: bool = False) -> Trial:
        workers = setting.workers
        service = self.service * (self.cold if is_first else 1.0)
        if workers == 0:
            seconds = self.step + service
        else:
            busy = service * self.computed
            seconds = max(self.step, service / workers, busy / self.cpus)
            seconds += self.uneven / (1 if setting.prefetch is None else 2)
        seconds += 0.0 if setting.pinned else self.unpinned
        known = {"service": service, "computed": self.service * self.computed, "cpus": float(self.cpus)}
        wait = {"step": self.step, "wait": seconds - self.step}
        known_or_not = wait | known if self.measured else {}
        return Trial(**asdict(setting), rate=BATCH / seconds, gpu=self.gpu, **known_or_not)

    def settings(self, space: Space) -> tuple[list[Setting], Answer]:
        tried: list[Trial] = []
        while (setting := following(tried, space)) is not None:
            assert space.low <= setting.workers <= space.high
            assert setting not in {trial.setting for trial in tried}
            tried.append(self.tried(setting, not tried))
        found = answer(tried)
        assert found is not None
        return [trial.setting for trial in tried], found

    def search(self, most: int = MOST) -> tuple[list[int], Answer]:
        tried, found = self.settings(Space(low=0, high=most))
        assert all(setting == Setting(workers=setting.workers) for setting in tried)
        return [setting.workers for setting in tried], found

    def best(self, most: int = MOST) -> float:
        return max(self.tried(Setting(workers=workers)).rate or 0.0 for workers in range(most + 1))


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
    assert (found.best.rate or 0.0) >= FAST * max(
        machine.tried(Setting(workers=workers)).rate or 0.0 for workers in tried
    )
    assert len(tried) <= 5


def test_samples_out_of_the_page_cache_are_told_apart() -> None:
    _, found = Machine(0.01, 0.01, cold=6.0).search()
    assert found.cold == 7
    assert found.best.workers < 7
    assert Machine(0.01, 0.01).search()[1].cold is None


def test_no_more_than_is_allowed() -> None:
    assert max(Machine(0.001, 0.1).search(most=6)[0]) == 6


def test_a_training_that_fails_ends_the_search() -> None:
    assert following([Trial(workers=0, error="no")], ALL) is None
    assert answer([Trial(workers=0, error="no")]) is None


def test_a_larger_prefetch_factor_is_tried_while_the_step_waits_and_it_is_a_gain() -> None:
    machine = Machine(0.01, 0.03, uneven=0.002)
    tried, found = machine.settings(ALL)
    workers = found.best.workers
    assert tried[-2:] == [Setting(workers=workers, prefetch=4), Setting(workers=workers, prefetch=8)]
    assert found.best.setting == Setting(workers=workers, prefetch=4)  # 8 brings nothing more
    assert found.prefetch_gain == pytest.approx(0.012 / 0.011 - 1)


def test_where_nothing_waits_no_prefetch_factor_is_tried() -> None:
    for machine in (Machine(0.01, 0.03), Machine(0.01, 0.0002)):
        tried, found = machine.settings(ALL)
        assert all(setting.prefetch is None for setting in tried)
        assert (found.best.prefetch, found.prefetch_gain, found.pin_gain) == (None, None, None)


def test_a_prefetch_factor_that_brings_nothing_is_not_advised() -> None:
    tried, found = Machine(0.01, 0.04).settings(Space(low=0, high=2, prefetch=(4, 8)))  # two workers are too few
    assert [setting.prefetch for setting in tried if setting.prefetch] == [4]
    assert (found.best.prefetch, found.prefetch_gain) == (None, pytest.approx(0.0))


def test_where_all_cpus_are_busy_no_prefetch_factor_is_tried() -> None:
    tried, found = Machine(0.001, 0.03, computed=1.0, cpus=2).settings(ALL)
    assert all(setting.prefetch is None for setting in tried)
    assert found.best.workers == 2


@pytest.mark.parametrize("workers", [0, 4])
def test_memory_that_is_not_pinned_is_tried_on_a_gpu_and_the_gain_is_told(workers: int) -> None:
    machine = Machine(0.01, 0.0001 + 0.009 * workers, gpu=True, unpinned=0.0025)
    tried, found = machine.settings(ALL)
    assert tried[-1] == Setting(workers=found.best.workers, pinned=False)
    assert bool(found.best.workers) == bool(workers)
    assert found.best.pinned
    assert found.pin_gain == pytest.approx(0.25, rel=0.05)


def test_memory_stays_as_the_config_has_it_unless_the_other_is_a_gain() -> None:
    space = Space(low=0, high=MOST, pinned=False, pins=True)
    assert all(not setting.pinned for setting in Machine(0.01, 0.03).settings(space)[0])  # no GPU
    tried, found = Machine(0.01, 0.03, gpu=True, unpinned=0.0025).settings(space)
    assert [setting.pinned for setting in tried] == [False] * (len(tried) - 1) + [True]
    assert found.best.pinned
    assert (found.pin_gain or 0.0) > 0.2


def test_pinned_memory_that_costs_speed_is_not_advised() -> None:
    _, found = Machine(0.01, 0.03, gpu=True, unpinned=-0.002).settings(ALL)
    assert not found.best.pinned
    assert (found.pin_gain or 0.0) < 0
