"""The answer of `slurmopt plan`: the shapes, which of them to take and why, and what was assumed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from slurmopt.commands.plan.money import Money
from slurmopt.commands.plan.shapes.bill import Bill
from slurmopt.commands.plan.shapes.waits import Option, Wait, earliest
from slurmopt.estimates.experiment import Experiment
from slurmopt.estimates.failures import LEAST, History
from slurmopt.planning.cost import Total
from slurmopt.planning.hardware import SLOWER
from slurmopt.planning.ranges import Range
from slurmopt.planning.shapes import MORE_HOURS, Calibration, Shape, chosen
from slurmopt.units import human_seconds


@dataclass(frozen=True, kw_only=True)
class Row:
    """A shape that fits, and what comes with it."""

    shape: Shape
    total: Total | None
    money: Money | None
    options: list[Option]
    """The partitions and time limits that were compared; none where Slurm was not asked."""
    is_front: bool
    shaped: list[str]
    """The overrides of the shape alone."""

    @property
    def option(self) -> Option | None:
        """The one to take."""
        run = None if self.total is None else self.total.seconds
        return earliest(self.options, run) if self.options else None

    @property
    def wait(self) -> Wait | None:
        return None if self.option is None else self.option.wait

    @property
    def overrides(self) -> list[str]:
        return [*self.shaped, *([] if self.option is None else self.option.ask.overrides)]

    def finish(self, option: Option) -> tuple[float, float] | None:
        """Seconds from now, p50 and p90."""
        return None if self.total is None else option.finish(self.total.seconds)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """All of it."""

    asked: Experiment
    found: list[Shape]
    """All shapes, those that cannot be too."""
    rows: list[Row]
    """The best of each number of nodes."""
    learned: Calibration
    failed: History
    bill: Bill | None = None
    """Of the row to take; None without the tokens of the whole training."""

    @property
    def taken(self) -> Row | None:
        """The row to take, of those that Slurm could start, where it tells."""
        can_start = [row for row in self.rows if row.wait is None or row.wait.seconds is not None] or self.rows
        shape = chosen([row.shape for row in can_start])
        return next((row for row in can_start if row.shape is shape), None)

    @property
    def why(self) -> str | None:
        """Why that one."""
        if (taken := self.taken) is None:
            return None
        if len(self.rows) == 1:
            return "the only number of nodes that has a shape that fits"
        fastest = min(self.rows, key=lambda row: row.shape.seconds.middle if row.shape.seconds else 0.0)
        if fastest is taken:
            return f"the fastest, and within {MORE_HOURS:.0%} of the least GPU-hours"
        return f"the fastest of those within {MORE_HOURS:.0%} of the least GPU-hours"

    @property
    def reasons(self) -> dict[int, Counter[str]]:
        """Number of nodes → why shapes of it cannot be, and of how many that holds."""
        reasons: dict[int, Counter[str]] = {}
        for shape in self.found:
            if shape.rejected is not None:
                reasons.setdefault(shape.nodes, Counter())[shape.rejected] += 1
        return dict(sorted(reasons.items()))

    def nearest(self, nodes: int | None = None) -> Shape | None:
        """The shape that comes nearest to fitting; None where each one breaks a rule."""
        some = [one for one in self.found if one.peak is not None and nodes in (None, one.nodes)]
        return min(some, key=lambda one: one.peak.low if one.peak else 0.0, default=None)

    @property
    def why_nothing(self) -> str:
        """Why nothing fits."""
        if (near := self.nearest()) is not None:
            return f"on {near.nodes} node{'s' if near.nodes > 1 else ''}, which come nearest, {near.rejected}"
        return next((shape.rejected or "" for shape in self.found), "no shapes")

    @property
    def notes(self) -> list[str]:
        """What was assumed, and what is missing."""
        asked, notes = self.asked, [self._sureness()]
        if (remark := asked.model.too_long(asked.work.sequence)) is not None:
            notes.append(remark)
        notes.append(self._of_failures())
        if asked.cluster.slower != SLOWER:
            low, high = asked.cluster.slower.low, asked.cluster.slower.high
            notes.append(f"collectives take {low:.2f} to {high:.2f} times NCCL's model, as was measured")
        if asked.tokens is None:
            notes.append("plan.tokens is not set: no time, GPU-hours and money of the whole training")
        priced = next((row.money for row in self.rows if row.money is not None), None)
        if self.bill is not None and self.bill.sources:
            notes += self.bill.sources
        elif priced is not None:
            notes.append(f"prices of {priced.date}: {priced.source}")
        elif asked.tokens is not None and self.rows:
            notes.append(f"no price is known of {asked.cluster.gpu.name}; SLURMOPT_PRICES names a file with yours")
        if self.bill is not None:
            notes += self.bill.not_counted
        if asked.boot and priced is not None:
            notes.append(
                f"costs by use have {human_seconds(asked.boot)} of each GPU around the job, which GPU-H has not"
            )
        if any(row.wait is not None for row in self.rows):
            notes.append("the wait is Slurm's hint (sbatch --test-only), not a promise")
        return notes

    def _of_failures(self) -> str:
        failed, rate = self.failed, self.failed.rate
        if rate is None:
            known = f"{failed.failures} failures without notice"
            if failed.failures >= LEAST:
                return f"times are without restarts: your runs tell of {known}, but not how long a restart takes"
            return f"times are without restarts: your runs tell of {known}, and {LEAST} make a rate"
        saves = f"a save blocks {rate.blocked:.2g} s, a restart takes {human_seconds(rate.restart)}"
        told = f"{failed.failures} failures in {failed.node_hours:,.0f} node-hours of your runs; {saves}"
        taken = self.taken
        if taken is None or taken.total is None or taken.total.mtbf is None:
            return told
        return f"{told}; checkpoint.mtbf={max(1, round(taken.total.mtbf / 60))}min suits the shape to take"

    def _sureness(self) -> str:
        learned = self.learned
        measured = [
            name for name, ratio in (("peaks", learned.memory), ("step times", learned.step)) if ratio is not None
        ]
        if not measured:
            return "peak and times are 90 % intervals of formulas (tier 1); two runs of this experiment make them surer"
        return f"{' and '.join(measured)} are corrected by what {learned.runs} earlier runs measured (tier 3)"

    def as_json(self) -> dict[str, Any]:
        """The keys are those of `slurmopt.commands.plan.shapes.main`."""
        asked, gpu, learned, taken = self.asked, self.asked.cluster.gpu, self.learned, self.taken
        work = {name: getattr(asked.work, name) for name in ("sequence", "global_batch", "precision", "optimizer")}
        return {
            "model": {"name": asked.model.name, "parameters": asked.model.parameters},
            "work": work,
            "gpu": {"name": gpu.name, "memory": gpu.memory, "per_node": asked.cluster.gpus_per_node},
            "shapes": [_as_json(row) for row in self.rows],
            "chosen": None if taken is None else taken.shape.nodes,
            "cost": None if self.bill is None else self.bill.as_json(),
            "why": self.why,
            "tier": {
                "memory": 1 if learned.memory is None else 3,
                "step": 1 if learned.step is None else 3,
                "runs": learned.runs,
            },
            "rejected": [
                {"nodes": nodes, "count": counts.total(), "reasons": dict(counts)}
                for nodes, counts in self.reasons.items()
            ],
            "notes": self.notes,
        }


def _as_json(row: Row) -> dict[str, Any]:
    shape, whole = row.shape, row.total
    assert shape.step is not None

    def ends(each: Range | None) -> list[float] | None:
        return None if each is None else [each.low, each.high]

    return {
        "nodes": shape.nodes,
        "gpus": shape.layout.ranks,
        **{name: getattr(shape.layout, name) for name in ("data", "tensor", "pipeline")},
        "strategy": shape.strategy,
        **{name: getattr(shape.layout, name) for name in ("micro_batch", "recompute")},
        "peak": ends(shape.peak),
        "fits": shape.fits,
        "step": ends(shape.seconds),
        "tokens_per_second": ends(shape.step.tokens_per_second),
        "mfu": ends(shape.step.mfu),
        "run": None if whole is None else ends(whole.seconds),
        "mtbf": None if whole is None else whole.mtbf,
        "save_every": None if whole is None else whole.interval,
        "run_p90": None if whole is None else whole.seconds.quantile(0.9),
        "gpu_hours": None if whole is None else ends(whole.gpu_hours),
        "kwh": None if whole is None else ends(whole.kwh),
        "money": None if row.money is None else row.money.as_json(),
        "wait": None if row.wait is None else row.wait.seconds,
        "wait_text": None if row.wait is None else row.wait.text,
        "finish": None if row.option is None else row.finish(row.option),
        "options": [
            {
                "partition": each.ask.partition,
                "time": each.ask.time,
                "wait": each.wait.seconds,
                "wait_text": each.wait.text,
                "finish": row.finish(each),
            }
            for each in row.options
        ],
        "front": row.is_front,
        "overrides": row.overrides,
    }
