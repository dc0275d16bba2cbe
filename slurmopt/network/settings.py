"""Facts about a node → the environment variables that its ranks need, each with its reason and source.

Pure: values in, values out. On a current stack nearly nothing is needed; what is set here holds for the versions that
each setting names. Sources: the environment variables in NCCL's user guide, the release notes and README of
aws-ofi-nccl, the man page fi_efa(7) of libfabric, and `torch.distributed`'s page on its variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slurmopt.config.network import AUTO, EFA, ETHERNET, INFINIBAND, NONE, ROCE, NetworkOptions
from slurmopt.network.facts.node_facts import RDMA_KINDS, NodeFacts, Versions, chosen_interface
from slurmopt.network.versions import is_earlier

_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_PLUGIN = "https://github.com/aws/aws-ofi-nccl/blob/master/RELEASENOTES.md"
_TORCH = "https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html"
_RDMA_READ = ("p4d.", "p4de.", "p5.")
"""Instance types whose EFA reads remote memory and that existed before the plugin asked for that by itself."""
_FAST_ETHERNET = 100.0
"""Gbit/s from which one socket of NCCL does not fill a link."""


@dataclass(frozen=True)
class Setting:
    """An environment variable that a rank gets."""

    name: str
    value: str
    reason: str
    source: str
    """The document that says so."""
    versions: str = ""
    """The versions for which it holds; empty: all."""


@dataclass(frozen=True)
class Choice:
    """The network that is used, why, and what that needs."""

    kind: str
    """A word of NETWORK_KINDS except `auto`."""
    reason: str
    settings: tuple[Setting, ...]
    warnings: tuple[str, ...] = ()
    """What the facts say against it; one line each."""


@dataclass(frozen=True)
class Applied:
    """A setting, and what became of it."""

    setting: Setting
    own: str | None
    """The value that the user has set, which counts; None: the setting is applied."""


def choose(facts: NodeFacts, asked: NetworkOptions, nodes: int) -> Choice:
    """The network for a job on `nodes` nodes like this one."""
    if asked.kind == NONE:
        return Choice(NONE, "network.kind=none: nothing is set", ())
    debugging = tuple(_debugging(facts.versions, asked))
    if nodes == 1:
        return Choice(NONE, f"one node: {_inside(facts)}", debugging)
    kind, reason = _found(facts) if asked.kind == AUTO else (asked.kind, f"network.kind={asked.kind}")
    is_forced = asked.kind != AUTO
    settings = (*_of_kind(kind, facts, is_forced), *_sockets(kind, facts, asked.interface), *debugging)
    return Choice(kind, reason, settings, (*_against(kind, facts), *_against_interface(facts, asked.interface)))


def applied(choice: Choice, environ: Mapping[str, str]) -> list[Applied]:
    """The settings beside the user's own variables, which are never changed."""
    return [Applied(setting, environ.get(setting.name)) for setting in choice.settings]


def _inside(facts: NodeFacts) -> str:
    if facts.gpus < 2:
        return "no network is needed"
    links = {"nvswitch": "NVSwitch", "nvlink": "NVLink", "pcie": "PCIe"}.get(facts.gpu_links or "", "NVLink or PCIe")
    return f"NCCL uses {links} between its {facts.gpus} GPUs and finds that by itself"


def _found(facts: NodeFacts) -> tuple[str, str]:
    """The fastest network of the node, and how it was found."""
    for kind in RDMA_KINDS:
        if devices := facts.devices(kind):
            names = ", ".join(device.name for device in devices[:4])
            more = f" and {len(devices) - 4} more" if len(devices) > 4 else ""
            return kind, f"{len(devices)} active {_SPOKEN[kind]} device{'s' * (len(devices) > 1)}: {names}{more}"
    down = [device.name for device in facts.rdma if not device.active]
    without = f"; without a link: {', '.join(down[:4])}" if down else ""
    return ETHERNET, f"no EFA, InfiniBand or RoCE device{without}"


_SPOKEN = {EFA: "EFA", INFINIBAND: "InfiniBand", ROCE: "RoCE", ETHERNET: "Ethernet"}


def _of_kind(kind: str, facts: NodeFacts, is_forced: bool) -> Iterator[Setting]:
    if kind == EFA:
        yield from _efa(facts)
    elif kind in (INFINIBAND, ROCE):
        yield from _verbs(kind, facts, is_forced)
    elif kind == ETHERNET:
        yield from _ethernet(facts, is_forced)


def _efa(facts: NodeFacts) -> Iterator[Setting]:
    plugin = facts.versions.plugin
    if is_earlier(plugin, "1.5.1"):
        until = "aws-ofi-nccl 1.5.0 and earlier"
        yield Setting("FI_PROVIDER", "efa", "this plugin does not choose the provider itself", _PLUGIN, until)
        yield Setting("NCCL_PROTO", "simple", "this plugin does not deliver in the order that LL needs", _PLUGIN, until)
    if is_earlier(plugin, "1.7.0") and (facts.instance or "").startswith(_RDMA_READ):
        reason = f"this plugin does not ask for RDMA read, which {facts.instance} has"
        yield Setting("FI_EFA_USE_DEVICE_RDMA", "1", reason, _PLUGIN, "aws-ofi-nccl before 1.7.0")


def _verbs(kind: str, facts: NodeFacts, is_forced: bool) -> Iterator[Setting]:
    devices = facts.devices(kind)
    if is_forced:
        spoken = f"network.kind={kind}: NCCL fails instead of falling back to sockets"
        yield Setting("NCCL_NET", "IB", spoken, _NCCL)
    others = [device for other in (INFINIBAND, ROCE) if other != kind for device in facts.devices(other)]
    if devices and others:
        names = ",".join(device.name for device in devices)
        reason = f"the node also has {_SPOKEN[others[0].kind]} devices ({', '.join(one.name for one in others[:4])})"
        yield Setting("NCCL_IB_HCA", f"={names}", f"{reason}, which reach other nodes by another network", _NCCL)
    indices = {device.gid_index for device in devices}
    if kind == ROCE and is_earlier(facts.versions.nccl, "2.21") and len(indices) == 1 and None not in indices:
        (index,) = indices
        reason = "this NCCL takes index 0 of the GIDs, which is not RoCE v2; later ones find it"
        yield Setting("NCCL_IB_GID_INDEX", str(index), reason, _NCCL, "NCCL before 2.21")


def _ethernet(facts: NodeFacts, is_forced: bool) -> Iterator[Setting]:
    if is_forced:
        yield Setting("NCCL_NET", "Socket", "network.kind=ethernet: no RDMA device is used", _NCCL)
    used = next((one for one in facts.interfaces if one.name == facts.towards_peers), None)
    if used is not None and (used.gbits or 0.0) >= _FAST_ETHERNET and facts.instance is None:
        reason = f"one socket does not fill {used.name} with {used.gbits:g} Gbit/s"
        yield Setting("NCCL_SOCKET_NTHREADS", "4", reason, _NCCL)
        yield Setting("NCCL_NSOCKS_PERTHREAD", "4", reason, _NCCL)


def _sockets(kind: str, facts: NodeFacts, asked: str | None) -> Iterator[Setting]:
    """The interface of NCCL's sockets, by which its ranks find each other on every network."""
    if asked is not None:
        if (name := chosen_interface(asked, facts.interfaces)) is not None:
            yield Setting("NCCL_SOCKET_IFNAME", f"={name}", f"network.interface={asked}", _NCCL)
        return
    names = [one.name for one in facts.candidates()]
    if facts.towards_peers is None or len(names) < 2:
        return
    others = ", ".join(name for name in names if name != facts.towards_peers)
    what = "find each other" if kind != ETHERNET else "exchange data"
    reason = f"the ranks {what} over the route to the other nodes; there are also {others}"
    yield Setting("NCCL_SOCKET_IFNAME", f"={facts.towards_peers}", reason, _NCCL)


def _debugging(versions: Versions, asked: NetworkOptions) -> Iterator[Setting]:
    if asked.debug is not None:
        yield Setting("NCCL_DEBUG", asked.debug.upper(), f"network.debug={asked.debug}", _NCCL)
    else:
        yield Setting("NCCL_DEBUG", "WARN", "without it NCCL does not say why it fails", _NCCL)
    if versions.torch is None or is_earlier(versions.torch, "2.13"):
        reason = "torch's flight recorder keeps the last collectives of each rank, so that a hang can be explained"
        yield Setting("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000", reason, _TORCH, "torch before 2.13, which keeps as many")


def _against(kind: str, facts: NodeFacts) -> Iterator[str]:
    versions = facts.versions
    if kind in RDMA_KINDS and not facts.devices(kind):
        yield f"network.kind={kind}, but this node has no active {_SPOKEN[kind]} device"
    if kind == EFA and versions.plugin is None:
        yield "EFA devices, but no aws-ofi-nccl plugin is found: NCCL would use sockets; install aws-ofi-nccl"
    if not is_earlier(versions.nccl, "2.27") and is_earlier(versions.nccl, "2.29"):
        yield f"NCCL {versions.nccl} may hang where NVLS falls back silently; mended in 2.29, or set NCCL_NVLS_ENABLE=0"


def _against_interface(facts: NodeFacts, asked: str | None) -> Iterator[str]:
    usable = {one.name: one.addresses for one in facts.candidates()}
    if asked is not None and usable and chosen_interface(asked, facts.interfaces) not in usable:
        has = "; ".join(f"{name} ({', '.join(addresses)})" for name, addresses in usable.items())
        yield f"network.interface={asked}: this node has no such interface that is up; it has {has}"
