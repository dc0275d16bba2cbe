"""What runs cost: their device-hours at a dated price, their energy, and CO2 where a factor is stated."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from slurmopt.errors import ConfigError
from slurmopt.ledger.energy import energy
from slurmopt.ledger.prices import Prices
from slurmopt.report.run.price_file import read_prices
from slurmopt.report.run.run_report import Cost
from slurmopt.run_folder.json_values import text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series.series import Series, first_facts

_JOULES = 3.6e6
_MOST_MEASURED = 0.99


def known_prices() -> tuple[Prices | None, list[str]]:
    """The prices; where their file cannot be used, None and why."""
    try:
        return read_prices(), []
    except ConfigError as error:
        return None, [f"no price is known: {error}"]


def cost_of(
    prices: Prices | None, device: str | None, unit: str, device_seconds: float, when: float | None
) -> tuple[Cost, list[str]]:
    """The cost of device time, and notes. `device`: the name of the GPUs; `when`: seconds since the epoch."""
    if prices is None or not device_seconds:
        return Cost(), []
    hours = device_seconds / 3600
    if unit == "CPU":
        if prices.cpu_per_hour is None:
            return Cost(), []
        return Cost(hours * prices.cpu_per_hour, prices.currency, prices.cpu_per_hour, "of a CPU"), []
    if device is None:
        return Cost(), ["no price is known: nothing tells which GPUs it had; resources.gpu_type names them"]
    price = prices.price_of(device, time.strftime("%Y-%m-%d", time.gmtime(when)))
    if price is None:
        return Cost(), [f"no price is known of {device}; SLURMOPT_PRICES names a file with yours"]
    source = f"{price.source}, {price.date}"
    return Cost(hours * price.per_hour, price.currency, price.per_hour, source), []


def with_energy(
    cost: Cost, prices: Prices | None, series: Iterable[Series], device_seconds: float
) -> tuple[Cost, list[str]]:
    """The cost with the energy of the GPUs, and notes."""
    used = energy(series)
    if used is None:
        return cost, []
    factor = None if prices is None else prices.co2_kg_per_kwh
    share = used.share_of(round(device_seconds * 1000))
    notes = (
        []
        if share >= _MOST_MEASURED
        else [f"the energy is of {100 * share:.0f} % of the time; of the rest it was not measured"]
    )
    if factor is not None and prices is not None:
        notes.append(f"CO2 at {factor:g} kg/kWh ({prices.co2_source})")
    return replace(cost, energy=used.kwh * _JOULES, co2=None if factor is None else used.co2(factor)), notes


def device_of(run: RunFolder) -> str | None:
    """The name of a run's GPUs, from the first header of a series of its latest attempt that has one."""
    for attempt in reversed(run.attempts()):
        for node in run.nodes_with_series(attempt)[:1]:
            name = _name(first_facts(run.series(attempt, node), run.recent_series(attempt, node)) or {})
            if name is not None:
                return name
    return None


def _name(facts: dict[str, object]) -> str | None:
    gpus = facts.get("gpus")
    first = gpus[0] if isinstance(gpus, list) and gpus else None
    return text(first.get("name")) if isinstance(first, dict) else None
