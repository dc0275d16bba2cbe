"""The group `sweep`: the points of a sweep or search, and how they share array tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurmopt.config.check import at_least, one_line_text, one_of
from slurmopt.errors import ConfigError

PRUNING = ("asha", "hyperband", "median")
"""Searches that stop trials early."""
BATCH_SIZE, LOADER = "batch_size", "loader"
TUNING = (BATCH_SIZE, LOADER)
"""Searches that end once they are answered, each trial after those before: of `slurmopt tune batch` and `loader`."""
SEARCHES = ("random", "tpe", *PRUNING, *TUNING)
DIRECTIONS = ("minimize", "maximize")


@dataclass(kw_only=True)
class Sweep:
    """Many runs from one launch (`-m`): the points, and how they share array tasks."""

    points: str | None = None
    """A file of points: `.csv` with the keys in its first line, or `.jsonl` with one object per line."""

    zip: list[list[str]] = field(default_factory=list)
    """Swept keys that advance together instead of being combined: `[[lr, batch]]`."""

    skip: str | None = None
    """Points to leave out: `"${lr} > 1e-3 and ${model.layers} > 8"`."""

    folder: str | None = None
    """A readable name for each point, such as `"${lr}-${seed}"`: the name of a link to its folder in `by-name/`."""

    at_once: int | None = None
    """The number of array tasks that may run at the same time. Default: no limit by slurmopt."""

    per_task: int = 1
    """The number of points that each array task runs: it imports torch once, and starts each point in milliseconds."""

    side_by_side: int = 1
    """The number of points that run at the same time in an array task; they share `resources` equally."""

    search: str | None = None
    """Optuna chooses the points: `random`, `tpe`, `asha`, `hyperband`, `median` (docs/search.md); `batch_size` and
    `loader` are the searches of `slurmopt tune`."""

    trials: int | None = None
    """The number of trials of a search."""

    steps: int = 20
    """The steps of a trial of `batch_size` or `loader`; the first quarter is not measured."""

    workers: int | None = None
    """The number of array tasks of a search. Default: `at_once`, else 8, and no more than `trials`."""

    metric: str | None = None
    """The metric that a search optimises and `slurmopt results` shows: a name given to `progress()`, or a key of the
    returned dict."""

    direction: str = "minimize"
    """Whether to `minimize` or `maximize` the metric."""

    seed: int | None = None
    """The seed of a search. Default: a new one."""

    then: str | None = None
    """The overrides of a launch that starts once all points have ended: `"+experiment=evaluate"`."""

    def __post_init__(self) -> None:
        for name in ("at_once", "per_task", "side_by_side", "trials", "steps", "workers"):
            at_least(getattr(self, name), 1, f"sweep.{name}")
        one_of(self.direction, DIRECTIONS, "sweep.direction")
        for name in ("metric", "points", "then"):
            one_line_text(getattr(self, name), f"sweep.{name}")
        if self.search is not None:
            one_of(self.search, SEARCHES, "sweep.search")
            self._check_search()
        elif self.trials is not None or self.workers is not None:
            raise ConfigError("needs sweep.search", "sweep.trials" if self.trials is not None else "sweep.workers")
        elif self.side_by_side > self.per_task:
            raise ConfigError(
                f"{self.side_by_side} is more than sweep.per_task ({self.per_task}); valid: up to that",
                "sweep.side_by_side",
            )

    def _check_search(self) -> None:
        if self.trials is None:
            raise ConfigError("has no value; say how many points to try: sweep.trials=64", "sweep.trials")
        if self.per_task > 1:
            raise ConfigError(
                "is not for a search, whose workers take trial after trial; see sweep.workers", "sweep.per_task"
            )

    @property
    def packed(self) -> bool:
        """Whether each array task runs a parent process that imports torch once and forks the points."""
        return self.per_task > 1 or self.search is not None
