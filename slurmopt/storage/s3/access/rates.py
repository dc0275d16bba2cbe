"""Throughput of a bucket: by one connection, and by as many as checkpoints use."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Iterator

from slurmopt.checks.result import CheckResult, has_failed
from slurmopt.errors import SlurmoptError, StorageBroken
from slurmopt.storage.memory import staging
from slurmopt.storage.rates.rate import MIB, Done, Rate
from slurmopt.storage.rates.verdicts import shown
from slurmopt.storage.s3.access.probe import Probe
from slurmopt.storage.s3.access.reach import reach
from slurmopt.storage.s3.body import Body
from slurmopt.storage.s3.download import RANGE
from slurmopt.storage.s3.parallel import CONNECTIONS
from slurmopt.storage.s3.parts import PART

_FIRST = 8 * MIB
"""Bytes of the first object: how large the others may be, for the time that is given."""
_SINGLE = 64 * MIB
_GAIN = 4
"""How much faster all connections are than one, about: they get that much more to do."""
_DEADLINE = 120.0
_LEAST = 50.0
"""MiB/s of all connections, below which a checkpoint of 100 GiB takes over half an hour."""
Measured = tuple["Rate | None", CheckResult]


def measure(
    url: str, endpoint: str | None, region: str | None, most: int, seconds: float, done: Done
) -> list[Measured]:
    """Each rate with its verdict. `done` gets numbers of bytes, of at most `4 * most`."""
    probe = Probe(url, endpoint, region, _DEADLINE)
    answers = reach(probe)
    if has_failed(answers):  # a store would go on trying until its deadline
        return [(None, result) for result in answers if result.verdict == "fail"]
    key = f".slurmopt-bench-{os.urandom(6).hex()}"
    found: list[Measured] = []
    try:
        for rate in _rates(probe, key, most, seconds, done):
            found.append((rate, _verdict(rate)))
    except (SlurmoptError, FileNotFoundError) as error:
        mend = f"slurmopt storage show {shlex.quote(url)} says what is wrong"
        found.append((None, CheckResult("throughput", "fail", probe.reason(error), mend)))
    finally:
        with contextlib.suppress(SlurmoptError, FileNotFoundError):
            probe.store.delete([key])
    return found


def _rates(probe: Probe, key: str, most: int, seconds: float, done: Done) -> Iterator[Rate]:
    memory = staging(most)[:most]
    for start in range(0, most, _FIRST):  # noise: some servers and proxies compress
        memory[start : start + _FIRST] = os.urandom(min(_FIRST, most - start))
    single = _put(probe, key, memory[: min(_FIRST, most)])  # connections, credentials and TLS are there from now on
    size = _fitting(single, seconds, min(_SINGLE, most))
    single = _put(probe, key, memory[:size])
    done(size)
    yield single
    yield _get(probe, key, memory[:size])
    done(size)
    size = _fitting(single, seconds * _GAIN, most)
    yield _put_parallel(probe, key, memory[:size])
    done(size)
    yield _get_parallel(probe, key, memory[:size])
    done(size)


def _fitting(rate: Rate, seconds: float, most: int) -> int:
    """Bytes that take about `seconds` at this rate: whole MiB, at least one."""
    return min(most, max(MIB, int(rate.count / max(rate.seconds, 1e-6) * seconds) // MIB * MIB))


def _put(probe: Probe, key: str, data: memoryview) -> Rate:
    body = Body([data])
    options = {"Body": body, **body.checksum(), **probe.store.payload}
    began = time.perf_counter()
    probe.store.attempt(lambda: probe.store.request("put_object", key, **options), key)
    took = time.perf_counter() - began
    return Rate("write, one connection", "MiB/s", len(data), took, f"one put of {len(data) // MIB} MiB")


def _get(probe: Probe, key: str, into: memoryview) -> Rate:
    def fetch() -> int:
        content, count = probe.store.request("get_object", key)["Body"], 0
        while count < len(into) and (length := len(content.read(MIB))):
            count += length
        return count

    began = time.perf_counter()
    count = probe.store.attempt(fetch, key)
    took = time.perf_counter() - began
    if count < len(into):
        raise StorageBroken(f"{len(into):,} bytes were written, and {count:,} are read back")
    return Rate("read, one connection", "MiB/s", count, took, f"one get of {count // MIB} MiB")


def _put_parallel(probe: Probe, key: str, data: memoryview) -> Rate:
    began = time.perf_counter()
    probe.store.write(key, [data])
    took = time.perf_counter() - began
    how = f"{len(data) // MIB} MiB in parts of {PART // MIB} MiB, {_connections(data, PART)}, with checksums"
    return Rate("write, parallel", "MiB/s", len(data), took, how)


def _get_parallel(probe: Probe, key: str, into: memoryview) -> Rate:
    began = time.perf_counter()
    probe.store.read_into(key, 0, into)
    took = time.perf_counter() - began
    how = f"{len(into) // MIB} MiB in ranges of {RANGE // MIB} MiB, {_connections(into, RANGE)}"
    return Rate("read, parallel", "MiB/s", len(into), took, how)


def _connections(data: memoryview, piece: int) -> str:
    count = min(CONNECTIONS, -(-len(data) // piece))
    return "1 connection" if count == 1 else f"{count} connections"


def _verdict(rate: Rate) -> CheckResult:
    text = f"{shown(rate)} ({rate.how})"
    if "parallel" not in rate.name or rate.per_second >= _LEAST:
        return CheckResult(rate.name, "pass", text)
    mend = "use a bucket in the region of the nodes, a VPC endpoint for S3, or a larger instance"
    return CheckResult(rate.name, "fail" if rate.per_second < _LEAST / 10 else "warn", text, mend)
