"""A sweep as its disturber sees it: where it runs, how it is launched, and the points' own record."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cluster import lifecycle, ports, settings
from cluster.errors import ClusterError

from chaos_runs.alive import words
from chaos_runs.survival.site import Missed, Site
from chaos_runs.survival.watched import Lines
from slurmopt.grid import submissions
from slurmopt.run_folder.sweep_layout import SweepFolder

NODES = 4
_STILL_SECONDS = 60.0
"""So long without a word of any point, and with an empty queue, and `slurmopt tend` is asked."""
_STUCK_SECONDS = 300.0


class SweepSite(Site):
    """A cluster whose arrays have at most `array_size` tasks."""

    def __init__(self, folder: Path, array_size: int) -> None:
        super().__init__(folder, 0, with_s3=False)
        self._array_size = array_size

    def _start(self) -> None:
        wanted = settings.Settings(
            nodes=NODES,
            gpus=0,
            max_array_size=self._array_size,
            first_port=ports.free_block(settings.ports_needed(NODES)),
            accounting=False,
            users=[],
            limits=False,
            cgroups=False,
        )
        lifecycle.start(self.layout, wanted)
        shutil.copy(Path(__file__).with_name("point.py"), self.project / "sweeps_point.py")
        (self.project / "alone").mkdir()


class WatchedSweep:
    """One sweep, launched under one ID however often."""

    def __init__(self, site: Site, count: int, words: list[str]) -> None:
        self.site, self.count = site, count
        self.folder = SweepFolder(site.shared / "runs" / "swept" / "mine")
        self.tended: list[str] = []
        """What was still to be done when `slurmopt tend` had to be asked."""
        self.strangers = 0
        """Jobs that Slurm was given beside the sweep's own."""
        self.record: list[dict[str, Any]] = []
        self.done: collections.Counter[int] = collections.Counter()
        self._running: dict[int, dict[str, Any]] = {}
        self._lines = Lines(site.project / "record.jsonl")
        self._last = time.monotonic()
        places = ["launch.name=swept", "launch.id=mine", f"launch.folder={site.shared}/runs"]
        self._launch = ["launch", "-m", "task._target_=sweeps_point.point", *places, *words]

    def launch(self) -> None:
        self.site.slurmopt(*self._launch)

    def launch_killed(self, moment: str | None, after: float) -> str:
        """Starts a launch and kills it so many seconds after a moment of its own; or finds that it was quicker."""
        argv, before = [sys.executable, "-m", "slurmopt", *self._launch], self._sign(moment)
        launcher = subprocess.Popen(
            argv, cwd=self.site.project, env=self.site._environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        while moment is not None and launcher.poll() is None and self._sign(moment) == before:
            time.sleep(0.002)
        when = f"{after:.2f} s after {moment or 'its start'}"
        try:
            said = launcher.communicate(timeout=after)[1]
        except subprocess.TimeoutExpired:
            launcher.kill()
            launcher.wait()
            return f"the launcher killed {when}"
        if launcher.returncode:
            raise Missed(f"a launch ended with status {launcher.returncode}: {said.decode()}")
        return f"the launcher had ended {when}"

    def _sign(self, moment: str | None) -> int:
        """Another number once a launch has come to this moment: a file written, or a word in the sweep's journal."""
        with contextlib.suppress(FileNotFoundError):
            if moment is not None and moment.endswith(".json"):
                return (self.folder.path / moment).stat().st_mtime_ns
            return self.folder.events.read_text().count(f'"event": "{moment}"')
        return 0

    def look(self) -> None:
        """Takes in what the points have said since."""
        for line in map(json.loads, self._lines.new()):
            self.record.append(line)
            self._last = time.monotonic()
            if line["said"] == "started":
                self._running[line["point"]] = line
            elif line["said"] in ("done", "left"):
                self._running.pop(line["point"], None)
                self.done[line["point"]] += line["said"] == "done"

    def running(self) -> list[dict[str, Any]]:
        """What those have said that run now."""
        self.look()
        return [line for _, line in sorted(self._running.items()) if b"slurmopt" in words(line["pid"])]

    def tasks(self) -> list[str]:
        """The sweep's array tasks that run."""
        return sorted(self.site.slurm("squeue", "-h", "--array", "-t", "R", "-o", "%i").split())

    def jobs(self) -> list[str]:
        """Its array jobs so far."""
        return [str(one.job) for one in submissions.read(self.folder.sweep_file)]

    def kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if b"slurmopt" in words(pid):
                os.kill(pid, signal.SIGKILL)

    def await_done(self, count: int, what: str) -> None:
        """Until so many points are done. A sweep that stands still is tended once a while, and given up in the end."""
        deadline = time.monotonic() + _STUCK_SECONDS
        while len(self.done) < count:
            before = self._last
            self.look()
            if self._last > before:
                deadline = time.monotonic() + _STUCK_SECONDS
            elif time.monotonic() > deadline:
                raise Missed(f"{what}: {len(self.done)} of {self.count} points are done, and nothing happens")
            elif time.monotonic() > self._last + _STILL_SECONDS and not self._queue():
                self.tend(what)
            time.sleep(0.1)

    def await_running(self, seconds: float) -> None:
        """Until some point runs, if one does in time."""
        deadline = time.monotonic() + seconds
        while not self.running() and len(self.done) < self.count and time.monotonic() < deadline:
            time.sleep(0.1)

    def tend(self, what: str) -> None:
        more = ", `more` is there" if self.folder.more.exists() else ""
        said = self.site.slurmopt("tend", str(self.site.shared / "runs"))
        self.tended.append(f"{what}, {len(self.done)} points done{more}: {said.strip() or 'nothing said'}")
        self._last = time.monotonic()

    def _queue(self) -> list[str]:
        try:
            return self.site.queue()
        except ClusterError:
            return ["slurmctld is away"]

    def is_over(self) -> bool:
        return not self._queue() and not self.site.processes()
