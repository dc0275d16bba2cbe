"""A real S3 server for tests: scripts/s3-server as a Python object."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "s3-server"
BUCKET = "checkpoints"
INSTALL_SECONDS = 600


@dataclass(frozen=True)
class S3Server:
    """A server that runs, or is down for a while; its endpoint and data stay."""

    folder: Path
    endpoint: str
    access_key: str
    secret_key: str
    region: str

    @classmethod
    def start(cls, folder: Path) -> S3Server:
        """A new one with a bucket; skips, loudly, where there can be none, and on CI fails."""
        command = ("start", "--json", "--bucket", BUCKET, "--folder", str(folder))
        done = script(*command)
        if done.returncode:  # another worker's server may have taken a port that was free a moment ago
            script("stop", "--folder", str(folder))
            done = script(*command)
        if done.returncode:
            reason = f"scripts/s3-server: {done.stderr.strip()}"
            if os.environ.get("CI") == "true":
                pytest.fail(f"CI must run the tests on a real S3 server, but {reason}")
            pytest.skip(f"NOT TESTED ON A REAL S3 SERVER: {reason}")
        facts = json.loads(done.stdout)
        return cls(folder, *(facts[name] for name in ("endpoint", "access_key", "secret_key", "region")))

    @property
    def environment(self) -> dict[str, str]:
        """What a client of it needs, for os.environ."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self) -> Any:
        """A plain boto3 client, to look at what is there without the code under test."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
        )

    def pids(self) -> list[int]:
        """The processes of it that live."""
        found: list[int] = json.loads(script("status", "--json", "--folder", str(self.folder)).stdout)["pids"]
        return found

    def kill(self) -> None:
        """SIGKILL to all of it, in the midst of whatever it does."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def restart(self) -> None:
        """On the same data and port, after `kill`."""
        done = script("start", "--folder", str(self.folder))
        assert done.returncode == 0, done.stderr

    def stop(self) -> None:
        """The end; nothing is left behind."""
        done = script("stop", "--folder", str(self.folder))
        assert done.returncode == 0, done.stderr


def new_folder() -> Path:
    """A fresh folder for a server, short and on a file system with extended attributes."""
    return Path(tempfile.mkdtemp(prefix="s3-", dir="/var/tmp"))


def script(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run scripts/s3-server."""
    argv = [sys.executable, str(SCRIPT), *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_SECONDS, **options)
