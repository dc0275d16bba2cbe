"""A batch script as an experiment: the text of its config, further files, and what became of each line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from slurmopt.errors import InputError
from slurmopt.importing.body import Body, Complicated, Line, sort_out
from slurmopt.importing.command_text import command, literal, shell_words, value_text, without_braces
from slurmopt.importing.points import TASK_KEY, Keys, keeps_its_text, points
from slurmopt.importing.remarks import Remark, Remarks
from slurmopt.importing.sbatch.directives import Ignored, directives
from slurmopt.importing.sbatch.geometry import Geometry, nodes_value
from slurmopt.importing.sbatch.requested import Requested, requested
from slurmopt.importing.shell import known_names
from slurmopt.importing.shell.known_names import TASK_ID, masked
from slurmopt.importing.shell.not_known import NotKnown
from slurmopt.importing.shell.scope import SYMBOL, TEXT, Piece, Scope, Value
from slurmopt.importing.shell.shell_syntax import statements
from slurmopt.importing.training import Training, training
from slurmopt.importing.yaml_text import Number, document

_READABLE = ("bash", "sh", "dash", "ksh")
_ORDER = ("nodes", "gpus_per_node", "gpu_type", "tasks_per_node", "cpus_per_task", "memory", "memory_per_cpu",
          "memory_per_gpu", "time", "partition")  # fmt: skip


@dataclass
class Imported:
    """The experiment that a script has become."""

    name: str
    files: dict[str, str]
    """Path, from the folder of the launch → text; the config comes first."""
    remarks: list[Remark]
    kept: str = ""
    """Why the script is kept as a command; empty if it was taken apart."""
    points: int = 1
    """The number of points of the sweep; 1 without one."""
    warnings: list[str] = field(default_factory=list)
    private: list[str] = field(default_factory=list)
    """Those of the files that only their owner may read: a copy of a script that has a secret."""


def imported(
    text: str, script: str, name: str | None, shell: list[str], lines_of: Callable[[str], list[str]]
) -> Imported:
    """The experiment of a script. `script`: its file name; `shell`: the words of its first line. Raises InputError."""
    given, ignored = directives(text)
    remarks = Remarks([])
    wanted = requested(given, remarks)
    _say_ignored(remarks, ignored)
    made = Imported(name or experiment_name(wanted.name or "", script), {}, [])
    _warn(made, text)
    body, task = None, None
    apart = remarks.all.copy()
    try:
        body, task = _taken_apart(made, text, shell, wanted, remarks, lines_of)
        config, extra = _config(made, wanted, body, task)
    except (Complicated, NotKnown) as error:
        made.kept = str(error)
        _keep_secrets(made, text)
        if wanted.shape.uneven:
            made.warnings.append(f"{wanted.shape.uneven}: a srun without --ntasks starts {wanted.shape.tasks}")
        remarks.all = apart
        body, task = Body(Scope(wanted.shape, wanted.tasks), remarks), _kept(made, shell, wanted)
        config, extra = _config(made, wanted, body, task)
        extra = {**extra, f"conf/experiment/{made.name}.sh": text}
    made.files = {f"conf/experiment/{made.name}.yaml": _document(config, script, made), **extra}
    made.remarks = remarks.ordered()
    return made


def experiment_name(wanted: str, script: str) -> str:
    """The name of the experiment: that of the job, else of the file, in the characters that Hydra's overrides take."""
    for text in (wanted, re.sub(r"\.(sbatch|slurm|sh|bash|job|batch)$", "", script)):
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")
        if plain and re.search(r"[A-Za-z]", plain):
            return plain[:80]
    return "imported"


def _say_ignored(remarks: Remarks, ignored: list[Ignored]) -> None:
    for item in ignored:
        remarks.left_out(item.line, item.text, item.why)


def _warn(made: Imported, text: str) -> None:
    made.warnings += [
        f"line {number} seems to have a secret: pass it as ${{oc.env:NAME}} in environment.variables"
        for number in known_names.secret_lines(text, exports=False)
    ]


def _keep_secrets(made: Imported, text: str) -> None:
    """A script that is kept keeps its secrets, also those that would be left out of a config."""
    path, found = f"conf/experiment/{made.name}.sh", known_names.secret_lines(text)
    if found:
        where = f"line {found[0]}" if len(found) == 1 else f"lines {', '.join(map(str, found))}"
        made.warnings = [f"{path} has a secret in {where}: take it out there, and export it where you launch"]
        made.private.append(path)


def _taken_apart(
    made: Imported,
    text: str,
    shell: list[str],
    wanted: Requested,
    remarks: Remarks,
    lines_of: Callable[[str], list[str]],
) -> tuple[Body, Training]:
    name = shell[0].rpartition("/")[2]
    if name not in _READABLE:
        raise Complicated(f"line 1: only scripts for {', '.join(_READABLE)} are taken apart, not {name}")
    scope = Scope(wanted.shape, wanted.tasks, lines_of)
    body = Body(scope, remarks)
    if shell[1:2] and "l" in shell[1]:
        _login_shell(body)
    sort_out(body, statements(text))
    task = training(body)
    _say_ranks(remarks, wanted.shape, task)
    _say_hook(made, body, shell)
    return body, task


def _say_hook(made: Imported, body: Body, shell: list[str]) -> None:
    """conda activate is a function that only its hook, or a start file, defines."""
    texts = [line.text for line in body.setup()]
    activates = next(
        (at for at, text in enumerate(texts) if re.match(r"(conda|mamba|micromamba) activate", text)), None
    )
    if (
        activates is not None
        and not any(re.match(r"source|\.|eval", text) for text in texts[:activates])
        and not shell[1:]
    ):
        made.warnings.append(
            'conda activate needs its hook in a batch shell: before it, eval "$(conda shell.bash hook)"'
        )


def _say_ranks(remarks: Remarks, shape: Geometry, task: Training) -> None:
    """The tasks of the script are launchers, and the ranks are what these start."""
    now = {"tasks_per_node": task.tasks_per_node, "cpus_per_task": task.cpus_per_task}
    if now["tasks_per_node"] == shape.tasks_per_node:
        return
    for at, item in enumerate(remarks.all):
        for key, value in now.items():
            if item.to.startswith(f"resources.{key}: "):
                to = f"resources.{key}: {value} (for each process that the launcher starts)"
                remarks.all[at] = replace(item, to=to)


def _kept(made: Imported, shell: list[str], wanted: Requested) -> Training:
    """The whole script as the command. It runs once, on the first node, as under sbatch."""
    words = [*shell, f"conf/experiment/{made.name}.sh"]
    values: list[Value] = [(Piece(TEXT, word),) for word in words]
    task = Training(values, "job", "auto", wanted.shape.tasks_per_node, wanted.shape.cpus_per_task)
    if wanted.tasks:
        tasks = wanted.tasks
        limits = {"COUNT": len(tasks), "MIN": min(tasks), "MAX": max(tasks)}
        task.variables = {f"SLURM_ARRAY_TASK_{key}": str(value) for key, value in limits.items()}
    return task


def _config(made: Imported, wanted: Requested, body: Body, task: Training) -> tuple[dict[str, Any], dict[str, str]]:
    """The groups of the config, and further files."""
    keys = Keys()
    words = _words(body, task, keys)
    variables = _variables(wanted, body, task, keys)
    setup = [_setup_text(line) for line in _setup(body)]
    if wanted.tasks and not set(keys.used()) & set(body.scope.vectors):
        variables[TASK_ID] = f"${{{keys.key(TASK_ID)}}}"
    own, sweep, params, extra = _own_keys(made, wanted, body, task, keys)
    _say_variables(body, keys)
    config: dict[str, Any] = {"task": _task(task, words), "resources": _resources(wanted, task)}
    environment = {"modules": body.modules, "setup": setup, "variables": variables, "workdir": wanted.workdir}
    config["environment"] = {key: value for key, value in environment.items() if value}
    config |= {"restart": wanted.restart, "sweep": sweep, "own": own}
    config["hydra"] = {"sweeper": {"params": params}} if params else {}
    return {key: value for key, value in config.items() if value}, extra


def _words(body: Body, task: Training, keys: Keys) -> list[str]:
    try:
        return [value_text(value, keys.key) for value in shell_words(task.words)]
    except NotKnown as error:
        raise Complicated(f"line {body.main.line if body.main else 1}: {error}") from error


def _say_variables(body: Body, keys: Keys) -> None:
    """Where the plain variables of the script are now."""
    setup = [id(line) for line in _setup(body)]
    for line in body.lines:
        if line.needed or line.text.startswith("export ") or set(line.sets) & {*body.scope.rendezvous, "module purge"}:
            continue
        used = [keys.key(name) for name in line.sets if name in keys.used()]
        if id(line) in setup:
            used.append("environment.setup")
        to = ", ".join(used) or "its value is where it was used"
        body.remarks.moved(line.line, masked(line.text), f"key {to}" if used and used != ["environment.setup"] else to)


def _setup_text(line: Line) -> str:
    try:
        return without_braces(line.text) + (" || true" if line.tolerant else "")
    except NotKnown as error:
        raise Complicated(f"line {line.line}: {error}") from error


def _login_shell(body: Body) -> None:
    lines = ("source /etc/profile", "if [ -r ~/.bash_profile ]; then source ~/.bash_profile; fi")
    body.lines[:0] = [Line(1, line, tolerant=True) for line in lines]
    body.remarks.moved(1, "#!… -l", "environment.setup: the files that a login shell reads")


def _setup(body: Body) -> list[Any]:
    if not body.modules:
        for line in body.lines:
            line.needed = line.needed or line.text == "module purge"
    lines, tasks = body.setup(), body.scope.tasks
    for line in lines:
        if tasks and tasks != list(range(len(tasks))) and "SLURM_ARRAY_TASK" in line.text:
            raise Complicated(f"line {line.line} uses the number of the array task before the training")
    return lines


def _variables(wanted: Requested, body: Body, task: Training, keys: Keys) -> dict[str, str]:
    lines = {name for line in _setup(body) for name in line.sets}
    found = {**wanted.variables, **task.variables}
    for name, value in body.variables.items():
        if name in lines and not isinstance(value, str):
            continue  # exported by a line of environment.setup, which needs it
        found[name] = value if isinstance(value, str) else value_text(value, keys.key)
    return found


def _task(task: Training, words: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {"command": command(words)}
    if task.per != "auto":
        made["per"] = task.per
    if task.distributed != "auto":
        made["distributed"] = task.distributed
    return made


def _resources(wanted: Requested, task: Training) -> dict[str, Any]:
    shape: Geometry = wanted.shape
    held: dict[str, Any] = dict(wanted.resources)
    if shape.most_nodes > 1:
        held["nodes"] = nodes_value(shape)
    if shape.gpus_per_node:
        held["gpus_per_node"] = shape.gpus_per_node
        held["gpu_type"] = shape.gpu_type
    if task.tasks_per_node != max(1, shape.gpus_per_node):
        held["tasks_per_node"] = task.tasks_per_node
    held["cpus_per_task"] = task.cpus_per_task
    held["extra"] = wanted.extra
    ordered = {key: held.pop(key) for key in _ORDER if key in held}
    return {key: value for key, value in {**ordered, **held}.items() if value not in (None, {}, "")}


def _own_keys(
    made: Imported, wanted: Requested, body: Body, task: Training, keys: Keys
) -> tuple[dict[str, Any], dict[str, Any], dict[str, str], dict[str, str]]:
    """The keys for the variables of the script, the sweep over those that differ, its axes, and its file of points."""
    scope, exact = body.scope, _exact(body, task, keys)
    own = {}
    for symbol, key in keys.used().items():
        text = scope.vectors[symbol][0] if symbol in scope.vectors else scope.constants.get(symbol, "")
        own[key] = _own(text, key in exact)
    vectors = {key: scope.vectors[symbol] for symbol, key in keys.used().items() if symbol in scope.vectors}
    if any("${" in value for values in vectors.values() for value in values):
        raise Complicated("a value of the array has ${")
    made.points = len(wanted.tasks or [None])
    if made.points == 1 or not vectors:
        return own, {}, {}, {}
    swept = points(vectors, exact)
    sweep: dict[str, Any] = {"zip": swept.zip} if swept.zip else {}
    extra = {}
    if swept.file is not None:
        path = f"conf/experiment/{made.name}{swept.suffix}"
        sweep["points"], extra[path] = path, swept.file
    if wanted.at_once is not None:
        sweep["at_once"] = wanted.at_once
    return own, sweep, swept.params, extra


def _own(text: str, exact: bool) -> Any:
    text = literal(text)
    return (
        Number(text)
        if keeps_its_text(text, exact) and re.fullmatch(r"[\d.eE-]+", text) and text not in (".", "-")
        else text
    )


def _exact(body: Body, task: Training, keys: Keys) -> set[str]:
    """The keys that are part of a longer word, such as a file name: their values must stay as they are written."""
    values = [*task.words, *(value for value in body.variables.values() if not isinstance(value, str))]
    composed = [value for value in values if not _alone(value)]
    return {keys.key(piece.text) for value in composed for piece in value if piece.kind == SYMBOL}


def _alone(value: Value) -> bool:
    return len(value) == 1 or (len(value) == 2 and value[0].text.startswith("-") and value[0].text.endswith("="))


def _document(config: dict[str, Any], script: str, made: Imported) -> str:
    heading = [f"From {masked(script)} by slurmopt import."]
    if made.kept:
        heading.append(f"The script runs as it is, because {made.kept}.")
    own = config.pop("own", {})
    comments = {TASK_KEY: f"in place of {TASK_ID}"} if TASK_KEY in own else {}
    groups = ("task", "resources", "environment", "restart", "sweep")
    ordered: dict[str, Any] = {key: config[key] for key in groups if key in config}
    last = {"hydra": config["hydra"]} if "hydra" in config else {}
    return document({**ordered, **own, **last}, heading, comments)


def check_name(name: str) -> str:
    """The name that was asked for. Raises InputError if Hydra could not take it."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}", name):
        raise InputError(f"import: {name!r} is not valid; valid: letters, digits, - and _")
    return name
