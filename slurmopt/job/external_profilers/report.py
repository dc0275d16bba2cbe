"""The report of a profiler: written on the disk of the node, then moved into the run folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from slurmopt import log
from slurmopt.errors import one_line
from slurmopt.job.external_profilers.tools import SUFFIXES
from slurmopt.run_folder.access.files import make_folders, open_held
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.layout import RunFolder


class Report:
    """The report of one rank in one attempt."""

    def __init__(self, folder: RunFolder, attempt: int, rank: int, profiler: str) -> None:
        """Raises OSError where no temporary folder can be made."""
        self._folder, self._attempt, self._rank, self._profiler = folder, attempt, rank, profiler
        self.place = Path(tempfile.mkdtemp(prefix="slurmopt-profiler-"))
        self.stem = self.place / f"rank-{rank}"
        """Where the profiler writes, without its suffix."""

    def collect(self, how: str) -> None:
        """Moves what the profiler has written into the run folder, and says so; `how`: how the profiler ended."""
        try:
            written = sorted(path for path in self.place.glob(f"{self.stem.name}*") if self._is_report(path))
            for path in written:
                self._move(path)
            if not written:
                log.warning(f"rank {self._rank}: {self._profiler} {how}, and wrote no report")
        except OSError as error:
            log.warning(f"rank {self._rank}: the report of {self._profiler} is lost: {one_line(str(error))}")
        finally:
            shutil.rmtree(self.place, ignore_errors=True)

    def _is_report(self, path: Path) -> bool:
        """Whether it is a report with something in it: not what nsys keeps beside it until it is complete."""
        return path.name.endswith(SUFFIXES[self._profiler]) and path.is_file() and path.stat().st_size > 0

    def _move(self, path: Path) -> None:
        target = self._folder.profiles(self._attempt) / path.name
        part = target.with_name(f".{path.name}.part")
        make_folders(target.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with path.open("rb") as source, os.fdopen(open_held(part, flags, 0o640), "wb") as copy:
                shutil.copyfileobj(source, copy)
            os.replace(held(part), held(target))
        except OSError:
            held(part).unlink(missing_ok=True)
            raise
        log.info(f"rank {self._rank}: the report of {self._profiler} is {target}")
