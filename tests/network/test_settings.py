"""The variables that follow from the facts about a node; the facts of tests/network/facts are simulated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slurmopt.config.network import NETWORK_KINDS, Network, NetworkOptions, from_argument
from slurmopt.errors import ConfigError
from slurmopt.network.facts.facts_file import read
from slurmopt.network.facts.node_facts import Interface, NodeFacts
from slurmopt.network.settings import applied, choose

FACTS = Path(__file__).parent / "facts"
ALWAYS = {"NCCL_DEBUG": "WARN"}
OLD_TORCH = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}


def node(name: str) -> NodeFacts:
    return read(FACTS / f"{name}.json")


def variables(facts: NodeFacts, kind: str = "auto", nodes: int = 2) -> dict[str, str]:
    return {setting.name: setting.value for setting in choose(facts, NetworkOptions(kind=kind), nodes).settings}


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("p5en", "efa", ALWAYS),
        ("p5", "efa", ALWAYS | OLD_TORCH),
        (
            "p4d",
            "efa",
            ALWAYS
            | OLD_TORCH
            | {
                "FI_PROVIDER": "efa",
                "NCCL_PROTO": "simple",
                "FI_EFA_USE_DEVICE_RDMA": "1",
                "NCCL_SOCKET_IFNAME": "=ens32",
            },
        ),
        ("g5", "ethernet", ALWAYS | OLD_TORCH),
        (
            "infiniband",
            "infiniband",
            ALWAYS
            | {
                "NCCL_IB_HCA": "=" + ",".join(f"mlx5_{number}" for number in range(8)),
                "NCCL_SOCKET_IFNAME": "=eno8303",
            },
        ),
        ("roce", "roce", ALWAYS | OLD_TORCH | {"NCCL_IB_GID_INDEX": "3"}),
    ],
)
def test_a_node_gets_what_its_versions_need(name: str, kind: str, expected: dict[str, str]) -> None:
    assert choose(node(name), NetworkOptions(kind="auto"), 2).kind == kind
    assert variables(node(name)) == expected


def test_newer_versions_need_less() -> None:
    facts = node("p4d")
    newer = replace(facts, versions=replace(facts.versions, plugin="1.6.0", torch="2.13.0"))
    assert "FI_PROVIDER" not in variables(newer)
    assert variables(newer)["FI_EFA_USE_DEVICE_RDMA"] == "1"
    newest = replace(facts, versions=replace(facts.versions, plugin="1.7.0"))
    assert "FI_EFA_USE_DEVICE_RDMA" not in variables(newest)


def test_rdma_read_is_not_asked_of_hardware_that_lacks_it() -> None:
    facts = replace(node("p4d"), instance="g4dn.metal")
    assert "FI_EFA_USE_DEVICE_RDMA" not in variables(facts)


def test_one_node_asks_nothing_of_the_network() -> None:
    choice = choose(node("p5en"), NetworkOptions(kind="auto"), 1)
    assert choice.kind == "none"
    assert "NVSwitch" in choice.reason
    assert variables(node("p5en"), nodes=1) == ALWAYS


def test_none_sets_nothing() -> None:
    assert choose(node("p4d"), NetworkOptions(kind="none"), 8).settings == ()


@pytest.mark.parametrize(("kind", "net"), [("infiniband", "IB"), ("roce", "IB"), ("ethernet", "Socket")])
def test_a_network_that_was_asked_for_does_not_fall_back(kind: str, net: str) -> None:
    assert variables(node("infiniband"), kind)["NCCL_NET"] == net


def test_a_network_that_is_not_there_is_warned_of() -> None:
    (warning,) = choose(node("g5"), NetworkOptions(kind="infiniband"), 2).warnings
    assert warning == "network.kind=infiniband, but this node has no active InfiniBand device"
    without = replace(node("p5en"), versions=replace(node("p5en").versions, plugin=None))
    (warning,) = choose(without, NetworkOptions(kind="auto"), 2).warnings
    assert "aws-ofi-nccl" in warning


def test_a_link_that_is_down_is_not_used() -> None:
    facts = node("p5en")
    down = replace(facts, rdma=tuple(replace(device, active=False) for device in facts.rdma))
    choice = choose(down, NetworkOptions(kind="auto"), 2)
    assert choice.kind == "ethernet"
    assert "without a link: rdmap85s0" in choice.reason


def test_fast_ethernet_gets_more_sockets_but_not_on_ec2_where_nccl_does_so() -> None:
    fast = NodeFacts(interfaces=(Interface(name="eth0", addresses=("10.0.0.1",), gbits=100.0),), towards_peers="eth0")
    assert variables(fast)["NCCL_NSOCKS_PERTHREAD"] == "4"
    assert "NCCL_NSOCKS_PERTHREAD" not in variables(replace(fast, instance="c5n.18xlarge"))


def test_the_users_own_values_count() -> None:
    own = {"NCCL_SOCKET_IFNAME": "bond7", "NCCL_DEBUG": "INFO"}
    taken = {each.setting.name: each.own for each in applied(choose(node("p4d"), NetworkOptions(kind="auto"), 2), own)}
    assert taken["NCCL_SOCKET_IFNAME"] == "bond7"
    assert taken["NCCL_DEBUG"] == "INFO"
    assert taken["FI_PROVIDER"] is None


@pytest.mark.parametrize("name", [path.stem for path in FACTS.glob("*.json")])
@pytest.mark.parametrize("kind", NETWORK_KINDS)
def test_each_setting_has_reason_and_source(name: str, kind: str) -> None:
    for setting in choose(node(name), NetworkOptions(kind=kind), 4).settings:
        assert setting.reason
        assert setting.source.startswith("https://")


TWO = (
    Interface(name="ens5", addresses=("10.1.0.4", "fe80::1"), gbits=100.0),
    Interface(name="ib0", addresses=("10.9.0.4",)),
    Interface(name="ens6", up=False, addresses=("10.3.0.4",)),
)


@pytest.mark.parametrize(("asked", "value"), [("ib0", "=ib0"), ("10.9.0.0/16", "=ib0"), ("10.1.0.0/24", "=ens5")])
def test_an_interface_that_is_asked_for_by_name_or_subnet(asked: str, value: str) -> None:
    facts = NodeFacts(interfaces=TWO, towards_peers="ens5")
    choice = choose(facts, NetworkOptions(interface=asked), 2)
    assert {each.name: each.value for each in choice.settings}["NCCL_SOCKET_IFNAME"] == value
    assert choice.warnings == ()


@pytest.mark.parametrize("asked", ["ens7", "ens6", "172.16.0.0/12", "10.3.0.0/16"])
def test_an_interface_that_is_not_there_is_a_warning(asked: str) -> None:
    (warning,) = choose(NodeFacts(interfaces=TWO), NetworkOptions(interface=asked), 2).warnings
    assert warning == (
        f"network.interface={asked}: this node has no such interface that is up; "
        "it has ens5 (10.1.0.4, fe80::1); ib0 (10.9.0.4)"
    )


def test_a_debug_level_that_is_asked_for_counts_on_one_node_too() -> None:
    choice = choose(NodeFacts(), NetworkOptions(debug="info"), 1)
    assert {each.name: each.value for each in choice.settings}["NCCL_DEBUG"] == "INFO"


@pytest.mark.parametrize(
    "options", [NetworkOptions(), NetworkOptions(kind="efa"), NetworkOptions(interface="10.0.0.0/8")]
)
def test_options_survive_the_job_script(options: NetworkOptions) -> None:
    assert from_argument(options.to_argument()) == options


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"interface": "not a name"}, "network.interface: 'not a name' is not valid; valid: a name such as ens5"),
        ({"interface": "10.0.0.0/99"}, "network.interface: '10.0.0.0/99' is not valid"),
        ({"debug": "loud"}, "network.debug"),
        ({"debug": "info", "kind": "none"}, "network.debug: has no effect with network.kind=none"),
    ],
    ids=str,
)
def test_options_that_are_not_valid(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Network(**given)  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_a_build_that_names_itself_without_a_number_counts_as_a_current_one() -> None:
    own = replace(node("p4d").versions, nccl="nightly", plugin="main", torch="custom-build")
    choice = choose(replace(node("p4d"), versions=own), NetworkOptions(kind="auto"), 2)
    assert {setting.name for setting in choice.settings} <= {"NCCL_SOCKET_IFNAME", "NCCL_DEBUG"}
    assert choice.warnings == ()
