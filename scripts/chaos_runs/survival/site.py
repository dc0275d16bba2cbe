"""Where a run is disturbed: a private cluster, the folder that its nodes share, an S3 server where one is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import s3.layout
from cluster import daemons, lifecycle, nodes, ports, processes, settings
from cluster.errors import ClusterError, UsageError
from cluster.layout import Layout
from s3 import lifecycle as s3_lifecycle

NODES = 6
"""Two for the run, two for it to go to, and two that are dead."""
_DEAD_SECONDS = 75.0
"""slurmctld sends what a node did not answer again within about a minute: to a job with the same id, were it there."""
_MOST_DEAD = 2
BUCKET = "survivor"
_INHERITED = ("SLURM", "SBATCH", "SRUN", "PMI", "AWS_")
_IDS_APART = 500
_cgroups = threading.Lock()


class Missed(Exception):
    """What had to come did not, or what must not happen did."""


class Site:
    """One cluster with all around it, in one folder; to be used in a with block."""

    interrupted = threading.Event()
    """Set once somebody wants all sites to end."""

    def __init__(self, folder: Path, number: int, with_s3: bool) -> None:
        self.folder, self._number = folder, number
        self.layout = Layout(folder / "cluster")
        self.shared, self.project = folder / "shared", folder / "project"
        self._s3 = s3.layout.Layout(folder / "s3") if with_s3 else None
        self.has_cgroups = False
        self.is_read_only = False
        self._dead: dict[str, float] = {}

    def __enter__(self) -> Site:
        self.shared.mkdir(parents=True)
        for part in (self.folder.parent, self.folder):
            part.chmod(0o755)  # slurm-cluster wants every user to get through
        self.project.mkdir()
        shutil.copy(Path(__file__).with_name("survivor.py"), self.project)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.make_writable()
        lifecycle.stop(self.layout)
        if self._s3 is not None:
            s3_lifecycle.stop(self._s3, keep_data=False)
        if self.has_cgroups:
            _cgroups.release()

    def _start(self) -> None:
        if self._s3 is not None:
            s3_lifecycle.start(self._s3, None, [BUCKET])
        self.has_cgroups = _cgroups.acquire(blocking=False)
        try:
            self._start_cluster(self.has_cgroups)
        except UsageError as error:
            if not self.has_cgroups:
                raise
            print(f"chaos: no real memory limits: {error}", file=sys.stderr, flush=True)
            _cgroups.release()
            self.has_cgroups = False
            self._start_cluster(cgroups=False)

    def _start_cluster(self, cgroups: bool) -> None:
        wanted = settings.Settings(
            nodes=NODES,
            gpus=0,
            max_array_size=1001,
            first_port=ports.free_block(settings.ports_needed(NODES)),
            accounting=False,
            users=[],
            limits=False,
            cgroups=cgroups,
        )
        lifecycle.start(self.layout, wanted)
        # Where the ranks meet follows from the job's id, and the nodes of all clusters are this one machine.
        with self.layout.conf.open("a") as conf:
            conf.write(f"FirstJobId={1 + _IDS_APART * self._number + os.getpid() % 20 * 400}\n")
        self.slurm("scontrol", "reconfigure")

    def has(self) -> dict[str, bool]:
        """What a fault may need, and whether this site has it."""
        return {"cgroups": self.has_cgroups, "s3": self._s3 is not None, "mount": self._can_mount()}

    def _can_mount(self) -> bool:
        try:
            self.make_read_only()
        except ClusterError:
            return False
        finally:
            self.make_writable()
        return True

    def give_up(self, node: str) -> None:
        """This node is dead now; `mend` brings it back, in time."""
        self._dead[node] = time.monotonic()

    def mend(self) -> None:
        """Brings back the nodes that have been dead for long enough; waits for that where too many are dead."""

        def due() -> list[str]:
            return [node for node, since in self._dead.items() if time.monotonic() > since + _DEAD_SECONDS]

        self.wait(lambda: due() or len(self._dead) <= _MOST_DEAD, _DEAD_SECONDS + 1, "a dead node may come back")
        for node in due():
            nodes.restore(self.layout, node)
            del self._dead[node]

    def stop_controller(self) -> None:
        daemons.stop_controller(self.layout)

    def start_controller(self) -> None:
        daemons.start_controller(self.layout)
        nodes.wait_until_known(self.layout, settings.load(self.layout).node_names)

    def slurm(self, *argv: str, **environment: Any) -> str:
        """One of Slurm's commands, which has to succeed; its output."""
        done = daemons.run(self.layout, *argv, **environment)
        if done.returncode:
            raise ClusterError(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def tries(self, *argv: str) -> bool:
        """Whether a command of Slurm's succeeded."""
        return daemons.run(self.layout, *argv).returncode == 0

    def launch(self, *words: str) -> dict[str, Any]:
        """Launches the survivor; what launch.json said."""
        said = self.slurmopt("launch", "task._target_=survivor.train", *words, "launch.json=true")
        answer: dict[str, Any] = json.loads(said)["data"]
        return answer

    def slurmopt(self, *words: str) -> str:
        """`slurmopt …` in the project's folder, which has to succeed; its output."""
        argv = [sys.executable, "-m", "slurmopt", *words]
        done = subprocess.run(
            argv, cwd=self.project, env=self._environment(), capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise ClusterError(f"{' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_INHERITED)}
        places = {"XDG_CACHE_HOME": str(self.folder / "cache"), "XDG_STATE_HOME": str(self.folder / "state")}
        kept |= {"SLURM_CONF": str(self.layout.conf), **places}
        if self._s3 is not None:
            keys = {"AWS_ACCESS_KEY_ID": s3.layout.ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": s3.layout.SECRET_KEY}
            kept |= {**keys, "AWS_DEFAULT_REGION": s3.layout.REGION, "AWS_EC2_METADATA_DISABLED": "true"}
        return kept

    def s3_words(self) -> list[str]:
        """The tier's part of the config."""
        if self._s3 is None:
            return []
        endpoint = s3.layout.load(self._s3).endpoint
        return [f"checkpoint.s3={{url:'s3://{BUCKET}/runs',endpoint:'{endpoint}',every:40,keep:2}}"]

    def stop_s3(self) -> None:
        assert self._s3 is not None
        s3_lifecycle.stop(self._s3, keep_data=True)

    def start_s3(self) -> None:
        assert self._s3 is not None
        s3_lifecycle.start(self._s3, None, [])

    def make_read_only(self) -> None:
        """What is opened from now on cannot be written: a read-only view is mounted over the folder. The folder itself
        cannot become read-only, for a mount with open files refuses that."""
        view = self.folder / "read-only"
        view.mkdir(exist_ok=True)
        mount("--bind", str(self.shared), str(view))
        try:
            mount("-o", "remount,bind,ro", str(view))
            mount("--bind", str(view), str(self.shared))
            self.is_read_only = True
        finally:
            unmount(view)

    def make_writable(self) -> None:
        if self.is_read_only:
            unmount(self.shared)
            self.is_read_only = False

    def processes(self) -> list[processes.Process]:
        """Of jobs: what slurmstepd started on any node, and what that started."""
        return [one for one in processes.of_cluster(self.layout) if "SLURM_JOB_ID" in one.environment]

    def submissions(self) -> int:
        """How many jobs slurmctld has taken."""
        log = (self.layout.logs / "slurmctld.log").read_text(errors="replace")
        return log.count("_slurm_rpc_submit_batch_job: JobId=")

    def queue(self) -> list[str]:
        """The jobs that are not over."""
        return self.slurm("squeue", "-h", "-o", "%i %j %T").splitlines()

    def wait(self, ready: Callable[[], object], seconds: float, what: str, look: Callable[[], object] = str) -> None:
        """Polls until `ready`; Missed past the deadline, or where `look`, called now and then, raises it."""
        deadline, next_look = time.monotonic() + seconds, time.monotonic() + 3
        while not ready():
            if self.interrupted.is_set():
                raise KeyboardInterrupt
            if time.monotonic() > deadline:
                raise Missed(f"{what}: not within {seconds:g} s")
            if time.monotonic() > next_look:
                look()
                next_look = time.monotonic() + 3
            time.sleep(0.05)


def mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True)
    if done.returncode:
        raise ClusterError(f"mount {' '.join(words)}: {done.stderr.strip()}")


def unmount(folder: Path) -> None:
    """At once, whatever is still open there."""
    subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)
