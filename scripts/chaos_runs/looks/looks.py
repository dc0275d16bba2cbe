"""Damaged run folders and odd command lines: `slurmopt` answers each soon, in words, with a documented exit status."""

from __future__ import annotations

import collections
import os
import random
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from chaos_runs.looks import damage, project
from chaos_runs.looks.looker import Looker, Seen, environment

LOOKS = (
    ["status", "RUN"],
    ["status", "RUN", "--json"],
    ["status", "--all"],
    ["list"],
    ["list", "--json"],
    ["wait", "RUN", "--timeout=1s"],
    ["history", "RUN"],
    ["history", "RUN", "--json"],
    ["logs", "RUN"],
    ["logs", "RUN", "--errors"],
    ["logs", "RUN", "--rank", "all"],
    ["results", "RUN"],
    ["results", "RUN", "--csv"],
    ["results", "RUN", "--json"],
    ["tend", "--dry-run"],
    ["tend", "RUN"],
    ["retry", "RUN", "--dry-run"],
    ["retry", "RUN", "--more-time", "2", "--dry-run"],
    ["retry", "--failed", "--dry-run"],
    ["launch", "launch.run=RUN", "launch.dry_run=true", "launch.check=false"],
    ["cancel", "RUN"],
    ["throttle", "RUN", "3"],
    ["checkpoint", "list", "RUN"],
    ["checkpoint", "show", "RUN"],
    ["checkpoint", "verify", "RUN", "--all"],
    ["checkpoint", "fetch", "RUN", "--to", "fetched"],
    ["checkpoint", "prune", "RUN", "--keep", "1", "--dry-run"],
    ["_complete", "slurmopt status "],
)
EACH = 4
"""Looks at each damaged folder."""
_OF_STORAGE = {"bench": ["--bytes=8M", "--seconds=0.05"], "prefetch": ["--dry-run"], "stripe": ["--dry-run"]}
_NEVER = ("--watch", "--follow", "--yes", "--help")
"""Options that go on until something ends, or say nothing but help."""
_ODD = (
    "", "-", "--", "-1", "0", "1e999", "nan", "9" * 400, "9" * 5000, "x" * 5000,  "é",
    "\udcff", "\x1b[2J", "a=b", "a=", "=",
    "a=[", "a={", "a=" + "[" * 10_000, "a=" + "[" * 500 + "]" * 500, "[" * 10_000, "${a}", "a=${a}", "a=${oc.env:NOPE}",
    "a=!!bool x", "+a={x: 1}", "~a", "++task.command=[true]", "task=null", "task.command=5", "task._target_=${nope}",
    "resources=1", "resources.nodes=" + "9" * 400, "resources.time=nan", "resources.exclude=node[1-" + "9" * 400 + "]",
    "resources.nodelist=[[[", "hydra.run.dir=x", "--config-name=x", "-m", "lr=1,2", "lr=range(0,1e9)", "launch.id=../x",
    "launch.name=\udcff", "fifo", "zero", "circle", "runs", "runs/grid", "no/such", "..", ".", "real", "grid", "grid/1",
    "grid/1-999999999999", "grid/" + "9" * 400, "grid/1,,2", "packed/0", "packed/5-1", "900000000", "900000000_1",
    "local-1", "2026", "all", "latest", "step-00000005/a0000-00000001", "lr", "loss", "%", "{}", "@x", "*", "//",
    "a/b/c/d", "grid/²", "grid/\uff19", "sweep.at_once=-1", "restart.budgets={}",
    "checkpoint.shared=[1]", "sweep.folder=../..",
)  # fmt: skip


@dataclass
class Tally:
    """What happened."""

    damages: collections.Counter[str] = field(default_factory=collections.Counter)
    lines: int = 0
    looks: int = 0
    slowest: float = 0.0
    most_mib: float = 0.0
    statuses: collections.Counter[int] = field(default_factory=collections.Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        statuses = ", ".join(f"{status}: {count}" for status, count in sorted(self.statuses.items()))
        return (
            f"{self.damages.total()} damaged folders, {self.lines} command lines, {self.looks} looks "
            f"(exit statuses {statuses}), the slowest {self.slowest:.1f} s, at most {self.most_mib:.0f} MiB, "
            f"{len(self.wrong)} wrong"
        )

    def take(self, seen: Seen, words: list[str], after: str) -> None:
        """Judges one look."""
        self.looks += 1
        self.slowest, self.most_mib = max(self.slowest, seen.seconds), max(self.most_mib, seen.mib)
        self.statuses[seen.status] += 1
        if wrong := seen.wrong():
            shown = " ".join(word if len(word) < 80 else f"{word[:70]}…({len(word)})" for word in words)
            self.wrong.append(f"slurmopt {shown!r}{after}: {wrong}")
            print(f"chaos: {self.wrong[-1]}\n{seen.err[-3000:]}", file=sys.stderr, flush=True)


def run(folder: Path, seed: int, mutations: int, lines: int) -> Tally:
    """Damages one folder after the other, then tries command lines. Nothing is submitted: Slurm is not to be found."""
    tally = Tally()
    pristine = folder / "pristine"
    project.make(pristine)
    with Looker({**environment(), "PATH": "/nowhere"}) as looker:
        for number in range(mutations):
            _damaged(tally, looker, pristine, folder / "damaged", random.Random(f"{seed}/{number}"))
        options = _options(looker, folder)
        for number in range(lines):
            _line(tally, looker, pristine, folder / "lines", options, random.Random(f"{seed}/line {number}"))
    return tally


def _damaged(tally: Tally, looker: Looker, pristine: Path, folder: Path, choice: random.Random) -> None:
    shutil.copytree(pristine, folder, symlinks=True)
    (run,) = choice.choice(sorted((folder / "runs").iterdir())).iterdir()
    done = []
    for _ in range(choice.choice((1, 1, 1, 2, 3))):
        files = sorted(
            path
            for path in run.rglob("*")
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 24
        )
        path = choice.choice(files)
        done.append(f"{damage.damage(path, choice)}: {path.relative_to(run.parent)}")
    tally.damages[done[0].partition(":")[0]] += 1
    name = f"{run.parent.name}/{run.name}"
    targets = [name] * 3 + ([f"{name}/{choice.randrange(project.POINTS)}"] if (run / "points").is_dir() else [])
    for look in choice.sample(LOOKS, EACH):
        words = [word.replace("RUN", choice.choice(targets)) for word in look]
        tally.take(looker.look(words, folder), words, f" after {done}")
    shutil.rmtree(folder)


def _options(looker: Looker, folder: Path) -> dict[tuple[str, ...], list[str]]:
    """Each command, with the options that its help names."""
    from slurmopt.commands import COMMANDS
    from slurmopt.commands.parsers import subcommands

    below = {name: subcommands(module) for name, (module, _) in COMMANDS.items() if name != "completion"}
    commands = [(name,) for name, table in below.items() if not table]
    of_groups = [(group, name) for group, table in below.items() for name in table]
    found: dict[tuple[str, ...], list[str]] = {}
    for command in (*commands, *of_groups):
        text = looker.look([*command, "--help"], folder).out
        found[command] = sorted(set(re.findall(r"--[a-z][a-z-]+", text)) - set(_NEVER))
    return found


def _line(
    tally: Tally,
    looker: Looker,
    pristine: Path,
    folder: Path,
    options: dict[tuple[str, ...], list[str]],
    choice: random.Random,
) -> None:
    shutil.copytree(pristine, folder, symlinks=True)
    os.mkfifo(folder / "fifo")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "circle").symlink_to("circle")
    command = choice.choice(list(options)) if choice.random() < 0.95 else (choice.choice(_ODD),)
    if command == ("launch",) and choice.random() < 0.5:  # it takes longer than all others
        command = ("status",)
    known = options.get(command, [])
    words = [
        choice.choice(known) if known and choice.random() < 0.35 else choice.choice(_ODD)
        for _ in range(choice.randrange(5))
    ]
    last = {
        "launch": ["launch.dry_run=true", "launch.backend=sbatch"],
        "retry": ["--dry-run"],
        "wait": ["--timeout=1s"],
        "bench": ["--read=real"],  # which measures nothing
        "tune": ["--read=real"],
        "storage": _OF_STORAGE.get(command[-1], []),
    }.get(command[0], [])
    line = [*command, *words, *last]
    tally.lines += 1
    tally.take(looker.look(line, folder), line, "")
    shutil.rmtree(folder)
