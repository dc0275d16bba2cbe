"""The blocks of docs/python.md, pasted one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from slurmopt.config.schema import GROUPS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.slow


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_blocks_run_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    training, *cells = blocks("python")
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(blocks("yaml")[0])
    (tmp_path / "train.py").write_text(f"{training}\n\nmain.makes_process_group = True  # without torch\n")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in cells:
        if "sweep" not in cell:
            cell = cell.replace("print(run.logs())", "run.wait(60); print(run.logs())")
            exec(compile(cell, "docs/python.md", "exec"), names)
    assert names["run"].result() == {"loss": pytest.approx(2.6e-08, rel=0.05)}
    assert capsys.readouterr().out.strip() == "lr is 0.3"


def test_every_name_of_the_classes_is_on_the_page() -> None:
    from slurmopt import Run, Sweep

    for kind in (Run, Sweep):
        (row,) = re.findall(rf"^\| `{kind.__name__}` \| (.*) \|$", PAGE, re.MULTILINE)
        named = set(re.findall(r"`([a-z_]+)`", row)) - {"len"}
        assert named == {name for name in vars(kind) if not name.startswith("_")} - {"find"}


def test_every_key_of_a_group_on_the_page_is_one() -> None:
    from omegaconf import OmegaConf

    used = re.findall(r"\b(resources|launch|sweep)={(.*?)}", PAGE)
    assert used
    for group, items in used:
        valid = OmegaConf.structured(GROUPS[group])
        assert set(re.findall(r"\"(\w+)\":", items)) <= set(valid), items
