"""The real Lightning, HF Trainer and accelerate, and a program like nanoGPT, as docs/frameworks.md shows them.

Each is preempted, requeued and reaches its time limit on a private cluster, beside an undisturbed run of the same.

The programs and configs are those of the page; a pause in each step is all that is added.
"""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.errors import ClusterError

from chaos_runs.survival.site import Missed, Site
from slurmopt.run_folder import attempts as story
from slurmopt.run_folder.layout import RunFolder

PAGE = Path(__file__).resolve().parents[3] / "docs" / "frameworks.md"
_SLOW_ATTEMPTS = 3
_PAUSE = "import os, time; time.sleep({slow} if int(os.environ['SLURMOPT_ATTEMPT']) < {attempts} else 0.02)"
"""Slow until all has been done to a run that is disturbed, so that it cannot finish before."""
PAUSED_BEFORE = {
    "nanoGPT and the like": "    loss = (model(x) - x",
    "Lightning": "        (x,) = batch\n",
    "HF Trainer": '        return {"loss": (self.linear',
    "accelerate": "        loss = (model(x)",
}
"""Framework, which is a heading of the page: the line of its program before which each step waits."""
NAMES = tuple(PAUSED_BEFORE)
_STEPS = 400
_CAUSES = ["preemption", "requeued", "time limit", "finished"]
_PATIENCE = 300.0
_DEFAULT_LIMIT = 60
"""Minutes."""


@dataclass
class Lived:
    """What became of one framework's two runs."""

    name: str
    causes: list[str] = field(default_factory=list)
    weights: str = "not compared"
    wrong: str | None = None

    def __str__(self) -> str:
        ends = ", ".join(self.causes)
        return f"{self.name}: {ends}; weights {self.weights}" + (f"; WRONG: {self.wrong}" if self.wrong else "")


class Program:
    """One framework's program in a folder of its own, launched once."""

    def __init__(self, site: FrameworkSite, name: str, disturbed: bool) -> None:
        self.site, self.name = site, name
        self.folder = site.project / f"{name.lower().replace(' ', '-')}-{'disturbed' if disturbed else 'calm'}"
        (self.folder / "conf" / "experiment").mkdir(parents=True)
        section = PAGE.read_text(encoding="utf-8").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        config, program = _block(section, "yaml"), _block(section, "python")
        before = PAUSED_BEFORE[name]
        assert before in program, f"{PAGE} has another program"
        indent = before[: len(before) - len(before.lstrip())]
        pause = _PAUSE.format(slow=0.5 if disturbed else 0.02, attempts=_SLOW_ATTEMPTS)
        (self.folder / "train.py").write_text(program.replace(before, f"{indent}{pause}\n{before}"))
        (self.folder / "conf" / "experiment" / "this.yaml").write_text(config.replace(" 100", f" {_STEPS}", 1))

    def launch(self, partition: str) -> None:
        words = ["+experiment=this", f"resources.partition={partition}", f"resources.time={_DEFAULT_LIMIT}m"]
        words += [
            "resources.exclusive=true",
            "restart.lead=30s",
            "health.reach=false",
            f"launch.name={self.folder.name}",
        ]
        words.append("+environment.variables.ACCELERATE_USE_CPU='true'")  # there is no GPU here
        answer = self.site.launch_command(self.folder, *words)
        self.job, self.run = str(answer["job_ids"][0]), RunFolder(Path(str(answer["run"])))

    @property
    def attempts(self) -> list[story.Attempt]:
        return story.attempts(self.run)

    @property
    def has_ended(self) -> bool:
        attempts = self.attempts
        return bool(attempts) and attempts[-1].end is not None and attempts[-1].end.get("next") is None

    def weights(self) -> dict[str, Any]:
        """Those at its end."""
        import torch

        file = self.folder / "out" / "model.pt"
        if file.exists():
            return dict(torch.load(file))
        return dict(torch.load(file.with_name("ckpt.pt"))["model"])

    def saved_at(self) -> float:
        """When it saved last: seconds since the epoch, 0 where it has not."""
        out = self.folder / "out"
        return max((path.stat().st_mtime for path in out.glob("*") if path.name != "new"), default=0.0)

    def wait_for_save(self, attempt: int) -> None:
        """Until this attempt has saved; Missed where the run ends first."""

        def saved() -> bool:
            if self.has_ended:
                raise Missed(f"{self.name} ended: {[one.cause for one in self.attempts]}")
            return len(self.attempts) > attempt and self.saved_at() > (self.attempts[attempt].started or 0.0) + 1

        self.site.wait(saved, _PATIENCE, f"attempt {attempt} of {self.name} saves")


def _block(section: str, language: str) -> str:
    match = re.search(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert match is not None, f"{PAGE}: no {language}"
    return match[1]


class FrameworkSite(Site):
    """A cluster on which commands are launched in folders of their own."""

    def __enter__(self) -> FrameworkSite:
        super().__enter__()
        return self

    def launch_command(self, folder: Path, *words: str) -> dict[str, Any]:
        before, self.project = self.project, folder
        try:
            answer: dict[str, Any] = json.loads(self.slurmopt("launch", *words, "launch.json=true"))["data"]
        finally:
            self.project = before
        return answer


def run(folder: Path, names: tuple[str, ...]) -> list[Lived]:
    """Each framework's two runs, side by side; what became of them."""
    with FrameworkSite(folder / "frameworks", 0, with_s3=False) as site:
        found = []
        for name in names:
            disturbed, calm = Program(site, name, disturbed=True), Program(site, name, disturbed=False)
            disturbed.launch("preempt")
            calm.launch("main")
            lived = Lived(name)
            found.append(lived)
            try:
                _disturb(site, disturbed)
                site.wait(lambda d=disturbed, c=calm: d.has_ended and c.has_ended, _PATIENCE, "both end")  # type: ignore[misc]
            except (Missed, ClusterError) as error:
                lived.wrong = str(error)
            _judge(lived, disturbed, calm)
            print(f"chaos: {lived}", file=sys.stderr, flush=True)
        return found


def _disturb(site: FrameworkSite, program: Program) -> None:
    program.wait_for_save(0)
    node = str(program.attempts[0].nodes)
    hog = ["-p", "urgent", "-w", node, "-N1", "--exclusive", "--mem=100", "-o", "/dev/null", "--wrap", "sleep 1"]
    site.slurm("sbatch", *hog)
    program.wait_for_save(1)
    site.slurm("scontrol", "requeue", program.job)
    program.wait_for_save(2)
    shown = site.slurm("scontrol", "show", "job", "--oneliner", program.job, SLURM_TIME_FORMAT="%s")
    started = float(next(word[10:] for word in shown.split() if word.startswith("StartTime=")))
    minutes = int((time.time() + 45 - started) // 60) + 1
    site.slurm("scontrol", "update", f"JobId={program.job}", f"TimeLimit={minutes}")
    site.wait(lambda: len(program.attempts) > 3, _PATIENCE, f"{program.name} comes back after its time limit")
    site.slurm("scontrol", "update", f"JobId={program.job}", f"TimeLimit={_DEFAULT_LIMIT}")


def _judge(lived: Lived, disturbed: Program, calm: Program) -> None:
    lived.causes = [str(attempt.cause) for attempt in disturbed.attempts]
    if lived.wrong is None and lived.causes != _CAUSES:
        lived.wrong = f"the causes are to be {', '.join(_CAUSES)}"
    if lived.wrong is None and [attempt.cause for attempt in calm.attempts] != ["finished"]:
        lived.wrong = "the undisturbed run did not finish"
    if lived.wrong is not None:
        _tell(disturbed)
        return
    import torch

    one, other = disturbed.weights(), calm.weights()
    same = one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
    close = one.keys() == other.keys() and all(torch.allclose(one[key], other[key], atol=1e-2) for key in one)
    lived.weights = "bitwise equal" if same else "close, not equal" if close else "different"
    if not close:
        lived.wrong = "the weights are not those of the undisturbed run"


def _tell(program: Program) -> None:
    """The ends of the logs of a run that went wrong: its folder goes away with the site."""
    for log in sorted(program.run.logs.rglob("*.log")):
        end = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        print(f"---- {log.relative_to(program.run.path)}\n{end}", file=sys.stderr, flush=True)
