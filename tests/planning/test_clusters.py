"""Clusters as data: bisection bandwidth, the time of a save, which one to take, and what the file may say."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from typing import Any

import pytest

from slurmopt.errors import ConfigError, InputError
from slurmopt.estimates.cluster_file import clusters_of, selected, shipped_clusters
from slurmopt.planning.clusters.bandwidth import bisection, network_of_gpu, save
from slurmopt.planning.clusters.choice import Option, chosen, front
from slurmopt.planning.clusters.parse import parse
from slurmopt.planning.clusters.preset import Preset, Topology

VALID: dict[str, Any] = {
    "mine": {
        "size": "small",
        "profile": "ours",
        "nodes": 8,
        "gpus": 64,
        "source": "our inventory",
        "node": {"instance": "box", "gpu": "h100", "gpus": 8, "domain": 8, "source": "x", "assumed": ["instance"]},
        "network": {"kind": "infiniband", "gbits": 3200, "adapters": 8, "adapter_gbits": 400, "source": "x"},
        "topology": {
            "kind": "fat-tree", "tiers": 2, "oversubscription": 4, "leaf_nodes": 4, "ports": 64, "source": "x",
        },
        "storage": {
            "kind": "fsx-persistent-2", "gib": 4800, "mb_per_tib": 1000, "gb_per_second": 4.8, "node_gbits": 100,
            "source": "x",
        },
        "nvme": {"disks": 8, "gb": 3840, "source": "x"},
    }
}  # fmt: skip


def mine(**changes: Any) -> Preset:
    (preset,) = parse({"clusters": VALID}, "mine.yaml")
    return replace(preset, **changes)


def shipped(name: str) -> Preset:
    return next(preset for preset in shipped_clusters() if preset.name == name)


AWS = {
    # GPUs of a node, Gbit/s, adapters, disks and GB of one: AWS, specifications of accelerated computing instances
    "p4d.24xlarge": (8, 400, 4, 8, 1000),
    "p4de.24xlarge": (8, 400, 4, 8, 1000),
    "p5.48xlarge": (8, 3200, 32, 8, 3800),
    "p5en.48xlarge": (8, 3200, 16, 8, 3800),
    "p6-b200.48xlarge": (8, 3200, 8, 8, 3800),
    "g6e.48xlarge": (8, 400, 4, 4, 1900),
    # NVIDIA's data sheet of DGX H100, and RA-11333-001
    "DGX H100": (8, 3200, 8, 8, 3840),
}


def test_what_ships_is_what_the_vendors_say() -> None:
    presets = shipped_clusters()
    assert {preset.node.instance for preset in presets} == set(AWS)
    for preset in presets:
        assert preset.nvme is not None
        gpus, gbits, adapters, disks, size = AWS[preset.node.instance]
        assert (preset.node.gpus, preset.network.gbits, preset.network.adapters) == (gpus, gbits, adapters)
        assert (preset.nvme.disks, preset.nvme.capacity) == (disks, disks * size * 1e9)
        assert set(preset.sources) == {"nodes", "node", "network", "topology", "storage", "nvme"}
    assert {preset.size for preset in presets} == {"small", "medium", "large"}
    assert shipped("g6e-small").node.domain == 1, "an L40S has no NVLink"


def test_the_bisection_of_the_superpod_is_half_of_its_cables() -> None:
    """RA-11333-001, table 4: 1,024 cables of 400 Gbit/s between leaves and spines for 4 units of 32 nodes; half of them
    lead from one half of the nodes to the other."""
    superpod = shipped("dgx-h100-large")
    assert bisection(superpod, 128) == pytest.approx(1024 / 2 * 400e9 / 8)
    assert bisection(superpod) == pytest.approx(63 * 400e9), "127 nodes: the smaller half has 63"


@pytest.mark.parametrize(("leaves", "oversubscription"), [(2, 4), (4, 2), (4, 1), (2, 1)])
def test_the_bisection_is_the_smallest_of_all_cuts(leaves: int, oversubscription: int) -> None:
    """Of a leaf and spine network of eight nodes: each half of the nodes, and each side that a switch may be on."""
    below = 8 // leaves
    rate = 400e9
    up = below * rate / oversubscription
    smallest = min(
        sum(rate for node in range(8) if (node in half) != sides[node // below])
        + sum(up for leaf in range(leaves) if sides[leaf] != sides[-1])
        for half in map(set, itertools.combinations(range(8), 4))
        for sides in itertools.product([False, True], repeat=leaves + 1)
    )
    topology = replace(mine().topology, oversubscription=float(oversubscription), leaf_nodes=below)
    assert bisection(mine(topology=topology)) == pytest.approx(smallest)


def test_nodes_of_one_leaf_have_the_whole_network() -> None:
    preset = mine()
    assert bisection(preset, 4) == pytest.approx(2 * 400e9)
    assert bisection(preset, 8) == pytest.approx(4 * 400e9 / 4)
    assert bisection(preset, 1) == 0
    assert network_of_gpu(preset) == pytest.approx(50e9 / 4)
    assert preset.hardware(8).network == pytest.approx(preset.hardware(4).network / 4)


@pytest.mark.parametrize(
    ("ports", "tiers", "oversubscription", "endpoints"),
    [
        (48, 3, 1, 27_648),  # Al-Fares and others, SIGCOMM 2008, section 1
        (64, 2, 1, 2048),  # k²/2
        (64, 1, 1, 64),
        (64, 2, 3, 64 * 48),  # each of 64 leaves has 48 ports down and 16 up
    ],
)
def test_what_switches_can_join(ports: int, tiers: int, oversubscription: float, endpoints: int) -> None:
    topology = Topology(
        kind="fat-tree", tiers=tiers, oversubscription=oversubscription, leaf_nodes=None, ports=ports
    )  # fmt: skip
    assert topology.endpoints() == endpoints


def test_a_save_waits_for_the_slower_of_network_and_file_system() -> None:
    """96 GB of 8 billion parameters: 12 bytes each. 4 nodes to 4.8 GB/s: 20 s. One node has 100 Gbit/s: of 76.8 GB/s it
    takes 12.5."""
    slow = save(mine(), 4, 8e9, "policy", "adamw")
    assert (slow.size, slow.seconds, slow.limit, slow.fits) == (96e9, pytest.approx(20), "file system", True)
    large = replace(mine().storage, write=76.8e9)
    fast = save(mine(storage=large), 1, 8e9, "policy", "adamw")
    assert (fast.seconds, fast.limit) == (pytest.approx(96 / 12.5), "network")
    assert save(mine(), 4, 8e9, "mixed", "adamw").size == 8e9 * 14
    assert save(mine(), 4, 8e9, "bf16", "sgd").size == 8e9 * 2
    assert not save(mine(), 4, 1e12, "policy", "adamw").fits, "12 TB into 4.8 TiB"
    assert save(mine(storage=replace(large, capacity=None)), 4, 1e12, "policy", "adamw").fits


def test_the_cluster_to_take() -> None:
    slow, good, dear = Option("slow", 10.0, 100.0), Option("good", 5.0, 119.0), Option("dear", 1.0, 121.0)
    unknown, worse = Option("unknown", 0.5, None), Option("worse", 11.0, 130.0)
    assert chosen([slow, good, dear, unknown]) == good
    assert chosen([slow, replace(good, cost=121.0)]) == slow
    assert chosen([unknown, Option("other", 0.6, None)]) == unknown
    assert chosen([]) is None
    assert front([slow, good, dear, unknown, worse]) == [slow, good, dear]
    assert front([slow, replace(slow, name="same")]) == [slow, replace(slow, name="same")]


def changed(path: str, value: Any) -> dict[str, Any]:
    """The valid file with one value changed; deleted for None."""
    content = {"clusters": copy.deepcopy(VALID)}
    *above, last = path.split(".")
    place: dict[str, Any] = content
    for key in above:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("more", 1, "mine.yaml: 'more' is not valid; valid: the keys clusters"),
        ("clusters", {}, "mine.yaml: clusters: '0 clusters' is not valid; valid: 1 to 200"),
        ("clusters", [1], r"mine.yaml: clusters: \[1\] is not valid; valid: a mapping"),
        ("clusters.Mine X", {}, "mine.yaml: clusters: 'Mine X' is not valid; valid: names such as p5-small"),
        ("clusters.mine", 3, "mine.yaml: mine: 3 is not valid; valid: a mapping"),
        ("clusters.mine.colour", 3, "mine.yaml: mine: 'colour' is not valid; valid: the keys size, profile, nodes"),
        ("clusters.mine.size", "huge", "mine.yaml: mine.size: 'huge' is not valid; valid: small, medium, large"),
        ("clusters.mine.size", ["small"], r"mine.yaml: mine.size: \['small'\] is not valid; valid: small, medium"),
        ("clusters.mine.profile", "../x", "mine.yaml: mine.profile: '../x' is not valid; valid: the name of a profile"),
        ("clusters.mine.nodes", -8, "mine.yaml: mine.nodes: -8 is not valid; valid: a whole number, 1 to 100,000"),
        ("clusters.mine.nodes", True, "mine.yaml: mine.nodes: True is not valid; valid: a whole number"),
        ("clusters.mine.nodes", 8.5, "mine.yaml: mine.nodes: 8.5 is not valid; valid: a whole number"),
        ("clusters.mine.gpus", 60, "mine.yaml: mine.gpus: 60 does not agree; valid: 64: 8 nodes of 8"),
        ("clusters.mine.source", None, "mine.yaml: mine.source: is missing; valid: one line of text"),
        ("clusters.mine.node", None, "mine.yaml: mine.node: is missing; valid: a mapping"),
        ("clusters.mine.node.gpu", "h1000", "mine.yaml: mine.node.gpu: 'h1000' is not known; valid: v100-16gb"),
        ("clusters.mine.node.domain", 4, "mine.yaml: mine.node.domain: 4 does not agree; valid: 8: the links of h100"),
        ("clusters.mine.node.assumed", ["watts"], "mine.yaml: mine.node.assumed: .* is not valid; valid: a list of"),
        ("clusters.mine.node.source", "a\x1bb", r"mine.node.source: 'a\\x1bb' is not valid; valid: one line"),
        ("clusters.mine.network.kind", "auto", "mine.network.kind: 'auto' is not valid; valid: efa, infiniband, roce"),
        ("clusters.mine.network.gbits", 400, "mine.network.gbits: 400 does not agree; valid: 3200: 8 adapters of 400"),
        ("clusters.mine.network.gbits", float("nan"), "mine.network.gbits: nan is not valid; valid: a number"),
        ("clusters.mine.network.gbits", 10**400, "mine.network.gbits: 1000.* is not valid; valid: a number, 0.001 to"),
        ("clusters.mine.network.adapters", "8", "mine.network.adapters: '8' is not valid; valid: a whole number"),
        ("clusters.mine.topology.kind", "torus", "topology.kind: 'torus' is not valid; valid: switch, rails, fat-tree"),
        ("clusters.mine.topology.tiers", 1, "topology.tiers: 1 is not valid; valid: 2 or 3 for fat-tree"),
        ("clusters.mine.topology.oversubscription", 0.5, "oversubscription: 0.5 is not valid; valid: 1 or more"),
        ("clusters.mine.topology.leaf_nodes", None, "topology.leaf_nodes: is missing; valid: nodes below one leaf"),
        ("clusters.mine.topology.leaf_nodes", 7, "topology.leaf_nodes: 7 is not valid; valid: up to 6, by ports of a"),
        ("clusters.mine.topology.ports", 8, "topology.ports: 8 is not valid; valid: more: 2 tiers of them join 51 "),
        ("clusters.mine.storage.kind", "floppy", "storage.kind: 'floppy' is not valid; valid: fsx-persistent-2"),
        ("clusters.mine.storage.mb_per_tib", 300, "mb_per_tib: 300 is not valid; valid: 125, 250, 500, 1000 for fsx"),
        ("clusters.mine.storage.gib", 5000, "storage.gib: 5000.0 is not valid; valid: 1200, or a multiple of 2400"),
        ("clusters.mine.storage.node_gbits", 1e-308, "storage.node_gbits: 1e-308 is not valid; valid: a number, 0.001"),
        ("clusters.mine.storage.gib", -4800, "storage.gib: -4800 is not valid; valid: a number, 0.001 to"),
        ("clusters.mine.storage.gb_per_second", 48, "gb_per_second: 48 does not agree; valid: 4.8: 1000 MB/s for each"),
        ("clusters.mine.storage.kind", "lustre", "storage.mb_per_tib: 1000 is not valid; valid: of fsx-persistent-2"),
        ("clusters.mine.nvme.disks", 0, "nvme.disks: 0 is not valid; valid: a whole number"),
        ("clusters.mine.nvme", "many", "mine.nvme: 'many' is not valid; valid: a mapping"),
    ],
)  # fmt: skip
def test_nonsense_in_a_file_names_its_key(path: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        parse(changed(path, value), "mine.yaml")
    assert str(raised.value).startswith("mine.yaml: ")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("content", [None, 3, "text", [], {1: 2}])
def test_a_file_of_something_else_is_one_line(content: Any) -> None:
    with pytest.raises(ConfigError, match=r"^mine\.yaml: "):
        parse(content, "mine.yaml")


def test_rails_and_a_single_switch() -> None:
    rails = {"kind": "rails", "tiers": 1, "oversubscription": 1, "ports": 8, "source": "x"}
    (preset,) = parse(changed("clusters.mine.topology", rails), "mine.yaml")
    assert bisection(preset) == pytest.approx(4 * 400e9), "each rail has a switch with a port for each node"
    with pytest.raises(ConfigError, match=r"ports: 7 is not valid; valid: more: 1 tier of them join 7 adapters, of 8"):
        parse(changed("clusters.mine.topology", {**rails, "ports": 7}), "mine.yaml")
    switch = {"kind": "switch", "tiers": 1, "oversubscription": 1, "ports": 63, "source": "x"}
    with pytest.raises(ConfigError, match=r"ports: 63 is not valid; valid: more: 1 tier of them join 63 adapters, of"):
        parse(changed("clusters.mine.topology", switch), "mine.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "mine.yaml: is empty; valid: a mapping with clusters"),
        (b"\x00\xff\xfe", "mine.yaml: is no YAML"),
        (b"clusters: [", "mine.yaml: is no YAML"),
        (b"clusters: {a: {}, a: {}}", "mine.yaml: is no YAML: .*duplicate key a"),
        (b"[" * 100_000, "mine.yaml: is no YAML"),
    ],
)
def test_files_that_are_no_clusters(tmp_path: Any, content: bytes, message: str) -> None:
    (tmp_path / "mine.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=message) as raised:
        clusters_of(str(tmp_path / "mine.yaml"))
    assert len(str(raised.value).splitlines()) == 1
    for place in (tmp_path, tmp_path / "missing", "a\0b"):
        with pytest.raises(ConfigError, match="cannot be read"):
            clusters_of(str(place))


def test_only_picks_from_both() -> None:
    assert [preset.name for preset in selected(None, "p5-small, p4d-small,p5-small")] == ["p5-small", "p4d-small"]
    with pytest.raises(InputError, match=r"--only: no cluster 'p5-smal' \(did you mean 'p5-small'\?\); valid: g6e-sm"):
        selected(None, "p5-smal")
