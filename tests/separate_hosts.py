"""Hosts of their own for a test: network namespaces, each with a host name and a hosts file, joined by one cable or a
switch, whose links can be slow."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_START = 'mount --bind "$0" /etc/hosts && hostname "$1" && shift && exec "$@"'


@dataclass(frozen=True)
class Host:
    """One host; `name` is its host name, `namespace` its network namespace."""

    name: str
    namespace: str
    hosts_file: Path

    def start(self, argv: Sequence[str | Path], env: Mapping[str, str], cwd: Path) -> subprocess.Popen[str]:
        """Start a command on this host; what it prints goes into one pipe."""
        enter = ["ip", "netns", "exec", self.namespace, "unshare", "--mount", "--uts"]
        return subprocess.Popen(
            [*enter, "sh", "-c", _START, str(self.hosts_file), self.name, *map(str, argv)],
            env={**env},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def require_hosts() -> None:
    """Skip, loudly, where network namespaces cannot be made; in CI that is a failure."""
    missing = [program for program in ("ip", "unshare") if shutil.which(program) is None]
    reason = "network namespaces need root" if os.getuid() else f"{missing} are missing" if missing else ""
    if reason and os.environ.get("CI") == "true":
        pytest.fail(f"CI must run the tests with two hosts, but {reason}")
    if reason:
        pytest.skip(f"NOT TESTED WITH TWO HOSTS: {reason}")


@contextmanager
def two_hosts(addresses: Sequence[str], hosts_files: Sequence[str]) -> Iterator[list[Host]]:
    """Two hosts, `node1` and `node2`, at the ends of one cable.

    `addresses`: of each, with the length of its prefix; `hosts_files`: what each has as /etc/hosts.
    """
    names = ["node1", "node2"]
    own = [f"slurmopt-{os.getpid()}-{number}" for number in (1, 2)]
    folder = Path(tempfile.mkdtemp(prefix="hosts-"))
    try:
        for namespace in own:
            _ip("netns", "add", namespace)
        _ip("link", "add", "name", "cable", "netns", own[0], "type", "veth", "peer", "name", "cable", "netns", own[1])
        hosts = []
        for name, namespace, address, text in zip(names, own, addresses, hosts_files, strict=True):
            _ip("-n", namespace, "address", "add", address, "dev", "cable", *(["nodad"] if ":" in address else []))
            for device in ("lo", "cable"):
                _ip("-n", namespace, "link", "set", device, "up")
            (folder / name).write_text(text)
            hosts.append(Host(name, namespace, folder / name))
        yield hosts
    finally:
        for namespace in own:
            subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)
        shutil.rmtree(folder)


@contextmanager
def switched_hosts(count: int) -> Iterator[list[Host]]:
    """Hosts `node1`, `node2`, … with the addresses 10.78.0.1, 10.78.0.2, … on the device `cable`, at one switch."""
    names = [f"node{number}" for number in range(1, count + 1)]
    own = [f"slurmopt-{os.getpid()}-s{number}" for number in range(count + 1)]
    text = "127.0.0.1 localhost\n" + "".join(f"10.78.0.{at} {name}\n" for at, name in enumerate(names, 1))
    folder = Path(tempfile.mkdtemp(prefix="hosts-"))
    try:
        for namespace in own:
            _ip("netns", "add", namespace)
        _ip("-n", own[0], "link", "add", "switch", "type", "bridge")
        _ip("-n", own[0], "link", "set", "switch", "up")
        hosts = []
        for number, (name, namespace) in enumerate(zip(names, own[1:], strict=True), 1):
            port = f"port{number}"
            _ip(
                "link",
                "add",
                "name",
                "cable",
                "netns",
                namespace,
                "type",
                "veth",
                "peer",
                "name",
                port,
                "netns",
                own[0],
            )
            _ip("-n", own[0], "link", "set", port, "master", "switch", "up")
            _ip("-n", namespace, "address", "add", f"10.78.0.{number}/24", "dev", "cable")
            for device in ("lo", "cable"):
                _ip("-n", namespace, "link", "set", device, "up")
            (folder / name).write_text(text)
            hosts.append(Host(name, namespace, folder / name))
        yield hosts
    finally:
        for namespace in own:
            subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)
        shutil.rmtree(folder)


def slow_down(host: Host, rate: str, to: Host | None = None) -> None:
    """What `host` sends, or sends to one other host, is limited to `rate`, such as `40mbit`."""
    if to is None:
        _tc(host, "qdisc", "add", "dev", "cable", "root", "tbf", "rate", rate, "burst", "32kb", "latency", "400ms")
        return
    _tc(host, "qdisc", "add", "dev", "cable", "root", "handle", "1:", "htb", "default", "10")
    for number, limit in (("1:10", "40gbit"), ("1:20", rate)):
        _tc(host, "class", "add", "dev", "cable", "parent", "1:", "classid", number, "htb", "rate", limit)
    address = f"10.78.0.{to.name.removeprefix('node')}/32"
    match = ("u32", "match", "ip", "dst", address, "flowid", "1:20")
    _tc(host, "filter", "add", "dev", "cable", "parent", "1:", "protocol", "ip", "prio", "1", *match)


def _tc(host: Host, *words: str) -> None:
    subprocess.run(["ip", "netns", "exec", host.namespace, "tc", *words], check=True, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
