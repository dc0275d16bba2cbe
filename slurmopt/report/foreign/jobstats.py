"""Reads what jobstats has written into a job's AdminComment: `JS1:`, then base64 of gzipped JSON.

{"gpus": 1, "total_time": seconds, "nodes": {NODE: {"cpus": 12, "total_time": CPU-seconds, "used_memory": bytes,
 "total_memory": bytes, "gpu_utilization": {INDEX: percent}, "gpu_used_memory": {INDEX: bytes},
 "gpu_total_memory": {INDEX: bytes}}}}
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from dataclasses import dataclass, field

from slurmopt.run_folder.json_values import number

_PREFIX = "JS1:"
_MOST = 16 << 20
"""Bytes of JSON that are unpacked."""


@dataclass(frozen=True)
class NodeStats:
    """One node. Fields are None where jobstats does not tell."""

    node: str
    cpus: float | None = None
    cpu_seconds: float | None = None
    used_memory: float | None = None
    memory: float | None = None
    gpu_activity: dict[str, float] = field(default_factory=dict)
    """Index of a GPU → percent."""
    gpu_used: dict[str, float] = field(default_factory=dict)
    gpu_memory: dict[str, float] = field(default_factory=dict)


def parse(comment: str | None) -> list[NodeStats] | None:
    """The nodes; None where the comment is not of jobstats, or it had nothing to tell, as of short jobs."""
    if not comment or not comment.startswith(_PREFIX):
        return None
    try:
        packed = base64.b64decode(comment[len(_PREFIX) :], validate=True)
        unpacker = zlib.decompressobj(wbits=31)
        value = json.loads(unpacker.decompress(packed, _MOST))
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return None
    nodes = value.get("nodes") if isinstance(value, dict) else None
    if not isinstance(nodes, dict):
        return None
    return [_node(str(name), facts) for name, facts in nodes.items() if isinstance(facts, dict)]


def _node(name: str, facts: dict[str, object]) -> NodeStats:
    return NodeStats(
        node=name,
        cpus=number(facts.get("cpus")),
        cpu_seconds=number(facts.get("total_time")),
        used_memory=number(facts.get("used_memory")),
        memory=number(facts.get("total_memory")),
        gpu_activity=_by_gpu(facts.get("gpu_utilization")),
        gpu_used=_by_gpu(facts.get("gpu_used_memory")),
        gpu_memory=_by_gpu(facts.get("gpu_total_memory")),
    )


def _by_gpu(value: object) -> dict[str, float]:
    if not isinstance(value, dict):
        return {}
    return {str(index): found for index, item in value.items() if (found := number(item)) is not None}
