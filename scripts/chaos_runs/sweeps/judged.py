"""What became of a sweep, from its folder alone: journals are read here without the code under test."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos_runs.sweeps.point import score
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.records import Records
from slurmopt.grid.submissions import Submission, read
from slurmopt.run_folder.sweep_layout import SweepFolder


@dataclass
class Judged:
    """What is wrong, and what was counted on the way."""

    wrong: list[tuple[int | None, str]] = field(default_factory=list)
    """A point, None where it is the whole sweep, and what is wrong."""
    causes: collections.Counter[str] = field(default_factory=collections.Counter)
    attempts: int = 0
    submissions: int = 0
    idle: int = 0
    """Attempts of points that had finished before, which Slurm started all the same; nothing ran in them."""
    again: int = 0
    """Points whose user code came to its end more than once: it died before anybody could note that."""

    def miss(self, text: str, point: int | None = None) -> None:
        self.wrong.append((point, text))


def judge(sweep: SweepFolder, count: int, record: list[dict[str, Any]], again: bool = False) -> Judged:
    """`record`: what the points said themselves; `again`: whether `slurmopt tend` has submitted points once more."""
    found = Judged()
    submissions = read(sweep.sweep_file)
    found.submissions = len(submissions)
    _whole_lines(sweep, found)
    _agreement(sweep, count, submissions, again, found)
    _all_there(sweep, count, found)
    for point in range(count):
        _point(sweep, point, submissions, found)
    for one in submissions:
        if one.packed:
            _tasks(sweep, one, found)
    _record(sweep, record, found)
    return found


def _record(sweep: SweepFolder, record: list[dict[str, Any]], found: Judged) -> None:
    """What user code said itself."""
    done: collections.Counter[int] = collections.Counter(line["point"] for line in record if line["said"] == "done")
    found.again = sum(count > 1 for count in done.values())
    for line in record:
        if line["said"] == "overlap":
            found.miss(f"attempt {line['attempt']} ran beside another one: {line['other']}", line["point"])
    for point in sorted({line["point"] for line in record}):
        ends = [event for event in Records(sweep).journal(point) if event["event"] == "end"]
        finished = min((end["time"] for end in ends if end.get("next") is None), default=float("inf"))
        late = [line for line in record if line["point"] == point and line["time"] > finished + 1]
        if late:
            found.miss(f"user code ran in attempt {late[0]['attempt']}, after its final end", point)


def journal(path: Path) -> list[dict[str, Any]]:
    """Its whole lines."""
    return [event for _, event in _lines(path) if event is not None]


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        yield line, event if isinstance(event, dict) and "event" in event else None


def _whole_lines(sweep: SweepFolder, found: Judged) -> None:
    for path in (sweep.events, *sweep.points.glob("*/events.jsonl"), *sweep.tasks.glob("**/events.jsonl")):
        torn = [line for line, event in _lines(path) if event is None]
        if torn:
            found.miss(f"{path.relative_to(sweep.path)}: {len(torn)} torn lines, the first is {torn[0][:200]!r}")


def _agreement(sweep: SweepFolder, count: int, submissions: list[Submission], again: bool, found: Judged) -> None:
    """sweep.json and the sweep's journal tell of the same jobs, and each point is in one of them."""
    if sweep.more.exists():
        found.miss(f"`more` is still there: {sweep.more.read_text()!r}")
    tried = {event["token"]: event for event in journal(sweep.events) if event["event"] == "submitting"}
    taken = {event["token"]: event["job"] for event in journal(sweep.events) if event["event"] == "submitted"}
    told = [(one.token, one.job, str(one.points)) for one in submissions]
    noted = [(token, job, str(tried.get(token, {}).get("points"))) for token, job in taken.items()]
    if told != noted:
        found.miss(f"sweep.json has {told}, and the journal {noted}")
    together = Ranges(span for one in submissions for span in one.points.spans)
    if missing := Ranges([(0, count - 1)]).difference(together):
        found.miss(f"points {missing} are in no array job")
    if not again and (twice := sum(len(one.points) for one in submissions) - len(together)):
        found.miss(f"{twice} points are in more than one array job")


def _all_there(sweep: SweepFolder, count: int, found: Judged) -> None:
    there = {path.name for path in sweep.points.iterdir()} if sweep.points.exists() else set()
    wanted = {f"{point:05d}" for point in range(count)}
    records = Records(sweep)
    missing = [name for name in sorted(wanted - there) if records.latest(int(name)) is None]
    for name in missing[:20]:
        found.miss("has no records", int(name))
    if strange := sorted(there - wanted):
        found.miss(f"points/ has {', '.join(strange)} beside")


def _point(sweep: SweepFolder, point: int, submissions: list[Submission], found: Judged) -> None:
    events = Records(sweep).journal(point)
    ends = [event for event in events if event["event"] == "end"]
    attempts = [event["attempt"] for event in events if event["event"] == "attempt"]
    found.attempts += len(attempts)
    found.causes.update(str(end.get("cause")) for end in ends)
    final = [end for end in ends if end.get("next") is None]
    final = final[:1] + [end for end in final[1:] if not _repeats(end, final[0], found)]
    if len(final) != 1 or final[0].get("outcome") != "finished":
        said = [f"attempt {end['attempt']} {end.get('outcome')} by {end.get('cause')}" for end in final]
        found.miss(f"{len(final)} final ends: {'; '.join(said) or 'none'}; expected: one, finished", point)
    elif final[0].get("result", {}).get("score") != score(point):
        found.miss(f"the result is {final[0].get('result')}; expected: score {score(point)}", point)
    if attempts != sorted(set(attempts)):  # one may be missing: its shell was killed before it could say a word
        found.miss(f"its attempts are {attempts}", point)
    counted = collections.Counter(end["attempt"] for end in ends)
    if wrong := [attempt for attempt in attempts if counted[attempt] != 1]:
        found.miss(f"attempts {wrong} have not one end each", point)
    if final and any(end.get("next") is not None for end in ends[ends.index(final[0]) :]):
        found.miss("it came back after its final end", point)
    _jobs(events, point, submissions, found)


def _repeats(end: dict[str, Any], first: dict[str, Any], found: Judged) -> bool:
    """Slurm has started again what had finished, and nothing ran: the end of that attempt repeats the final one."""
    if not str(end.get("reason")).startswith("nothing was left to do"):
        return False
    found.idle += 1
    return all(end.get(name) == first.get(name) for name in ("outcome", "cause", "result", "metrics", "step"))


def _jobs(events: list[dict[str, Any]], point: int, submissions: list[Submission], found: Judged) -> None:
    """Each attempt was that of an array task that sweep.json gives the point to."""
    mine = {f"{one.job}_{one.task_of(point)}" for one in submissions if one.task_of(point) is not None}
    strange = sorted({str(event["job"]) for event in events if event["event"] == "attempt"} - mine)
    if strange:
        found.miss(f"it ran as {', '.join(strange)}, and sweep.json has it in {', '.join(sorted(mine))}", point)


def _tasks(sweep: SweepFolder, one: Submission, found: Judged) -> None:
    """The journal of each array task tells of each of its points once, and what the point's own tells."""
    for task in range(one.size):
        events = journal(sweep.task(one.number, task).events)
        ended = [e for e in events if e["event"] == "point" and e["state"] == "ended" and e["next"] is None]
        counted = collections.Counter(event["point"] for event in ended)
        wanted = list(one.points_of(task))
        for point in wanted:
            if counted[point] != 1:
                found.miss(f"{counted[point]} final ends in the journal of tasks/{one.number}-{task}", point)
        if strange := sorted(set(counted) - set(wanted)):
            found.miss(f"tasks/{one.number}-{task} tells of points {strange}, which it has not")
        _same(sweep, f"tasks/{one.number}-{task}", ended, found)


def _same(sweep: SweepFolder, task: str, ended: list[dict[str, Any]], found: Judged) -> None:
    for event in ended:
        own = [e for e in Records(sweep).journal(event["point"]) if e["event"] == "end" and e["next"] is None]
        fields = ("outcome", "cause", "result", "metrics", "step")
        if own and any(own[0].get(name) != event.get(name) for name in fields):
            found.miss(f"{task} and the point's own journal tell different ends", event["point"])


def answers(count: int, status: dict[str, Any], results: dict[str, Any], found: Judged) -> None:
    """What `slurmopt status --json` and `slurmopt results --json` say."""
    if status["states"] != {"finished": count}:
        found.miss(f"slurmopt status says {status['states']}")
    rows = {row["point"]: row for row in results["rows"]}
    if len(results["rows"]) != count or set(rows) != set(range(count)):
        found.miss(f"slurmopt results has {len(results['rows'])} rows of {len(rows)} points; expected: {count}")
    for point, row in rows.items():
        if row["state"] != "finished" or row["metrics"].get("score") != score(point):
            found.miss(f"slurmopt results says {row['state']}, {row['metrics']}", point)
