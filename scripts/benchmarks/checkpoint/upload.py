"""One upload of the same bytes by one client: python upload.py '{"client": …}'

Prints one JSON object: seconds, and what memory it took beyond the bytes. The server keeps nothing, and client and
server share the cores: what counts is what the client makes of them.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

BLOCK = 1 << 20
PART, CONNECTIONS = 16 << 20, 8
BUCKET = "bucket"
Upload = Callable[[str], object]


def _client(endpoint: str, **config: Any) -> Any:
    addressing = {"addressing_style": "path", **config.pop("s3", {})}
    settings = import_module("botocore.config").Config(s3=addressing, **config)
    return import_module("boto3").client("s3", endpoint_url=endpoint, config=settings)


def boto3_default(endpoint: str, file: Path, _: memoryview) -> Upload:
    """As most people call it."""
    client = _client(endpoint)
    return lambda key: client.upload_file(str(file), BUCKET, key)


def boto3_tuned(endpoint: str, file: Path, _: memoryview) -> Upload:
    """Larger parts, and no hashing that can be left out: its parts have no checksum."""
    client = _client(
        endpoint,
        max_pool_connections=4 * CONNECTIONS,
        request_checksum_calculation="when_required",
        s3={"payload_signing_enabled": False},
    )
    transfer = import_module("boto3.s3.transfer").TransferConfig(multipart_chunksize=PART, max_concurrency=CONNECTIONS)
    return lambda key: client.upload_file(str(file), BUCKET, key, Config=transfer)


def slurmopt(endpoint: str, _: Path, memory: memoryview) -> Upload:
    """As the writer does from the arena: both checksums included."""
    from slurmopt.checkpoint.format.rank_payload import PayloadWriter, Place, arena_blocks
    from slurmopt.storage.s3.store import S3Store

    store = S3Store(f"s3://{BUCKET}", endpoint=endpoint, region="us-east-1")

    def upload(key: str) -> None:
        size = len(memory) // 64 // 4096 * 4096
        places = [Place(f"tensor-{at}", (0,), (size // 4,), at, size) for at in range(0, 64 * size, size)]
        store.write(key, PayloadWriter(key, None, {}).pieces(arena_blocks(memory, places), memory))

    return upload


def s3torchconnector(endpoint: str, _: Path, memory: memoryview) -> Upload:
    """Its writer, fed in pieces."""
    connector = import_module("s3torchconnector")
    config = connector.S3ClientConfig(force_path_style=True, part_size=PART)
    checkpoint = connector.S3Checkpoint("us-east-1", endpoint, s3client_config=config)

    def upload(key: str) -> None:
        with checkpoint.writer(f"s3://{BUCKET}/{key}") as writer:
            for start in range(0, len(memory), PART):
                writer.write(memory[start : start + PART])

    return upload


CLIENTS: dict[str, Callable[[str, Path, memoryview], Upload]] = {
    "boto3.upload_file": boto3_default,
    "boto3, tuned": boto3_tuned,
    "slurmopt": slurmopt,
    "s3torchconnector": s3torchconnector,
}


def make_file(path: Path, size: int) -> None:
    block = os.urandom(BLOCK)
    with open(path, "wb") as file:
        for start in range(0, size, BLOCK):
            file.write(block[: size - start])


def _in_memory(file: Path) -> memoryview:
    memory = memoryview(mmap.mmap(-1, -(-file.stat().st_size // 4096) * 4096))
    with open(file, "rb") as source:
        source.readinto(memory)
    return memory


def main(given: dict[str, Any]) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    sys.path += given["peers"]
    file = Path(given["file"])
    try:
        upload = CLIENTS[given["client"]](given["endpoint"], file, _in_memory(file))
    except ImportError as error:
        print(json.dumps({"missing": str(error)}))
        return
    upload("first")  # connections, threads and imports are there from now on
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    upload("second")
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "peak": max(before, after) * 1024}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
