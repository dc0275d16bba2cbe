"""The answer of `slurmopt plan cluster`: the training on each cluster, which one to take and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from slurmopt.commands.plan.cluster.launch import Launch
from slurmopt.commands.plan.money import Money, money_of
from slurmopt.estimates.experiment import Experiment
from slurmopt.estimates.failures import LEAST, History
from slurmopt.estimates.on_clusters import OnCluster
from slurmopt.planning.clusters import choice
from slurmopt.planning.clusters.bandwidth import bisection, network_of_gpu
from slurmopt.planning.clusters.preset import Preset
from slurmopt.planning.cost import Failures, Total, total
from slurmopt.planning.ranges import Range


@dataclass(frozen=True, kw_only=True)
class Row:
    """A cluster, and what the training comes to there."""

    on: OnCluster
    total: Total | None
    """None without plan.tokens, or where nothing fits."""
    money: Money | None
    """Of the whole training, or of a step without plan.tokens; None where no price is known."""

    @property
    def no_price(self) -> str | None:
        if self.money is not None or self.on.taken is None:
            return None
        return f"no price is known of {self.on.preset.node.gpu.name}"

    @property
    def option(self) -> choice.Option | None:
        """What the choice goes by; None where nothing fits."""
        taken = self.on.taken
        if taken is None or taken.seconds is None:
            return None
        seconds = taken.seconds if self.total is None else self.total.seconds
        cost = None if self.money is None else self.money.amount.middle
        return choice.Option(self.on.preset.name, seconds.middle, cost)


def row(there: OnCluster, failures: Failures | None) -> Row:
    """The row of one cluster. Raises ConfigError where the file of prices has nonsense in it."""
    taken, asked = there.taken, there.asked
    if taken is None or taken.seconds is None:
        return Row(on=there, total=None, money=None)
    gpu, ranks = asked.cluster.gpu, taken.layout.ranks
    if asked.tokens is None:
        step = total(1, taken.seconds, ranks, taken.nodes, gpu, None)
        return Row(on=there, total=None, money=money_of(step, taken.nodes, ranks, gpu))
    whole = total(asked.tokens / asked.work.tokens, taken.seconds, ranks, taken.nodes, gpu, failures, asked.boot)
    return Row(on=there, total=whole, money=money_of(whole, taken.nodes, ranks, gpu))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """All of it."""

    asked: Experiment
    rows: list[Row]
    failed: History
    launch: Launch | None
    """None where the training fits on none."""

    def launched_by(self, launch: Launch) -> Answer:
        return replace(self, launch=launch)

    @property
    def options(self) -> list[choice.Option]:
        return [option for row in self.rows if (option := row.option) is not None]

    @property
    def taken(self) -> Row | None:
        """The row to take."""
        best = choice.chosen(self.options)
        return None if best is None else next(row for row in self.rows if row.option == best)

    @property
    def front(self) -> list[str]:
        return [option.name for option in choice.front(self.options)]

    @property
    def why(self) -> str | None:
        """Why that one, in words."""
        best, some = choice.chosen(self.options), self.options
        if best is None:
            return None
        if len(some) == 1:
            return "the only one on which the training fits" if len(self.rows) > 1 else "no other one was compared"
        if best.cost is None:
            return "the fastest; without prices nothing else counts"
        priced = [one for one in some if one.cost is not None]
        if len(priced) == 1:
            return "the only one with a known price"
        within = f"within {choice.MORE_MONEY:.0%} of the least money"
        if min(priced, key=lambda one: one.seconds) == best:
            return f"the fastest, and {within}"
        return f"the fastest of those {within}"

    @property
    def notes(self) -> list[str]:
        """What was assumed, and what is missing."""
        notes = ["step times are 90 % intervals of formulas, corrected by earlier runs where these had the same GPU"]
        notes.append(self._of_failures())
        if self.asked.tokens is None:
            notes.append("plan.tokens is not set: no time and money of the whole training; the choice goes by a step")
        notes += _of_prices(self.rows)
        notes += _of_data([row.on.preset for row in self.rows])
        notes.append("a save: all nodes write an equal part, and no other job writes")
        notes += [
            f"{row.on.preset.name}: a checkpoint is larger than its file system"
            for row in self.rows
            if row.on.save is not None and not row.on.save.fits
        ]
        if self.launch is not None and self.launch.problem is not None:
            notes.append(self.launch.problem)
        return notes

    def _of_failures(self) -> str:
        if self.failed.rate is not None:
            return "restarts are those of your own runs, on whatever cluster these were"
        return f"times are without restarts: your runs tell of {self.failed.failures} failures, and {LEAST} make a rate"

    def as_json(self) -> dict[str, Any]:
        """The keys are those of `slurmopt.commands.plan.cluster.main`."""
        asked, taken, front = self.asked, self.taken, self.front
        names = ("sequence", "global_batch", "precision", "optimizer")
        return {
            "model": {"name": asked.model.name, "parameters": asked.model.parameters},
            "work": {name: getattr(asked.work, name) for name in names},
            "clusters": [
                _of_preset(row.on.preset) | _of_shape(row) | {"front": row.on.preset.name in front}
                for row in self.rows
            ],
            "chosen": None if taken is None else taken.on.preset.name,
            "why": self.why,
            "launch": None if self.launch is None else self.launch.words,
            "notes": self.notes,
        }  # fmt: skip


def _of_prices(rows: list[Row]) -> list[str]:
    moneys = [row.money for row in rows if row.money is not None]
    told = dict.fromkeys(f"prices of {money.date}: {money.source}" for money in moneys)
    missing = dict.fromkeys(row.no_price for row in rows if row.no_price is not None)
    where = ["a price is that of the kind of GPU, wherever it stands: put what your own clusters cost into your file"]
    return [
        *told,
        *(where if told else []),
        *(f"{reason}; SLURMOPT_PRICES names a file with yours" for reason in missing),
    ]


def _of_data(presets: list[Preset]) -> list[str]:
    """The numbers that no source has: key → the clusters of which that holds."""
    assumed: dict[str, list[str]] = {}
    for preset in presets:
        for key in preset.assumed:
            assumed.setdefault(key, []).append(preset.name)
    return [f"assumed: {key} of {', '.join(names)}" for key, names in assumed.items()]


def _of_preset(preset: Preset) -> dict[str, Any]:
    network, topology, storage = preset.network, preset.topology, preset.storage
    return {
        "name": preset.name,
        "size": preset.size,
        "profile": preset.profile,
        "instance": preset.node.instance,
        "gpu": preset.node.gpu.name,
        "cluster_nodes": preset.nodes,
        "cluster_gpus": preset.gpus,
        "network": {"kind": network.kind, "gbits": network.gbits},
        "topology": {name: getattr(topology, name) for name in ("kind", "tiers", "oversubscription")},
        "storage": {name: getattr(storage, name) for name in ("kind", "write", "capacity")},
        "nvme": None if preset.nvme is None else preset.nvme.capacity,
        "bisection": bisection(preset),
        "network_of_gpu": network_of_gpu(preset),
        "sources": dict(preset.sources),
        "assumed": list(preset.assumed),
    }


_SHAPE = (
    "nodes", "gpus", "data", "tensor", "pipeline", "strategy", "micro_batch", "recompute", "fits", "step",
    "tokens_per_second", "bisection_of_nodes", "save", "run", "gpu_hours", "kwh", "money", "no_price", "overrides",
)  # fmt: skip


def _of_shape(row: Row) -> dict[str, Any]:
    shape, whole, saved = row.on.taken, row.total, row.on.save
    if shape is None or shape.seconds is None or saved is None:
        return {"why_not": row.on.why_not, **dict.fromkeys(_SHAPE)}
    tokens = row.on.asked.work.tokens
    return {
        "why_not": None,
        "nodes": shape.nodes,
        "gpus": shape.layout.ranks,
        **{name: getattr(shape.layout, name) for name in ("data", "tensor", "pipeline", "micro_batch", "recompute")},
        "strategy": shape.strategy,
        "fits": shape.fits,
        "step": _ends(shape.seconds),
        "tokens_per_second": [tokens / shape.seconds.high, tokens / shape.seconds.low],
        "bisection_of_nodes": bisection(row.on.preset, shape.nodes),
        "save": _of_save(asdict(saved)),
        "run": None if whole is None else _ends(whole.seconds),
        "gpu_hours": None if whole is None else _ends(whole.gpu_hours),
        "kwh": None if whole is None else _ends(whole.kwh),
        "money": None if row.money is None or whole is None else row.money.as_json(),
        "no_price": row.no_price,
        "overrides": row.on.asked.overrides(shape),
    }


def _of_save(saved: Mapping[str, Any]) -> dict[str, Any]:
    return {"bytes": saved["size"], **{name: saved[name] for name in ("seconds", "limit", "fits")}}


def _ends(each: Range) -> list[float]:
    return [each.low, each.high]
