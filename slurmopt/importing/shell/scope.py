"""The variables of a script, as far as they are known without running it, and words with their values.

A value is a list of pieces: text, variables of the job's environment, and symbols: variables of the script that become
keys of the experiment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from slurmopt.importing.sbatch.geometry import Geometry
from slurmopt.importing.shell import known_names
from slurmopt.importing.shell.arithmetic import NotPlain, evaluate, names_in
from slurmopt.importing.shell.known_names import TASK_ID
from slurmopt.importing.shell.listed import chosen_lines
from slurmopt.importing.shell.not_known import NotKnown
from slurmopt.importing.shell.shell_syntax import Part, Word

TEXT, ENV, SYMBOL = "text", "env", "symbol"
_ONLY_IN_A_SHELL = re.compile(
    r"RANDOM|SRANDOM|SECONDS|LINENO|HOSTNAME|BASH\w*|EPOCH\w*|UID|EUID|PPID|IFS|FUNCNAME|PIPESTATUS|OPTARG|OPTIND|REPLY"
    r"|\d+|[^A-Za-z_].*"
)
_OF_A_RANK = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_TASK_PID", "SLURMD_NODENAME")


@dataclass(frozen=True)
class Piece:
    """A piece of a value."""

    kind: str
    text: str
    """The text; the name of the variable or the symbol."""


Value = tuple[Piece, ...]


@dataclass
class Scope:
    """What is known at a line of the script."""

    shape: Geometry
    tasks: list[int] | None = None
    lines_of: Callable[[str], list[str]] = lambda path: []
    """Reads the lines of a text file; raises NotKnown."""
    constants: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)
    composed: dict[str, Value] = field(default_factory=dict)
    vectors: dict[str, list[str]] = field(default_factory=dict)
    """A value for each array task."""
    rendezvous: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.tasks is not None:
            self.vectors[TASK_ID] = [str(task) for task in self.tasks]

    def assign(self, name: str, value: Word | list[Word], source: str) -> None:
        """Notes a variable; also that it is not known."""
        for held in (self.constants, self.arrays, self.composed, self.vectors, self.rendezvous, self.unknown):
            held.pop(name, None)
        names = re.findall(r"\$\{?([A-Za-z_]\w*)", source)
        if (kind := known_names.rendezvous(name, source, names, self.rendezvous)) is not None:
            self.rendezvous[name] = kind
            return
        try:
            self._assign(name, value)
        except NotKnown as error:
            self.unknown[name] = str(error)

    def _assign(self, name: str, value: Word | list[Word]) -> None:
        if isinstance(value, list):
            self.arrays[name] = [text for word in value for text in self.texts(word)]
            return
        found = self._listed(value)
        if found is None:
            pieces = self.value(value, name)
            if all(piece.kind == TEXT for piece in pieces):
                self.constants[name] = "".join(piece.text for piece in pieces)
            elif len(pieces) == 1 and pieces[0].text in self.vectors:
                self.vectors[name] = self.vectors[pieces[0].text]
            else:
                self.composed[name] = pieces
        else:
            self.vectors[name] = found

    def names(self) -> set[str]:
        """The variables that the script has set and not exported, and those of the array."""
        held = (self.constants, self.arrays, self.composed, self.vectors, self.rendezvous, self.unknown)
        return {name for names in held for name in names} - self.exported

    def texts(self, word: Word) -> list[str]:
        """The words that a word becomes, which have to be known as text."""
        values = self.expand(word)
        return [self.as_text(value) for value in values]

    def as_text(self, value: Value) -> str:
        """A value as text. Raises NotKnown if it depends on the job."""
        if unknown := [piece.text for piece in value if self._text_of(piece) is None]:
            raise NotKnown(f"${unknown[0]} is known only in the job")
        return "".join(self._text_of(piece) or "" for piece in value)

    def _text_of(self, piece: Piece) -> str | None:
        if piece.kind == TEXT:
            return piece.text
        return self.constants.get(piece.text)

    def expand(self, word: Word, near: str = "") -> list[Value]:
        """The words that a word of a command becomes: none, one or several. `near`: the option before it."""
        if len(word) == 1 or (len(word) == 2 and word[0] == Part("text", "", quoted=True)):
            part = word[-1]
            if part.kind == "variable" and part.index in ("@", "*") and part.text in self.arrays:
                return [(Piece(TEXT, text),) for text in self.arrays[part.text]]
        if len(word) == 1 and word[0].kind == "variable" and not word[0].quoted:
            if (text := self.constants.get(word[0].text)) is not None and word[0].index is None:
                if re.search(r"\s", text) or not text:
                    return [(Piece(TEXT, piece),) for piece in _split(text)]
            elif (values := self.vectors.get(word[0].text)) and any(re.search(r"\s", value) for value in values):
                return self._columns(word[0].text, values)
        return [self.value(word, near)]

    def value_of(self, name: str) -> Value:
        """The value of a variable, as of `"$NAME"`. Raises NotKnown."""
        return tuple(self._variable(Part("variable", name, quoted=True)))

    def value(self, word: Word, near: str = "") -> Value:
        """The value of a word that stays one word. Raises NotKnown."""
        pieces: list[Piece] = []
        for at, part in enumerate(word):
            if part.kind == "text" and not part.quoted and at == 0 and re.match(r"~(/|$)", part.text):
                pieces += [Piece(ENV, "HOME"), Piece(TEXT, part.text[1:])]
            elif part.kind == "text":
                pieces.append(Piece(TEXT, part.text))
            else:
                pieces += self._expanded(part, near)
        return _merged(pieces)

    def _expanded(self, part: Part, near: str) -> Sequence[Piece]:
        if part.kind == "arithmetic":
            return self._by_task(near, part.text, lambda expression, value_of: str(evaluate(expression, value_of)))
        if part.kind == "output":
            raise NotKnown(
                f"the output of {part.text.strip().splitlines()[0][:60] if part.text.strip() else 'a command'}"
            )
        if part.kind != "variable":
            raise NotKnown(f"{part.text[:60]} needs a shell")
        if part.index is not None:
            return self._element(part, near)
        return self._variable(part)

    def _variable(self, part: Part) -> Sequence[Piece]:
        name = part.text
        if name in self.unknown:
            raise NotKnown(f"${name}: {self.unknown[name]}")
        if name in self.rendezvous:
            if not self.rendezvous[name]:
                raise NotKnown(f"${name} is a list of the job's nodes")
            return [Piece(ENV, self.rendezvous[name])]
        if name in self.exported and name not in self.vectors:
            return [Piece(ENV, name)]
        if name in self.composed:
            return self.composed[name]
        if name in self.arrays:
            return [Piece(TEXT, self.arrays[name][0] if self.arrays[name] else "")]
        values = self.vectors.get(name) or ([self.constants[name]] if name in self.constants else None)
        if values is None:
            return [self._of_the_job(name)]
        if not part.quoted and any(_split(value) != [value] for value in values if value):
            raise NotKnown(f"${name} is split into words inside a word")
        return [Piece(SYMBOL, name)]

    def _of_the_job(self, name: str) -> Piece:
        counts = {
            "SLURM_CPUS_PER_TASK": self.shape.cpus_per_task,
            "SLURM_NNODES": self.shape.nodes if self.shape.nodes == self.shape.most_nodes else None,
            "SLURM_NTASKS": None if self.shape.uneven else self.shape.tasks,
            "SLURM_NTASKS_PER_NODE": self.shape.tasks_per_node,
            "SLURM_GPUS_ON_NODE": self.shape.gpus_per_node,
            "SLURM_GPUS_PER_NODE": self.shape.gpus_per_node,
            "SLURM_GPUS": self.shape.gpus_per_node * self.shape.nodes,
            "SLURM_ARRAY_TASK_COUNT": len(self.tasks) if self.tasks else None,
            "SLURM_ARRAY_TASK_MIN": min(self.tasks) if self.tasks else None,
            "SLURM_ARRAY_TASK_MAX": max(self.tasks) if self.tasks else None,
        }
        name = {"SLURM_JOB_NUM_NODES": "SLURM_NNODES", "SLURM_NPROCS": "SLURM_NTASKS"}.get(name, name)
        if counts.get(name) is not None:
            return Piece(TEXT, str(counts[name]))
        if name in counts or name in _OF_A_RANK or _ONLY_IN_A_SHELL.fullmatch(name) or name == TASK_ID:
            raise NotKnown(f"${name} is known only in the batch shell")
        return Piece(ENV, name)

    def _element(self, part: Part, near: str) -> Sequence[Piece]:
        held = self.arrays.get(part.text)
        if held is None:
            raise NotKnown(self.unknown.get(part.text, f"${{{part.text}[…]}} is not known"))

        def element(expression: str, value_of: Callable[[str], str]) -> str:
            at = evaluate(expression, value_of)
            if not -len(held) <= at < len(held):
                raise NotKnown(f"{part.text} has no element {at}")
            return held[at]

        return self._by_task(near or part.text.lower().removesuffix("s"), part.index or "", element)

    def _by_task(
        self, near: str, expression: str, compute: Callable[[str, Callable[[str], str]], str]
    ) -> Sequence[Piece]:
        """A value that is computed; for each array task, if it depends on the task."""
        depends = [name for name in names_in(expression) if name in self.vectors]
        counted = range(len(self.tasks or [])) if depends else range(1)
        try:
            values = [compute(expression, lambda name, task=task: self._number(name, task)) for task in counted]  # type: ignore[misc]
        except NotPlain as error:
            raise NotKnown(f"{expression.strip()[:60]} is not evaluated") from error
        if not depends:
            return [Piece(TEXT, values[0])]
        name = near.lstrip("-") or "value"
        if self.vectors.get(name, values) != values:
            name += "_2"
        self.vectors[name] = values
        return [Piece(SYMBOL, name)]

    def _number(self, name: str, task: int) -> str:
        if name in self.vectors:
            return self.vectors[name][task]
        return self.as_text(self.value_of(name))

    def _listed(self, word: Word) -> list[str] | None:
        """The lines of a file that the array tasks take by their number; None if the word is no such command."""
        outputs = [part for part in word if part != Part("text", "", quoted=True)]
        if len(outputs) != 1 or outputs[0].kind != "output" or self.tasks is None:
            return None
        file = chosen_lines(outputs[0].text)
        if file is None:
            return None
        lines = self.lines_of(self.constants.get(file.variable, "") if file.variable else file.name)
        return [file.line(lines, self.number_for(file.number, task)) for task in range(len(self.tasks))]

    def number_for(self, expression: str, task: int) -> int:
        """The value of an arithmetic expression in an array task. Raises NotKnown."""
        try:
            return evaluate(expression, lambda name: self._number(name, task))
        except NotPlain as error:
            raise NotKnown(f"{expression.strip()[:60]} is not evaluated") from error

    def _columns(self, name: str, values: list[str]) -> list[Value]:
        """A line of a file that becomes several words, such as `--lr 0.1 --seed 1`: a symbol for each that differs."""
        rows = [_split(value) for value in values]
        if len({len(row) for row in rows}) != 1:
            raise NotKnown(f"${name} has not the same number of words in each array task")
        words: list[Value] = []
        for at, column in enumerate(zip(*rows, strict=True)):
            words.append(self._column(name, at, list(column), rows[0][at - 1] if at else ""))
        return words

    def _column(self, name: str, at: int, column: list[str], before: str) -> Value:
        if len(set(column)) == 1:
            return (Piece(TEXT, column[0]),)
        heads = {text.partition("=")[0] for text in column}
        if len(heads) == 1 and all("=" in text for text in column):
            head = heads.pop()
            key = head.lstrip("-")
            self.vectors[key] = [text.partition("=")[2] for text in column]
            return (Piece(TEXT, f"{head}="), Piece(SYMBOL, key))
        key = before.lstrip("-") if before.startswith("-") else f"{name.lower()}_{at + 1}"
        self.vectors[key] = column
        return (Piece(SYMBOL, key),)


def _split(text: str) -> list[str]:
    """The words that bash makes of an unquoted value. Raises NotKnown for what it would look up as file names."""
    if re.search(r"[*?\[]", text):
        raise NotKnown(f"{text[:60]!r} would be expanded to file names")
    return text.split()


def _merged(pieces: list[Piece]) -> Value:
    """Neighbouring text as one piece; no empty text beside others."""
    merged: list[Piece] = []
    for piece in pieces:
        if piece.kind == TEXT and merged and merged[-1].kind == TEXT:
            merged[-1] = Piece(TEXT, merged[-1].text + piece.text)
        else:
            merged.append(piece)
    full = [piece for piece in merged if piece.kind != TEXT or piece.text]
    return tuple(full or [Piece(TEXT, "")])
