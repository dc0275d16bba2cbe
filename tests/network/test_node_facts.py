"""Facts about this machine, about trees as the kernel shows them (simulated), and about files."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from slurmopt.cli import main
from slurmopt.errors import InputError
from slurmopt.network.facts import installed
from slurmopt.network.facts.facts_file import read
from slurmopt.network.facts.gather import gather
from slurmopt.network.facts.rdma import rdma_devices


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{content}\n")
    return root


def test_this_machine_has_its_loopback_and_its_addresses() -> None:
    facts = gather()
    (loopback,) = [one for one in facts.interfaces if one.kind == "loopback"]
    assert "127.0.0.1" in loopback.addresses
    listed = {line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]}
    assert {one.name for one in facts.interfaces} == listed


def test_devices_are_told_apart_by_vendor_and_link_layer(tmp_path: Path) -> None:
    folder = tree(
        tmp_path,
        {
            "efa_0/device/vendor": "0x1d0f",
            "efa_0/ports/1/link_layer": "Unspecified",
            "efa_0/ports/1/state": "4: ACTIVE",
            "efa_0/ports/1/rate": "100 Gb/sec (4X EDR)",
            "mlx5_0/device/vendor": "0x15b3",
            "mlx5_0/ports/1/link_layer": "InfiniBand",
            "mlx5_0/ports/1/state": "1: DOWN",
            "mlx5_1/device/vendor": "0x15b3",
            "mlx5_1/ports/1/link_layer": "Ethernet",
            "mlx5_1/ports/1/state": "4: ACTIVE",
            "mlx5_1/ports/1/gids/0": "fe80:0000:0000:0000:0ac0:ebff:fe00:0001",
            "mlx5_1/ports/1/gids/1": "0000:0000:0000:0000:0000:ffff:0a00:0001",
            "mlx5_1/ports/1/gids/3": "0000:0000:0000:0000:0000:ffff:0a00:0001",
            "mlx5_1/ports/1/gid_attrs/types/0": "RoCE v2",
            "mlx5_1/ports/1/gid_attrs/types/1": "IB/RoCE v1",
            "mlx5_1/ports/1/gid_attrs/types/3": "RoCE v2",
        },
    )
    found = {one.name: (one.kind, one.active, one.gbits, one.gid_index) for one in rdma_devices(folder)}
    assert found == {
        "efa_0": ("efa", True, 100.0, None),
        "mlx5_0": ("infiniband", False, None, None),
        "mlx5_1": ("roce", True, None, 3),
    }


def test_an_instance_its_gpus_and_its_plugin(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "sys/devices/virtual/dmi/id/sys_vendor": "Amazon EC2",
            "sys/devices/virtual/dmi/id/product_name": "p5.48xlarge",
            "sys/module/nvidia/version": "570.172.08",
            "sys/module/efa/version": "2.17.2g",
            **{f"proc/driver/nvidia/gpus/0000:{number}/information": "Model: H100" for number in range(8)},
            "dev/nvidia-nvswitch0": "",
            "opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so": "\x7fELF\0NET/OFI Initializing aws-ofi-nccl 1.16.3\0",
        },
    )
    facts = gather(root=tmp_path, environ={"PATH": "/nowhere"})
    assert (facts.instance, facts.gpus, facts.gpu_links) == ("p5.48xlarge", 8, "nvswitch")
    assert (facts.versions.driver, facts.versions.efa_driver) == ("570.172.08", "2.17.2g")
    assert facts.versions.plugin == "1.16.3"
    assert facts.versions.libfabric is None


def test_a_vendor_that_is_not_amazon_has_no_instance_type(tmp_path: Path) -> None:
    files = {"sys_vendor": "Dell Inc.", "product_name": "PowerEdge XE9680"}
    tree(tmp_path / "sys/devices/virtual/dmi/id", files)
    assert gather(root=tmp_path).instance is None


def test_the_real_fi_info_says_its_version() -> None:
    try:
        said = subprocess.run(["fi_info", "--version"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        pytest.skip("NOT TESTED: fi_info (package libfabric-bin) is not installed")
    version = installed.libfabric(Path("/"), {"PATH": "/usr/bin"})
    assert f"libfabric: {version}\n" in said


def test_a_file_of_a_node_tells_the_same(tmp_path: Path) -> None:
    facts = gather("lo")
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(asdict(facts)))
    assert read(path) == facts


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "Input data was truncated"),
        ("[]", "Expected `object`, got `array`"),
        ('{"gpus": "8"}', "gpus: Expected `int`, got `str`"),
        ('{"gpus": -1}', "gpus: -1 is not valid; valid: 0 or more"),
        ('{"gpu": 8}', "gpu: no such key (did you mean 'gpus'?)"),
        ('{"rdma": [{"name": "a", "kind": "token ring"}]}', "rdma[0].kind: 'token ring' is not valid; valid: efa,"),
        ('{"rdma": [{"kind": "efa"}]}', "rdma[0]: Object missing required field `name`"),
        ('{"rdma": [{"name": "a", "kind": "efa", "speed": 3}]}', "rdma[0].speed: no such key"),
        ('{"towards_peers": "eth9"}', "towards_peers: 'eth9' is not valid"),
        ('{"versions": {"nccl": "newest"}}', "versions.nccl: 'newest' is no version"),
        ('{"interfaces": [{"name": "a", "gbits": 1e99}]}', "interfaces[0].gbits: 1e+99 is not valid"),
        (
            '{"interfaces": [{"name": "a", "addresses": ["10.0.0.1/8"]}]}',
            "interfaces[0].addresses: '10.0.0.1/8' is not an IP address",
        ),
        ('{"interfaces": [{"name": "eth0,eth1"}]}', "interfaces[0].name: 'eth0,eth1' is not valid"),
        ('{"interfaces": [{"name": ""}]}', "interfaces[0].name: '' is not valid"),
        ('{"rdma": [{"name": "mlx5 0", "kind": "roce"}]}', "rdma[0].name: 'mlx5 0' is not valid"),
        ('{"rdma": [{"name": "a", "kind": "roce", "gid_index": -5}]}', "rdma[0].gid_index: -5 is not valid"),
        ('{"versions": {"plugin": ""}}', "versions.plugin: '' is no version"),
        (f'{{"versions": {{"torch": "2.{"9" * 5000}"}}}}', "versions.torch: '2.9999"),
        ("\xff", "invalid"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_a_file_that_is_wrong_says_where(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said.lower() in str(caught.value).lower()
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "gone.json")
    with pytest.raises(InputError):
        read(tmp_path)


def test_a_name_of_an_interface_cannot_write_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = {"name": "e\x1b[2J", "addresses": ["10.0.0.1"]}
    facts = {"interfaces": [evil, {"name": "eth1", "addresses": ["10.0.0.2"]}], "towards_peers": evil["name"]}
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(facts))
    for command in ("show", "explain"):
        assert main(["network", command, "--facts", str(path)]) == 0
        said = capsys.readouterr().out
        assert "NCCL_SOCKET_IFNAME==e\\x1b[2J" in said
        assert "\x1b" not in said


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_secret_is_not_shown(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NCCL_PSK", "secret-of-the-ranks")
    assert main(["network", "show", *words]) == 0
    said = capsys.readouterr().out
    assert "NCCL_PSK" in said
    assert "secret-of-the-ranks" not in said
