"""The page of a benchmark of collectives in a real browser, and its picture."""

from __future__ import annotations

import importlib.util
import itertools
import json
from pathlib import Path

import pytest
from report.browser import CONTRAST, Browser

from slurmopt.cli import main
from slurmopt.collectives.outliers import Link
from slurmopt.collectives.recording import Recording, Row

NODES = ["node1", "node2", "node3", "<img src=x onerror=alert(1)>"]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording of four nodes; the name of the last one is hostile, and its links are slow."""
    sizes = [4096 * 4**power for power in range(6)]
    rows = [
        Row(name, size, 30e-6 + size / (speed * 1e9), 4, 20)
        for name, speed in (("all_reduce", 12.0), ("broadcast", 20.0))
        for size in sizes
    ]
    links = [Link(a, b, 20e-6, 2e9 if "<" in b else 10e9, 1 << 24) for a, b in itertools.combinations(NODES, 2)]
    recording = Recording(4, NODES, "nccl", "GPU", "2.13.0", 1.7e9, rows, links, ["all_gather: left out"])
    monkeypatch.chdir(tmp_path)
    Path("recording.json").write_text(json.dumps(recording.as_dict()))
    return tmp_path


def test_the_page_has_charts_and_tables(measured: Path, chromium: Browser, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--read", "recording.json", "--against", "recording.json", "--plot", "page.html"]
    assert main(["bench", "collectives", *words]) == 0
    assert "written: page.html" in capsys.readouterr().err
    chromium.show(1100, dark=False)
    chromium.open(Path("page.html").absolute())
    chromium.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    text = str(chromium.value("document.body.innerText"))
    assert "4 ranks on 4 nodes" in text
    assert "slow node <img src=x onerror=alert(1)>: bandwidth 2.00 GB/s, 20% of the usual 10.00 GB/s" in text
    assert chromium.value("document.querySelectorAll('#table tbody tr').length") == 12
    drawn = "document.querySelectorAll('#busbw svg path').length"
    assert chromium.value(drawn) > 2 * (6 + 40)  # both collectives: a mark for each size, and the dots of the fit
    assert chromium.value("document.querySelectorAll('#links svg path').length") >= 12  # six links, both ways
    assert "all_reduce, broadcast" in str(chromium.value("document.getElementById('busbw').getAttribute('aria-label')"))
    assert chromium.value("document.images.length") == 0
    assert chromium.value(CONTRAST) == []


def test_the_picture(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["bench", "collectives", "--read", "recording.json", "--plot", "new.png"])
    if importlib.util.find_spec("matplotlib"):
        assert status == 0
        assert Path("new.png").read_bytes().startswith(b"\x89PNG")
    else:
        assert status == 2
        assert "needs matplotlib, which is not installed here" in capsys.readouterr().err


def test_a_place_that_cannot_be_written(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("page.html").mkdir()
    assert main(["bench", "collectives", "--read", "recording.json", "--plot", "page.html"]) == 2
    assert (
        capsys.readouterr().err
        == "slurmopt: error: bench collectives: page.html: is a folder; give the name of a file\n"
    )
