"""The commands of a script, sorted: modules, lines that prepare the environment, variables, and the training itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath

from slurmopt.config.check import environment_variables
from slurmopt.errors import ConfigError
from slurmopt.importing.remarks import Remarks
from slurmopt.importing.shell import known_names
from slurmopt.importing.shell.known_names import SUBMIT_FOLDER, masked
from slurmopt.importing.shell.not_known import NotKnown
from slurmopt.importing.shell.programs import ENVIRONMENTS, PREPARES, PRINTS, is_hook, is_start_file
from slurmopt.importing.shell.scope import Scope, Value
from slurmopt.importing.shell.shell_syntax import ASSIGN, COMMAND, EXPORT, OTHER, Statement, Word


class Complicated(Exception):
    """The script is more than settings and one command. Its message says what it has."""


@dataclass
class Line:
    """A line that may have to run in the batch shell before the training."""

    line: int
    text: str
    needed: bool = True
    """Whether it has an effect; else only where a needed line uses what it sets."""
    sets: tuple[str, ...] = ()
    tolerant: bool = False
    """Whether the script goes on where it fails."""


@dataclass
class Body:
    """The sorted commands."""

    scope: Scope
    remarks: Remarks
    modules: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    variables: dict[str, Value | str] = field(default_factory=dict)
    main: Statement | None = None
    rendezvous: bool = False
    strict: bool = False
    """Whether `set -e` is in effect."""

    def setup(self) -> list[Line]:
        """The lines of environment.setup: those with an effect, and those that set what they use."""
        used: set[str] = set()
        kept: list[Line] = []
        for line in reversed(self.lines):
            if line.needed or used.intersection(line.sets):
                kept.append(line)
                used |= _names(line.text)
        return kept[::-1]


def _names(text: str) -> set[str]:
    """The variables that a line of bash uses."""
    return set(re.findall(r"\$\{?[#!]?([A-Za-z_]\w*)", text)) | set(re.findall(r"\[([A-Za-z_]\w*)\]", text))


def sort_out(body: Body, statements: list[Statement]) -> None:
    """Reads all statements into `body`. Raises Complicated."""
    for statement in statements:
        if statement.kind == OTHER:
            raise Complicated(f"line {statement.line} has {statement.why}")
        if body.main is not None:
            _after(body, statement)
        elif statement.kind == ASSIGN:
            _assign(body, statement)
        elif statement.kind == EXPORT:
            _export(body, statement)
        else:
            _command(body, statement)
    if body.main is None:
        raise Complicated("there is no command that could be the training")


def _after(body: Body, statement: Statement) -> None:
    if statement.kind == COMMAND and _program(statement) in (*PRINTS, "exit", "conda", "deactivate", "module"):
        body.remarks.left_out(statement.line, statement.text, "it comes after the training, and only prints")
        return
    first = body.main.line if body.main else 0
    raise Complicated(f"lines {first} and {statement.line} are two commands")


def _assign(body: Body, statement: Statement) -> None:
    for name, value in statement.assigned:
        body.scope.assign(name, value if value is not None else (), statement.text)
        if name in body.scope.rendezvous:
            body.rendezvous = True
            body.remarks.own(statement.line, statement.text, "slurmopt connects the ranks itself")
    body.lines.append(Line(statement.line, _one_line(statement), False, tuple(name for name, _ in statement.assigned)))


def _export(body: Body, statement: Statement) -> None:
    for (name, word), source in zip(statement.assigned, statement.sources, strict=True):
        text = f"export {source}"
        if not isinstance(word, list):
            _export_one(body, Statement(EXPORT, statement.line, text), name, word)
        else:
            raise Complicated(f"line {statement.line} exports an array")


def _export_one(body: Body, statement: Statement, name: str, word: Word | None) -> None:
    scope, remarks, shown = body.scope, body.remarks, masked(statement.text)
    if word is not None and not _refers_to(word, name):
        scope.assign(name, word, statement.text)
    if name in scope.rendezvous:
        body.rendezvous = True
        remarks.own(statement.line, shown, "slurmopt connects the ranks itself")
        return
    try:
        environment_variables([name], "export")
    except ConfigError as error:
        remarks.left_out(statement.line, shown, str(error))
        return
    if known_names.is_secret(name) and name in scope.constants:
        body.variables[name] = f"${{oc.env:{name}}}"
        remarks.moved(
            statement.line,
            shown,
            f"environment.variables.{name}: ${{oc.env:{name}}}; the secret is not copied: export it where you launch",
        )
        scope.exported.add(name)
        return
    _export_value(body, statement, name, word)


def _export_value(body: Body, statement: Statement, name: str, word: Word | None) -> None:
    scope = body.scope
    try:
        if word is None and not (name in scope.constants or name in scope.composed or name in scope.vectors):
            if name in scope.unknown:
                raise NotKnown(scope.unknown[name])
            body.remarks.own(statement.line, statement.text, "the job has the environment of the launch")
            return
        if word is not None and _refers_to(word, name):
            raise NotKnown("it extends the variable")
        value = scope.value(word, name) if word is not None else scope.value_of(name)
    except NotKnown as error:
        if name in scope.constants:
            del scope.constants[name]
        scope.unknown.pop(name, None)
        scope.exported.add(name)
        body.lines.append(Line(statement.line, _one_line(statement), sets=(name,)))
        body.remarks.moved(statement.line, masked(statement.text), f"environment.setup ({error})")
        return
    body.variables[name] = value
    body.lines.append(Line(statement.line, _one_line(statement), False, (name,)))
    scope.exported.add(name)
    body.remarks.moved(statement.line, statement.text, f"environment.variables.{name}")


def _refers_to(word: Word, name: str) -> bool:
    return any(name in re.findall(r"\w+", part.text) for part in word if part.kind != "text")


def _program(statement: Statement) -> str:
    if not statement.words:
        return ""
    first = statement.words[0]
    return PurePath(first[0].text).name if len(first) == 1 and first[0].kind == "text" else ""


def _command(body: Body, statement: Statement) -> None:
    program = _program(statement)
    if program in _REFUSED or (program == "eval" and not is_hook(statement.text)):
        raise Complicated(f"line {statement.line} has {program}")
    if program in ("module", "ml"):
        _module(body, statement, list(statement.sources[1:]))
    elif program == "set":
        _set(body, statement)
    elif program in PRINTS and not statement.redirected and _names(statement.text) & body.scope.names():
        body.remarks.left_out(statement.line, masked(statement.text), "it only prints what the script has computed")
    elif (tolerant := _is_tolerant(program, statement.sources[1:])) is not None:
        if program in ("cd", "pushd") and re.sub(r"[${}\"]", "", " ".join(statement.sources[1:2])) in SUBMIT_FOLDER:
            body.remarks.own(statement.line, statement.text, "the job starts in the folder of the launch")
        else:
            _setup(body, statement, tolerant)
    elif statement.words:
        body.main = statement


def _set(body: Body, statement: Statement) -> None:
    body.strict = body.strict or any(re.match(r"-[a-zA-Z]*e|errexit", word) for word in statement.sources[1:])
    body.remarks.own(statement.line, statement.text, "a line of environment.setup that fails ends the job")


def _is_tolerant(program: str, arguments: tuple[str, ...]) -> bool | None:
    """Whether the job goes on where a line that prepares it fails, as the script does; None for other programs. Without
    its environment or in another folder, a training would do harm."""
    if program in PRINTS or program in PREPARES or program == "deactivate":
        return True
    if program in ("source", "."):
        return is_start_file(arguments[0].strip("\"'") if arguments else "")
    if program in ENVIRONMENTS and "run" not in arguments[:1]:
        return arguments[:1] != ("activate",)
    return False if program in ("cd", "pushd", "eval") else None


_REFUSED = (
    "trap",
    "exit",
    "return",
    "read",
    "mapfile",
    "readarray",
    "declare",
    "local",
    "readonly",
    "alias",
    "let",
    "[",
    "test",
    "if",
)


def _setup(body: Body, statement: Statement, tolerant: bool) -> None:
    if statement.redirected and _program(statement) in ("cd", "pushd"):
        raise Complicated(f"line {statement.line} has a redirection")
    text = _one_line(statement)
    body.lines.append(Line(statement.line, text, tolerant=tolerant and not body.strict))
    body.remarks.moved(statement.line, masked(statement.text), "environment.setup")


_NO_STATE = frozenset({*PRINTS, *PREPARES} - {"unset", "shopt"})


def _module(body: Body, statement: Statement, arguments: list[str]) -> None:
    program = _program(statement)
    words = [word.strip("\"'") for word in arguments]
    if words[:1] in (["load"], ["add"], ["purge"]) or program == "module":
        action, names = (words[0] if words else ""), words[1:]
    else:
        action, names = ("load", words) if words and not words[0].startswith("-") else ("other", words)
    prepared = any(line.needed and line.text.split()[0] not in _NO_STATE for line in body.lines)
    plain = all(re.fullmatch(r"[\w./+@:-]+", name) for name in names)
    if action in ("load", "add") and names and plain and not prepared and not statement.redirected:
        body.modules += names
        body.remarks.moved(
            statement.line, statement.text, f"environment.modules: {', '.join(names)} (after module purge)"
        )
    elif action == "purge" and not prepared and not body.modules:
        body.remarks.own(statement.line, statement.text, "slurmopt purges before environment.modules")
        body.lines.append(Line(statement.line, "module purge", needed=False, sets=("module purge",)))
    else:
        _setup(body, statement, tolerant=action not in ("load", "add", "use", "swap", "switch"))


def _one_line(statement: Statement) -> str:
    text = re.sub(r"\\\n\s*", " ", statement.text)
    if "\n" in text:
        raise Complicated(f"line {statement.line} has a text of several lines")
    return text
