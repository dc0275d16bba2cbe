"""Reads what the samplers of a run's nodes measured, in several processes, in a bounded amount of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slurmopt.errors import StorageError, one_line, with_place
from slurmopt.ledger.record import Sample
from slurmopt.report.records.rank_samples import rank_samples
from slurmopt.report.records.thin_series import thinned
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series import series as node_series
from slurmopt.run_folder.series.series import Series
from slurmopt.sweeps.status.parallel import parallel_map

_MOST_VALUES = 1_250_000
"""Of all nodes and attempts together: about 40 MB. Of more, rows are merged."""
_NOT_SHOWN = frozenset(
    {
        *("gpu.mem_util", "gpu.margin", "gpu.clock_mem", "gpu.throttle_sync", "gpu.occupancy", "gpu.remapped_rows"),
        *("gpu.pcie_rx", "gpu.pcie_tx", "gpu.nvlink_rx", "gpu.nvlink_tx", "gpu.fp16", "gpu.fp32", "gpu.fp64"),
        *("node.io_write", "node.disk_write", "rank.tokens", "rank.samples"),
    }
)
"""Columns, without the number of the GPU or rank, that no report looks at: a third of those of a large run."""
_FEWEST_ROWS = 12
_MOST_KEPT = 32_000_000
"""Values of all together: about a gigabyte. The fewest rows of 10,000 nodes have fewer."""
_MOST_SAMPLES = 40_000
"""Of all ranks together."""
_FEWEST_SAMPLES = 8
_FEW = 8
"""Nodes up to which one process reads them as quickly."""


@dataclass
class AttemptSeries:
    """What the samplers measured during an attempt."""

    nodes: dict[str, Series] = field(default_factory=dict)
    samples: dict[int, tuple[Sample, ...]] = field(default_factory=dict)
    """Rank → its earlier reports."""


@dataclass(frozen=True)
class _Node:
    attempt: int
    name: str


@dataclass(frozen=True)
class _Read:
    series: Series | None
    samples: dict[int, tuple[Sample, ...]]
    problem: str | None = None


def read_all(run: RunFolder, attempts: Sequence[int], problems: list[str]) -> dict[int, AttemptSeries]:
    """Attempt → what was measured. A series that cannot be read becomes a line in `problems`."""
    found = {attempt: AttemptSeries() for attempt in attempts}
    nodes = [_Node(attempt, name) for attempt in attempts for name in _names(run, attempt, problems)]

    def read(node: _Node) -> _Read:
        return _read(run, node, len(nodes))

    kept = 0
    for node, one in zip(nodes, parallel_map(read, nodes) if len(nodes) > _FEW else map(read, nodes), strict=True):
        if one.problem is not None:
            problems.append(one.problem)
        kept += 0 if one.series is None else len(one.series.times) * len(one.series.values)
        if kept > _MOST_KEPT:
            problems.append(f"all series together have more than {_MOST_KEPT:,} values: only the first ones are read")
            break
        if one.series is not None:
            found[node.attempt].nodes[node.name] = one.series
            found[node.attempt].samples |= one.samples
    return found


def wanted(column: str) -> bool:
    """Whether a report looks at a column."""
    part, _, name = column.partition(".")
    return f"{part.rstrip('0123456789')}.{name}" not in _NOT_SHOWN


def _names(run: RunFolder, attempt: int, problems: list[str]) -> list[str]:
    try:
        return run.nodes_with_series(attempt)
    except OSError as error:
        problems.append(f"attempt {attempt}: its series cannot be read: {one_line(with_place(error))}")
        return []


def _read(run: RunFolder, node: _Node, nodes: int) -> _Read:
    files = run.series(node.attempt, node.name), run.recent_series(node.attempt, node.name)
    try:
        series = node_series.read(*files, wanted=wanted)
    except (OSError, StorageError) as error:
        what = f"attempt {node.attempt}: the series of {one_line(node.name)} cannot be read"
        return _Read(None, {}, f"{what}: {one_line(with_place(error))}")
    if series is None:
        return _Read(None, {})
    samples = rank_samples(series, max(_FEWEST_SAMPLES, _MOST_SAMPLES // nodes))
    return _Read(thinned(series, max(_FEWEST_ROWS, _MOST_VALUES // (nodes * max(1, len(series.values))))), samples)
