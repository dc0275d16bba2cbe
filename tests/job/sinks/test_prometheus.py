"""A node's latest values for Prometheus: what is exposed, to whom, and that nothing stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from job.harness import Runner, wait_for
from job.sinks.conftest import sinks, write_series

from slurmopt.config.metrics import Prometheus
from slurmopt.job.rendezvous.ports import free_port
from slurmopt.job.sinks.incoming import Incoming
from slurmopt.job.sinks.prometheus import sink as prometheus
from slurmopt.job.sinks.prometheus.latest import MOST_NAMES
from slurmopt.job.sinks.record import Place, Record, SinkError, Unusable
from slurmopt.report.dashboards.grafana import dashboard
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series import export_names

SERIES = re.compile(r"^(slurmopt_[a-z_]+)(\{[^}]*\})? (\S+)$")
ROW = {
    **{f"gpu{gpu}.{name}": 50.0 for gpu in range(8) for name in export_names.GPU},
    **{f"node.{name}": 1.0 for name in export_names.NODE},
    **{f"{device}.{name}": 1e6 for device in ("net.eth0.100", "ib.mlx5_0") for name in export_names.INTERFACE},
    **{f"rank{rank}.{name}": 2.0 for rank in range(8) for name in (*export_names.RANK, "input.share", "my eval.share")},
}


def place(tmp_path: Path, number: str = "one", **environ: str) -> Place:
    folder = RunFolder(tmp_path / "runs" / "test" / number)
    folder.make()
    return Place(folder, 0, "node1", 0, {"SLURM_JOB_ID": "7", "SLURM_JOB_USER": "ada", **environ})


def series(text: str) -> dict[str, float]:
    """Name with labels → value."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    matches = [SERIES.fullmatch(line) for line in lines]
    assert all(matches), lines
    found = {f"{match[1]}{match[2] or ''}": float(match[3]) for match in matches if match}
    assert len(found) == len(lines), "a series is there twice"
    return found


def names(text: str) -> set[str]:
    return {name.partition("{")[0] for name in series(text)}


def get(port: int, path: str = "/metrics", **headers: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())


def test_a_file_for_node_exporter_that_goes_away_with_the_job(tmp_path: Path) -> None:
    folder = tmp_path / "textfile"
    folder.mkdir()
    sink = prometheus.open_sink(Prometheus(textfile=str(folder)), place(tmp_path))
    sink._written = float("-inf")  # as after five seconds
    sink.write([Record(1.0, 5, {"loss": 0.25}), Record(2.0, 5, {"gpu0.power": 300.0, "gpu0.util": 40.0}, True)])
    (file,) = folder.glob("[!.]*")
    assert file.suffix == ".prom"
    assert file.stat().st_mode & 0o777 == 0o644, "node_exporter is another user"
    found = series(file.read_text())
    common = 'node="node1",slot="0"'
    assert found[f'slurmopt_training_metric{{{common},name="loss"}}'] == 0.25
    assert found[f"slurmopt_training_step{{{common}}}"] == 5
    assert found[f'slurmopt_gpu_power_watts{{{common},gpu="0"}}'] == 300
    assert found[f'slurmopt_gpu_utilization_ratio{{{common},gpu="0"}}'] == pytest.approx(0.4)
    info = f'slurmopt_run_info{{{common},run="test/one",experiment="test",job="7",user="ada",attempt="0"}}'
    assert found[info] == 1
    sink.close("finished")
    assert list(folder.glob("[!.]*")) == []


def test_two_jobs_of_a_node_never_expose_the_same_series(tmp_path: Path) -> None:
    folder = tmp_path / "textfile"
    folder.mkdir()
    options = Prometheus(textfile=str(folder))
    first, second = (prometheus.open_sink(options, place(tmp_path, number)) for number in ("one", "two"))
    texts = [file.read_text() for file in sorted(folder.glob("*.prom"))]
    assert len(texts) == 2
    assert not set(series(texts[0])) & set(series(texts[1]))
    first.close(None)
    third = prometheus.open_sink(options, place(tmp_path, "three"))
    assert 'run="test/three"' in (folder / "slurmopt-node1-0.prom").read_text()
    second.close(None)
    third.close(None)


KILLED = """
import os, sys
from pathlib import Path
from slurmopt.config.metrics import Prometheus
from slurmopt.job.sinks.prometheus import sink as prometheus
from slurmopt.job.sinks.record import Place
from slurmopt.run_folder.layout import RunFolder
prometheus.open_sink(Prometheus(textfile=sys.argv[1]), Place(RunFolder(Path(sys.argv[2])), 0, "node1", 0, {}))
os._exit(1)
"""


def test_what_a_killed_job_left_is_taken_over(tmp_path: Path) -> None:
    folder = tmp_path / "textfile"
    folder.mkdir()
    subprocess.run([sys.executable, "-c", KILLED, str(folder), "/runs/test/killed"], check=False)
    assert "test/killed" in (folder / "slurmopt-node1-0.prom").read_text()
    sink = prometheus.open_sink(Prometheus(textfile=str(folder)), place(tmp_path))
    assert [file.name for file in folder.glob("*.prom")] == ["slurmopt-node1-0.prom"]
    assert "test/killed" not in (folder / "slurmopt-node1-0.prom").read_text()
    sink.close(None)


def test_a_job_removes_all_that_killed_jobs_of_its_node_left(tmp_path: Path) -> None:
    """Three jobs shared the node: two were killed, one runs on; the next one takes the lowest slot."""
    folder = tmp_path / "textfile"
    folder.mkdir()
    for slot in (0, 1):
        (folder / f".slurmopt-node1-{slot}.lock").touch()
        (folder / f"slurmopt-node1-{slot}.prom").write_text("killed")
    (folder / ".slurmopt-node1-5-0.lock").touch()
    (folder / "slurmopt-node1-5-0.prom").write_text("of the node node1-5")
    first = prometheus.open_sink(Prometheus(textfile=str(folder)), place(tmp_path, "first"))
    assert [file.name for file in sorted(folder.glob("*.prom"))] == ["slurmopt-node1-0.prom", "slurmopt-node1-5-0.prom"]
    second = prometheus.open_sink(Prometheus(textfile=str(folder)), place(tmp_path, "second"))
    assert "test/first" in (folder / "slurmopt-node1-0.prom").read_text(), "a running job's file is left alone"
    assert "test/second" in (folder / "slurmopt-node1-1.prom").read_text()
    first.close(None)
    second.close(None)


def test_the_verdict_removes_what_a_killed_attempt_left_here_and_in_a_shared_folder(
    runner: Runner, tmp_path: Path
) -> None:
    """Also the entry of another node; but not one that another job has taken over meanwhile."""
    textfile, targets = tmp_path / "textfile", tmp_path / "targets"
    textfile.mkdir()
    targets.mkdir()
    runner.lone_function("train", TRAIN)
    options = {"textfile": str(textfile), "http": "127.0.0.1:0", "file_sd": str(targets)}
    process = runner.start(1, *sinks(prometheus=options), "--function", "train.main")
    wait_for(lambda: list(textfile.glob("*.prom")) and list(targets.glob("*.json")), "the files")
    (entry,) = targets.glob("*.json")
    for node, text in (("node2", entry.read_text()), ("node3", entry.read_text().replace("test/one", "test/two"))):
        path = targets / f"slurmopt-{node}-0.json"
        path.write_text(text)
        (targets / f".slurmopt-{node}-0.lock").touch()
        runner.folder.exposed(0, path.name).write_text(json.dumps({"path": str(path)}))
    for pid in subprocess.run(["pgrep", "-f", str(runner.folder.path)], capture_output=True, text=True).stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    process.communicate(timeout=180)
    assert list(textfile.glob("*.prom")), "nobody removed it yet"
    runner.judge(137)
    assert list(textfile.glob("*.prom")) == []
    assert [file.name for file in targets.glob("*.json")] == ["slurmopt-node3-0.json"]


def test_the_token_is_asked_for(tmp_path: Path) -> None:
    here = place(tmp_path, METRICS_TOKEN="s3cret")
    sink = prometheus.open_sink(Prometheus(http="127.0.0.1:0", token="${oc.env:METRICS_TOKEN}"), here)
    assert sink._server is not None
    port = sink._server.port
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret"}):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(port, **headers)
    assert "slurmopt_run_info" in get(port, Authorization="Bearer s3cret")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(port, "/", Authorization="Bearer s3cret")
    sink.close(None)
    with pytest.raises(urllib.error.URLError):
        get(port)


def test_without_the_tokens_variable_nothing_listens(tmp_path: Path) -> None:
    port = free_port(set())
    options = Prometheus(http=f"127.0.0.1:{port}", token="${oc.env:METRICS_TOKEN}")
    with pytest.raises(Unusable, match="needs the environment variable METRICS_TOKEN"):
        prometheus.open_sink(options, place(tmp_path))
    with pytest.raises(urllib.error.URLError):
        get(port)


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    sink = prometheus.open_sink(Prometheus(http="127.0.0.1:0"), place(tmp_path))
    assert sink._server is not None
    with pytest.raises(SinkError, match=r"cannot listen at 127\.0\.0\.1:\d+: Address already in use"):
        prometheus.open_sink(Prometheus(http=f"127.0.0.1:{sink._server.port}"), place(tmp_path, "two"))
    sink.close(None)


def test_a_client_that_says_nothing_holds_up_others_for_seconds_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    from slurmopt.job.sinks.prometheus import http_server

    monkeypatch.setattr(http_server._Handler, "timeout", 0.2)
    sink = prometheus.open_sink(Prometheus(http="127.0.0.1:0"), place(tmp_path))
    assert sink._server is not None
    with socket.create_connection(("127.0.0.1", sink._server.port)):
        assert "slurmopt_run_info" in get(sink._server.port)
    sink.close(None)


def test_clients_that_send_a_byte_at_a_time_hold_up_neither_others_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    from slurmopt.job.sinks.prometheus import http_server

    monkeypatch.setattr(http_server, "_TIMEOUT", 1.0)
    folder = tmp_path / "textfile"
    folder.mkdir()
    sink = prometheus.open_sink(Prometheus(http="127.0.0.1:0", textfile=str(folder)), place(tmp_path))
    assert sink._server is not None
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", sink._server.port))) for _ in range(8)]

        def are_let_go() -> bool:
            try:
                return not all(client.send(b"G") for client in slow)
            except ConnectionError:
                return True

        assert not are_let_go()
        assert "slurmopt_run_info" in get(sink._server.port)
        wait_for(are_let_go, "the end of the slow clients")
        another = stack.enter_context(socket.create_connection(("127.0.0.1", sink._server.port)))
        another.send(b"G")
        sink.close(None)
    assert list(folder.glob("[!.]*")) == []


def test_a_name_with_half_a_character_ends_no_file(tmp_path: Path) -> None:
    read, write = os.pipe()
    metrics = {os.fsdecode(b"loss/" + bytes([byte])): 1.0 for byte in (0x61, 0x80, 0x81)}
    os.write(write, (json.dumps([1.0, 5, metrics]) + "\n").encode())
    (record,) = Incoming(read).read()
    folder = tmp_path / "textfile"
    folder.mkdir()
    sink = prometheus.open_sink(Prometheus(textfile=str(folder)), place(tmp_path, SLURM_JOB_USER="\udc80"))
    sink._written = float("-inf")
    sink.write([record])
    (file,) = folder.glob("*.prom")
    assert sum(name.startswith("slurmopt_training_metric") for name in series(file.read_text())) == 3
    sink.close(None)
    os.close(read)
    os.close(write)


def exposed(place: Place, records: list[Record]) -> str:
    sink = prometheus.open_sink(Prometheus(http="127.0.0.1:0"), place)
    assert sink._server is not None
    sink.write(records)
    text = get(sink._server.port)
    sink.close(None)
    return text


def test_jobs_add_one_series_each_however_much_is_measured(tmp_path: Path) -> None:
    """Eight GPUs, eight ranks, and names with a step in them: a hundred jobs make a hundred series of their own."""
    metrics = {f"loss_{step}": 1.0 for step in range(1000)}
    records = [Record(1.0, 1, metrics), Record(1.0, 1, ROW, hardware=True)]
    texts = [exposed(place(tmp_path, str(job), SLURM_JOB_ID=str(job)), records) for job in range(4)]
    found = [set(series(text)) for text in texts]
    assert {len(one) for one in found} == {len(ROW) + MOST_NAMES + 3}
    assert all(len(one - found[0]) == 1 for one in found[1:])
    assert names(texts[0]) == export_names.prometheus_names()


def test_hostile_names_are_text(tmp_path: Path) -> None:
    evil = 'a"} 1\nslurmopt_evil{x="\\'
    text = exposed(place(tmp_path), [Record(1.0, 1, {evil: 1.0})])
    (line,) = [line for line in text.splitlines() if "evil" in line]
    assert line == 'slurmopt_training_metric{node="node1",slot="0",name="a\\"} 1\\nslurmopt_evil{x=\\"\\\\"} 1.0'


# ---- with a real Prometheus ------------------------------------------------------------------------------------------

TRAIN = """
import time
from pathlib import Path
import slurmopt
def main(config):
    step = 0
    while not Path("done").exists():
        step += 1
        slurmopt.progress(step, loss=0.5)
        time.sleep(0.05)
"""


class Server:
    """A Prometheus that finds its targets in a folder."""

    def __init__(self, folder: Path) -> None:
        self.port, self.targets = free_port(set()), folder / "targets"
        self.targets.mkdir()
        (folder / "token").write_text("s3cret")
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "400ms"},
            "scrape_configs": [
                {
                    "job_name": "slurmopt",
                    "authorization": {"credentials_file": str(folder / "token")},
                    "file_sd_configs": [{"files": [f"{self.targets}/*.json"], "refresh_interval": "1s"}],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        words = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                ["prometheus", *words, f"--web.listen-address=127.0.0.1:{self.port}"], stdout=log, stderr=log
            )

    def query(self, text: str) -> list[dict[str, Any]]:
        try:
            answer = get(self.port, f"/api/v1/query?query={urllib.parse.quote(text)}")
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return []  # it is starting
            raise AssertionError(f"{text}: {error.read().decode()}") from error
        except urllib.error.URLError:
            return []  # it is starting
        result = json.loads(answer)["data"]["result"]
        assert isinstance(result, list)
        return result


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    if shutil.which("prometheus") is None:
        pytest.skip("NOT TESTED: Prometheus is not installed")
    folder = tmp_path / "prometheus"
    folder.mkdir()
    server = Server(folder)
    yield server
    server.process.kill()
    server.process.wait()


@pytest.mark.slow
def test_a_real_prometheus_finds_a_run_scrapes_it_and_forgets_it(runner: Runner, server: Server) -> None:
    node = os.uname().nodename
    write_series(runner.folder, node, [ROW])
    runner.lone_function("train", TRAIN)
    runner.environment = {"TOKEN": "s3cret", "SLURM_JOB_ID": "77", "SLURM_JOB_USER": "ada"}
    options = {"http": "127.0.0.1:0", "token": "${oc.env:TOKEN}", "file_sd": str(server.targets)}
    process = runner.start(2, *sinks(prometheus=options), "--function", "train.main")
    join = "slurmopt_gpu_power_watts * on (instance, node, slot) group_left (run, user) slurmopt_run_info"
    found = wait_for(lambda: server.query(f'{join}{{run="test/one"}}'), "the GPUs of the run in Prometheus")
    assert {each["metric"]["gpu"] for each in found} == set(map(str, range(8)))
    assert {(each["metric"]["user"], each["value"][1]) for each in found} == {("ada", "50")}
    wait_for(lambda: server.query('slurmopt_training_metric{name="loss"} == 0.5'), "the loss")

    empty = []
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            if not server.query(target["expr"].replace("$run", "test/.*")):
                empty.append(target["expr"])
    assert empty == []

    (runner.code / "done").touch()
    assert runner.finish(process) == 0, runner.log(0)
    assert runner.log(0) == ""
    assert list(server.targets.glob("*.json")) == []
    wait_for(lambda: not server.query("slurmopt_run_info"), "the end of the series")


@pytest.mark.slow
def test_a_real_prometheus_with_a_wrong_token_gets_nothing(runner: Runner, server: Server) -> None:
    runner.lone_function("train", TRAIN)
    runner.environment = {"TOKEN": "another"}
    options = {"http": "127.0.0.1:0", "token": "${oc.env:TOKEN}", "file_sd": str(server.targets)}
    process = runner.start(1, *sinks(prometheus=options), "--function", "train.main")
    wait_for(lambda: server.query("up == 0"), "a scrape that is refused")
    assert server.query("slurmopt_run_info") == []
    (runner.code / "done").touch()
    assert runner.finish(process) == 0
    assert "another" not in runner.log(0)


def test_the_dashboard_names_only_what_is_exposed() -> None:
    text = json.dumps(dashboard())
    assert set(re.findall(r"slurmopt_[a-z_]+", text)) <= export_names.prometheus_names()


def test_every_name_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    names = {*export_names.prometheus_names(), *export_names.cloudwatch_names()}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []
