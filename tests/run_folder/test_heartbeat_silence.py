"""When a heartbeat counts as silent."""

from __future__ import annotations

import pytest

from slurmopt.config.monitor import Monitor
from slurmopt.job.watchdog.hang_detector import Allowance
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.heartbeat_silence import DEFAULT_INTERVAL, silent_after
from slurmopt.units import seconds


def test_the_default_interval_is_that_of_the_config() -> None:
    assert seconds(Monitor().heartbeat) == DEFAULT_INTERVAL


@pytest.mark.parametrize(("interval", "expected"), [(0.1, 33), (10, 60), (90, 300)])
def test_a_rank_is_silent_after_three_intervals_and_the_delay(interval: float, expected: float) -> None:
    assert silent_after(interval) == expected
    assert Heartbeat(0, 1, "node1", 1, interval).silent_after == expected


def test_the_watchdog_counts_the_pause_between_two_looks_instead() -> None:
    assert Allowance(1.0, 1.0, heartbeat=90.0, interval=5.0).quiet == 3 * 90 + 5
