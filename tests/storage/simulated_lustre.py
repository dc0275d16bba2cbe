"""A SIMULATED Lustre file system: a folder that the mount table calls lustre, and stand-ins of lfs and lctl."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from slurmopt.storage.filesystem import mounts

STAND_IN = Path(__file__).with_name("lustre_stand_in.py")
NO_QUOTA = "4096 0 0 - 12 0 0 -"


class SimulatedLustre:
    """The folder `root`, and what the stand-ins were asked and told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, options: str = "rw,flock,lazystatfs") -> None:
        self.root = folder / "fsx"
        self._programs = folder / "programs"
        self.root.mkdir()
        self._programs.mkdir()
        for name in ("lfs", "lctl"):
            program = self._programs / name
            program.write_text(f"#!{sys.executable} -IS\n" + STAND_IN.read_text())
            program.chmod(0o755)
        self._write(
            {
                "mount": os.path.realpath(self.root),
                "osts": 8,
                "free": {},
                "flags": {},
                "layouts": {},
                "hsm": {},
                "quota": NO_QUOTA,
                "parameters": {},
                "busy": [],
                "denied": [],
                "root_only": False,
                "most_at_once": 0,
            }
        )
        table = folder / "mounts"
        point = os.path.realpath(self.root).replace(" ", "\\040")
        table.write_text(f"/dev/vda / ext4 rw,relatime 0 0\n10.0.1.5@tcp:/abcd {point} lustre {options} 0 0\n")
        monkeypatch.setattr(mounts, "TABLE", table)
        monkeypatch.setenv("PATH", f"{self._programs}{os.pathsep}{os.environ['PATH']}")

    @property
    def state(self) -> dict[str, Any]:
        """What the file system is like now."""
        found: dict[str, Any] = json.loads((self._programs / "state.json").read_text())
        return found

    def set(self, **fields: Any) -> None:
        """Changes that."""
        self._write({**self.state, **fields})

    def calls(self, *command: str) -> list[list[str]]:
        """The words of the calls so far that begin with `command`."""
        log = self._programs / "calls"
        lines = log.read_text().splitlines() if log.exists() else []
        return [words for line in lines if (words := json.loads(line))[: len(command)] == list(command)]

    def in_s3(self, name: str, size: int = 100, **more: Any) -> Path:
        """A file whose content is in S3 only."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        os.truncate(path, size)
        released = "(0x0000000d) released exists archived, archive_id:1"
        self.set(hsm={**self.state["hsm"], path.name: {"state": released, **more}})
        return path

    def uninstall(self) -> None:
        """lfs and lctl are not there any more."""
        shutil.rmtree(self._programs)

    def _write(self, state: dict[str, Any]) -> None:
        (self._programs / "state.json").write_text(json.dumps(state))
