"""Checkpoints: how long a save blocks, until it is durable, to restore, and what it takes, beside other libraries.

Every library is measured in processes of its own, round by round, each time next to the bare copy, write and read of
the same bytes. Missed targets are shown and do not change the exit status: disks differ.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.checkpoint.discard_server import CERTIFICATE, discarding
from benchmarks.checkpoint.tables import tell_saves, tell_uploads
from benchmarks.measure import BenchError
from benchmarks.report import Report
from benchmarks.workbench import Workbench

HERE = Path(__file__).parent
PEERS = (
    "nobody",
    "slurmopt",
    "DCP async, thread",
    "DCP async, process",
    "slurmopt, one buffer",
    "torchsnapshot",
    "torch.save",
)
CLIENTS = ("boto3.upload_file", "boto3, tuned", "slurmopt", "s3torchconnector")
SAVES = 3
"""Of each process, after its first one."""
TIMEOUT = 600.0
Found = dict[str, list[dict[str, Any]]]
"""Of each peer, what each round gave."""


def bench(bench: Workbench, report: Report, runs: int, gib: float, peers: list[str]) -> None:
    for module, needed in (("torch", "checkpoints"), ("boto3", "uploads to S3")):
        if find_spec(module) is None:
            report.skip(f"{needed}: {module} is not installed here")
            return
    rounds = max(1, runs // SAVES)
    common = {"peers": peers, "gib": gib}
    tell_saves(report, _saves(bench, report, rounds, {**common, "saves": min(runs, SAVES), "busy": min(2.0, 2 * gib)}))
    for scheme in ("http", "https"):
        tell_uploads(report, scheme, _uploads(bench, report, rounds, scheme, common))


def _saves(bench: Workbench, report: Report, rounds: int, given: dict[str, Any]) -> Found:
    found: Found = defaultdict(list)
    for number in range(rounds):
        for peer in PEERS:
            folder = bench.place("checkpoint")
            print(f"round {number + 1} of {rounds}: {peer}", file=sys.stderr, flush=True)
            _take(report, found, peer, _run(bench, "worker.py", {**given, "peer": peer, "folder": str(folder)}))
            shutil.rmtree(folder)
    return found


def _uploads(bench: Workbench, report: Report, rounds: int, scheme: str, given: dict[str, Any]) -> Found:
    from benchmarks.checkpoint.upload import make_file

    found: Found = defaultdict(list)
    folder = bench.place("upload")
    make_file(folder / "file", int(given["gib"] * (1 << 30)))
    with discarding(folder if scheme == "https" else None) as endpoint:
        env = _credentials(folder / CERTIFICATE)
        for number in range(rounds):
            for client in CLIENTS:
                if client == "s3torchconnector" and scheme == "https":
                    continue  # it takes no certificate but those of the system
                print(f"round {number + 1} of {rounds}: {scheme}, {client}", file=sys.stderr, flush=True)
                words = {**given, "client": client, "endpoint": endpoint, "file": str(folder / "file")}
                _take(report, found, client, _run(bench, "upload.py", words, env))
    shutil.rmtree(folder)
    return found


def _credentials(certificate: Path) -> dict[str, str]:
    words = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_DEFAULT_REGION": "us-east-1"}
    return {**words, "AWS_CA_BUNDLE": str(certificate)} if certificate.exists() else words


def _take(report: Report, found: Found, name: str, result: dict[str, Any]) -> None:
    if "missing" not in result:
        found[name].append(result)
    elif (text := f"{name}: {result['missing']}") not in report.skipped:
        report.skip(text)


def _run(bench: Workbench, script: str, given: dict[str, Any], env: dict[str, str] | None = None) -> dict[str, Any]:
    argv = [bench.python, str(HERE / script), json.dumps(given)]
    own = {name: value for name, value in bench.env.items() if not name.startswith("AWS_")} | (env or {})
    process = subprocess.Popen(argv, env=own, cwd=bench.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    if process.returncode:
        raise BenchError(f"{script} {given} ended with {process.returncode}\n{err.decode()[-2000:]}")
    result: dict[str, Any] = json.loads(out)
    return result
