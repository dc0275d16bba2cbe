"""Parses a file of clusters, strictly: unknown keys, wrong types and numbers that do not agree are errors.

clusters:
  p5-small:                       a name for tables and --only
    size: small                   small, medium or large
    profile: hyperpod_p5          of conf/cluster/; may be left out
    nodes: 4
    gpus: 32                      of all nodes: nodes times node.gpus
    source: why so many nodes
    node:
      instance: p5.48xlarge       what it is called where it is bought
      gpu: h100                   as plan.gpu
      gpus: 8
      domain: 8                   GPUs of a node that NVLink joins; 1 without it
      source: where these numbers stand
      assumed: [domain]           keys of the section that no source has; may be left out in each section
    network:
      kind: efa                   as network.kind
      gbits: 3200                 of a node, one way: adapters times adapter_gbits
      adapters: 32
      adapter_gbits: 100
      source: ...
    topology:
      kind: fat-tree              switch (all nodes on one), rails (rail-optimised) or fat-tree
      tiers: 3                    of switches
      oversubscription: 1         bandwidth of a leaf's nodes by that of its links upwards
      leaf_nodes: 32              nodes below one leaf; may be left out where oversubscription is 1
      ports: 64                   of a switch; may be left out
      source: ...
    storage:
      kind: fsx-persistent-2      or fsx-scratch-2, lustre, other
      gib: 9600                   capacity; may be left out for lustre and other
      mb_per_tib: 500             of FSx alone: what was bought, and what writes reach
      gb_per_second: 4.8          written by all nodes together
      node_gbits: 100             between a node and the file system
      source: ...
    nvme: {disks: 8, gb: 3800, source: ...}     of a node, gb of one disk; may be left out
"""

from __future__ import annotations

import re
from typing import Any

from slurmopt.planning.clusters.fields import Fields, top
from slurmopt.planning.clusters.preset import (
    FAT_TREE,
    RAILS,
    SIZES,
    SWITCH,
    TOPOLOGIES,
    Network,
    Node,
    Nvme,
    Preset,
    Storage,
    Topology,
)
from slurmopt.planning.hardware import gpu_of

_NAME = re.compile(r"[a-z][a-z0-9._-]{0,39}")
_PROFILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_KEYS = ("size", "profile", "nodes", "gpus", "source", "node", "network", "topology", "storage", "nvme")
_NETWORKS = ("efa", "infiniband", "roce", "ethernet")
_PERSISTENT, _SCRATCH = "fsx-persistent-2", "fsx-scratch-2"
_FSX = {_PERSISTENT: (125, 250, 500, 1000), _SCRATCH: (100,)}
"""MB/s per TiB that are written; AWS has 200 for reading from SCRATCH_2."""
_STORAGES = (*_FSX, "lustre", "other")
_FSX_STEP = 2400
"""GiB; AWS counts 2400 GiB as 2.4 TiB where it multiplies with MB/s per TiB."""
_MOST_CLUSTERS, _MOST_NODES, _MOST_GPUS = 200, 100_000, 1024
_MOST_GBITS = 1e6
_GBIT, _GIB = 1e9 / 8, 2**30


def parse(value: Any, place: str) -> list[Preset]:
    """The clusters in the content of a file. `place`: the file, for messages. Raises ConfigError for the first thing
    that is wrong: what, where, and what would be valid."""
    clusters = top(value, place).section("clusters")
    names = clusters.names()
    if not 1 <= len(names) <= _MOST_CLUSTERS:
        raise clusters.error("", f"{len(names)} clusters", f"1 to {_MOST_CLUSTERS}")
    return [_preset(clusters, name) for name in names]


def _preset(clusters: Fields, name: str) -> Preset:
    if not _NAME.fullmatch(name):
        raise clusters.error("", name, "names such as p5-small: small letters, digits, dots, dashes")
    fields = clusters.section(name)
    fields.only(_KEYS)
    sections = [fields.section(key) for key in ("node", "network", "topology", "storage")]
    node, network, topology, storage = sections
    has_disks = fields.has("nvme")
    sections += [fields.section("nvme")] if has_disks else []
    profile = fields.text("profile") if fields.has("profile") else None
    if profile is not None and not _PROFILE.fullmatch(profile):
        raise fields.error("profile", profile, "the name of a profile of conf/cluster/, such as hyperpod_p5")
    preset = Preset(
        name=name,
        size=fields.word("size", SIZES),
        profile=profile,
        nodes=fields.whole("nodes", _MOST_NODES),
        node=_node(node),
        network=_network(network),
        topology=_topology(topology),
        storage=_storage(storage),
        nvme=_nvme(sections[-1]) if has_disks else None,
        sources={"nodes": fields.text("source")} | {each.name: each.text("source") for each in sections},
        assumed=tuple(f"{each.name}.{key}" for each in sections for key in each.assumed()),
    )
    _check_sizes(preset, fields)
    return preset


def _node(fields: Fields) -> Node:
    fields.only(("instance", "gpu", "gpus", "domain", "source", "assumed"))
    gpu = gpu_of(fields.text("gpu"), fields.where("gpu"))
    node = Node(
        instance=fields.text("instance"), gpu=gpu, gpus=fields.whole("gpus", _MOST_GPUS),
        domain=fields.whole("domain", _MOST_GPUS),
    )  # fmt: skip
    joined = min(node.gpus, gpu.domain)
    fields.agrees("domain", node.domain, joined, f"{joined}: the links of {gpu.name} join {gpu.domain}")
    return node


def _network(fields: Fields) -> Network:
    fields.only(("kind", "gbits", "adapters", "adapter_gbits", "source", "assumed"))
    network = Network(
        kind=fields.word("kind", _NETWORKS), gbits=fields.number("gbits", _MOST_GBITS),
        adapters=fields.whole("adapters", _MOST_GPUS),
    )  # fmt: skip
    each = fields.number("adapter_gbits", _MOST_GBITS)
    all_of_them = network.adapters * each
    fields.agrees("gbits", network.gbits, all_of_them, f"{all_of_them:g}: {network.adapters} adapters of {each:g}")
    return network


def _topology(fields: Fields) -> Topology:
    fields.only(("kind", "tiers", "oversubscription", "leaf_nodes", "ports", "source", "assumed"))
    kind, tiers = fields.word("kind", tuple(TOPOLOGIES)), fields.whole("tiers", 3)
    if tiers not in TOPOLOGIES[kind]:
        raise fields.error("tiers", tiers, f"{' or '.join(map(str, TOPOLOGIES[kind]))} for {kind}")
    topology = Topology(
        kind=kind,
        tiers=tiers,
        oversubscription=fields.number("oversubscription", 1000),
        leaf_nodes=fields.whole("leaf_nodes", _MOST_NODES) if fields.has("leaf_nodes") else None,
        ports=fields.whole("ports", 100_000) if fields.has("ports") else None,
    )
    if topology.oversubscription < 1:
        raise fields.error("oversubscription", topology.oversubscription, "1 or more")
    if tiers == 1 and topology.oversubscription != 1:
        raise fields.error("oversubscription", topology.oversubscription, "1 for one tier, which has no links upwards")
    if topology.oversubscription > 1 and topology.leaf_nodes is None:
        raise fields.error("leaf_nodes", None, "nodes below one leaf, where oversubscription is above 1")
    return topology


def _storage(fields: Fields) -> Storage:
    fields.only(("kind", "gib", "mb_per_tib", "gb_per_second", "node_gbits", "source", "assumed"))
    kind, rate = fields.word("kind", _STORAGES), fields.number("gb_per_second", 1e6)
    capacity = fields.number("gib", 1e12) if kind in _FSX or fields.has("gib") else None
    if kind in _FSX:
        _check_fsx(fields, kind, rate, capacity or 0.0)
    elif fields.has("mb_per_tib"):
        raise fields.error("mb_per_tib", fields.value("mb_per_tib"), f"of {' and '.join(_FSX)} alone")
    return Storage(
        kind=kind,
        write=rate * 1e9,
        of_node=fields.number("node_gbits", _MOST_GBITS) * _GBIT,
        capacity=None if capacity is None else capacity * _GIB,
    )


def _check_fsx(fields: Fields, kind: str, rate: float, gib: float) -> None:
    each = fields.whole("mb_per_tib", 100_000)
    if each not in _FSX[kind]:
        raise fields.error("mb_per_tib", each, f"{', '.join(map(str, _FSX[kind]))} for {kind}")
    if gib != _FSX_STEP / 2 and gib % _FSX_STEP:
        raise fields.error("gib", gib, f"{_FSX_STEP // 2}, or a multiple of {_FSX_STEP}")
    bought = gib / 1000 * each / 1000
    fields.agrees("gb_per_second", rate, bought, f"{bought:g}: {each} MB/s for each of {gib / 1000:g} TiB")


def _nvme(fields: Fields) -> Nvme:
    fields.only(("disks", "gb", "source", "assumed"))
    disks = fields.whole("disks", _MOST_GPUS)
    return Nvme(disks=disks, capacity=disks * fields.number("gb", 1e6) * 1e9)


def _check_sizes(preset: Preset, fields: Fields) -> None:
    """Numbers of several sections that have to agree."""
    gpus, topology = fields.whole("gpus", _MOST_NODES * _MOST_GPUS), preset.topology
    fields.agrees("gpus", gpus, preset.gpus, f"{preset.gpus}: {preset.nodes} nodes of {preset.node.gpus}")
    place = fields.section("topology")
    adapters, most = preset.nodes * preset.network.adapters, topology.endpoints()
    if topology.kind == RAILS and topology.tiers == 1:
        adapters = preset.nodes  # each rail has a switch of its own
    if most is not None and adapters > most:
        what = f"{topology.tiers} tier{'s' if topology.tiers > 1 else ''} of them join {most:,.0f}"
        raise place.error("ports", topology.ports, f"more: {what} adapters, of {adapters:,}")
    of_leaf = {SWITCH: preset.network.adapters, FAT_TREE: preset.network.adapters, RAILS: 1}[topology.kind]
    down = topology.ports_down()
    if down is not None and topology.leaf_nodes is not None and topology.leaf_nodes * of_leaf > down:
        raise place.error("leaf_nodes", topology.leaf_nodes, f"up to {down // of_leaf:,.0f}, by ports of a leaf")
