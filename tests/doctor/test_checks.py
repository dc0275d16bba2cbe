"""The checks of the doctor by themselves, and how they are run."""

from __future__ import annotations

import threading
from itertools import zip_longest
from pathlib import Path

import pytest

from slurmopt.checks import side_by_side
from slurmopt.checks.result import FAIL, PASS, SKIPPED, WARN, CheckResult, NotChecked, worst
from slurmopt.checks.side_by_side import Check
from slurmopt.doctor import cluster, limits, network, python
from slurmopt.doctor.folder import folder_of_runs
from slurmopt.doctor.on_nodes import answer_lines, read_answers
from slurmopt.errors import StorageError
from slurmopt.network.facts.facts_file import read
from slurmopt.network.facts.node_facts import NodeFacts, Versions
from slurmopt.slurm.cluster.cluster_facts import ClusterFacts, NodeGroup, Partition

FACTS = Path(__file__).parents[1] / "network" / "facts"
GOOD = CheckResult("good", PASS, "well")


def raises(error: BaseException) -> list[CheckResult]:
    raise error


def test_one_broken_check_hides_no_other() -> None:
    never = threading.Event()
    results = side_by_side.run(
        [
            Check("hangs", lambda: [GOOD] if never.wait() else [], within=0.2),
            Check("absent", lambda: raises(NotChecked("no such thing"))),
            Check("denied", lambda: raises(PermissionError(13, "Permission denied", "/secret"))),
            Check("known", lambda: raises(StorageError("no bucket"))),
            Check("mistake", lambda: raises(ZeroDivisionError("by zero"))),
            Check("good", lambda: [GOOD]),
        ]
    )
    assert [(each.name, each.verdict, each.text) for each in results] == [
        ("hangs", FAIL, "no answer within 0.2 s"),
        ("absent", SKIPPED, "no such thing"),
        ("denied", SKIPPED, "/secret: permission denied"),
        ("known", SKIPPED, "no bucket"),
        ("mistake", FAIL, "the check itself failed: ZeroDivisionError: by zero"),
        ("good", PASS, "well"),
    ]
    assert worst(results) == FAIL


def test_checks_run_side_by_side() -> None:
    both = threading.Barrier(2, timeout=30)
    checks = [Check(name, lambda: [GOOD] if both.wait() >= 0 else [], within=60) for name in ("a", "b")]
    assert side_by_side.run(checks) == [GOOD, GOOD]


def test_answers_of_nodes_whose_lines_come_mixed() -> None:
    """As srun prints those of several nodes; one that was cut off is none."""
    texts = {"node1": "a" * 2000, "node2": "b c " * 300, "node3": "d" * 600}
    answers = [{"node": node, "text": text} for node, text in texts.items()]
    first, second, cut = (answer_lines(answer).splitlines() for answer in answers)
    assert max(map(len, first + second)) < 1024
    mixed = [line for pair in zip_longest(first, second, cut[:1]) for line in pair if line is not None]
    said = "\n".join(["a prolog's own words", *mixed]) + "\n"
    assert read_answers(said) == answers[:2]


def known(**changes: object) -> ClusterFacts:
    group = NodeGroup(nodes="node[1-4]", count=4, usable=4, cpus=8, memory=1000, gpus={})
    facts: dict[str, object] = {
        "cluster": "c",
        "version": "25.11.0",
        "controllers": ["head"],
        "max_array_size": 1001,
        "job_requeue": True,
        "accounting": True,
        "enforces_accounts": False,
        "enforces_qos": False,
        "accounts": None,
        "partitions": [Partition(name="main", state="up", groups=[group])],
    }
    return ClusterFacts(**{**facts, **changes})  # type: ignore[arg-type]


def not_passed(facts: ClusterFacts) -> dict[str, str]:
    return {each.name: each.verdict for each in cluster.of_facts(facts) if each.verdict != PASS}


def test_a_cluster_that_is_as_it_should_be() -> None:
    assert not_passed(known()) == {}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"job_requeue": False}, {"requeue": WARN}),
        ({"requeue_in_doubt": True}, {"requeue": WARN}),
        ({"accounting": False}, {"accounting": WARN}),
        ({"enforces_accounts": True, "accounts": {}}, {"account": FAIL}),
        ({"max_array_size": 101}, {"array size": WARN}),
        ({"version": "21.08.5"}, {"Slurm version": WARN}),
        ({"partitions": [Partition(name="spot", state="up", preemption_cancels=True)]}, {"preemption": WARN}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_a_cluster_lacks_is_said_with_its_mend(changes: dict[str, object], expected: dict[str, str]) -> None:
    facts = known(**changes)
    assert not_passed(facts) == expected
    assert all(each.mend for each in cluster.of_facts(facts) if each.verdict == FAIL)


def test_nodes_that_are_down() -> None:
    group = NodeGroup(nodes="node[1-4]", count=4, usable=1, cpus=8, memory=1000, gpus={})
    facts = known(partitions=[Partition(name="a", state="up", groups=[group]), Partition(name="b", state="up")])
    (found,) = [each for each in cluster.of_facts(facts) if each.name == "nodes"]
    assert (found.verdict, found.text) == (WARN, "down or drained: 3 of 4 in a")


@pytest.mark.parametrize(
    ("versions", "verdict"),
    [
        (Versions(torch="2.13.0", cuda="13.0.88", driver="580.65.06"), PASS),
        (Versions(torch="2.13.0", cuda="13.0.88", driver="570.172.08"), FAIL),
        (Versions(torch="2.6.0", cuda="12.4", driver="525.125.06"), PASS),
        (Versions(torch="2.13.0+cpu", driver="580.65.06"), FAIL),
        (Versions(torch="2.13.0+cpu"), PASS),
        (Versions(), SKIPPED),
    ],
)
def test_torch_and_the_driver(versions: Versions, verdict: str) -> None:
    (found,) = python.torch(versions)
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("installed", "verdict"),
    [
        ([], SKIPPED),
        (["nvidia-ml-py"], PASS),
        (["nvidia-ml-py", "pynvml"], WARN),
        (["nvidia-ml-py", "nvidia-ml-py3"], FAIL),
        (["pynvml"], FAIL),
    ],
    ids=str,
)
def test_packages_that_bring_another_pynvml(
    installed: list[str], verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in installed:
        (tmp_path / f"{name.replace('-', '_')}-1.0.dist-info").mkdir()
        (tmp_path / f"{name.replace('-', '_')}-1.0.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    (found,) = python.nvml_packages()
    assert found.verdict == verdict


def test_a_network_that_lacks_its_plugin() -> None:
    facts = read(FACTS / "p5en.json")
    assert [each.verdict for each in network.network(facts)] == [PASS]
    without = NodeFacts(interfaces=facts.interfaces, rdma=facts.rdma, gpus=8)
    warned = [each for each in network.network(without) if each.verdict == WARN]
    assert "aws-ofi-nccl" in warned[0].text
    assert [each.verdict for each in network.network(NodeFacts())] == [WARN]


def test_variables_that_a_job_would_inherit() -> None:
    found = {each.verdict: each for each in network.variables({"NCCL_TREE_THRESHOLD": "0", "HOME": "/root"})}
    assert "NCCL_TREE_THRESHOLD=0" in found[WARN].text
    assert found[WARN].mend
    assert [each.verdict for each in network.variables({"HOME": "/root"})] == [PASS]


def test_locked_memory_counts_where_there_is_rdma(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1 << 23, 1 << 23))
    assert [each.verdict for each in limits.locked_memory(has_rdma=True)] == [FAIL]
    assert [each.verdict for each in limits.locked_memory(has_rdma=False)] == [PASS]


def test_a_small_shared_memory(tmp_path: Path) -> None:
    with pytest.raises(NotChecked):
        list(limits.shared_memory(str(tmp_path / "gone")))


def test_the_folder_of_runs(tmp_path: Path) -> None:
    found = {each.name: each.verdict for each in folder_of_runs(tmp_path / "not" / "there" / "yet")}
    assert found.keys() >= {"file system", "access", "permission", "space", "inodes", "quota"}
    assert found["permission"] == found["clock"] == PASS
    assert list(tmp_path.iterdir()) == []
