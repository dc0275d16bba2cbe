"""Whether this rank is profiled, and by what. Where that is not possible the training goes on, and the log says why."""

from __future__ import annotations

from slurmopt import log
from slurmopt.config.profiler import PY_SPY
from slurmopt.errors import one_line
from slurmopt.job.external_profilers import tools
from slurmopt.job.external_profilers.attached import Attached
from slurmopt.job.external_profilers.report import Report
from slurmopt.job.external_profilers.wrapped import Wrapped
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.rank_args import RankArgs


def wrapped(call: RankArgs, attempt: int, facts: RankFacts) -> Wrapped | None:
    """What starts the training of this rank below nsys or ncu; None where it starts it itself."""
    if call.profiler is None or call.profiler.name == PY_SPY:
        return None
    found = _found(call, attempt, facts)
    return None if found is None else Wrapped(call.profiler, *found)


def attached(call: RankArgs, attempt: int, facts: RankFacts, pid: int) -> Attached | None:
    """py-spy at the process `pid` of this rank; None where none is wanted or possible."""
    if call.profiler is None or call.profiler.name != PY_SPY:
        return None
    found = _found(call, attempt, facts)
    return None if found is None else Attached(call.profiler, *found, pid)


def is_attached(call: RankArgs) -> bool:
    """Whether a process of this rank is to let py-spy in."""
    return call.profiler is not None and call.profiler.name == PY_SPY


def _found(call: RankArgs, attempt: int, facts: RankFacts) -> tuple[Report, str] | None:
    assert call.profiler is not None
    name = call.profiler.name
    if not call.profiler.wants(facts.rank, facts.local_rank):
        return None
    program, why = tools.program(name), tools.hindrance(name)
    if why is None and program is not None:
        try:
            return Report(call.folder, attempt, facts.rank, name), program
        except OSError as error:
            why = f"no temporary folder can be made: {one_line(str(error))}"
    log.warning(f"rank {facts.rank} is not profiled: {why}; the training goes on without {name}")
    return None
