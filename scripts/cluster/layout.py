"""Names every file and folder of a cluster; everything lies in one private folder."""

import os
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import UsageError

# A Unix socket's path ends at 107 characters, and slurmstepd appends to this folder
# spool/nodeNNN/nodeNNN_4294967295.4294967295.
LONGEST_FOLDER = 64
ORDINARY = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@")


def default_folder() -> Path:
    """One folder per user of the machine."""
    return Path(f"/tmp/slurmopt-cluster-{os.getuid()}")


@dataclass(frozen=True)
class Layout:
    """Where things are, below `folder`."""

    folder: Path

    @property
    def marker(self) -> Path:
        """The settings; only a folder that has this file is ever removed."""
        return self.folder / "cluster.json"

    @property
    def etc(self) -> Path:
        """The configuration files."""
        return self.folder / "etc"

    @property
    def conf(self) -> Path:
        """What SLURM_CONF names; it also tells this cluster's processes from all others."""
        return self.etc / "slurm.conf"

    @property
    def programs(self) -> Path:
        """A link to Slurm's programs, where they are of another release than the machine's."""
        return self.folder / "bin"

    @property
    def logs(self) -> Path:
        """One log for each daemon."""
        return self.folder / "log"

    @property
    def munge(self) -> Path:
        """Key, socket and log of munged, which runs as its own user."""
        return self.folder / "munge"

    @property
    def munge_socket(self) -> Path:
        """The socket that every client has to reach."""
        return self.munge / "socket"

    @property
    def state(self) -> Path:
        """What slurmctld keeps over a restart."""
        return self.folder / "state"

    @property
    def spool(self) -> Path:
        """One folder for each slurmd."""
        return self.folder / "spool"

    @property
    def devices(self) -> Path:
        """The device files that stand for GPUs."""
        return self.folder / "dev"

    @property
    def database(self) -> Path:
        """MariaDB's files."""
        return self.folder / "db"

    def scratch(self, node: str) -> Path:
        """A node's own disk, lost with the node."""
        return self.folder / "scratch" / node

    def logs_of(self, daemon: str) -> list[Path]:
        """Where a daemon may have written, the most telling place first."""
        return [self.logs / f"{daemon}.log", self.logs / f"{daemon}.out"]


def check_folder(folder: Path) -> Path:
    """The folder as an absolute path that sockets, slurm.conf and other users can live with."""
    folder = folder.resolve()
    if len(str(folder)) > LONGEST_FOLDER:
        raise UsageError(f"--folder {folder} is too long for sockets: {LONGEST_FOLDER} characters at most")
    if not set(str(folder)) <= ORDINARY:
        raise UsageError(f"--folder {folder} has characters that slurm.conf cannot hold")
    return folder


def check_reachable(folder: Path) -> None:
    """Other users submit jobs too, so each folder above must let them through."""
    for parent in folder.parents:
        if not parent.is_dir():
            raise UsageError(f"--folder {folder}: there is no folder {parent}")
        if not parent.stat().st_mode & 0o001:
            raise UsageError(f"--folder {folder}: other users cannot pass {parent} (chmod o+x)")


def check_fresh(layout: Layout) -> None:
    """Never build in a folder that holds, or belongs to, somebody else's things."""
    folder = layout.folder
    if not folder.exists():
        return
    if not folder.is_dir() or folder.stat().st_uid != os.getuid():
        raise UsageError(f"--folder {folder} belongs to somebody else")
    if any(folder.iterdir()) and not layout.marker.exists():
        raise UsageError(f"--folder {folder} is not empty and holds no cluster")
