"""An S3 server that takes uploads over HTTP or HTTPS and keeps nothing: what is measured is the client.

python scripts/benchmarks/checkpoint/discard_server.py [--tls FOLDER]     prints its endpoint, serves until killed
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

BLOCK = 1 << 20
CERTIFICATE, KEY = "certificate.pem", "key.pem"
CREATED = "<InitiateMultipartUploadResult><UploadId>upload</UploadId></InitiateMultipartUploadResult>"
COMPLETED = "<CompleteMultipartUploadResult><ETag>etag</ETag></CompleteMultipartUploadResult>"


class Connection:
    """One client: request after request, each body read and forgotten."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._block = bytearray(BLOCK)
        self._ahead = b""

    def serve(self) -> None:
        """Until the client hangs up."""
        with contextlib.suppress(OSError), self._sock:
            while head := self._head():
                first, *lines = head.decode("latin-1").split("\r\n")
                method, target, _ = first.split(" ", 2)
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                if "100-continue" in headers.get("expect", "").lower():
                    self._sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                self._body(headers)
                self._sock.sendall(answer(method, target))

    def _head(self) -> bytes:
        return self._until(b"\r\n\r\n")

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._ahead:
            more = self._sock.recv(65536)
            if not more:
                return b""
            self._ahead += more
        found, _, self._ahead = self._ahead.partition(mark)
        return found

    def _body(self, headers: dict[str, str]) -> None:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            self._skip(int(headers.get("content-length", 0)))
            return
        while size := int(self._until(b"\r\n").partition(b";")[0], 16):
            self._skip(size + len("\r\n"))
        while self._until(b"\r\n"):  # trailers, and an empty line
            pass

    def _skip(self, count: int) -> None:
        ahead = min(count, len(self._ahead))
        self._ahead, count = self._ahead[ahead:], count - ahead
        view = memoryview(self._block)
        while count:
            got = self._sock.recv_into(view[: min(count, BLOCK)])
            if not got:
                raise ConnectionResetError
            count -= got


def answer(method: str, target: str) -> bytes:
    """What S3 would say, as far as an upload listens."""
    text = ""
    if method == "POST":
        text = COMPLETED if "uploadId=" in target else CREATED
    head = f'HTTP/1.1 200 OK\r\nETag: "etag"\r\nContent-Length: {len(text)}\r\n\r\n'
    return (head + text).encode()


def make_certificate(folder: Path) -> None:
    """One for 127.0.0.1, which clients are told to trust."""
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", str(folder / KEY), "-out", str(folder / CERTIFICATE)]
    subprocess.run(["openssl", *words.split(), *files], check=True, capture_output=True)


def serve(tls: Path | None) -> None:
    """Accept for ever; each connection has a process, so that no lock of Python's slows the client down."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls else None
    if tls and context:
        context.load_cert_chain(tls / CERTIFICATE, tls / KEY)
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    print(f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    while True:
        sock, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _serve_one(sock, context)
            os._exit(0)
        sock.close()


def _serve_one(sock: socket.socket, context: ssl.SSLContext | None) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError):
        Connection(context.wrap_socket(sock, server_side=True) if context else sock).serve()


@contextlib.contextmanager
def discarding(tls: Path | None = None) -> Iterator[str]:
    """The endpoint of a server in a process of its own; `tls` is an empty folder for its certificate."""
    if tls:
        make_certificate(tls)
    argv = [sys.executable, __file__, *(["--tls", str(tls)] if tls else [])]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()  # its connections end with the client's, and hold its output open until then
        process.wait()
        process.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tls", type=Path, help=f"serve HTTPS with {CERTIFICATE} and {KEY} of this folder")
    serve(parser.parse_args().tls)


if __name__ == "__main__":
    main()
