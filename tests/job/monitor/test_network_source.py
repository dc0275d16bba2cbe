"""Bytes of interfaces, InfiniBand ports and EFA devices. LAID OUT: files as Linux' and Amazon's drivers show them."""

from __future__ import annotations

from pathlib import Path

from job.monitor.laid_out import here, lay_out

from slurmopt.job.monitor.sources import network
from slurmopt.job.monitor.sources.network import NetworkSource
from slurmopt.kernel_files import number


def laid_out(tmp_path: Path, count: int) -> None:
    net, infiniband = "sys/class/net", "sys/class/infiniband"
    lay_out(
        tmp_path,
        {
            f"{net}/lo/statistics/rx_bytes": f"{count}\n",
            f"{net}/lo/statistics/tx_bytes": f"{count}\n",
            f"{net}/eth0/statistics/rx_bytes": f"{10 * count}\n",
            f"{net}/eth0/statistics/tx_bytes": f"{20 * count}\n",
            f"{net}/eth0/device/vendor": "0x15b3\n",
            f"{net}/eth0/type": "1\n",
            f"{net}/eth0/speed": "25000\n",
            f"{net}/docker0/statistics/rx_bytes": f"{count}\n",
            f"{net}/docker0/statistics/tx_bytes": f"{count}\n",
            f"{net}/docker0/type": "1\n",
            f"{net}/docker0/speed": "-1\n",
            f"{infiniband}/mlx5_0/ports/1/counters/port_rcv_data": f"{count}\n",
            f"{infiniband}/mlx5_0/ports/1/counters/port_xmit_data": f"{count}\n",
            f"{infiniband}/mlx5_0/ports/2/counters/port_rcv_data": f"{count}\n",
            f"{infiniband}/mlx5_0/ports/2/counters/port_xmit_data": f"{3 * count}\n",
            f"{infiniband}/mlx5_0/ports/1/link_layer": "InfiniBand\n",
            f"{infiniband}/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            f"{infiniband}/mlx5_0/ports/2/rate": "100 Gb/sec (4X EDR)\n",
            f"{infiniband}/rdmap16s27/ports/1/hw_counters/rx_bytes": f"{7 * count}\n",
            f"{infiniband}/rdmap16s27/ports/1/hw_counters/tx_bytes": f"{8 * count}\n",
            f"{infiniband}/rdmap16s27/device/vendor": "0x1d0f\n",
            f"{infiniband}/rdmap16s27/ports/1/rate": "unknown\n",
        },
    )


def test_each_device_has_its_rates_and_infiniband_counts_words(tmp_path: Path) -> None:
    laid_out(tmp_path, 0)
    source = network.open_source(here(tmp_path))
    assert source.read() == {}, "rates begin with the second reading"
    laid_out(tmp_path, 1_000_000)
    rates = source.read()
    unit = rates["net.eth0.rx"] / 10
    assert unit > 0
    ratios = {column: round(rate / unit, 6) for column, rate in rates.items()}
    assert ratios == {
        "net.eth0.rx": 10,
        "net.eth0.tx": 20,
        "ib.mlx5_0.rx": 8,
        "ib.mlx5_0.tx": 16,
        "efa.rdmap16s27.rx": 7,
        "efa.rdmap16s27.tx": 8,
    }
    assert source.facts() == {"links": {"net.eth0": 25e9 / 8, "ib.mlx5_0": 500e9 / 8}}


def test_a_counter_that_was_reset_or_is_gone_has_no_value_and_comes_back(tmp_path: Path) -> None:
    laid_out(tmp_path, 1000)
    source = network.open_source(here(tmp_path))
    source.read()
    laid_out(tmp_path, 10)
    assert source.read() == {}
    laid_out(tmp_path, 20)
    assert len(source.read()) == 6
    counter = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data"
    counter.write_text("N/A\n")
    assert "ib.mlx5_0.rx" not in source.read()
    assert "ib.mlx5_0.tx" in source.read()


def test_a_container_has_interfaces_without_devices_and_a_node_may_have_nothing(tmp_path: Path) -> None:
    lay_out(
        tmp_path, {"sys/class/net/eth0/statistics/rx_bytes": "1\n", "sys/class/net/eth0/statistics/tx_bytes": "1\n"}
    )
    source = network.open_source(here(tmp_path))
    source.read()
    assert source.read() == {"net.eth0.rx": 0, "net.eth0.tx": 0}
    nothing = NetworkSource(tmp_path / "nowhere")
    assert nothing.read() == {}
    assert nothing.facts() == {"links": {}}


def test_this_machines_own_interfaces_are_read() -> None:
    source = NetworkSource(Path("/sys"))
    source.read()
    assert all(rate >= 0 for rate in source.read().values())
    assert number("/sys/class/net/lo/statistics/rx_bytes") is not None
