"""A sweep of short points lives through seeded faults on a private cluster, and is judged."""

from __future__ import annotations

import collections
import contextlib
import json
import random
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from cluster.errors import ClusterError

from chaos_runs.survival.site import Missed, Site
from chaos_runs.sweeps import faults as sweeps_faults
from chaos_runs.sweeps import judged as sweeps_judged
from chaos_runs.sweeps.judged import Judged
from chaos_runs.sweeps.watched import SweepSite, WatchedSweep
from slurmopt.grid.records import readable

_CHUNKS = 5
"""At least so many array jobs."""
_SIDE_BY_SIDE = 4
_CPUS = 4
"""Of an array task: not more of them run at a time than a small machine bears."""
_WITHOUT_LIMIT = "node_failure hang infrastructure killed out_of_memory"
"""Causes that come more often here than the budgets are meant for."""
_NEEDS = (
    "resources.time=30m", f"resources.cpus_per_task={_CPUS}", "restart.no_progress=1000",
    *(f"restart.budgets.{cause}=null" for cause in _WITHOUT_LIMIT.split()),
)  # fmt: skip
_CALM_SECONDS = 20.0
"""So long a fault waits for some point to run, lest it hit nothing."""
_MOST_TOLD, _LINES = 8, 16
"""Points that are told of, and lines of each journal."""


@dataclass
class Tally:
    """What happened."""

    points: int
    done: int = 0
    kinds: collections.Counter[str] = field(default_factory=collections.Counter)
    seconds: float = 0.0
    tended: int = 0
    judged: Judged = field(default_factory=Judged)

    @property
    def wrong(self) -> list[tuple[int | None, str]]:
        return self.judged.wrong

    def __str__(self) -> str:
        found = self.judged
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kinds.items()))
        causes = ", ".join(f"{cause} {count}" for cause, count in found.causes.most_common())
        return (
            f"{self.done} of {self.points} points done in {self.seconds:.0f} s, {found.submissions} array jobs,"
            f" {found.attempts} attempts (ends: {causes}), {found.again} done more than once,"
            f" {found.idle} attempts with nothing left to do,"
            f" {self.kinds.total()} faults ({kinds or 'none'}), tended {self.tended} times, {len(self.wrong)} wrong"
        )


def run(folder: Path, seed: int, points: int, faults: int, per_task: int, names: tuple[str, ...]) -> Tally:
    """A sweep of so many points, `per_task` in each array task, and so many faults."""
    tally = Tally(points)
    array_size = max(2, -(-points // (per_task * _CHUNKS)))
    with SweepSite(folder / "sweep", array_size) as site:
        sweep = WatchedSweep(site, points, _words(site, seed, points, per_task))
        try:
            _live(sweep, random.Random(f"sweeps {seed}"), faults, per_task > 1, names, tally)
        except (Missed, ClusterError) as error:
            tally.judged.miss(str(error))
        finally:
            tally.done, tally.tended = len(sweep.done), len(sweep.tended)
            if tally.wrong or tally.done < points:
                _tell(sweep, seed, tally)
    return tally


def _words(site: Site, seed: int, points: int, per_task: int) -> list[str]:
    packing = [f"sweep.per_task={per_task}", f"sweep.side_by_side={min(per_task, _SIDE_BY_SIDE)}"]
    told = f"+chaos={{folder:'{site.project}',seed:{seed}}}"
    return [*_NEEDS, *(packing if per_task > 1 else []), told, f"+seed=range({points})"]


def _live(
    sweep: WatchedSweep, rng: random.Random, faults: int, packed: bool, names: tuple[str, ...], tally: Tally
) -> None:
    began = time.monotonic()
    for moment in sweeps_faults.MOMENTS if "launcher killed" in names else ():
        said = sweep.launch_killed(moment, rng.uniform(0, 0.02))
        say(f"{time.monotonic() - began:4.0f} s {0:4} done  {said}")
    sweep.launch()
    deck = sweeps_faults.deck(rng, faults, names, packed)
    for number, kind in enumerate(deck):
        due = int(sweep.count * 0.9 * (number + rng.random()) / len(deck))
        sweep.await_done(due, f"before {kind}")
        sweep.await_running(_CALM_SECONDS)
        said = sweeps_faults.KINDS[kind](sweep, rng)
        tally.kinds[kind] += 1
        say(f"{time.monotonic() - began:4.0f} s {len(sweep.done):4} done  {kind}: {said}")
        with contextlib.suppress(ClusterError):
            sweep.site.mend()
    sweep.await_done(sweep.count, "after all faults")
    tally.seconds = time.monotonic() - began
    _end(sweep, tally)


def _end(sweep: WatchedSweep, tally: Tally) -> None:
    """Once all is over in Slurm too; where some point's end is still to come, `slurmopt tend` may be needed."""
    sweep.site.wait(sweep.is_over, 240, "nothing of the sweep runs any more")
    sweep.look()
    status = _status(sweep)
    if status["states"] != {"finished": sweep.count}:
        sweep.tend(f"all are done, and status says {status['states']}")
        sweep.site.wait(sweep.is_over, 120, "nothing of the sweep runs any more, after tend")
    for told in sweep.tended:
        say(f"tended: {told}")
    found = sweeps_judged.judge(sweep.folder, sweep.count, sweep.record, again=bool(sweep.tended))
    results = json.loads(sweep.site.slurmopt("results", str(sweep.folder.path), "--json"))["data"]
    sweeps_judged.answers(sweep.count, _status(sweep), results, found)
    given = found.submissions + sweep.strangers
    if not sweep.tended and (taken := sweep.site.submissions()) != given:
        found.miss(f"Slurm took {taken} jobs, and {given} are known")
    tally.judged = found


def _status(sweep: WatchedSweep) -> dict[str, dict[str, int]]:
    (status,) = json.loads(sweep.site.slurmopt("status", str(sweep.folder.path), "--json"))["data"]
    assert isinstance(status, dict)
    return status


def _tell(sweep: WatchedSweep, seed: int, tally: Tally) -> None:
    """What is wrong, with the journals of the points; the rest is kept, for the cluster will be gone."""
    by_point: dict[int | None, list[str]] = {}
    for point, text in tally.wrong:
        by_point.setdefault(point, []).append(text)
    for point, texts in list(by_point.items())[:_MOST_TOLD]:
        say(f"WRONG: {'the sweep' if point is None else f'point {point}'}: {'; '.join(texts)}")
        path = sweep.folder.events if point is None else readable(sweep.folder.point(point)).events
        lines = path.read_text(errors="replace").splitlines() if path.exists() else ["no journal"]
        for line in lines[-_LINES:]:
            say(f"    {line[:400]}")
    if len(by_point) > _MOST_TOLD:
        say(f"and {len(by_point) - _MOST_TOLD} more points")
    kept = Path(tempfile.mkdtemp(prefix=f"slurmopt-chaos-sweeps-{seed}-"))
    for part in (sweep.site.shared, sweep.site.project, sweep.site.layout.logs):
        shutil.copytree(part, kept / part.name, dirs_exist_ok=True, symlinks=True)
    say(f"kept for a look: {kept}")


def say(text: str) -> None:
    print(f"chaos: {text}", file=sys.stderr, flush=True)
