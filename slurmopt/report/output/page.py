"""A report as one HTML page that needs nothing else: no network, light and dark, keyboard, screen readers, print."""

from __future__ import annotations

import base64
import functools
import hashlib
import math
from collections.abc import Iterable
from importlib import resources
from typing import TYPE_CHECKING, Any

from slurmopt import __version__
from slurmopt.errors import one_line
from slurmopt.report.output import pictures, rollup_text, text
from slurmopt.report.rollup import RollUp
from slurmopt.report.run import words
from slurmopt.report.run.run_report import COLUMNS, Panel, RunReport

if TYPE_CHECKING:
    import jinja2

MOST_ATTEMPTS = 256
"""On the page; the others are in `--json`."""
MOST_NODES = 256
"""Rows of the table of nodes; the others are in `--json`."""
_TABLE_ROWS = 25
_LONGEST = 4000
"""Characters of a line."""
_VENDORED = ("echarts.js",)
"""Made by scripts/charts/build."""
_GOOD = ("finished",)
_SITE = ("preemption", "requeued", "time limit", "asked", "cancelled")


def page_of(report: RunReport | RollUp) -> str:
    """The page of a run, or of many."""
    return run_page(report) if isinstance(report, RunReport) else rollup_page(report)


def rollup_page(report: RollUp) -> str:
    """The page of many runs together."""
    return render(
        "rollup.html.j2",
        report=report,
        facts=rollup_text.facts(report),
        shares=[share for share in report.shares if share.seconds > 0],
        counted=words.time_unit(report.device_seconds),
        members=[member for member in report.members if member.device_seconds][:MOST_NODES],
    )


def run_page(report: RunReport) -> str:
    """The page of one run."""
    panels = [pictures.thinned(panel) for panel in report.panels if panel.times]
    keys = [key for key in COLUMNS if any(not isinstance(report.reading(row, key), str) for row in report.node_rows)]
    return render(
        "report.html.j2",
        report=report,
        facts=text.facts(report),
        notes=text.notes(report),
        shares=[share for share in report.shares if share.seconds > 0],
        time_line=pictures.time_line(report.attempts[-MOST_ATTEMPTS:], report.now),
        pictures=[pictures.picture(panel) for panel in panels],
        axis=pictures.ticks(panels[0].times[0], panels[0].times[-1]) if panels else (),
        cursor=[_cursor(panel) for panel in panels],
        columns={key: COLUMNS[key] for key in keys},
        rows=report.node_rows[:MOST_NODES],
        remarks=any(row.remark for row in report.node_rows),
        tiles=tiles(report),
        counted=words.time_unit(report.device_seconds),
    )


def tiles(report: RunReport) -> list[tuple[str, str, str]]:
    """The numbers that come first: value, what it is, and a remark."""
    useful = {share.bucket: share.share for share in report.shares}.get("compute")
    unit = words.time_unit(report.device_seconds)
    allocated = words.amount(report.device_seconds, unit)
    found = [(allocated, f"{report.unit}-{unit}", "so far" if report.provisional else "")]
    if useful is not None:
        found.append((words.percent(useful), "of them compute", ""))
    if report.cost.amount is not None:
        found.append((words.money(report.cost.amount, report.cost.currency), "cost", ""))
    if report.cost.energy is not None:
        found.append((words.kilowatt_hours(report.cost.energy), "energy", ""))
    if report.step_rate is not None:
        found.append((words.count(report.step_rate), "steps/s", ""))
    found.append((str(len(report.attempts)), "attempt" if len(report.attempts) == 1 else "attempts", ""))
    return [tile for tile in found if tile[0] != "0" or tile[1].startswith("attempt")]


def _cursor(panel: Panel) -> dict[str, Any]:
    """What the script shows at the cursor."""
    return {
        "unit": panel.unit,
        "times": [round(time) for time in panel.times],
        "lines": [[_short(value) for value in line.values] for line in panel.lines],
    }


def _short(value: float | None) -> float | None:
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


def cause_class(cause: str | None, running: bool) -> str:
    """The CSS class of an attempt's bar."""
    if running:
        return "runs"
    return "good" if cause in _GOOD else "site" if cause in _SITE else "bad"


def slug(name: str) -> str:
    """A bucket's name as a CSS class."""
    return "b-" + "".join(letter if letter.isalnum() else "-" for letter in name)


def shown(text: str) -> str:
    """Text of a run, which may be of megabytes, as one line of the page."""
    line = one_line(text)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"


def table_rows(panel: Panel) -> list[tuple[str, list[str]]]:
    """The curves of a panel as a short table: time, and the value of each line."""
    few = pictures.thinned(panel, _TABLE_ROWS)
    return [
        (
            words.moment(time),
            ["" if (value := line.values[index]) is None else words.quantity(value, few.unit) for line in few.lines],
        )
        for index, time in enumerate(few.times)
    ]


def render(
    template: str, styles: Iterable[str] = ("report.css",), scripts: Iterable[str] = ("report.js",), **values: Any
) -> str:
    """A page from a template, with these styles and scripts of the same folder in it."""
    style, script = ("\n".join(map(_template, names)) for names in (styles, scripts))
    return (
        _environment()
        .get_template(template)
        .render(**values, style=style, script=script, script_hash=_hash(script), version=__version__)
    )


def _hash(script: str) -> str:
    """The script's name in the page's Content-Security-Policy, which lets no other run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _template(name: str) -> str:
    folder = "vendored" if name in _VENDORED else "templates"
    return (resources.files("slurmopt.report.output") / folder / name).read_text(encoding="utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(one_line=shown, percent=words.percent, moment=words.moment, slug=slug, span=words.span)
    environment.globals.update(
        quantity=words.quantity, reading=words.reading, cause_class=cause_class, table_rows=table_rows,
        attempt_text=text.attempt_text, finding_cost=text.finding_cost,
        device_time=words.device_time, amount=words.amount, money=words.money,
    )  # fmt: skip
    return environment
