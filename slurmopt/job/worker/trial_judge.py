"""Reports the metric of a trial to the study, in the trial's process, and asks whether to continue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from slurmopt import log
from slurmopt.grid.search.space import following, suggest
from slurmopt.job.worker import current_run
from slurmopt.job.worker.trial_study import PRUNED, Study
from slurmopt.job.worker.tuning_judge import tuning_judge
from slurmopt.run_folder.sweep_layout import SweepFolder

if TYPE_CHECKING:
    import optuna


def join(sweep: SweepFolder, number: int) -> None:
    """Makes `progress` ask whether to continue the trial. For a Python process that the parent did not fork."""
    search = Study(sweep).search
    if search.prunes:
        current_run.judge_by(Judge(sweep, number, search.metric))
    elif search.tunes:
        from slurmopt.grid import points_file

        trial = Study(sweep).trial(number)
        current_run.judge_by(tuning_judge(search, suggest(points_file.load(sweep.points_file).axes, trial)))


class Judge:
    """Reports a trial's metric to the study at each step, and asks whether to continue."""

    def __init__(self, sweep: SweepFolder, number: int, metric: str | None) -> None:
        self._sweep, self._number, self._metric = sweep, number, metric
        self._trial: optuna.Trial | None = None
        self._due = 0
        self._given_up = False
        self._complained = False

    def __call__(self, step: int, total: int | None, metrics: Mapping[str, float]) -> bool:
        """Whether to give up the trial. A study that cannot be written does not end the training; that is logged
        once."""
        if self._metric is None or self._metric not in metrics or step < self._due:
            return False
        try:
            return self._judge(step, total, metrics[self._metric])
        except OSError as error:
            if not self._complained:
                log.warning(f"the trial cannot be reported to the study: {error}")
            self._complained = True
            return False

    def _judge(self, step: int, total: int | None, value: float) -> bool:
        trial = self._trial = self._trial or self._begin(total)
        if self._given_up or step < self._due:
            return self._given_up
        trial.report(value, step)
        self._due = following(step)
        if trial.should_prune():
            trial.set_user_attr(PRUNED, step)
            self._given_up = True
        return self._given_up

    def _begin(self, total: int | None) -> optuna.Trial:
        """A separate view of the trial, so that what the parent process writes is not taken for this process's."""
        trial = Study(self._sweep).trial(self._number, total)
        so_far = trial.storage.get_trial(trial._trial_id)
        self._given_up = PRUNED in so_far.user_attrs  # in an attempt that did not live to say so
        self._due = following(max(so_far.intermediate_values)) if so_far.intermediate_values else 0
        return trial
