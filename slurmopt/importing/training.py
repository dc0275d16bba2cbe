"""The command of the training: what becomes `task`, and how many ranks it has."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurmopt.config.task_command.launchers import Launcher, of_words
from slurmopt.importing.body import Body, Complicated
from slurmopt.importing.launcher_flags import flags_of
from slurmopt.importing.sbatch.srun import Srun, srun_of
from slurmopt.importing.shell.not_known import NotKnown
from slurmopt.importing.shell.scope import TEXT, Piece, Value
from slurmopt.importing.shell.shell_syntax import Statement


@dataclass
class Training:
    """The task, and what it changes in the resources."""

    words: list[Value]
    per: str = "auto"
    distributed: str = "auto"
    tasks_per_node: int = 1
    cpus_per_task: int | None = None
    variables: dict[str, str] = field(default_factory=dict)


def training(body: Body) -> Training:
    """The task of the script. Raises Complicated where its command needs a shell."""
    main = body.main
    assert main is not None
    if main.redirected:
        raise Complicated(f"line {main.line} has a redirection")
    try:
        return _Reader(body, main).read()
    except NotKnown as error:
        raise Complicated(f"line {main.line}: {error}") from error


class _Reader:
    """Reads one command."""

    def __init__(self, body: Body, main: Statement) -> None:
        self.body, self.main, self.shape = body, main, body.scope.shape
        self.start = 1 if main.sources[0] in ("exec", "time", "nohup") else 0
        self.notes: list[str] = []

    def read(self) -> Training:
        self._variables()
        sources = list(self.main.sources[self.start :])
        srun = srun_of(sources, self._known, self.shape) if _name(sources[:1]) == "srun" else None
        if srun is not None and (srun.kept or self.shape.uneven or srun.length >= len(sources)):
            return self._done(self._kept_srun(srun, sources))
        self.start += srun.length if srun is not None else 0
        launcher = of_words(sources[srun.length if srun is not None else 0 :])
        if launcher is not None and launcher.per == "node" and self._starts_on_each_node(launcher, srun):
            return self._done(self._launched(launcher))
        return self._done(self._plain(srun, launcher))

    def _variables(self) -> None:
        for name, word in self.main.assigned:
            if isinstance(word, list) or word is None:
                raise NotKnown(f"{name} is an array")
            self.body.variables[name] = self.body.scope.value(word)

    def _known(self, index: int) -> str | None:
        try:
            return self.body.scope.as_text(self.body.scope.value(self.main.words[self.start + index]))
        except NotKnown:
            return None

    def _values(self, first: int = 0, left_out: frozenset[int] = frozenset()) -> list[Value]:
        values: list[Value] = []
        before = ""
        for index in range(self.start + first, len(self.main.words)):
            if index - self.start - first not in left_out:
                values += self.body.scope.expand(self.main.words[index], before if before.startswith("-") else "")
            before = self.main.sources[index]
        return values

    def _kept_srun(self, srun: Srun, sources: list[str]) -> Training:
        why = "its own " + ", ".join(srun.kept) if srun.kept else self.shape.uneven or "it has no command"
        self.notes.append(f"srun is kept for {why}; it starts the ranks")
        words = self._values()
        if self.shape.total is not None and not any(word.startswith(("-n", "--ntasks")) for word in srun.kept):
            words.insert(1, (Piece(TEXT, f"--ntasks={self.shape.total}"),))
        return Training(words, "auto", "auto", self.shape.tasks_per_node, self.shape.cpus_per_task)

    def _starts_on_each_node(self, launcher: Launcher, srun: Srun | None) -> bool:
        if srun is not None:
            return self.shape.tasks_per_node == 1
        return self.shape.most_nodes == 1 or launcher.name == "deepspeed"

    def _launched(self, launcher: Launcher) -> Training:
        """torchrun and the like, once on each node."""
        sources = list(self.main.sources[self.start :])
        flags = flags_of(sources, launcher)
        if flags.dropped:
            self.notes.append(f"slurmopt sets {' '.join(sources[at] for at in sorted(flags.dropped))}")
        ranks = self._ranks(sources, flags.ranks, launcher)
        cpus = self.shape.cpus_per_task
        if cpus is not None and self.shape.tasks_per_node == 1:
            cpus = max(1, cpus // ranks)
        self.body.rendezvous = True
        return Training(self._values(left_out=flags.dropped), "auto", "auto", ranks, cpus)

    def _ranks(self, sources: list[str], at: int | None, launcher: Launcher) -> int:
        if at is None:
            return max(1, self.shape.gpus_per_node) if launcher.name == "deepspeed" else 1
        text = self._known(at) or ""
        text = text.rpartition("=")[2] if sources[at].startswith("-") else text
        if text in ("gpu", "auto"):
            return max(1, self.shape.gpus_per_node)
        if not text.isdecimal() or not int(text):
            raise NotKnown(f"{sources[at]} is not known")
        total = int(text)
        if launcher.name == "accelerate":
            if total % self.shape.nodes:
                raise NotKnown(f"{total} processes on {self.shape.nodes} nodes")
            return total // self.shape.nodes
        return total

    def _plain(self, srun: Srun | None, launcher: Launcher | None) -> Training:
        """A program: once for each task under srun; else once, as the batch script itself."""
        made = Training(self._values(), "auto", "auto", self.shape.tasks_per_node, self.shape.cpus_per_task)
        alone = self.shape.tasks == 1 and self.shape.most_nodes == 1
        if srun is not None:
            made.per = "auto" if launcher is None else "rank"
            _bind(made, srun, self.shape.gpus_per_task)
        elif not alone or (launcher is not None and launcher.per == "job"):
            made.per = "auto" if launcher is not None and launcher.per == "job" else "job"
            self.notes.append("it runs once, on the first node, as in the script")
        if alone and made.per == "auto" and launcher is None and not self.body.rendezvous:
            made.distributed = "off"
        return made

    def _done(self, made: Training) -> Training:
        notes = f" ({'; '.join(self.notes)})" if self.notes else ""
        self.body.remarks.moved(self.main.line, self.main.text, f"task.command{notes}")
        return made


def _bind(made: Training, srun: Srun, gpus_per_task: int | None) -> None:
    """Each task sees the GPUs that the script gives it."""
    each = srun.gpus_per_task or gpus_per_task
    if srun.gpu_bind or each:
        made.variables["SLURM_GPU_BIND"] = srun.gpu_bind or f"per_task:{each}"


def _name(words: list[str]) -> str:
    return words[0].strip("\"'").rpartition("/")[2] if words else ""
