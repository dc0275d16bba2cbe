"""Sets a stripe layout that fits a checkpoint's files, before the first of them is written."""

from __future__ import annotations

import os
import subprocess

from slurmopt.errors import one_line
from slurmopt.storage.filesystem.mounts import mount_of
from slurmopt.storage.lustre import commands
from slurmopt.storage.lustre.commands import LustreError, Run
from slurmopt.storage.lustre.layouts import layout
from slurmopt.units import human_bytes


def on_lustre(path: str | os.PathLike[str], mounts: str | None = None) -> bool:
    """Whether `path`, which need not exist yet, is on Lustre. `mounts`: text as in /proc/self/mounts, the default."""
    mount = mount_of(path, mounts)
    return mount is not None and mount.kind == "lustre"


def stripe(
    folder: str | os.PathLike[str],
    file_bytes: int,
    files: int,
    run: Run = subprocess.run,
    mounts: str | None = None,
) -> str | None:
    """Sets the layout of a new, empty `folder`, which its files inherit. Returns None where it is not on Lustre.

    Otherwise returns one line for the log: the layout and the reason, or what failed. Nothing is raised, since a
    failure costs only speed. Each of the two calls of lfs (`lfs df`, `lfs setstripe`) has a timeout of 10 s.
    """
    if not on_lustre(folder, mounts):
        return None
    path = os.path.realpath(folder)
    try:
        osts = commands.count_osts(path, run)
        options = layout(file_bytes, files, osts)
        commands.set_layout(path, options, run)
    except LustreError as error:
        return one_line(f"Lustre: {path} keeps the layout that it inherits: {error}")
    count = "1 file" if files == 1 else f"{files:,} files"
    size = f"{count} of {human_bytes(file_bytes)} on {osts} OST{'s' * (osts != 1)}"
    return one_line(f"Lustre: {path} has the layout {' '.join(options)} for {size}")
