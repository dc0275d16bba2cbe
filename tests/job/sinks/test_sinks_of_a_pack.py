"""An array task that runs several points: the measurements of its node are sent once, by the parent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from job.pack_harness import Packer

from slurmopt.config.metrics import from_word, sinks_of_pack
from slurmopt.run_folder.sweep_layout import SweepFolder

MONITOR = ("--monitor", '{"every":1}')
POINT = """
import time
from pathlib import Path
import slurmopt

def main(config):
    slurmopt.progress(1, loss=0.5)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = [path.read_text() for path in Path("textfile").glob("*.prom")]
        if any("/tasks/0-0" in text for text in found):
            break
        time.sleep(0.05)
    time.sleep(0.3)
    return sum("/tasks/0-0" in text for text in found)
"""


@pytest.fixture
def packer(tmp_path: Path) -> Packer:
    sweep = SweepFolder(tmp_path / "runs" / "sweep" / "1")
    sweep.logs.mkdir(parents=True)
    sweep.path.chmod(0o700)
    (code := tmp_path / "code").mkdir()
    return Packer(sweep, code)


def metrics(**options: dict[str, object]) -> tuple[str, ...]:
    return ("--metrics", json.dumps(options))


@pytest.mark.slow
def test_the_measurements_of_a_node_are_sent_once_for_all_points(packer: Packer) -> None:
    packer.points(4)
    packer.module(POINT)
    textfile, emf = packer.code / "textfile", packer.code / "emf"
    textfile.mkdir()
    emf.mkdir()
    words = metrics(prometheus={"textfile": str(textfile)}, cloudwatch={"namespace": "test", "emf": str(emf)})
    assert packer.run(*MONITOR, *words, "--side-by-side", "2") == 0, packer.output
    assert [packer.end(point)["result"] for point in range(4)] == [1, 1, 1, 1], packer.output
    assert list(textfile.glob("*.prom")) == [], "the parent's goes away with it"
    sent = {path.name: path.read_text() for path in emf.iterdir()}
    assert sum("NodeMemoryUsed" in text for text in sent.values()) == 1, sent
    assert sum('"loss"' in text for text in sent.values()) == 4, sent
    assert not any("StepRate" in text for text in sent.values()), "points are no steps"
    assert "metric sinks" not in packer.output


def test_a_fixed_port_is_left_to_the_points() -> None:
    fixed = {"http": "127.0.0.1:9400"}
    assert sinks_of_pack(from_word(json.dumps({"prometheus": fixed, "tensorboard": {"folder": "auto"}}))) == {}
    both = sinks_of_pack(from_word(json.dumps({"prometheus": {**fixed, "textfile": "/textfile"}})))
    assert (both["prometheus"].http, both["prometheus"].textfile) == (None, "/textfile")
    chosen = sinks_of_pack(from_word('{"prometheus": {"http": "127.0.0.1:0", "file_sd": "/targets"}}'))
    assert (chosen["prometheus"].http, chosen["prometheus"].file_sd) == ("127.0.0.1:0", "/targets")
