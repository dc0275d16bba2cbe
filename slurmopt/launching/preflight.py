"""The checks of `slurmopt doctor` before a launch, where `launch.doctor` asks for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from slurmopt import command_output
from slurmopt.checks import side_by_side
from slurmopt.checks.result import FAIL, WARN, CheckResult
from slurmopt.config.checkpoint import Checkpoint
from slurmopt.config.tiers import known
from slurmopt.errors import CheckError, one_line
from slurmopt.slow_notice import slow_notice

if TYPE_CHECKING:
    from slurmopt.doctor.places import Place


def preflight(folder: Path, tiers: Checkpoint, has_slurm: bool) -> None:
    """Warns of what the doctor warns of. Raises CheckError with what fails. `folder`: that of the runs; `tiers`: where
    checkpoints go."""
    from slurmopt.doctor.machine import of_login_node, of_machine

    with slow_notice("checking this machine and Slurm"):
        results = side_by_side.run((of_login_node if has_slurm else of_machine)(folder, _places(tiers)))
    for each in results:
        if each.verdict == WARN:
            command_output.warn(f"doctor: {_line(each)}")
    if lines := [f"doctor: {_line(each)}" for each in results if each.verdict == FAIL]:
        raise CheckError(lines)


def _places(tiers: Checkpoint) -> list[Place]:
    """Those of the tiers that this machine can see. A folder that the training makes is looked at where it will be."""
    from slurmopt.doctor.places import Place
    from slurmopt.storage.filesystem.usage import nearest_folder

    shared, s3 = tiers.shared.path, tiers.s3
    places = []
    if known(shared) and shared != "auto":
        places.append(Place(str(nearest_folder(Path(str(shared)).expanduser()))))
    if known(s3.url) and all(value is None or known(value) for value in (s3.endpoint, s3.region)):
        places.append(Place(str(s3.url), s3.endpoint, s3.region))
    return places


def _line(each: CheckResult) -> str:
    mend = f"; mend: {each.mend}" if each.mend else ""
    return one_line(f"{each.name}: {each.text}{mend}")
