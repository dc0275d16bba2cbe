"""What is wrong after a disturbed command was repeated: folder and Slurm, read here without the code under test."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chaos_runs.calls.workplace import Job, Workplace

Judge = Callable[[Workplace], Iterator[str]]


def run(minutes: str) -> Judge:
    """Exactly one job for a/one, which the journal tells of, with this time limit everywhere."""

    def judge(place: Workplace) -> Iterator[str]:
        folder, jobs = place.runs / "a" / "one", place.jobs()
        if len(jobs) != 1:
            yield f"{len(jobs)} jobs are queued: {[job.id for job in jobs]}"
        if not (folder / "events.jsonl").exists():
            yield "there is no run folder"
            return
        token, job = _last(folder)
        if jobs and (job, token) not in [(each.id, each.comment) for each in jobs]:
            yield f"the journal has job {job} with {token}, Slurm {[(each.id, each.comment) for each in jobs]}"
        yield from _limits(folder, jobs, minutes)

    return judge


def sweep(minutes: str) -> Judge:
    """Each point of s/one in exactly one queued array task, which the journal and sweep.json tell of, or waiting."""

    def judge(place: Workplace) -> Iterator[str]:
        folder, jobs = place.runs / "s" / "one", place.jobs()
        if not (folder / "events.jsonl").exists():
            yield "there is no sweep folder"
            return
        yield from _points(folder, jobs)
        yield from _limits(folder, jobs, minutes)

    return judge


def point(minutes: str) -> Judge:
    """The one point of s/one in exactly one queued array task, which its own journal tells of too."""

    def judge(place: Workplace) -> Iterator[str]:
        yield from sweep(minutes)(place)
        _, told = _last(place.runs / "s" / "one" / "points" / "00000")
        tasks = [f"{job.id}_{task}" for job in place.jobs() for task in sorted(job.tasks)]
        if tasks != [told]:
            yield f"the point's journal has job {told}, Slurm {tasks}"

    return judge


def cancelled(label: str) -> Judge:
    """Nothing is queued, and `slurmopt status` says so."""

    def judge(place: Workplace) -> Iterator[str]:
        if jobs := place.jobs():
            yield f"still queued: {[job.id for job in jobs]}"
        said = place.slurmopt(["status", label, "--json"])
        (found,) = json.loads(said.out)["data"]
        if found["state"] != "cancelled":
            yield f"slurmopt status says {found['state']}"

    return judge


def throttled(at_once: int) -> Judge:
    """All of s/one is queued as it was, with this limit in Slurm and in the config."""

    def judge(place: Workplace) -> Iterator[str]:
        folder = place.runs / "s" / "one"
        yield from sweep("5:00")(place)
        limits = {job.throttle for job in place.jobs()}
        if limits != {at_once}:
            yield f"Slurm's limits are {limits}"
        if f"at_once: {at_once}\n" not in (folder / "config.yaml").read_text():
            yield "config.yaml has another sweep.at_once"

    return judge


def events(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of a journal."""
    found: list[dict[str, Any]] = []
    journal = folder / "events.jsonl"
    for line in journal.read_text().splitlines() if journal.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:  # torn by the fault
            continue
    return found


def _last(folder: Path) -> tuple[str | None, str | None]:
    """The latest submission's token and job."""
    tried = [event for event in events(folder) if event["event"] == "submitting"]
    token = tried[-1]["token"] if tried else None
    jobs = [event["job"] for event in events(folder) if event["event"] == "submitted" and event["token"] == token]
    return token, jobs[-1] if jobs else None


def _limits(folder: Path, jobs: list[Job], minutes: str) -> Iterator[str]:
    if wrong := [f"{job.id}: {job.minutes}" for job in jobs if job.minutes != minutes]:
        yield f"time limits in Slurm: {', '.join(wrong)}; expected: {minutes}"
    seconds = int(minutes.partition(":")[0]) * 60
    for name, pattern in (("config.yaml", r"^  time: '?([\w:]+)'?$"), ("job.sbatch", r"^#SBATCH --time=(\S+)$")):
        found = re.search(pattern, (folder / name).read_text(), re.MULTILINE)
        if found is None or _seconds(found[1]) != seconds:
            yield f"{name} has the time limit {found and found[1]}; expected: {minutes}"
    supervisor = folder / "supervisor.sh"
    text = supervisor.read_bytes() if supervisor.exists() else b""
    if hashlib.sha256(text).hexdigest() not in (folder / "job.sbatch").read_text():
        yield f"job.sbatch does not hold the SHA-256 of supervisor.sh, which has {len(text)} bytes"


def _seconds(text: str) -> int:
    if text.endswith("m"):
        return int(text[:-1]) * 60
    hours, of_hour, of_minute = map(int, text.split(":"))
    return hours * 3600 + of_hour * 60 + of_minute


def _points(folder: Path, jobs: list[Job]) -> Iterator[str]:
    tried = {event["token"]: event for event in events(folder) if event["event"] == "submitting"}
    taken = {event["token"]: event["job"] for event in events(folder) if event["event"] == "submitted"}
    queued: Counter[int] = Counter()
    for job in jobs:
        if taken.get(job.comment) != job.id:
            yield f"Slurm has job {job.id} with {job.comment}, and the journal has {taken.get(job.comment)} for that"
        points = _spans(str(tried.get(job.comment, {}).get("points", "")))
        queued.update(points)
        if len(points) != len(job.tasks):
            yield f"job {job.id} has {len(job.tasks)} tasks for the points {points}"
    count = next(int(event["points"]) for event in events(folder) if event["event"] == "created")
    missing = sorted(set(range(count)) - set(queued))
    if missing and not (folder / "more").exists():
        yield f"points {missing} are in no job, and nothing waits"
    if twice := [point for point, times in queued.items() if times > 1]:
        yield f"points {twice} are in more than one job"
    if not jobs:
        yield "nothing is queued"
    told = {one["token"]: one["job"] for one in json.loads((folder / "sweep.json").read_text())["submissions"]}
    if told != taken:
        yield f"sweep.json has {told}, the journal {taken}"


def _spans(text: str) -> list[int]:
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
