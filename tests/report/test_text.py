"""A report at the terminal: its order, its bars, and that a reading which is missing is not a zero."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from report.sample_reports import HOUR, report

from slurmopt.ledger import buckets
from slurmopt.report.output import terminal, text
from slurmopt.report.run.run_report import RunReport, Share, Usage


def shown(of: RunReport, width: int = 80) -> str:
    return terminal.plain(text.lines(of, width))


def test_the_sections_come_in_the_order_in_which_people_read() -> None:
    page = shown(report())
    titles = [
        "llama-7b/20251113",
        "Where 3,919.0 GPU-hours went",
        "Use of what",
        "Nodes",
        "Attempts",
        "Findings",
        "Notes",
    ]
    places = [page.index(title) for title in titles]
    assert places == sorted(places)


def test_no_line_is_wider_than_the_terminal_but_paths_and_overrides() -> None:
    for width in (80, 110):
        wide = [line for line in shown(report(), width).splitlines() if len(line) > width]
        assert all("(median" in line for line in wide), wide


def test_bars_are_as_long_as_their_shares() -> None:
    total = 8 * HOUR
    of = report()
    of.shares = [
        Share(buckets.COMPUTE, total / 2, 0.5),
        Share(buckets.LOST, total / 2 - 1, 0.5),
        Share("tiny", 1, 1e-5),
    ]
    bars = re.findall(r"\[([█▏▎▍▌▋▊▉ ]+)\]", shown(of).split("Use of")[0])
    assert bars[0].count("█") in (len(bars[0]) // 2, len(bars[0]) // 2 + 1)
    assert bars[0] == bars[1]
    assert bars[2].strip() == "▏", "what is not zero is seen"


def test_buckets_without_time_are_not_shown() -> None:
    assert buckets.UNUSED not in shown(report()).split("Use of")[0]


@pytest.mark.parametrize("why", ["not supported", "not allowed", "not measured"])
def test_a_missing_reading_says_why_and_is_no_zero(why: str) -> None:
    of = report()
    of.usage = [Usage("SM activity", why, why), Usage("GPU activity", 0.0, "0.0 %")]
    missing, zero = (line for line in shown(of).splitlines() if "activity " in line and "[" in line)
    assert why in missing
    assert "0 %" not in missing
    assert zero.endswith("0.0 %")


def test_the_slow_node_is_the_first_and_says_why() -> None:
    nodes = shown(report()).split("Nodes")[1].split("Attempts")[0].splitlines()
    assert nodes[2].startswith("  node1")
    assert "GPU activity 61 % (median 84 %)" in nodes[2]


def test_of_many_nodes_and_attempts_the_table_shows_a_few() -> None:
    of = report(nodes=100)
    of.attempts = [replace(of.attempts[0], number=number) for number in range(60)]
    page = shown(of)
    assert "the 20 oddest of 100" in page
    assert "the last 12 of 60" in page
    assert len(page.splitlines()) < 130


def test_findings_have_evidence_cost_and_one_change() -> None:
    findings = shown(report()).split("Findings")[1]
    assert "input-bound, certain: the GPUs wait for the data loader" in findings
    assert "costs 702.4\n" in findings or "702.4 GPU-hours" in findings.replace("\n    ", " ")
    assert "→ +data.num_workers=24" in findings


def test_what_could_not_be_judged_is_a_note() -> None:
    assert "not judged: leak; missing: an hour of series" in shown(report())


def test_escapes_of_hostile_names_do_not_reach_the_terminal() -> None:
    of = report()
    of.label = of.experiment = "x\x1b[31m\n/1"
    of.node_rows = [replace(of.node_rows[0], node="n\x1b]0;title\x07")]
    of.attempts = [replace(of.attempts[1], error="\x1b[2J\nboom")]
    of.notes = ["a\rb"]
    page = shown(of)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", page)
    assert "boom" in page


def test_a_run_of_minutes_is_counted_in_seconds() -> None:
    of = RunReport("quick/1", "finished", unit="CPU", device_seconds=124.0, shares=[Share("compute", 124.0, 1.0)])
    assert "Where 124.0 CPU-seconds went" in shown(of)
    assert "124.0 s" in shown(of)


def test_a_run_that_never_started_has_a_header_alone() -> None:
    page = shown(RunReport("new/1", "pending", detail="waits for resources", created=1.7e9))
    assert page.startswith("new/1  pending: waits for resources")
    assert "Where" not in page


def test_an_ascii_terminal_gets_bars_of_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ascii:
        encoding = "ascii"

    monkeypatch.setattr("sys.stdout", Ascii())
    assert terminal.encodable("[███▌  ] → 1 ─") == "[||||  ] > 1 -"


def test_colours_are_left_out_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    lines = text.lines(report(), 80)
    assert "\x1b[32m" in terminal.styled(lines)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in terminal.styled(lines)
