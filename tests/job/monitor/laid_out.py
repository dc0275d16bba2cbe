"""Lays out trees of kernel files for the tests of the sources."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slurmopt.job.monitor.here import Here, Roots


def lay_out(root: Path, files: Mapping[str, str]) -> None:
    """Writes the files, with the folders above them."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def roots(tmp_path: Path) -> Roots:
    return Roots(tmp_path / "proc", tmp_path / "sys", tmp_path / "cgroup")


def here(tmp_path: Path, pid: int = 10, ranks: tuple[int, ...] = (0,), **environ: str) -> Here:
    return Here(
        folder=str(tmp_path / "run"),
        attempt=0,
        node="n1",
        pid=pid,
        pid_started=None,
        ranks=ranks,
        every=0.0,
        sources=("node", "network", "ranks"),
        environ=environ,
        roots=roots(tmp_path),
    )
