"""A small training whose state shows a mix: every element of every tensor is the same number, of one step and attempt.

Its ranks are forked from a server that has imported torch, so that a start takes a fraction of a second; the writer
processes are real ones. What a rank has to say it appends to a file, one JSON object a line, at once.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from chaos_runs.alive import children, content, found, group_lives, words
from slurmopt.job.facts.rank_facts import facts_from
from slurmopt.job.worker.current_run import CurrentRun
from slurmopt.run_folder.layout import RunFolder

if TYPE_CHECKING:  # whoever only starts the ranks needs no torch
    import torch

    from slurmopt.checkpoint.checkpointer import Checkpointer

_CODE = 256
"""An element is step · 256 + attempt: exact in fp32 up to step 65535."""
_FROZEN = 3.0
_END_SECONDS = 30.0


@dataclass(frozen=True)
class Plan:
    """One attempt. `steps` None: until it is killed; `force`: each save waits for its buffer, and until durable."""

    folder: Path
    attempt: int
    config: dict[str, Any]
    ranks: int = 2
    kib: int = 1024
    steps: int | None = None
    force: bool = False
    seed: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    user: int | None = None
    """Whose processes the ranks are; None: the caller's."""
    pace: float = 0.0
    """Seconds that each step takes more: for who waits for something slow, and needs no thousands of steps."""

    @property
    def said(self) -> Path:
        return self.folder / f"said-{self.attempt}.jsonl"

    @property
    def stderr(self) -> Path:
        return self.folder / f"stderr-{self.attempt}.log"


class Tensors:
    """A part of the state; `per_rank` as `rng_state()` has it."""

    def __init__(self, tensors: dict[str, torch.Tensor], per_rank: bool = False) -> None:
        self.tensors, self.per_rank = tensors, per_rank

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self.tensors

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        self.tensors = dict(tensors)


def code_of(step: int, attempt: int) -> int:
    return step * _CODE + attempt


def make_state(kib: int) -> dict[str, Any]:
    import torch

    return {
        "model": Tensors(
            {
                "weight": torch.empty(max(1, kib // 4), 1024),
                "bias": torch.empty(77, dtype=torch.float64),
                "frozen": torch.empty(64, 1024),
            }
        ),
        "own": Tensors({"random": torch.empty(3000)}, per_rank=True),
        "note": 0,
    }


def fill(state: dict[str, Any], code: int) -> None:
    for part in (state["model"], state["own"]):
        for name, tensor in part.tensors.items():
            tensor.fill_(_FROZEN if name == "frozen" and code >= 0 else code)
    state["note"] = code


def wrong_in(state: dict[str, Any], code: int) -> str:
    """What of a restored state is not of that code; empty where all is."""
    for part in (state["model"], state["own"]):
        for name, tensor in part.tensors.items():
            found = tensor.unique().tolist()
            if found != [_FROZEN if name == "frozen" else code]:
                return f"{name} holds {[divmod(int(value), _CODE) for value in found[:3]]}"
    return "" if state["note"] == code else f"the plain value is {state['note']}"


class Rank:
    """One rank of one attempt, in its own process."""

    def __init__(self, rank: int, plan: Plan) -> None:
        self._rank, self._plan = rank, plan
        self._said = os.open(plan.said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._random = random.Random(f"{plan.seed} {plan.attempt}")  # the same on all ranks: they save together

    def say(self, word: str, **more: Any) -> None:
        line = json.dumps({"said": word, "rank": self._rank, "time": time.monotonic(), **more}) + "\n"
        os.write(self._said, line.encode())

    def train(self) -> None:
        from slurmopt.checkpoint.checkpointer import Checkpointer

        self._meet()
        plan, state = self._plan, make_state(self._plan.kib)
        fill(state, -1)
        facts = facts_from({"RANK": str(self._rank), "WORLD_SIZE": str(plan.ranks), "LOCAL_RANK": str(self._rank)})
        with Checkpointer(plan.config, CurrentRun(RunFolder(plan.folder), plan.attempt, facts)) as checkpointer:
            self.say("opened")
            expected = newest(roots(plan)) if self._rank == 0 else None
            step = checkpointer.restore(state)
            found = state["note"] if step else 0
            wrong = wrong_in(state, found) if step else ""
            if found // _CODE != step:
                wrong = f"it says step {step} and holds step {found // _CODE}"
            self.say("restored", step=step, wrong=wrong, expected=expected)
            self._steps(checkpointer, state, step)
        self.say("closed")

    def _steps(self, checkpointer: Checkpointer, state: dict[str, Any], step: int) -> None:
        plan = self._plan
        while plan.steps is None or step < plan.steps:
            step += 1
            fill(state, code_of(step, plan.attempt))
            saved = checkpointer.save(step, state, force=plan.force)
            if saved:
                self.say("saved", step=step)
            if saved and (plan.force or self._random.random() < 0.3):
                self.say("durable" if checkpointer.wait() else "failed", step=step)
            time.sleep(plan.pace + self._random.choice((0, 0, 0.002, 0.01)))

    def _meet(self) -> None:
        import torch.distributed as dist

        if self._plan.ranks > 1:
            store = self._plan.folder / f"meeting-{self._plan.attempt}"
            dist.init_process_group("gloo", init_method=f"file://{store}", rank=self._rank, world_size=self._plan.ranks)


def roots(plan: Plan) -> dict[str, Path]:
    """Where the tiers of a plan lie."""
    found = {"shared": plan.folder / "checkpoints"}
    scratch = plan.config.get("scratch", {}).get("path")
    if scratch:
        found["scratch"] = Path(scratch) / plan.folder.parent.name / plan.folder.name
    return found


def records(root: Path) -> list[dict[str, Any]]:
    """The ledger as this file reads it: by itself, not with the code under test; damaged records are left out."""
    read = []
    for path in found(root, "commits/[0-9]*.json"):
        with contextlib.suppress(ValueError):
            record = json.loads(data := content(path))
            if isinstance(record, dict) and data == _as_put(record):
                read.append({**record, "file": path.name})
    return read


def _as_put(record: dict[str, Any]) -> bytes:
    """A record as the ledger writes it, its checksum last."""
    rest = {name: value for name, value in record.items() if name != "xxh3"}
    checksum = xxhash.xxh3_128_hexdigest(json.dumps(rest, sort_keys=True).encode())
    return json.dumps({**rest, "xxh3": checksum}).encode()


def standing(root: Path) -> list[dict[str, Any]]:
    """The commits that count, oldest first."""
    all_of_it = records(root)
    gone = {name for each in all_of_it if each["kind"] in ("prune", "damaged") for name in each["checkpoints"]}
    commits = [each for each in all_of_it if each["kind"] == "commit"]
    left = [each for each in commits if f"step-{each['step']:08d}/{each['unique']}" not in gone]
    return sorted(left, key=lambda each: (each["step"], each["attempt"]))


def newest(places: dict[str, Path]) -> int:
    """The step of the newest committed checkpoint of all tiers; 0 for none."""
    return max((each["step"] for root in places.values() for each in standing(root)), default=0)


def durable(plan: Plan) -> int:
    """The newest step that was reported durable so far: in the journal, or to the training."""
    paths = [*found(plan.folder, "said-*.jsonl"), plan.folder / "events.jsonl"]
    lines = [line for path in paths for line in content(path).splitlines()]
    told = [json.loads(line) for line in lines if line.endswith(b"}")]
    return max((e["step"] for e in told if e.get("said") == "durable" or e.get("event") == "checkpoint"), default=0)


def run_rank(rank: int, plan: Plan) -> None:
    """The target of a rank's process: with its writer it is a process group, which a signal reaches at once."""
    import torch

    os.setpgid(0, 0)
    os.environ.update(plan.environment, GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    if plan.user is not None:
        os.setgroups([])
        os.setgid(plan.user)
        os.setuid(plan.user)
    threading.Thread(target=end_with_chaos, daemon=True).start()
    err = os.open(plan.stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(err, 1)
    os.dup2(err, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", 1, closefd=False), os.fdopen(2, "w", 1, closefd=False)
    one = Rank(rank, plan)
    try:
        one.train()
    except BaseException as error:
        one.say("failed with", error=f"{type(error).__name__}: {error}")
        raise


def end_with_chaos() -> None:
    """However that ended: nobody else ends a training that was to run until it is killed."""
    chaos = multiprocessing.parent_process()
    if chaos is not None:
        chaos.join()
        os.killpg(0, signal.SIGKILL)


_context = multiprocessing.get_context("forkserver")
_PRELOADED = ["slurmopt.checkpoint.checkpointer", "torch.distributed.tensor"]


class Training:
    """An attempt under way, as whoever started it sees it."""

    def __init__(self, plan: Plan) -> None:
        _context.set_forkserver_preload(_PRELOADED)
        plan.folder.mkdir(parents=True, exist_ok=True)
        if plan.user is not None:
            os.chown(plan.folder, plan.user, plan.user)
        self.plan = plan
        self.ranks: list[ForkServerProcess] = []
        for rank in range(plan.ranks):
            process = _context.Process(target=run_rank, args=(rank, plan))
            process.start()
            self.ranks.append(process)

    def said(self, word: str, rank: int | None = None) -> list[dict[str, Any]]:
        spoken = [json.loads(line) for line in content(self.plan.said).splitlines() if line.endswith(b"}")]
        return [each for each in spoken if each["said"] == word and rank in (None, each["rank"])]

    def errors(self) -> str:
        return self.plan.stderr.read_text(errors="replace") if self.plan.stderr.exists() else ""

    def first_error(self) -> str:
        """Of the rank that failed first: the others then only miss it."""
        failed = min(self.said("failed with"), key=lambda each: each["time"], default=None)
        return f"rank {failed['rank']}: {failed['error']}" if failed else "no rank told an error"

    def alive(self) -> bool:
        return all(process.is_alive() for process in self.ranks)

    def writers(self, rank: int) -> list[int]:
        """The process ids of a rank's writer."""
        return [pid for pid in children(self.ranks[rank].pid or 0) if b"slurmopt.checkpoint.writer.main" in words(pid)]

    def kill(self) -> None:
        """Every process of the attempt, as when the power goes."""
        for process in self.ranks:
            process.kill()  # it may not have made its group yet
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid or 0, signal.SIGKILL)

    def end(self) -> None:
        """`kill`, and until no process of it is left that could still write."""
        self.kill()
        self.wait(_END_SECONDS)
        deadline = time.monotonic() + _END_SECONDS
        while any(group_lives(process.pid or 0) for process in self.ranks) and time.monotonic() < deadline:
            time.sleep(0.01)

    def wait(self, seconds: float = 60) -> list[int | None]:
        """Until all ranks have ended by themselves; their exit codes."""
        deadline = time.monotonic() + seconds
        for process in self.ranks:
            process.join(max(0, deadline - time.monotonic()))
        return [process.exitcode for process in self.ranks]


def next_attempt(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, attempt=plan.attempt + 1, **changes)
