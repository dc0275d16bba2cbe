"""A web server that keeps what is posted to it, and the call that the batch shell makes at an end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from slurmopt.run_folder import events

FINAL = "finished,failed,killed,cancelled"
SECRET = "s3cr3t-token"


class Receiver(HTTPServer):
    """Keeps what was posted to it: paths and bodies in `got`, headers in `headers`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.location = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{SECRET}"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, json.loads(body)))
        self.server.headers.append(dict(self.headers))
        self.send_response(self.server.status, f"no, not {SECRET}")
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.end_headers()

    def do_GET(self) -> None:
        self.server.got.append((self.path, {}))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def receiving() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def call(run: Any, attempt: int = 0, when: str = FINAL, env: dict[str, str] | None = None, **hooks: Any) -> str:
    """What the batch shell calls; what it said on standard error."""
    argv = [sys.executable, "-m", "slurmopt.job.supervisor.notify", str(run.folder.path), str(attempt)]
    own = {"PATH": "/usr/bin:/bin", "SLURMOPT_HOOKS": json.dumps({"when": when.split(","), **hooks})}
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **own, **(env or {})}, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
    return done.stderr


def told(run: Any) -> list[dict[str, Any]]:
    return [one for one in events.read(run.folder.events) if one["event"] in ("notified", "notify-failed")]
