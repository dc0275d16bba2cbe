"""Writes numbers for people: hours, shares, money, and readings with their units."""

from __future__ import annotations

import time

from slurmopt.report.run.run_report import COLUMNS, Accounting, Cost, Planned, Reading, RunReport
from slurmopt.units import human_bytes, human_count, human_seconds

_HOUR = 3600.0


def hours(seconds: float) -> str:
    """Hours: `12,345`, `1,234.5`, `56.7`, `0.0123`."""
    count = seconds / _HOUR
    if count >= 1:
        return f"{count:,.0f}" if count >= 10_000 else f"{count:,.1f}"
    return f"{count:.4f}"[:6] if count >= 5e-5 or count == 0 else "<.0001"


def count(value: float) -> str:
    """Three digits and no exponent: `1,300,000`, `123`, `0.62`."""
    return human_count(value)


def percent(share: float) -> str:
    """A share of 0 to 1: `61.2 %`. What is not zero is never shown as zero."""
    if 0 < share < 0.0005:
        return "<0.1 %"
    return f"{share:.1%}".replace("%", " %")


def span(seconds: float) -> str:
    """A duration; with tenths of a second below ten seconds."""
    return f"{seconds:.1f}s" if seconds < 10 else human_seconds(seconds)


def moment(when: float | None) -> str:
    """Date and time of day, in local time; `?` where that is not known."""
    if when is None:
        return "?"
    try:
        return time.strftime("%b %d %H:%M:%S", time.localtime(when))
    except (ValueError, OverflowError, OSError):  # no year of the calendar
        return "?"


def reading(value: Reading, key: str) -> str:
    """A reading of a column of the table of nodes; the word itself where there is no number."""
    return value if isinstance(value, str) else quantity(value, COLUMNS[key].unit)


def quantity(value: float, unit: str) -> str:
    """A number with its unit, one of `Column.unit`."""
    if unit == "percent":
        return percent(value)
    if unit == "bytes":
        return human_bytes(value)
    if unit == "seconds":
        return span(value)
    return {"watts": f"{value:.0f} W", "celsius": f"{value:.0f} °C"}.get(unit) or count(value)


def money(amount: float, currency: str | None) -> str:
    """`$1,234`, `12.30 EUR`."""
    count = f"{amount:,.0f}" if abs(amount) >= 1000 else f"{amount:,.2f}"
    return f"${count}" if currency == "USD" else f"{count} {currency or ''}".rstrip()


def time_unit(total: float) -> str:
    """What device time is counted in where there are so many seconds of it in all: `hours`, or `seconds` of a run that
    took minutes."""
    return "seconds" if 0 < total < 360 else "hours"


def amount(seconds: float, unit: str) -> str:
    """Seconds in that unit: `1,234.5`, `0.83`."""
    return hours(seconds) if unit == "hours" else f"{seconds:.1f}" if seconds >= 10 else f"{seconds:.2f}"


def device_time(seconds: float, unit: str) -> str:
    """`11,708 GPU-hours`, `6.50 CPU-seconds`. `unit`: GPU or CPU."""
    counted = time_unit(seconds)
    return f"{amount(seconds, counted)} {unit}-{counted}"


def planned(found: Planned | None) -> str:
    """How right the plan was: `peak 41.2 GiB, planned 33.5 GiB to 52.8 GiB; step 1.02 s, planned 0.9 s to 1.6 s`."""
    if found is None:
        return ""
    parts = []
    if found.peak is not None:
        low, high = map(human_bytes, found.planned_peak)
        parts.append(f"peak {human_bytes(found.peak)}, planned {low} to {high}")
    if found.step is not None:
        parts.append(f"step {found.step:.3g} s, planned {found.planned_step[0]:.3g} to {found.planned_step[1]:.3g} s")
    return "; ".join(parts)


def checked(found: Accounting | None) -> str:
    """What Slurm's accounting says: `Slurm charged 12.0 GPU-hours, 0.1 % more than the ledger has`."""
    if found is None:
        return ""
    told = f"Slurm charged {device_time(found.charged, found.unit)}"
    if not found.counted or found.difference == 0:
        return f"{told}, as the ledger has" if found.difference == 0 else told
    return f"{told}, {percent(abs(found.difference) / found.counted)} {_than(found.difference)} than the ledger has"


def _than(difference: float) -> str:
    return "more" if difference > 0 else "less"


def cost_of(known: Cost, seconds: float, unit: str) -> str:
    """What device time costs, with the price and where that is from; the time alone where no price is known."""
    time_used = device_time(seconds, unit)
    if known.amount is None:
        return f"{time_used}; no price is known"
    each = f" at {money(known.per_hour, known.currency)} an hour" if known.per_hour is not None else ""
    source = f" ({known.source})" if known.source else ""
    return f"{money(known.amount, known.currency)}: {time_used}{each}{source}"


def energy(known: Cost) -> str:
    """`812 kWh, 320 kg CO2`; "" where neither is known."""
    parts = [kilowatt_hours(known.energy) if known.energy is not None else ""]
    parts.append(f"{count(known.co2)} kg CO2" if known.co2 is not None else "")
    return ", ".join(filter(None, parts))


def kilowatt_hours(joules: float) -> str:
    """`812 kWh`."""
    return f"{count(joules / 3.6e6)} kWh"


def hardware(report: RunReport) -> str:
    """`128 NVIDIA H100 80GB HBM3 on 16 nodes`."""
    nodes = "" if report.nodes is None else f"{report.nodes} node{'' if report.nodes == 1 else 's'}"
    if not report.devices:
        return nodes
    name = report.device or (f"{report.unit}s" if report.devices > 1 else report.unit)
    return f"{report.devices:g} {name}{' on ' if nodes else ''}{nodes}"


def steps(report: RunReport) -> str:
    """`120,000 of 500,000`."""
    if report.step is None:
        return ""
    return f"{report.step:,}" + (f" of {report.total_steps:,}" if report.total_steps is not None else "")


def speed(report: RunReport) -> str:
    """`0.41 steps/s, 1,200,000 tokens/s, MFU 41.0 %`."""
    parts = [f"{count(report.step_rate)} steps/s" if report.step_rate is not None else ""]
    parts += [f"{count(value)} {name}/s" for name, value in report.rates.items() if name in ("tokens", "samples")]
    parts.append(f"{count(report.rates['flops'] / 1e12)} TFLOP/s" if "flops" in report.rates else "")
    parts += [f"{name.upper()} {percent(report.rates[name])}" for name in ("mfu", "hfu") if name in report.rates]
    return ", ".join(filter(None, parts))
