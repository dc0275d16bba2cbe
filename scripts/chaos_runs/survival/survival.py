"""A training of two nodes, one or two ranks each, lives through seeded faults on a private cluster, and is judged."""

from __future__ import annotations

import contextlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.errors import ClusterError

from chaos_runs.survival import faults, judged
from chaos_runs.survival.faults import Fault
from chaos_runs.survival.judged import HEADING, Row
from chaos_runs.survival.site import Missed, Site
from chaos_runs.survival.watched import NODES, Watched

PACE = 0.06
"""Seconds that a step takes at least."""
_BACK_SECONDS = 240.0
_REFERENCE_SECONDS = 900.0
_STEPS_TO_GO = 40
"""The last step is named so long before it comes that all ranks know of it."""
_WITHOUT_LIMIT = "node_failure hang infrastructure killed out_of_memory"
"""Causes that come more often here than the budgets are meant for."""
_NEEDS = (
    f"resources.nodes={NODES}", "resources.memory=3GB", "resources.partition=preempt",
    "resources.time=600m",
)  # fmt: skip
_WORDS = (
    *_NEEDS, "restart.lead=60s", "restart.hang_after=20s", "checkpoint.shared.every=15", "checkpoint.failures=1000",
    *(f"restart.budgets.{cause}=null" for cause in _WITHOUT_LIMIT.split()),
)  # fmt: skip
_print_lock = threading.Lock()


@dataclass
class Tally:
    """What happened in all runs."""

    rows: list[Row] = field(default_factory=list)
    runs: int = 0
    completed: int = 0
    misses: list[str] = field(default_factory=list)
    restarts: list[dict[str, float]] = field(default_factory=list)

    def add(self, life: Lifetime) -> None:
        self.runs += 1
        self.completed += life.is_completed
        self.rows += life.rows
        self.misses += life.misses
        self.restarts += life.restarts

    def _parts(self) -> str:
        """What the restarts consist of, importing torch left out."""
        names = dict.fromkeys(name for parts in self.restarts for name in parts)
        each = {name: statistics.median(parts.get(name, 0.0) for parts in self.restarts) for name in names}
        return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in each.items()) or "unknown"

    def __str__(self) -> str:
        notified = sum(row.lost for row in self.rows if row.is_notified)
        others = [row.lost for row in self.rows if not row.is_notified]
        back = [row.back for row in self.rows if row.back is not None]
        beyond = [row.back - (row.unavoidable or 0) for row in self.rows if row.back is not None]
        speed = (
            f"from its start to a step {statistics.median(back):.1f} s, at most {max(back):.1f} s"
            f" ({statistics.median(beyond):.1f} s and {max(beyond):.1f} s beyond importing torch and restoring;"
            f" medians: {self._parts()})"
            if back
            else "no restart"
        )
        lost = f"{notified} steps lost in notified ends, {max(others, default=0)} at most in others"
        return (
            f"{self.completed} of {self.runs} runs completed, {len(self.rows)} faults, {lost}, {speed},"
            f" {len(self.misses)} missed"
        )


def run(
    folder: Path, seed: int, count: int, runs: int, side_by_side: int, names: tuple[str, ...], per_node: int = 2
) -> Tally:
    """`runs` runs of `count` faults each, with `per_node` ranks on each node."""
    tally = Tally()
    with ThreadPoolExecutor(side_by_side) as pool:
        lives = [Lifetime(folder / f"{number}", seed, number, names, per_node) for number in range(runs)]
        try:
            for life in pool.map(lambda one: _lived(one, count), lives):
                tally.add(life)
        except KeyboardInterrupt:
            Site.interrupted.set()
            pool.shutdown(cancel_futures=True)
            raise
    return tally


def _lived(life: Lifetime, count: int) -> Lifetime:
    try:
        life.live(count)
    except (Missed, ClusterError, subprocess.TimeoutExpired) as error:
        life.misses.append(str(error))
    for miss in life.misses:
        life.say(f"MISSED: {miss}")
    return life


class Lifetime:
    """One run, from its launch to its judgement."""

    def __init__(self, folder: Path, seed: int, number: int, names: tuple[str, ...], per_node: int) -> None:
        self.folder, self._seed, self._number, self._names = folder, seed, number, names
        self._ranks, self._per_node = NODES * per_node, f"resources.tasks_per_node={per_node}"
        self.rows: list[Row] = []
        self.misses: list[str] = []
        self.restarts: list[dict[str, float]] = []
        self.is_completed = False
        self._newest = 0

    def live(self, count: int) -> None:
        """Launches, disturbs so many times, and judges."""
        with Site(self.folder, self._number, bool({"S3 away", faults.TWO} & {*self._names})) as site:
            rng = random.Random(f"survival {self._seed} {self._number}")
            schedule = faults.deck(rng, count, self._names, self._lacks(site))
            words = (*_WORDS, *site.s3_words(), *self._words(site, last=None, pace=PACE))
            run = Watched(site, site.launch(*words), self._ranks)
            self.say(f"{run.folder.path}\n{HEADING}")
            try:
                for fault in schedule:
                    self._disturb(run, fault)
                self._finish(run)
            finally:
                if self.misses or not self.is_completed:
                    self._keep(site)

    def _lacks(self, site: Site) -> set[str]:
        lacks = {what for what, is_there in site.has().items() if not is_there}
        out = [kind.name for kind in faults.KINDS if kind.name in self._names and kind.needs & lacks]
        if out:
            self.say(f"left out, for this machine or this cluster has no {', '.join(sorted(lacks))}: {', '.join(out)}")
        return lacks

    def _words(self, site: Site, last: int | None, pace: float) -> list[str]:
        told = f"folder:'{site.project}',seed:{self._seed % 1000},pace:{pace},last:{'null' if last is None else last}"
        return [self._per_node, f"+chaos={{{told}}}", f"launch.folder={site.shared}/runs", "launch.name=survivor"]

    def _disturb(self, run: Watched, fault: Fault) -> None:
        run.site.mend()
        self._await_progress(run, "shared")
        self._check_undisturbed(run)
        before, durable = run.attempt, run.durable(tier=fault.tier)
        run.may_vanish = fault.may_vanish
        with fault.cause(run):
            if fault.causes:
                run.wait(lambda: run.attempt > before, _BACK_SECONDS, f"{fault.kind}: the next attempt")
        self._await_progress(run, fault.tier, durable if run.attempt == before else 0)
        row = judged.after(fault, run, before)
        self._newest = row.attempts[-1]
        self._check_leftovers(run, row)
        self.rows.append(row)
        self.say(str(row))
        self.misses += [f"{fault.kind}: {miss}" for miss in row.misses]

    def _check_undisturbed(self, run: Watched) -> None:
        """No attempt has ended since the last fault was over."""
        for attempt in range(self._newest, run.attempt):
            seen = judged.causes_of(run, attempt)
            self.misses.append(f"attempt {attempt} ended by {seen}, and nothing had been done to it")
        self._newest = run.attempt

    def _await_progress(self, run: Watched, tier: str, beyond: int = 0) -> None:
        """Until a step of the newest attempt's own is durable."""

        def progressed() -> bool:
            newest = run.attempt
            attempt = run.record().get(newest)
            if attempt is None or len(attempt.restored) < self._ranks:
                return False
            return run.durable(newest, tier) > max(attempt.began_at or 0, beyond)

        run.wait(progressed, _BACK_SECONDS, f"a new checkpoint on {tier}")

    def _check_leftovers(self, run: Watched, row: Row) -> None:
        """Of the attempts that are over."""
        with contextlib.suppress(Missed):
            run.site.wait(lambda: not run.leftovers(before=run.attempt), 20, "the old ranks end")
        if left := run.leftovers(before=run.attempt):
            row.misses.append(f"processes of earlier attempts are alive: {', '.join(left)}")

    def _finish(self, run: Watched) -> None:
        self._check_undisturbed(run)
        last = judged.complete_steps(run.record()) + _STEPS_TO_GO
        part = run.site.project / "last.part"
        part.write_text(str(last))
        part.rename(run.site.project / "last")
        undisturbed = Watched(run.site, self._launch_undisturbed(run.site, last), self._ranks)
        run.site.wait(lambda: run.journal("end", run.attempt), _BACK_SECONDS, "the training ends")
        self.is_completed = judged.result(run) is not None
        undisturbed.wait(lambda: undisturbed.journal("end"), _REFERENCE_SECONDS, "the undisturbed training ends")
        submitted = 2 + run.tended + sum("preemption" in word for row in self.rows for word in row.kind.split("+"))
        history = judged.history(run)
        self.restarts = judged.restarts(run, history)
        self.misses += judged.whole_run(run, submitted, history)
        self.misses += judged.what_is_left(run)
        self.misses += judged.against(run, undisturbed)

    def _launch_undisturbed(self, site: Site, last: int) -> dict[str, Any]:
        return site.launch(*_NEEDS, "checkpoint.shared.path=null", *self._words(site, last, pace=0))

    def _keep(self, site: Site) -> None:
        """What tells of a miss outlives the cluster."""
        kept = Path(tempfile.gettempdir()) / f"slurmopt-chaos-{self._seed}-{self._number}"
        for part in (site.shared, site.project, site.layout.logs):
            shutil.copytree(part, kept / part.name, dirs_exist_ok=True, symlinks=True)
        self.say(f"kept for a look: {kept}")

    def say(self, text: str) -> None:
        with _print_lock:
            for line in text.splitlines():
                print(f"chaos: run {self._number}: {line}", file=sys.stderr, flush=True)
