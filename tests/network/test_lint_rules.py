"""What is wrong with a variable, by its value, the versions and the others beside it."""

from __future__ import annotations

import pytest

from slurmopt.network.lint.check import findings
from slurmopt.network.lint.setting import Finding, Setting
from slurmopt.network.lint.versions import Versions, given
from slurmopt.network.versions import is_before, parse, satisfies

NOTHING_KNOWN = Versions()


def lint(*words: str, versions: Versions = NOTHING_KNOWN) -> list[Finding]:
    """The findings for `NAME=value` words of one place; a word without `=` has a value that is not known."""
    pairs = [word.partition("=") for word in words]
    settings = [
        Setting(name, value if equals else None, "job.sh", line) for line, (name, equals, value) in enumerate(pairs)
    ]
    return findings(settings, versions)


def the_one(*words: str, versions: Versions = NOTHING_KNOWN) -> Finding:
    (finding,) = lint(*words, versions=versions)
    return finding


@pytest.mark.parametrize(
    ("word", "verdict", "said", "mend"),
    [
        ("NCCL_TREE_THRESHOLD=0", "warn", "removed in NCCL 2.5", "delete it"),
        ("NCCL_LL_THRESHOLD=0", "warn", "removed in NCCL 2.5", "delete it"),
        ("NCCL_MIN_NRINGS=4", "warn", "deprecated since NCCL 2.5", "NCCL_MIN_CTAS=4"),
        ("NCCL_MAX_NCHANNELS=8", "warn", "deprecated since NCCL 2.17", "NCCL_MAX_CTAS=8"),
        ("NCCL_IB_GDR_LEVEL=PHB", "warn", "deprecated since NCCL 2.4.0", "NCCL_NET_GDR_LEVEL=PHB"),
        ("NCCL_ALGO=Auto", "fail", "'Auto'", "delete it"),
        ("NCCL_ALGO=allreduce:tree,rnig", "fail", "'rnig'", "NCCL_ALGO=allreduce:tree,RING"),
        ("NCCL_SOCKET_IFNAME=eth0", "fail", "ens5", "^docker,lo,veth"),
        ("NCCL_SOCKET_IFNAME=^docker0", "warn", "not lo", "^docker,lo,veth"),
        ("NCCL_SOCKET_IFNAME=lo", "fail", "loopback", "delete it"),
        ("NCCL_SOCKET_IFNAME=^docker,^lo", "warn", "once", "valid value"),
        ("NCCL_SOCKET_IFNAME=ens*", "warn", "wildcard", "NCCL_SOCKET_IFNAME=ens"),
        ("NCCL_NET_GDR_LEVEL=3", "warn", "old spelling", "NCCL_NET_GDR_LEVEL=PHB"),
        ("NCCL_NET_GDR_LEVEL=PHBB", "warn", "valid: LOC, PIX, PXB, PHB, SYS", "NCCL_NET_GDR_LEVEL=PHB"),
        ("NCCL_IB_GID_INDEX=3", "warn", "automatically", "delete it"),
        ("NCCL_IB_TIMEOUT=0", "fail", "infinite", "delete it"),
        ("NCCL_IB_DISABLE=true", "warn", "valid: 0, 1", "NCCL_IB_DISABLE=1"),
        ("NCCL_BUFFSIZE=8M", "warn", "bytes", "NCCL_BUFFSIZE=8388608"),
        ("NCCL_NTHREADS=1024", "warn", "64, 128, 256, 512", "valid"),
        ("NCCL_MAX_CTAS=many", "warn", "whole number", "valid"),
        ("NCCL_DEBUG=INFO", "warn", "at scale", "NCCL_DEBUG=WARN"),
        ("NCCL_DEBUG=trace", "fail", "each call", "NCCL_DEBUG=WARN"),
        ("NCCL_DEBUG=WARNING", "warn", "valid: VERSION, WARN", "NCCL_DEBUG=WARN"),
        ("NCCL_DEBUG_FILE=nccl.log", "warn", "%p", "%h.%p"),
        ("NCCL_DEBUG_FILE=~/%h.%p", "warn", "~", "valid"),
        ("NCCL_LAUNCH_MODE=GROUP", "warn", "deprecated since NCCL 2.9", "delete it"),
        ("NCCL_PROTO=Simple", "warn", "1.5.0", "delete it"),
        ("NCCL_PROTO=LL128,Simple", "fail", "corrupts", "delete it"),
        ("NCCL_P2P_DISABLE=1", "warn", "faster path", "delete it"),
        ("NCCL_NETDEVS_POLICY=one", "warn", "MAX:N", "MAX:1"),
        ("NCCL_ASYNC_ERROR_HANDLING=1", "warn", "deprecated since torch 2.2", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING=0", "fail", "hanging", "delete it"),
        ("TORCH_NCCL_DUMP_ON_TIMEOUT=maybe", "fail", "valid: 0, 1", "valid"),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE=2000", "warn", "deprecated", "TORCH_FR_BUFFER_SIZE=2000"),
        ("TORCH_DISTRIBUTED_DEBUG=DETAIL", "warn", "slows", "delete it"),
        ("GLOO_SOCKET_IFNAME=^docker,lo", "fail", "whole names", "delete it"),
        ("FI_PROVIDER=efa", "warn", "1.5.0", "delete it"),
        ("FI_EFA_USE_DEVICE_RDMA=1", "fail", "aborts", "delete it"),
        ("FI_EFA_FORK_SAFE=1", "warn", "not needed", "delete it"),
        ("FI_EFA_MTU_SIZE=8000", "fail", "aborts", "delete it"),
        ("FI_EFA_TX_MIN_CREDITS=0", "fail", "1 or more", "aborts"),
        ("FI_EFA_IFACE=", "fail", "empty", "delete it"),
        ("FI_LOG_LEVEL=debug", "warn", "slows", "delete it"),
        ("RDMAV_FORK_SAFE=1", "fail", "newer kernels", "delete it"),
        ("OFI_NCCL_ENDPOINT_PER_COMM=1", "warn", "removed", "ignores"),
        ("OFI_NCCL_GDR_FLUSH_DISABLE=1", "fail", "silently wrong", "delete it"),
        ("OFI_NCCL_PROTOCOL=RDAM", "warn", "'RDAM'", "OFI_NCCL_PROTOCOL=RDMA"),
        ("NCCL_DEBUG_SUBSYS=INIT,NETT", "warn", "'NETT'", "NCCL_DEBUG_SUBSYS=INIT,NET"),
    ],
)
def test_each_problem_has_its_mend(word: str, verdict: str, said: str, mend: str) -> None:
    finding = the_one(word)
    assert finding.verdict == verdict
    assert said in finding.what
    assert mend in finding.mend


@pytest.mark.parametrize(
    "word",
    [
        *(
            "NCCL_SOCKET_IFNAME=^docker,lo,veth",
            "NCCL_SOCKET_IFNAME==ens5",
            "NCCL_DEBUG=WARN",
            "NCCL_DEBUG=warn",
            "NCCL_DEBUG=",
        ),
        *("NCCL_IB_HCA==mlx5_0:1,mlx5_1:1", "NCCL_IB_HCA=^mlx5_2", "NCCL_IB_GID_INDEX=-1", "NCCL_IB_TIMEOUT=22"),
        *("NCCL_ALGO=ring,collnetdirect;allreduce:tree;broadcast:^pat", "NCCL_ALGO=^NVLS", "NCCL_PROTO=^LL128"),
        *(
            "NCCL_NET_GDR_LEVEL=SYS",
            "NCCL_MIN_CTAS=4",
            "NCCL_NVLS_ENABLE=0",
            "NCCL_CUMEM_ENABLE=0x1",
            "NCCL_BUFFSIZE=8388608",
        ),
        *(
            "NCCL_DEBUG_SUBSYS=INIT,NET",
            "NCCL_DEBUG_SUBSYS=^COLL",
            "NCCL_DEBUG_FILE=/dev/stderr",
            "NCCL_NETDEVS_POLICY=max:1",
        ),
        *(
            "TORCH_NCCL_DUMP_ON_TIMEOUT=true",
            "TORCH_FR_BUFFER_SIZE=2000",
            "TORCH_DISTRIBUTED_DEBUG=OFF",
            "GLOO_SOCKET_IFNAME=ens5",
        ),
        *(
            "FI_EFA_USE_HUGE_PAGE=0",
            "FI_MR_CACHE_MONITOR=memhooks",
            "FI_LOG_LEVEL=warn",
            "FI_PROVIDER=tcp",
            "FI_CXI_RDZV_GET_MIN=0",
        ),
        *("OFI_NCCL_PROTOCOL=rdma", "NCCL_VERSION=2.27.3", "NCCL_HOME=/opt/nccl", "NCCL_IB_HCA", "NCCL_DEBUG"),
    ],
)
def test_what_is_right_is_left_alone(word: str) -> None:
    assert lint(word) == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NCCL_SOCKET_IFNMAE", "NCCL_SOCKET_IFNAME?"),
        ("NCCL_IB_GID_INDX", "NCCL_IB_GID_INDEX?"),
        ("NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC?"),
        ("TORCH_NCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME?"),
        ("NCCL_MIN_CHANNELS", "NCCL_MIN_NCHANNELS, today NCCL_MIN_CTAS?"),
        ("FI_EFA_USE_DEVICE_RDAM", "FI_EFA_USE_DEVICE_RDMA?"),
        ("TORCH_NCCL_DUMP_ON_TIMOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT?"),
        ("GLOO_SOCKET_IFNAMES", "GLOO_SOCKET_IFNAME?"),
        ("OFI_NCCL_PROTOCOLL", "OFI_NCCL_PROTOCOL?"),
    ],
)
def test_a_misspelt_name_is_told_the_nearest(name: str, meant: str) -> None:
    finding = the_one(f"{name}=1")
    assert finding.verdict == "warn"
    assert finding.mend == f"did you mean {meant}"


@pytest.mark.parametrize(
    ("name", "owner"),
    [("NCCL_WARP_SPEED", "NCCL"), ("NCCL_TIMEOUT", "NCCL"), ("RDMAV_ANYTHING", "rdma-core"), ("NCCL_COMM_ID", "NCCL")],
)
def test_what_no_page_documents_is_said(name: str, owner: str) -> None:
    assert f"not documented by {owner}" in the_one(f"{name}=1").what


@pytest.mark.parametrize(
    ("word", "versions", "said"),
    [
        ("NCCL_NETDEVS_POLICY=ALL", Versions(nccl=(2, 27, 3)), "came with NCCL 2.28; 2.27.3 ignores it"),
        ("NCCL_NETDEVS_POLICY=ALL", Versions(nccl=(2, 28)), None),
        ("NCCL_NETDEVS_POLICY=ALL", NOTHING_KNOWN, None),
        ("NCCL_ALGO=PAT", Versions(nccl=(2, 22)), "PAT came with NCCL 2.23; here is 2.22"),
        ("NCCL_ALGO=PAT", Versions(nccl=(2, 23)), None),
        ("NCCL_DEBUG=ATTN", Versions(nccl=(2, 31)), "ATTN came with NCCL 2.32"),
        ("NCCL_TREE_THRESHOLD=0", Versions(nccl=(2, 4, 8)), None),
        ("NCCL_MIN_NCHANNELS=4", Versions(nccl=(2, 16)), None),
        ("NCCL_MIN_NCHANNELS=4", Versions(nccl=(2, 17)), "deprecated"),
        ("NCCL_ASYNC_ERROR_HANDLING=1", Versions(torch=(2, 1)), None),
        ("TORCH_NCCL_BLOCKING_WAIT=0", Versions(torch=(2, 1)), "came with torch 2.2"),
        ("FI_PROVIDER=efa", Versions(plugin=(1, 5)), None),
        ("FI_PROVIDER=efa", Versions(plugin=(1, 16)), "here: aws-ofi-nccl 1.16"),
        ("NCCL_PROTO=simple", Versions(plugin=(1, 5, 0)), None),
        ("FI_EFA_USE_DEVICE_RDMA=1", Versions(plugin=(1, 6)), None),
        ("FI_EFA_USE_DEVICE_RDMA=1", Versions(plugin=(1, 7)), "aborts"),
        ("NCCL_BUFFSIZE=8388608", Versions(plugin=(1, 16)), "overrides what the plugin sets"),
        ("NCCL_NVLS_ENABLE=2", Versions(nccl=(2, 28, 9)), "may hang"),
        ("NCCL_NVLS_ENABLE=2", Versions(nccl=(2, 29)), None),
        ("NCCL_IB_GID_INDEX=3", Versions(nccl=(2, 20)), None),
    ],
)
def test_the_versions_decide(word: str, versions: Versions, said: str | None) -> None:
    found = lint(word, versions=versions)
    assert [said in one.what for one in found] == ([] if said is None else [True])


@pytest.mark.parametrize(
    ("words", "name", "said"),
    [
        (["NCCL_IB_DISABLE=1", "NCCL_IB_HCA=mlx5"], "NCCL_IB_HCA", "NCCL_IB_DISABLE turns InfiniBand off"),
        (["NCCL_IB_DISABLE=1", "NCCL_NET=IB"], "NCCL_NET", "demands the network"),
        (["FI_PROVIDER=tcp", "FI_EFA_USE_HUGE_PAGE=0"], "FI_EFA_USE_HUGE_PAGE", "leaves EFA out"),
        (["NCCL_P2P_DISABLE=1", "NCCL_P2P_LEVEL=NVL"], "NCCL_P2P_LEVEL", "no effect"),
        (["NCCL_MIN_CTAS=32", "NCCL_MAX_CTAS=16"], "NCCL_MIN_CTAS", "more than NCCL_MAX_CTAS=16"),
        (["NCCL_SOCKET_NTHREADS=16", "NCCL_NSOCKS_PERTHREAD=8"], "NCCL_NSOCKS_PERTHREAD", "more than 64"),
        (["NCCL_NVLS_ENABLE=0", "NCCL_ALGO=NVLSTree"], "NCCL_ALGO", "demands NVLS"),
        (["NCCL_MAX_NCHANNELS=8", "NCCL_MAX_CTAS=16"], "NCCL_MAX_NCHANNELS", "contradicts NCCL_MAX_CTAS=16"),
        (["TORCH_FR_BUFFER_SIZE=0", "TORCH_NCCL_DUMP_ON_TIMEOUT=1"], "TORCH_NCCL_DUMP_ON_TIMEOUT", "dumps nothing"),
        (["NCCL_DEBUG=WARN", "NCCL_DEBUG_SUBSYS=NET"], "NCCL_DEBUG_SUBSYS", "without NCCL_DEBUG=INFO"),
    ],
)
def test_settings_that_do_not_fit_together(words: list[str], name: str, said: str) -> None:
    alone = {one.what for word in words for one in lint(word)}
    together = [one for one in lint(*words) if one.what not in alone]
    assert [(one.setting.name, said in one.what) for one in together] == [(name, True)]


@pytest.mark.parametrize(
    "words",
    [
        ["NCCL_IB_DISABLE=0", "NCCL_IB_HCA=mlx5"],
        ["NCCL_IB_DISABLE", "NCCL_IB_HCA=mlx5"],
        ["FI_PROVIDER=^tcp", "FI_EFA_USE_HUGE_PAGE=0"],
        ["NCCL_MIN_CTAS=16", "NCCL_MAX_CTAS=16"],
        ["NCCL_IB_DISABLE=1", "NCCL_IB_DISABLE=0", "NCCL_IB_HCA=mlx5"],
        ["NCCL_NVLS_ENABLE=0", "NCCL_ALGO=^NVLS"],
        ["NCCL_DEBUG=INFO", "NCCL_DEBUG_FILE=/tmp/nccl.%h.%p", "NCCL_DEBUG_SUBSYS=NET"],
    ],
)
def test_settings_that_fit(words: list[str]) -> None:
    assert lint(*words) == []


def test_files_are_not_compared_with_each_other() -> None:
    one, other = Setting("NCCL_IB_DISABLE", "1", "a.sh", 1), Setting("NCCL_IB_HCA", "mlx5", "b.sh", 1)
    assert findings([one, other], NOTHING_KNOWN) == []


def test_a_key_is_not_shown() -> None:
    finding = the_one("NCCL_PSK=not-long-enough")
    assert finding.verdict == "fail"
    assert "not-long" not in finding.setting.shown() + str(finding.as_json())


def test_versions() -> None:
    assert given("nccl", "v2.27.3-1") == (2, 27, 3)
    assert parse("1.22.0amzn1.0") == (1, 22, 0)
    assert not is_before((2, 17, 0), (2, 17))
    assert is_before((2, 9), (2, 17))
    assert [satisfies(one, ">=2.27,<2.29") for one in ((2, 26), (2, 27, 0), (2, 28, 9), (2, 29))] == [
        False,
        True,
        True,
        False,
    ]
