"""A sink that refuses, is not there, hangs, or has a full disk: the training does not notice, and the log has one line.

Nothing here asserts how long something took: while a sink hangs, the training makes all of its steps and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from job.harness import Runner, alive, wait_for
from job.sinks.conftest import sinks

from slurmopt.job.rendezvous.ports import free_port
from slurmopt.job.sinks import feed, lane
from slurmopt.job.sinks.feed import MOST_WAITING, Feed
from slurmopt.job.sinks.lane import Lane
from slurmopt.job.sinks.record import NotWritten, Record, SinkError
from slurmopt.run_folder.outcome import Outcome

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_EC2_METADATA_DISABLED": "true"}
TRAIN = """
import time
from pathlib import Path
import slurmopt
def main(config):
    step = 0
    while step < 20000 or not Path("go").exists():
        step += 1
        slurmopt.progress(step, loss=1 / step)
        if step >= 20000:
            time.sleep(0.01)
    return {"steps": step}
"""


def told(runner: Runner) -> list[str]:
    return [line for line in runner.log(0).splitlines() if "metrics" in line]


def cloudwatch(endpoint: str) -> tuple[str, ...]:
    options = {"namespace": "test", "endpoint": endpoint, "region": "us-east-1", "every": "10s"}
    return sinks(cloudwatch=options, tensorboard={"folder": "auto"})


class Silent:
    """A server that accepts and never answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.accepted: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self.accepted.append(self._listener.accept()[0])
            except OSError:
                return

    def close(self) -> None:
        for connection in [*self.accepted, self._listener]:
            connection.close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    server = Silent()
    yield server
    server.close()


@pytest.mark.slow
def test_a_server_that_never_answers(runner: Runner, silent: Silent) -> None:
    """MLflow's client asks at once: it waits for an answer while the training makes its steps."""
    pytest.importorskip("mlflow")
    runner.lone_function("train", TRAIN)
    words = sinks(mlflow={"tracking_uri": silent.endpoint}, tensorboard={"folder": "auto"})
    runner.environment = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "1000"}
    process = runner.start(1, *words, "--function", "train.main")
    wait_for(lambda: silent.accepted, "the request")
    (runner.code / "go").touch()
    assert runner.finish(process) == 0, runner.log(0)
    assert runner.result()["result"]["steps"] >= 20000
    assert any(runner.folder.tensorboard.iterdir()), "another sink is not held up"


class Refusing(BaseHTTPRequestHandler):
    """Answers as CloudWatch does to a wrong key."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"__type": "UnrecognizedClientException", "message": "The security token is invalid."})
        self.send_response(403)
        self.send_header("x-amzn-query-error", "UnrecognizedClientException;Sender")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.mark.slow
def test_a_wrong_token_is_one_line_without_the_token(runner: Runner) -> None:
    pytest.importorskip("boto3")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    runner.lone_function("train", TRAIN)
    (runner.code / "go").touch()
    runner.environment = KEYS
    words = cloudwatch(f"http://127.0.0.1:{server.server_port}")
    assert runner.run(1, *words, "--function", "train.main") == 0
    server.shutdown()
    server.server_close()
    (line,) = [line for line in told(runner) if "were not sent" not in line]
    assert line.startswith("slurmopt: metrics.cloudwatch: ")
    assert line.endswith("(the training goes on)")
    assert "s3cret" not in runner.log(0)


def test_a_sink_whose_token_is_not_set_is_one_line(runner: Runner) -> None:
    """Also in the config that the function gets."""
    runner.lone_function("train", "def main(config): return {'lr': config.lr, 'metrics': config.metrics}")
    token = "${oc.env:A_TOKEN_THAT_NOBODY_SET}"
    runner.folder.config.write_text(f"lr: 0.1\nmetrics: {{prometheus: {{token: '{token}'}}}}\n")
    words = sinks(prometheus={"http": "127.0.0.1:0", "token": token})
    assert runner.run(1, *words, "--function", "train.main") == 0
    (line,) = told(runner)
    assert "A_TOKEN_THAT_NOBODY_SET" in line
    assert line.endswith("(the training goes on)")


@pytest.mark.slow
def test_an_endpoint_where_nobody_listens_is_one_line(runner: Runner) -> None:
    pytest.importorskip("boto3")
    runner.lone_function("train", TRAIN)
    (runner.code / "go").touch()
    runner.environment = KEYS
    assert runner.run(1, *cloudwatch(f"http://127.0.0.1:{free_port(set())}"), "--function", "train.main") == 0
    (line,) = [line for line in told(runner) if "not sent" not in line]
    assert "metrics.cloudwatch: Could not connect to the endpoint" in line


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: only root can mount a small disk")
def test_a_full_disk_is_one_line(runner: Runner, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk]).returncode:
        pytest.skip("NOT TESTED: no file system can be mounted here")
    try:
        runner.lone_function("train", TRAIN)
        (runner.code / "go").touch()
        assert runner.run(1, *sinks(tensorboard={"folder": str(disk)}), "--function", "train.main") == 0
    finally:
        subprocess.run(["umount", disk], check=True)
    line, lost = told(runner)
    assert "No space left on device (the training goes on)" in line
    assert "records were not sent" in lost


@pytest.mark.slow
def test_a_process_of_the_sinks_that_is_stopped_or_killed_stops_no_step(runner: Runner) -> None:
    runner.lone_function("train", TRAIN)
    process = runner.start(1, *sinks(tensorboard={"folder": "auto"}), "--function", "train.main")
    pid = wait_for(lambda: sinks_process(runner), "the process of the sinks")
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: ((runner.beat(0) and runner.beat(0).step) or 0) >= 20000, "all steps")  # type: ignore[union-attr]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: told(runner), "the line")
    (runner.code / "go").touch()
    assert runner.finish(process) == 0
    (line,) = told(runner)
    assert "the process of the metric sinks has ended" in line


UNTIL_A_SIGNAL = """
import time
import slurmopt
def main(config):
    step = 0
    while not slurmopt.stop_requested():
        step += 1
        slurmopt.progress(step, loss=1 / step)
        time.sleep(0.01)
    raise slurmopt.Requeue
"""


@pytest.mark.slow
@pytest.mark.parametrize(("training", "outcome", "seconds"), [(TRAIN, 0, "5 s"), (UNTIL_A_SIGNAL, 75, "1.5 s")])
def test_a_stopped_process_of_the_sinks_is_hardly_waited_for_at_the_end(
    runner: Runner, training: str, outcome: int, seconds: str
) -> None:
    runner.lone_function("train", training)
    process = runner.start(1, *sinks(tensorboard={"folder": "auto"}), "--function", "train.main")
    pid = wait_for(lambda: sinks_process(runner), "the process of the sinks")
    wait_for(lambda: runner.beat(0) and runner.beat(0).step, "a step")  # type: ignore[union-attr]
    os.kill(pid, signal.SIGSTOP)
    try:
        (runner.code / "go").touch()
        if outcome:
            process.send_signal(signal.SIGUSR1)
        assert runner.finish(process) == outcome, runner.log(0)
    finally:
        with contextlib.suppress(ProcessLookupError):  # what a rank leaves behind is ended
            os.kill(pid, signal.SIGKILL)
    (line,) = told(runner)
    assert f"has not ended after {seconds}, and is not waited for" in line


@pytest.mark.slow
def test_a_sink_that_hangs_at_a_signal_has_one_line(runner: Runner, silent: Silent) -> None:
    """What hangs in a call ends with its process, which is told how long the rank waits."""
    pytest.importorskip("boto3")
    runner.lone_function("train", UNTIL_A_SIGNAL)
    runner.environment = KEYS
    process = runner.start(1, *cloudwatch(silent.endpoint), "--function", "train.main")
    pid = wait_for(lambda: sinks_process(runner), "the process of the sinks")
    wait_for(lambda: silent.accepted, "a request")
    process.send_signal(signal.SIGUSR1)
    assert runner.finish(process) == 75, runner.log(0)
    wait_for(lambda: not alive(pid), "the end of the process")
    assert not any("process of the metric sinks" in line for line in told(runner))
    line = told(runner)[0]
    assert "metrics.cloudwatch: did not finish in the time that it has at the end" in line


def sinks_process(runner: Runner) -> int | None:
    found = subprocess.run(["pgrep", "-f", f"slurmopt.job.sinks {runner.folder.path}"], capture_output=True, text=True)
    return int(found.stdout) if found.stdout.strip() else None


# ---- the queues ------------------------------------------------------------------------------------------------------

READS_LATER = "import sys, time, pathlib\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n" + (
    "pathlib.Path(sys.argv[2]).write_bytes(sys.stdin.buffer.read())"
)


def test_the_oldest_steps_are_dropped_and_counted_where_nobody_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, read = tmp_path / "go", tmp_path / "read"
    monkeypatch.setattr(feed, "_PIPE_BYTES", 4096)
    process = subprocess.Popen(
        [sys.executable, "-c", READS_LATER, str(go), str(read)], stdin=subprocess.PIPE, bufsize=0
    )
    pipe = Feed(process)
    count = 3 * MOST_WAITING
    for step in range(count):
        pipe.put(0.0, step, {"loss": 1.0})
        if step % 1000 == 0:
            pipe.flush()
    go.touch()
    pipe.end(Outcome("finished", 0.0, 0), hurried=False)
    pipe.wait()
    *lines, last = [json.loads(line) for line in read.read_text().splitlines()]
    steps = [line[1] for line in lines if isinstance(line, list)]
    (dropped,) = [line["dropped"] for line in lines if isinstance(line, dict)]
    assert len(steps) + dropped == count
    assert steps == sorted(steps)
    assert steps[-MOST_WAITING:] == list(range(count - MOST_WAITING, count))
    assert last == {"outcome": "finished", "seconds": feed.LAST_SECONDS}


class Moody:
    """A sink that does as it is told."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.steps: list[int | None] = []
        self.answers = threading.Event()
        self.answers.set()
        self.asked = threading.Event()
        self.closed: str | None = None

    def write(self, records: Any) -> None:
        self.asked.set()
        self.answers.wait()
        if self.errors:
            raise self.errors.pop()
        self.steps += [record.step for record in records]

    def close(self, outcome: str | None) -> None:
        self.closed = outcome


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "_LONGEST_PAUSE", 0.05)


def run_lane(sink: Moody, batches: list[list[int]]) -> list[str]:
    """The lines that are said of the sink."""
    said: list[str] = []
    one = Lane("moody", lambda: sink, said.append)
    for batch in batches:
        sink.asked.clear()
        one.put([Record(0.0, step, {}) for step in batch])
        assert sink.asked.wait(30)
    one.close("finished")
    one.join(float("inf"))
    return said


def test_what_was_not_written_is_tried_again_in_order() -> None:
    sink = Moody()
    sink.errors = [NotWritten("full"), NotWritten("full")]
    assert run_lane(sink, [[1, 2], [3]]) in (
        ["metrics.moody: full (the training goes on)"],
        ["metrics.moody: full (the training goes on)", "metrics.moody: 1 records were not sent"],
    )
    assert sink.steps[:2] == [1, 2]
    assert sink.closed == "finished"


def test_an_error_is_said_once_and_what_was_lost_at_the_end() -> None:
    sink = Moody()
    sink.errors = [SinkError("refused\nfor a reason"), RuntimeError("a bug of a client")]
    said = run_lane(sink, [[1, 2], [3], [4]])
    assert said == [
        "metrics.moody: RuntimeError: a bug of a client (the training goes on)",
        "metrics.moody: 3 records were not sent",
    ]
    assert sink.steps == [4]


def test_a_call_that_does_not_return_is_said_once_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "SILENCE", 0.05)
    sink, said = Moody(), list[str]()
    sink.answers.clear()
    one = Lane("moody", lambda: sink, said.append)
    one.put([Record(0.0, 1, {})])
    wait_for(lambda: one.look() or said, "the line")
    for step in range(lane.MOST_WAITING + 5):
        one.put([Record(0.0, step, {})])
    one.look()
    assert said == ["metrics.moody: no answer for 0.05 s (the training goes on)"]
    one.close(None)
    one.join(float("inf"))  # returns all the same
    assert said[1:] == [f"metrics.moody: {lane.MOST_WAITING + 5:,} records were not sent"]
    sink.answers.set()
