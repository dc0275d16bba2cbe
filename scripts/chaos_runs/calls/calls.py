"""launch, retry, cancel, tend and throttle with a fault at each of their file calls and Slurm calls, and repeated.

Each case makes what the command finds, disturbs one call, repeats the command as its user would, and compares the
folder with the real slurmctld. All jobs are held, so that none starts.
"""

from __future__ import annotations

import errno
import queue
import random
import re
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from cluster import lifecycle, ports, settings
from cluster.layout import Layout

from chaos_runs.calls.commands import AGE, COMMANDS, Command
from chaos_runs.calls.workplace import KILL, LOST, TORN, Call, CannotBuild, Said, Workplace, build

__all__ = ["COMMANDS", "FAULTS", "CannotBuild", "Case", "Tally", "Wanted", "on_own_cluster", "run"]

FAULTS = {
    "kill": KILL, "torn": TORN, "lost": LOST,
    **{name: getattr(errno, name) for name in ("ENOSPC", "EIO", "EDQUOT", "ESTALE")},
}  # fmt: skip
"""`torn`: killed in the midst of a write. `lost`: Slurm's command is killed once slurmctld has answered it."""
_FITTING = {
    "r": ("EIO", "ESTALE"),
    "w": ("kill", "ENOSPC", "EIO", "EDQUOT", "ESTALE"),
    "x": ("kill", "EIO", "ESTALE"),
    "y": ("kill", "lost"),
}
_TRIES = 4
_OFTEN = 100


@dataclass(frozen=True)
class Case:
    """One fault at one call of one command."""

    command: str
    number: int
    fault: str
    locks: bool

    def __str__(self) -> str:
        return f"{self.command}/{self.number}/{self.fault}{'' if self.locks else '/no-flock'}"

    @classmethod
    def parse(cls, text: str) -> Case:
        """Of what `str` makes. ValueError."""
        command, number, fault, *locks = text.split("/")
        if command not in COMMANDS or fault not in FAULTS or locks not in ([], ["no-flock"]):
            raise ValueError(f"{text!r} is no case; valid: COMMAND/NUMBER/FAULT or COMMAND/NUMBER/FAULT/no-flock")
        return cls(command, int(number), fault, not locks)


@dataclass
class Tally:
    """What happened."""

    cases: int = 0
    unreached: int = 0
    """Cases whose call did not come."""
    interrupted: bool = False
    wrong: list[tuple[Case, str]] = field(default_factory=list)

    began: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        each = (time.monotonic() - self.began) / max(1, self.cases)
        return f"{self.cases} cases ({self.unreached} unreached), {each:.2f} s each, {len(self.wrong)} wrong"


@dataclass(frozen=True)
class Wanted:
    """What is to be disturbed."""

    seed: int
    commands: tuple[str, ...] = tuple(COMMANDS)
    faults: tuple[str, ...] = tuple(FAULTS)
    locks: tuple[bool, ...] = (True, False)
    limit: int | None = None
    cases: tuple[Case, ...] = ()
    """These alone."""


class Disturber:
    """One workplace, in which one case after the other is tried."""

    def __init__(self, place: Workplace) -> None:
        self.place = place
        self._kept: set[str] = set()
        self._files: dict[tuple[str, bool], set[str]] = {}

    def calls(self, name: str, locks: bool) -> list[Call]:
        """Those of the command where nothing is wrong; remembers which files it leaves."""
        command = COMMANDS[name]
        self._prepare(name)
        said = self.place.slurmopt(command.argv, locks=locks)
        wrong = [f"exit status {said.status}: {said.err}"] if said.status else list(command.judge(self.place))
        if wrong:
            raise RuntimeError(f"{name}, undisturbed: {wrong}")
        self._files[name, locks] = self.place.files()
        return said.calls

    def _prepare(self, name: str) -> None:
        command = COMMANDS[name]
        self.place.clear()
        if name in self._kept:
            self.place.restore(name)
            return
        if command.make:
            command.make(self.place)
        for words in command.before:
            said = self.place.slurmopt(words)
            if said.status:
                raise RuntimeError(f"{' '.join(words)}: {said.err}")
        if command.reusable:
            self.place.keep(name)
            self._kept.add(name)

    def try_out(self, case: Case) -> tuple[Said, list[str]]:
        """One case; what the disturbed command said, and what is wrong after it."""
        if (case.command, case.locks) not in self._files:
            self.calls(case.command, case.locks)
        command = COMMANDS[case.command]
        self._prepare(case.command)
        said = self.place.slurmopt(command.argv, case.number, FAULTS[case.fault], case.locks)
        wrong = list(self._told(said, case))
        if said.status != 0 or command.always:
            wrong += self._repeat(command, case.locks)
        found = list(command.judge(self.place))
        if found and command.always:  # it lets a job be unknown to Slurm for a while before it acts
            time.sleep(AGE)
            wrong += self._repeat(command, case.locks)
            found = list(command.judge(self.place))
        wrong += found
        wrong += self.left(case.command, case.locks, self._kept_by(said))
        wrong += self._cancelled(command, case.locks)
        return said, wrong

    def _told(self, said: Said, case: Case) -> list[str]:
        """What is wrong with what the disturbed command said itself."""
        found = []
        if said.status is None:
            found.append("it hangs")
        if "Traceback" in said.err:
            found.append(f"traceback: {said.err.strip().splitlines()[-1]}")
        if said.status and said.status > 0 and "slurmopt: " not in said.err:
            found.append("it fails without a word")
        return found

    def _repeat(self, command: Command, locks: bool) -> list[str]:
        """Repeats the command as its user does, a few times; what is wrong with that."""
        said = Said(1, "", "", [])
        for _ in range(_TRIES):
            said = self.place.slurmopt(command.argv, locks=locks)
            if said.status == 0 or (command.settled and re.search(command.settled, said.err)):
                return []
            if hint := re.search(r"first have that noted: slurmopt (launch launch\.run=\S+)", said.err):
                self.place.slurmopt(hint[1].split(), locks=locks)
        return [f"repeated {_TRIES} times it fails: {said.err.strip()[-300:]}"]

    def _kept_by(self, said: Said) -> str:
        """What a fault has kept from being removed, in a command that said that all is done."""
        hit = said.hit
        return (
            str(Path(hit.path).relative_to(self.place.project))
            if said.status == 0 and hit and hit.name == "unlink"
            else ""
        )

    def left(self, command: str, locks: bool, kept: str = "") -> list[str]:
        """The files that the undisturbed command does not leave, but `kept`."""
        left = self.place.files() - self._files[command, locks] - {kept}
        return [f"left: {', '.join(sorted(left))}"] if left else []

    def _cancelled(self, command: Command, locks: bool) -> list[str]:
        """`slurmopt cancel` leaves nothing queued."""
        if command.cancel is None:
            return []
        said = self.place.slurmopt(["cancel", command.cancel], locks=locks)
        found = [f"cancel fails: {said.err.strip()[-300:]}"] if said.status else []
        if jobs := self.place.jobs():
            found.append(f"queued after cancel: {[job.id for job in jobs]}")
        return found


def on_own_cluster(folder: Path, wanted: Wanted, workers: int) -> Tally:
    """Tries all cases on a private cluster, which is made for that."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # slurm-cluster wants every user to get through
    layout = Layout(folder / "cluster")
    started = settings.Settings(
        nodes=workers,
        gpus=0,
        max_array_size=4,  # so that a sweep needs several array jobs
        first_port=ports.free_block(settings.ports_needed(workers)),
        accounting=False,
        users=[],
        limits=False,
        cgroups=False,
    )
    build(folder)
    lifecycle.start(layout, started)
    try:
        return run(folder, wanted, layout.conf, workers)
    finally:
        lifecycle.stop(layout)


def run(folder: Path, wanted: Wanted, conf: Path, workers: int = 2) -> Tally:
    """Tries all cases, several side by side, on the cluster of `conf`."""
    library = build(folder)
    tally, lock = Tally(), threading.Lock()
    waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
    places = [Workplace(folder / f"project-{number}", library, conf) for number in range(workers)]
    disturbers = [Disturber(place) for place in places]
    try:
        cases = plan(disturbers[0], wanted)
        say(f"{len(cases)} cases")
        for case in cases:
            waiting.put(case)
        threads = [
            threading.Thread(target=_work, args=(each, waiting, tally, lock), daemon=True) for each in disturbers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for place in places:
            place.clear()
    except KeyboardInterrupt:
        tally.interrupted = True  # what the threads find now is that all is taken down
        raise
    finally:
        for place in places:
            place.__exit__()
    return tally


def _work(disturber: Disturber, waiting: queue.SimpleQueue[Case], tally: Tally, lock: threading.Lock) -> None:
    while True:
        try:
            case = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            said, wrong = disturber.try_out(case)
        except Exception as error:  # noqa: BLE001  what breaks the judge is a finding, and others go on
            said, wrong = Said(None, "", "", []), [f"{type(error).__name__}: {error}"]
        if tally.interrupted:
            return
        with lock:
            tally.cases += 1
            tally.unreached += said.hit is None
            if tally.cases % _OFTEN == 0:
                say(str(tally))
            if wrong:
                tally.wrong.append((case, "; ".join(wrong)))
                say(f"WRONG {case} ({said.hit}; exit status {said.status}): {'; '.join(wrong)}")
                say(f"  again: scripts/chaos calls --case {case}")


def plan(disturber: Disturber, wanted: Wanted) -> list[Case]:
    """The cases, in a seeded order; of more than the limit a sample."""
    if wanted.cases:
        return list(wanted.cases)
    found = []
    for name in wanted.commands:
        for locks in wanted.locks:
            calls = disturber.calls(name, locks)
            for call in calls:
                faults = [*_FITTING[call.kind], *(["torn"] if call.name == "write" else [])]
                found += [Case(name, call.number, fault, locks) for fault in faults if fault in wanted.faults]
            say(f"{name}{'' if locks else ', no flock'}: {len(calls)} calls")
    random.Random(wanted.seed).shuffle(found)
    return found[: wanted.limit]


def say(text: str) -> None:
    print(f"chaos: {text}", file=sys.stderr, flush=True)
