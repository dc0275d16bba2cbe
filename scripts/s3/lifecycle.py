"""A server's start and its end."""

import base64
import hmac
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path

from cluster import polling, ports, processes
from cluster.errors import ClusterError, UsageError

from s3 import conf, environment
from s3.layout import ACCESS_KEY, DAEMONS, SECRET_KEY, Layout, Settings, load

START_SECONDS = 60.0
MARK, DAEMON = "SLURMOPT_S3_SERVER", "SLURMOPT_S3_DAEMON"
"""In the environment of each process: unlike a pid file they cannot be stale."""
SERVE = Path(__file__).with_name("serve.py")
TRIES = 3


def say(text: str) -> None:
    """Progress; standard output is for what was asked."""
    print(f"s3-server: {text}", file=sys.stderr, flush=True)


def start(layout: Layout, port: int | None, buckets: list[str]) -> Settings:
    """Start a new server, or one on the data of an earlier start."""
    python = environment.python()
    if running(layout):
        raise UsageError(f"there is an S3 server in {layout.folder} already: stop it first, or name another --folder")
    settings = _restart(layout, python, port) if layout.marker.exists() else _first(layout, python, port)
    for bucket in buckets:
        _make_bucket(settings, bucket)
    return settings


def _restart(layout: Layout, python: Path, port: int | None) -> Settings:
    settings = load(layout)
    if port not in (None, settings.ports["proxy"]):
        raise UsageError(f"--port {port}: the server of {layout.folder} has port {settings.ports['proxy']} for good")
    processes.kill(lambda: list(alive(layout).values()), "what is left of the last start")
    _boot(layout, settings, python)
    return settings


def _first(layout: Layout, python: Path, port: int | None) -> Settings:
    for left in reversed(range(TRIES)):
        try:
            settings = _make(layout, python, port)
            _boot(layout, settings, python)
            return settings
        except ClusterError:
            if not left or isinstance(sys.exc_info()[1], UsageError):
                stop(layout, keep_data=False)
                raise
            stop(layout, keep_data=False)  # somebody may have taken a port in between
        except BaseException:
            stop(layout, keep_data=False)
            raise
    raise AssertionError("not reached")


def _make(layout: Layout, python: Path, port: int | None) -> Settings:
    if port and not ports.is_free(port):
        raise UsageError(f"--port {port} is taken")
    first = ports.free_block(len(DAEMONS))
    numbers = {daemon: first + index for index, daemon in enumerate(DAEMONS)}
    settings = Settings({**numbers, "proxy": port or numbers["proxy"]})
    for part in (layout.folder, layout.etc, layout.device, layout.log("any").parent):
        part.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_attributes(layout)
    (layout.etc / "swift.conf").write_text(conf.SWIFT)
    for daemon in DAEMONS:
        layout.conf(daemon).write_text(conf.daemon_conf(layout, settings, daemon))
    for ring in ("account", "container", "object"):
        _ring(layout, python, ring, settings.ports[ring])
    settings.save(layout)
    return settings


def _check_attributes(layout: Layout) -> None:
    try:
        os.setxattr(layout.device, "user.slurmopt", b"1")
    except OSError as error:
        raise UsageError(
            f"--folder {layout.folder}: its file system keeps no extended attributes ({error.strerror})"
        ) from None


def _ring(layout: Layout, python: Path, ring: str, port: int) -> None:
    builder = [str(python), str(python.with_name("swift-ring-builder")), str(layout.etc / f"{ring}.builder")]
    for words in (["create", "4", "1", "0"], ["add", f"r1z1-127.0.0.1:{port}/d1", "1"], ["rebalance"]):
        done = subprocess.run([*builder, *words], capture_output=True, text=True, cwd="/")
        if done.returncode:
            raise ClusterError(f"swift-ring-builder {words[0]}: {(done.stdout + done.stderr).strip()}")


def _boot(layout: Layout, settings: Settings, python: Path) -> None:
    for daemon in DAEMONS:
        _spawn(layout, python, daemon)
    logs = [layout.log(daemon) for daemon in DAEMONS]

    def serving_or_dead() -> bool:
        return set(alive(layout)) != set(DAEMONS) or _serves(settings)

    polling.wait_until(serving_or_dead, START_SECONDS, "Swift serves", lambda: polling.tail(logs))
    if missing := set(DAEMONS) - set(alive(layout)):
        raise ClusterError(f"Swift's {min(missing)} server ended while it was starting\n{polling.tail(logs)}")


def _spawn(layout: Layout, python: Path, daemon: str) -> None:
    argv = [str(word) for word in (python, "-B", SERVE, daemon, layout.conf(daemon), layout.etc / "swift.conf")]
    names = {MARK: str(layout.folder), DAEMON: daemon, "PATH": os.defpath, "LC_ALL": "C.UTF-8"}
    with layout.log(daemon).open("ab") as output:
        subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", env=names, start_new_session=True
        )


def _serves(settings: Settings) -> bool:
    """Whether a signed request is answered."""
    try:
        _request(settings, "GET", "/")
    except OSError:
        return False
    return True


def _make_bucket(settings: Settings, bucket: str) -> None:
    try:
        _request(settings, "PUT", f"/{bucket}")
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.CONFLICT:  # there already
            raise UsageError(f"--bucket {bucket}: {error.code} {error.reason}") from None


def _request(settings: Settings, method: str, path: str) -> None:
    """One S3 request with a signature of version 2, which needs nothing but the standard library."""
    date = formatdate(usegmt=True)
    digest = hmac.digest(SECRET_KEY.encode(), f"{method}\n\n\n{date}\n{path}".encode(), "sha1")
    headers = {"Date": date, "Authorization": f"AWS {ACCESS_KEY}:{base64.b64encode(digest).decode()}"}
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(urllib.request.Request(settings.endpoint + path, headers=headers, method=method), timeout=10):
        pass


def alive(layout: Layout) -> dict[str, int]:
    """The process id of each daemon that runs: Swift's own parent, not its worker."""
    found = [one for one in processes.everything() if one.environment.get(MARK) == str(layout.folder)]
    ours = {one.pid for one in found}
    return {one.environment[DAEMON]: one.pid for one in found if one.parent not in ours}


def pids(layout: Layout) -> list[int]:
    """All processes, workers included."""
    return [one.pid for one in processes.everything() if one.environment.get(MARK) == str(layout.folder)]


def running(layout: Layout) -> bool:
    """Whether all of it runs."""
    return set(alive(layout)) == set(DAEMONS)


def stop(layout: Layout, keep_data: bool) -> None:
    """End every process; the data go too, unless they are to be kept. Nothing happens where there is no server."""
    processes.kill(lambda: pids(layout), "the S3 server")
    if not keep_data and (layout.marker.exists() or layout.etc.exists()):
        shutil.rmtree(layout.folder)


def wait(layout: Layout) -> None:
    """Until a signal comes, or the server ends."""
    caught: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _: caught.append(got))
    while not caught and running(layout):
        signal.sigtimedwait([], 0.5)
