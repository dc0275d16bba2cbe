"""docs/architecture.md and the README's tree name files and packages that exist, and every package."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
FOLDERS = r"(?:slurmopt|sbatch_templates|hydra_plugins|scripts|docs|tests)"


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_file_that_a_page_names_exists(page: str) -> None:
    names = set(re.findall(rf"`({FOLDERS}/[\w./-]*)`", (ROOT / page).read_text(encoding="utf-8")))
    assert names
    assert sorted(name for name in names if not (ROOT / name).exists()) == []


def test_no_two_modules_of_tests_have_one_name() -> None:
    """pytest imports them by their names alone."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_module_of_the_tests_hides_a_folder_of_tests() -> None:
    """pytest puts the folder of each conftest.py first in the search path: `training.py` there hides tests/training."""
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    hiding = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py") if path.stem in folders]
    assert hiding == []


def test_every_frame_of_the_paths_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    frames = re.findall(r"^ *((?:[a-z_]+\.)+(?:[A-Z]\w+\.)?\w+)  ", text, re.MULTILINE)
    assert len(frames) > 10
    for frame in frames:
        *module, name = re.sub(r"\.[A-Z]\w+", "", frame).split(".")
        source = ROOT / "slurmopt" / Path(*module)
        assert re.search(rf"def {name}\(", source.with_suffix(".py").read_text(encoding="utf-8")), frame


def test_every_package_has_its_line() -> None:
    packages = {path.parent.name for path in (ROOT / "slurmopt").glob("*/__init__.py")}
    rows = set(re.findall(r"^\| `slurmopt/(\w+)/`", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert rows == packages
    tree = re.findall(r"^  (\w+)/ ", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(tree) == packages


def test_the_layers_of_the_page_are_those_that_are_checked() -> None:
    contracts = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    layers = re.findall(r'^  "(slurmopt\..*)",$', contracts[contracts.index("layers = [") :], re.MULTILINE)
    names = {name.strip().removeprefix("slurmopt.") for line in layers for name in line.split("|")}
    section = PAGE.read_text(encoding="utf-8").split("## Who may import whom")[1]
    picture = section.split("```")[1].removeprefix("text")
    assert set(re.findall(r"[a-z_]+", picture.replace("login side:", "").replace("job side:", ""))) == names
