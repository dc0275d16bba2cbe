"""The health check: real ranks as the nodes of one attempt, real sockets, file systems and signals.

Simulated, and only where a test says so: NVML (a module named pynvml, before the real one on the path), the clock of a
node, and torch on a GPU, be it NVIDIA's, AMD's or Intel's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from job.harness import DEADLINE, REPOSITORY, Runner, wait_for

from slurmopt.config.health import Checks, Health, checks_of
from slurmopt.errors import ConfigError
from slurmopt.job.facts.rank_facts import facts_from
from slurmopt.job.health import gpus
from slurmopt.job.health.network_reach import between_looks, leaders
from slurmopt.job.health.reach_listener import Listener, ask
from slurmopt.job.rendezvous.addresses import own_host
from slurmopt.run_folder import events
from slurmopt.run_folder.heartbeat import Heartbeat

NOTHING = Checks(within=30, gpus=False, reach=False)


def word(**checks: object) -> tuple[str, str]:
    return "--health", Checks(**{**vars(NOTHING), **checks}).to_json_arg()  # type: ignore[arg-type]


class Nodes:
    """The ranks of one attempt, one a node, each started when the test says so."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, rank: int, nodes: int, *words: str, **environment: str) -> None:
        numbers = {"RANK": rank, "WORLD_SIZE": nodes, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "NODE_RANK": rank}
        facts = {"NNODES": nodes, "MASTER_ADDR": "127.0.0.1", "SLURMD_NODENAME": f"node{rank + 1}", **numbers}
        log = self.runner.folder.rank_log(self.runner.attempt, rank)
        with log.open("ab") as file:
            self.processes[rank] = subprocess.Popen(
                [sys.executable, "-m", "slurmopt.job", str(self.runner.folder.path), *words],
                cwd=self.runner.code,
                env=self.runner._environment() | {k: str(v) for k, v in facts.items()} | environment,
                stdout=file,
                stderr=file,
            )

    def wait(self, rank: int) -> int:
        return self.processes[rank].wait(timeout=DEADLINE)

    def error(self, rank: int) -> str:
        outcome = self.outcome(rank)
        assert outcome["outcome"] == "infrastructure"
        return str(outcome["error"])

    def outcome(self, rank: int) -> dict[str, object]:
        self.wait(rank)
        beat = self.runner.beat(rank)
        assert beat is not None
        assert beat.outcome is not None
        return beat.outcome

    def address(self, rank: int) -> str:
        def said() -> str | None:
            beat = self.runner.beat(rank)
            return beat.address if beat is not None else None

        return str(wait_for(said, f"the address of rank {rank}"))


@pytest.fixture
def nodes(runner: Runner) -> Iterator[Nodes]:
    runner.ranks = 2
    runner.make_folders()
    found = Nodes(runner)
    yield found
    for process in found.processes.values():
        process.kill()
        process.wait()


@pytest.fixture
def stranger() -> Iterator[str]:
    """A program that has got the port of a node, and answers whoever comes."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.sendall("héllo\n".encode() * 10)  # longer than a greeting of slurmopt's

    threading.Thread(target=serve, daemon=True).start()
    yield f"127.0.0.1:{server.getsockname()[1]}"
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def pretend(runner: Runner, rank: int, address: str, phase: str = "checking") -> None:
    """The heartbeat of a node that is no process of this test."""
    beat = Heartbeat(rank, runner.ranks, f"node{rank + 1}", os.getpid(), phase=phase, address=address)
    beat.write(runner.folder.heartbeat(runner.attempt, rank))


# ---- who reaches whom ------------------------------------------------------------------------------------------------


def test_nodes_that_reach_each_other_go_on(nodes: Nodes) -> None:
    for rank in range(3):
        nodes.start(rank, 3, *word(reach=True), "--", "echo", "trained")
    assert [nodes.wait(rank) for rank in range(3)] == [0, 0, 0]
    beats = [nodes.runner.beat(rank) for rank in range(3)]
    for rank, beat in enumerate(beats):
        assert beat is not None
        assert list(beat.phases) == ["starting", "checking", "running", "ended"]
        assert nodes.runner.log(rank) == "trained\n"


def test_a_stopped_node_takes_connections_but_does_not_answer_and_is_named(nodes: Nodes) -> None:
    nodes.start(0, 2, *word(reach=True), "--", "true")
    address = nodes.address(0)
    os.kill(nodes.processes[0].pid, signal.SIGSTOP)
    nodes.start(1, 2, *word(reach=True, within=4), "--", "echo", "trained")
    assert nodes.wait(1) == 69
    error = nodes.error(1)
    assert re.fullmatch(rf"health: node2 cannot reach node1 \({address}\): no answer within 1.\d* s .*", error)
    assert nodes.outcome(1)["nodes"] == ["node1"]
    assert "trained" not in nodes.runner.log(1)


def test_the_verdict_calls_it_infrastructure_and_tells_the_line(nodes: Nodes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        gone = f"127.0.0.1:{server.getsockname()[1]}"
    pretend(nodes.runner, 1, gone)
    nodes.start(0, 2, *word(reach=True), "--", "echo", "trained")
    assert nodes.wait(0) == 69
    assert nodes.runner.judge(69) == 69
    said = f"health: node1 cannot reach node2 ({gone}): it refuses the connection (health.reach)"
    result = nodes.runner.result()
    assert (result["error"], result["cause"]) == (said, "infrastructure")
    assert (result["rank"], result["node"]) == (0, "node2")  # whom the next attempt leaves out
    assert said in nodes.runner.log(0)


def test_a_stranger_at_a_nodes_address_is_not_taken_for_it(nodes: Nodes, stranger: str) -> None:
    pretend(nodes.runner, 1, stranger)
    nodes.start(0, 2, *word(reach=True), "--", "true")
    error = nodes.error(0)
    assert f"node1 cannot reach node2 ({stranger}): what answers there is no rank of this attempt" in error


def test_a_node_that_reaches_none_of_several_is_itself_at_fault(nodes: Nodes, stranger: str) -> None:
    nodes.runner.ranks = 3
    for rank in (1, 2):
        pretend(nodes.runner, rank, stranger)
    nodes.start(0, 3, *word(reach=True), "--", "true")
    assert nodes.error(0).startswith("health: node1: node1 cannot reach node2 (")
    assert nodes.outcome(0)["nodes"] is None


@pytest.mark.slow
def test_a_node_that_never_comes_is_left_to_the_rendezvous(nodes: Nodes) -> None:
    nodes.start(0, 2, *word(reach=True, within=3), "--", "echo", "trained")
    assert nodes.wait(0) == 0
    assert nodes.runner.log(0) == "trained\n"


@pytest.mark.slow
def test_a_late_node_finds_one_that_waited_for_it_in_vain(nodes: Nodes) -> None:
    nodes.start(0, 2, *word(reach=True, within=3), "--", "sleep", "300")
    wait_for(lambda: (beat := nodes.runner.beat(0)) and beat.phase == "running", "rank 0 to go on")
    nodes.start(1, 2, *word(reach=True, within=600), "--", "echo", "trained")
    assert nodes.wait(1) == 0
    assert nodes.runner.log(1) == "trained\n"


def test_a_node_that_has_passed_and_is_deaf_for_now_is_not_blamed(nodes: Nodes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        pretend(nodes.runner, 1, f"127.0.0.1:{deaf.getsockname()[1]}", phase="starting")
        nodes.start(0, 2, *word(reach=True, within=3), "--", "echo", "trained")
        assert nodes.wait(0) == 0


def test_strangers_and_slow_talkers_learn_nothing_and_hold_nobody_up() -> None:
    key = os.urandom(32)
    listener = Listener("127.0.0.1", key, 0, {1})
    listener.start()
    address = f"127.0.0.1:{listener.port}"
    with contextlib.ExitStack() as silent:
        for _ in range(200):  # more than may stand before the gate at once
            silent.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
        assert ask(address, os.urandom(32), 1, 0, 3) == "what answers there is no rank of this attempt"
        with socket.create_connection(("127.0.0.1", listener.port)) as rude:
            rude.sendall(b"\xff\x00 \xb2 ?" * 100 + b"\n")
            rude.settimeout(20)
            with contextlib.suppress(ConnectionError):
                assert len(rude.recv(1000)) == 32  # a number used once
                assert rude.recv(1000) == b""
        assert not listener.wait_for({1}, 0)
        assert ask(address, key, 1, 0, 20) is None
    assert listener.wait_for({1}, 20)


def test_many_nodes_in_one_attempt_ask_the_first_of_each() -> None:
    step = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_LOCALID": "0", "SLURM_NODEID": "2"}
    step |= {"SLURM_STEP_NUM_TASKS": "9", "SLURM_STEP_NUM_NODES": "4", "SLURM_STEP_TASKS_PER_NODE": "3,2(x3)"}
    assert leaders(facts_from(step), step) == [0, 3, 5, 7]
    cyclic = step | {"SLURM_PROCID": "2", "SLURM_DISTRIBUTION": "cyclic"}
    assert leaders(facts_from(cyclic), cyclic) == [0, 1, 2, 3]
    spawned = {"RANK": "8", "WORLD_SIZE": "12", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4", "NODE_RANK": "2"}
    assert leaders(facts_from(spawned), spawned) == [0, 4, 8]


def test_the_address_is_one_that_others_can_use() -> None:
    facts = facts_from({"RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"})
    assert own_host("no-such-node.invalid", facts) == "127.0.0.1"
    assert own_host(None, facts) == "127.0.0.1"
    assert own_host("localhost", facts) == "localhost"  # it leads back to the node itself: others know better
    assert own_host("192.0.2.7", facts) == "192.0.2.7"


# ---- space and clock -------------------------------------------------------------------------------------------------


def test_in_a_container_the_folders_of_checkpoint_tiers_must_be_mounted(nodes: Nodes) -> None:
    own_root = "/slurmopt-checkpoints-of-a-test"
    nodes.start(0, 1, *word(container=True, shared_path=own_root), "--", "true")
    assert f"{own_root} is in the container's own root" in nodes.error(0)
    assert "checkpoint.shared.path" in nodes.error(0)


def test_a_mounted_tier_passes(nodes: Nodes) -> None:
    nodes.start(0, 1, *word(container=True, scratch_path="/dev/shm/slurmopt-checkpoints-of-a-test"), "--", "true")
    assert nodes.outcome(0)["outcome"] == "finished"


def test_too_little_space_names_folder_and_key(nodes: Nodes, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch" / "to be made"
    nodes.start(0, 1, *word(scratch=1 << 60, scratch_path="${oc.env:DISK}"), "--", "true", DISK=str(scratch))
    error = nodes.error(0)
    assert error.startswith("health: node1: ")
    assert f"{tmp_path} has " in error
    assert "less than 1048576.0 TiB (health.scratch; health.scratch=null skips this check)" in error
    assert nodes.outcome(0)["nodes"] is None


def test_a_full_shared_file_system_is_no_nodes_fault(nodes: Nodes) -> None:
    nodes.start(0, 1, *word(shared=1 << 60), "--", "true")
    assert f"{nodes.runner.folder.path} has " in nodes.error(0)
    assert nodes.outcome(0)["nodes"] == []


def test_what_cannot_be_looked_at_is_told_and_the_run_goes_on(nodes: Nodes) -> None:
    nodes.start(0, 1, *word(scratch=1, scratch_path="${oc.env:NO_SUCH_VARIABLE}"), "--", "echo", "trained")
    assert nodes.wait(0) == 0
    assert "slurmopt: health: health.scratch: " in nodes.runner.log(0)
    assert "NO_SUCH_VARIABLE" in nodes.runner.log(0)
    assert nodes.runner.log(0).endswith("trained\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: needs root, to become somebody who may not look")
def test_a_place_that_may_not_be_looked_at_is_no_silent_death(tmp_path: Path) -> None:
    """What the Checkpointer says of it comes later, and names the key."""
    (tmp_path / "closed").mkdir(mode=0o700)
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents[:2]:
        folder.chmod(0o755)
    word = repr(str(tmp_path / "closed" / "checkpoints"))
    program = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "import os; os.setgid(65534); os.setuid(65534)\n"
        "from slurmopt.job.health.bounded import Budget, bounded\n"
        "from slurmopt.job.health.node import mounted\n"
        f"print(bounded('the place', Budget(30), lambda: mounted({word}, 'checkpoint.shared.path')))\n"
        f"print(bounded('the place', Budget(30), lambda: os.listdir({word})))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd="/", capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    assert "slurmopt: health: the place is not checked: [Errno 13] Permission denied" in done.stderr
    assert done.stderr.count("is not checked") == 1, "the folder above tells where it is mounted"


@pytest.mark.parametrize(("off", "said"), [(100, "100 s ahead of"), (-100, "100 s behind")])
def test_a_wrong_clock_is_told(nodes: Nodes, tmp_path: Path, off: int, said: str) -> None:
    """The node's clock is simulated: `time.time` of its processes is off; the file system's is the kernel's."""
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(
        f"import time\nright = time.time\ntime.time = lambda: right() + {off}\n"
    )
    path = f"{tmp_path / 'clock'}:{REPOSITORY}"
    nodes.start(0, 1, *word(clock=30.0), "--", "true", PYTHONPATH=path)
    assert nodes.error(0) == f"health: node1: its clock is {said} the file system's, more than 30 s (health.clock)"
    nodes.start(1, 1, *word(clock=110.0), "--", "true", PYTHONPATH=path)
    assert nodes.wait(1) == 0


def test_a_file_system_that_never_answers_fails_within_the_time(runner: Runner) -> None:
    """Simulated: an `os.statvfs` that does not return, as on a dead network file system."""
    from slurmopt.job.health.bounded import Budget, bounded

    forever = threading.Event()
    finding = bounded("/dead", Budget(0.2), lambda: forever.wait() and None)
    forever.set()
    assert finding is not None
    assert finding.text == "/dead did not answer within 0.2 s (health.within)"


def test_what_is_a_nodes_own_fault_is_not_waited_for(nodes: Nodes) -> None:
    nodes.start(0, 1, *word(wait=600.0, shared=1 << 60, scratch=1 << 60), "--", "true")
    assert "health.wait" not in nodes.error(0)
    assert nodes.outcome(0)["nodes"] is None


def test_a_rank_that_is_told_to_leave_while_it_waits_wants_to_come_back(nodes: Nodes) -> None:
    nodes.start(0, 1, *word(wait=600.0, shared=1 << 60), "--", "echo", "trained")
    wait_for(lambda: (beat := nodes.runner.beat(0)) and beat.awaits, "it waits")
    nodes.processes[0].send_signal(signal.SIGUSR1)
    assert nodes.wait(0) == 0
    beat = nodes.runner.beat(0)
    assert beat is not None
    assert beat.outcome is not None
    assert beat.outcome["outcome"] == "requeue"
    assert "asked to stop while it waited" in beat.outcome["error"]
    assert "trained" not in nodes.runner.log(0)


@pytest.mark.slow
def test_a_file_system_that_answers_again_is_waited_for_by_all_ranks_of_the_node(nodes: Nodes, tmp_path: Path) -> None:
    """Simulated: an `os.statvfs` that does not return while the file system is away."""
    (away := tmp_path / "away").touch()
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / "sitecustomize.py").write_text(
        "import os, time\nreal = os.statvfs\n"
        f"def statvfs(path):\n    while os.path.exists({str(away)!r}): time.sleep(0.1)\n    return real(path)\n"
        "os.statvfs = statvfs\n"
    )
    path = f"{tmp_path / 'dead'}:{REPOSITORY}"
    for rank in (0, 1):  # rank 1 is the second one of its node
        own = {"LOCAL_RANK": str(rank), "NODE_RANK": "0", "NNODES": "1", "LOCAL_WORLD_SIZE": "2"}
        nodes.start(rank, 2, *word(within=1.0, wait=600.0, shared=1), "--", "echo", "trained", PYTHONPATH=path, **own)
    for rank in (0, 1):
        wait_for(lambda rank=rank: (beat := nodes.runner.beat(rank)) and beat.awaits, f"rank {rank} waits")
        assert "did not answer within 1 s (health.within)" in str(nodes.runner.beat(rank).awaits)
    away.unlink()
    assert [nodes.wait(rank) for rank in (0, 1)] == [0, 0]
    assert nodes.runner.log(1).endswith("trained\n")
    told = [event for event in events.read(nodes.runner.folder.events) if event["event"] == "waits"]
    assert [event["rank"] for event in told] == [0]


def test_all_that_is_wrong_with_a_node_is_told_in_one_line(nodes: Nodes) -> None:
    nodes.start(0, 1, *word(shared=1 << 60, scratch=1 << 60), "--", "true")
    assert nodes.error(0).count(" has ") == 2
    assert "\n" not in nodes.error(0)


# ---- GPUs ------------------------------------------------------------------------------------------------------------

SIMULATED_NVML = '''
"""A simulated NVML of eight GPUs; NVML_FAULT names the one that is at fault, and how."""
import json, os, time
NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NO_PERMISSION, NVML_ERROR_LIBRARY_NOT_FOUND = 3, 4, 12
NVML_ERROR_FUNCTION_NOT_FOUND, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 13, 1, 0
fault = json.loads(os.environ.get("NVML_FAULT", "{}"))

class NVMLError(Exception):
    def __init__(self, value, text):
        super().__init__(text)
        self.value = value

def nvmlInit():
    time.sleep(fault.get("cold", 0))
    if "init" in fault: raise NVMLError(*fault["init"])
def nvmlShutdown(): pass
def nvmlDeviceGetHandleByIndex(index):
    if index >= fault.get("count", 8): raise NVMLError(2, "Invalid Argument")
    return index
def nvmlDeviceGetHandleByUUID(uuid):
    if uuid not in ("MIG-aa-1", "MIG-aa-2", "GPU-bb"): raise NVMLError(6, "Not Found")
    return uuid if uuid.startswith("MIG-") else 7
def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle):
    return {"MIG-aa-1": 0, "MIG-aa-2": 0}[handle]
def nvmlDeviceGetCpuAffinity(handle, words): raise NVMLError(3, "Not Supported")
def nvmlDeviceGetUUID(handle):
    if handle == fault.get("lost"): raise NVMLError(15, "GPU is lost")
    return f"GPU-{handle}"
def nvmlDeviceGetTotalEccErrors(handle, kind, counter):
    assert (kind, counter) == (1, 0)
    return fault.get("ecc", {}).get(str(handle), 0)
def nvmlDeviceGetRetiredPagesPendingStatus(handle):
    if "pages" not in fault: raise NVMLError(3, "Not Supported")
    return fault["pages"]
def nvmlDeviceGetRemappedRows(handle):
    if "pages" in fault: raise NVMLError(3, "Not Supported")
    return (1, 2, *fault.get("rows", (0, 0)))
'''


@pytest.fixture
def nvml(nodes: Nodes, tmp_path: Path) -> dict[str, str]:
    """The environment of a rank that finds the simulated NVML."""
    (tmp_path / "nvml").mkdir()
    (tmp_path / "nvml" / "pynvml.py").write_text(SIMULATED_NVML)
    return {"PYTHONPATH": f"{tmp_path / 'nvml'}:{REPOSITORY}", "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"lost": 5}, "7 of 8 promised GPUs answer (GPU 5: GPU is lost)"),
        ({"count": 6}, "6 of 8 promised GPUs answer (GPU 6: Invalid Argument, GPU 7: Invalid Argument)"),
        ({"rows": (1, 1)}, "GPU 0: a row of its memory could not be remapped"),
        ({"init": (9, "Driver Not Loaded")}, "none of 8 promised GPUs answers: NVML: Driver Not Loaded"),
    ],
)
def test_simulated_nvml_faults_are_named(monkeypatch: pytest.MonkeyPatch, fault: object, said: str) -> None:
    monkeypatch.setenv("NVML_FAULT", json.dumps(fault))
    simulated = types.ModuleType("pynvml")
    exec(SIMULATED_NVML, vars(simulated))
    monkeypatch.setitem(sys.modules, "pynvml", simulated)
    finding = gpus.look(list("01234567"), facts_from({}))
    assert finding is not None
    assert finding.text.startswith(said)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"ecc": {"3": 2}}, "GPU 3: 2 uncorrected ECC errors since its last reset"),
        ({"pages": 1}, "GPU 0: pages of its memory wait for retirement at the next reset"),
        ({"rows": (1, 0)}, "GPU 0: rows of its memory wait to be remapped at the next reset"),
    ],
)
def test_simulated_nvml_what_a_gpu_got_over_is_told_and_does_not_take_it_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: object, said: str
) -> None:
    monkeypatch.setenv("NVML_FAULT", json.dumps(fault))
    simulated = types.ModuleType("pynvml")
    exec(SIMULATED_NVML, vars(simulated))
    monkeypatch.setitem(sys.modules, "pynvml", simulated)
    assert gpus.look(list("01234567"), facts_from({})) is None
    assert f"slurmopt: health: {said}; it is used anyway\n" in capsys.readouterr().err


def test_simulated_nvml_slices_of_gpus_are_found_by_either_name(nodes: Nodes, nvml: dict[str, str]) -> None:
    slices = {**nvml, "CUDA_VISIBLE_DEVICES": "MIG-aa-1,MIG-aa-2,MIG-GPU-bb/3/0"}
    nodes.start(0, 1, *word(gpus=True), "--", "echo", "trained", **slices)
    assert nodes.wait(0) == 0
    assert nodes.runner.log(0) == "trained\n"
    slices["CUDA_VISIBLE_DEVICES"] += ",MIG-cc-1"
    nodes.start(1, 1, *word(gpus=True), "--", "echo", "trained", **slices)
    assert nodes.error(1) == "health: node2: 3 of 4 promised GPUs answer (GPU MIG-cc-1: Not Found)"


@pytest.mark.slow
def test_simulated_nvml_a_cold_driver_gets_longer_than_the_rest_of_the_check(
    nodes: Nodes, nvml: dict[str, str]
) -> None:
    cold = word(gpus=True, within=1.0)
    nodes.start(0, 1, *cold, "--", "echo", "trained", **nvml, NVML_FAULT='{"cold": 2}')
    nodes.start(1, 1, *cold, "--", "echo", "trained", **nvml, NVML_FAULT='{"cold": 1000}')
    assert nodes.wait(0) == 0
    assert nodes.runner.log(0) == "trained\n"
    assert nodes.error(1) == "health: node2: NVML did not answer within 6 s (6 times health.within)"


@pytest.mark.parametrize("variable", ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"])
def test_nvml_is_not_asked_about_gpus_of_others(nodes: Nodes, nvml: dict[str, str], variable: str) -> None:
    others = {name: value for name, value in nvml.items() if name != "CUDA_VISIBLE_DEVICES"} | {variable: "0,1"}
    hidden = {"NVML_FAULT": '{"init": [9, "Driver Not Loaded"]}', "SLURM_GPUS_ON_NODE": "2"}
    nodes.start(0, 1, *word(gpus=True), "--", "echo", "trained", **others, **hidden)
    assert nodes.wait(0) == 0
    assert nodes.runner.log(0) == "trained\n"


def test_simulated_nvml_each_rank_looks_at_its_own_gpus(nodes: Nodes, nvml: dict[str, str]) -> None:
    fault = json.dumps({"ecc": {"3": 1}})
    for rank in (0, 1):
        place = {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0", "NNODES": "1"}
        nodes.start(rank, 2, *word(gpus=True), "--", "echo", "trained", **nvml, **place, NVML_FAULT=fault)
    assert [nodes.wait(rank) for rank in (0, 1)] == [0, 0]
    assert nodes.runner.log(0) == "trained\n"  # 0, 2, 4, 6
    told, trained = nodes.runner.log(1).splitlines()
    assert told.startswith("slurmopt: health: GPU 3: 1 uncorrected ECC error since its last reset")
    assert trained == "trained"


@pytest.mark.parametrize("hidden", [{"init": (12, "NVML Shared Library Not Found")}, {"init": (4, "No Permission")}])
def test_promised_gpus_that_nobody_can_look_at_are_told_in_one_line(
    nodes: Nodes, nvml: dict[str, str], hidden: dict[str, object]
) -> None:
    nodes.start(0, 1, *word(gpus=True), "--", "echo", "trained", **nvml, NVML_FAULT=json.dumps(hidden))
    assert nodes.wait(0) == 0
    told, trained = nodes.runner.log(0).splitlines()
    assert told.startswith("slurmopt: health: NVML cannot look at the 8 promised GPUs: ")
    assert trained == "trained"


@pytest.mark.slow
def test_a_function_with_a_torch_for_cpus_goes_on(nodes: Nodes, nvml: dict[str, str]) -> None:
    """The private cluster's case; where torch is made for GPUs, they would be missing."""
    torch = pytest.importorskip("torch")
    if torch.version.cuda or getattr(torch.version, "hip", None):
        pytest.skip("this torch is made for GPUs")
    nodes.runner.module("train", "def main(config):\n    return 1\n")
    hidden = json.dumps({"init": (12, "NVML Shared Library Not Found")})
    nodes.start(0, 1, *word(gpus=True), "--function", "train.main", **nvml, NVML_FAULT=hidden)
    assert nodes.wait(0) == 0
    assert nodes.runner.log(0).count("slurmopt: health: ") == 1


SIMULATED_TORCH = """
import os, sys
__version__ = "simulated"
class Tensor:
    def __init__(self, numbers, broken=False): self.numbers, self.broken = numbers, broken
    def to(self, device):
        if device == "cpu": return Tensor(self.numbers)
        if os.environ["FAULT"] == "fails": raise RuntimeError("CUDA error: an illegal memory access\\nmore")
        return Tensor(self.numbers, os.environ["FAULT"] == "wrong")
    def __mul__(self, by): return Tensor([n * by for n in self.numbers], self.broken)
    def __add__(self, by): return Tensor([n + by + self.broken for n in self.numbers])
class version:
    cuda = "13.0" if os.environ.get("KIND", "cuda") == "cuda" else None
    hip = "7.0" if os.environ.get("KIND") == "rocm" else None
    xpu = "2025" if os.environ.get("KIND") == "xpu" else None
class OutOfMemoryError(RuntimeError): pass
class cuda:
    def device_count(): return 1 if os.environ["FAULT"] in ("count", "one") else 2
    def get_device_name(number): return os.environ.get("NAME", "NVIDIA H100")
    def is_available(): return False
    def is_initialized(): return False
class xpu(cuda):
    pass
int64 = None
def arange(count, dtype, device): return Tensor(list(range(8)))
def device(kind, number): return (kind, number)
def equal(a, b): return a.numbers == b.numbers
class distributed:
    def is_available(): return False
__path__, sys.modules["torch.distributed"] = [], distributed
"""


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("count", "1 of 2 promised GPUs answer torch"),
        ("fails", "GPU 4: a copy and a small kernel failed: CUDA error: an illegal memory access"),
        ("wrong", "GPU 4: a copy and a small kernel gave wrong numbers"),
    ],
)
def test_simulated_torch_a_gpu_that_cannot_compute_is_named(
    nodes: Nodes, tmp_path: Path, fault: str, said: str
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "torch.py").write_text(SIMULATED_TORCH)
    nodes.runner.module("train", "def main(config):\n    print('trained')\n")
    environment = {"CUDA_VISIBLE_DEVICES": "4,5", "FAULT": fault, "PYTHONPATH": f"{tmp_path / 'torch'}:{REPOSITORY}"}
    nodes.start(0, 1, *word(gpus=True), "--function", "train.main", **environment)
    assert nodes.error(0) == f"health: node1: {said}"
    assert "trained" not in nodes.runner.log(0)


@pytest.mark.parametrize("given", [
    {"CUDA_VISIBLE_DEVICES": "MIG-aa-1,MIG-aa-2"},  # a process can use one slice
    {"CUDA_VISIBLE_DEVICES": "0,1", "NAME": "NVIDIA A100-SXM4-40GB MIG 1g.5gb"},
    {"KIND": "rocm", "ROCR_VISIBLE_DEVICES": "3", "SLURM_GPUS_ON_NODE": "8"},
    {"KIND": "rocm", "ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "1", "SLURM_GPUS_ON_NODE": "8"},
    {"KIND": "xpu", "ZE_AFFINITY_MASK": "3.0", "SLURM_GPUS_ON_NODE": "8"},
    {"KIND": "xpu", "ZE_AFFINITY_MASK": "3.0,3.1", "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"},
])  # fmt: skip
def test_simulated_torch_gpus_of_every_kind_are_counted_as_torch_counts_them(
    nodes: Nodes, tmp_path: Path, given: dict[str, str]
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "torch.py").write_text(SIMULATED_TORCH)
    nodes.runner.module("train", "def main(config):\n    print('trained')\n")
    environment = {"FAULT": "one", "PYTHONPATH": f"{tmp_path / 'torch'}:{REPOSITORY}"}
    nodes.start(0, 1, *word(gpus=True), "--function", "train.main", **environment, **given)
    assert nodes.wait(0) == 0, nodes.runner.log(0)
    nodes.start(1, 1, *word(gpus=True), "--function", "train.main", **(environment | {"FAULT": "fails"}), **given)
    assert ": a copy and a small kernel failed: " in nodes.error(1)


# ---- the config ------------------------------------------------------------------------------------------------------


def test_the_config_reaches_the_rank_as_numbers() -> None:
    health = Health(within="1m", clock=None, shared="2GB", scratch=None, gpus=False)
    assert checks_of(health, "${oc.env:TMPDIR}", "auto") == Checks(
        within=60, wait=300, gpus=False, reach=True, shared=2 << 30, scratch_path="${oc.env:TMPDIR}"
    )


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"within": "1s"}, "health.within"),
        ({"within": "soon"}, "health.within"),
        ({"wait": "0s"}, "health.wait"),
        ({"clock": "-3"}, "health.clock"),
        ({"shared": "much"}, "health.shared"),
        ({"scratch": "1 disk"}, "health.scratch"),
    ],
)
def test_bad_values_name_their_key(values: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(key)}: .*valid"):
        Health(**values)  # type: ignore[arg-type]


def test_a_healthy_pass_ends_before_the_time_is_over(nodes: Nodes) -> None:
    """Two nodes that come at the same time do not wait for anything but each other."""
    for rank in (0, 1):
        nodes.start(rank, 2, *word(reach=True, within=600, clock=30.0, shared=1, scratch=1), "--", "true")
    assert [nodes.wait(rank) for rank in (0, 1)] == [0, 0]


@pytest.mark.parametrize(("nodes", "least", "most"), [(2, 0.01, 0.01), (16, 0.01, 0.1), (128, 1.0, 2.0)])
def test_many_nodes_look_for_each_other_less_often(nodes: int, least: float, most: float) -> None:
    """Each reads a file for each other one: 128 of them would read 16,000 files at once, 100 times a second."""
    pause = between_looks(nodes - 1, nodes)
    assert least <= pause <= most
    assert between_looks(1, nodes) < 0.05, "for the last one they look often"
