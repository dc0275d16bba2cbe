from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from private_cluster import wait_until
from s3_server import S3Server, new_folder


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One server for all tests of the session that leave it running."""
    server = S3Server.start(new_folder())
    yield server
    server.stop()


@pytest.fixture(scope="module")
def server_to_kill() -> Iterator[S3Server]:
    server = S3Server.start(new_folder())
    yield server
    server.stop()


@pytest.fixture
def mortal_server(server_to_kill: S3Server) -> Iterator[S3Server]:
    """A server that a test may kill; the next test finds it running again."""
    yield server_to_kill
    if not server_to_kill.pids():
        server_to_kill.restart()


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds the developer's own account."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    """moto's HTTP server in a process of its own, for what the real server does not know: tags, classes, KMS."""
    pytest.importorskip("moto", reason="NOT TESTED: tags, storage class, KMS and checksums need moto[server]")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(port), 120, "moto answers")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with files, folders, links inside, a program and a file with a hole."""
    root = tmp_path / "data set"
    (root / "a" / "b").mkdir(parents=True)
    (root / "empty folder").mkdir()
    for number in range(20):
        (root / "a" / "b" / f"{number}.txt").write_text(f"sample {number}\n")
    (root / "empty").touch()
    (root / "program").write_text("#!/bin/sh\n")
    (root / "program").chmod(0o755)
    (root / "relative").symlink_to("a/b/3.txt")
    (root / "a" / "absolute").symlink_to(root / "program")
    (root / "nothing").symlink_to("a/nothing")
    (root / os.fsdecode(b"not \xff UTF-8")).write_text("x")
    with open(root / "hole", "wb") as file:
        file.truncate(8 << 20)
        file.seek(5 << 20)
        file.write(b"data")
    return root


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return tmp_path / "node"
