"""Names every file of a server, and keeps what it was started with."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.errors import UsageError

DAEMONS = ("account", "container", "object", "proxy")
ACCESS_KEY, SECRET_KEY = "test:tester", "testing"
REGION = "us-east-1"


def default_folder() -> Path:
    """One folder per user of the machine."""
    return Path(f"/tmp/slurmopt-s3-server-{os.getuid()}")


@dataclass(frozen=True)
class Layout:
    """Where things are, below `folder`."""

    folder: Path

    @property
    def marker(self) -> Path:
        """The settings; only a folder that has this file is ever removed."""
        return self.folder / "s3-server.json"

    @property
    def etc(self) -> Path:
        """Configuration files and rings."""
        return self.folder / "etc"

    @property
    def device(self) -> Path:
        """All data."""
        return self.folder / "devices" / "d1"

    def conf(self, daemon: str) -> Path:
        """What a daemon reads."""
        return self.etc / f"{daemon}-server.conf"

    def log(self, daemon: str) -> Path:
        """What a daemon prints."""
        return self.folder / "log" / f"{daemon}.log"


@dataclass(frozen=True)
class Settings:
    """What stays the same over a restart: the rings name these ports."""

    ports: dict[str, int]

    @property
    def endpoint(self) -> str:
        """What a client is given."""
        return f"http://127.0.0.1:{self.ports['proxy']}"

    def save(self, layout: Layout) -> None:
        """Last, when the folder is whole."""
        layout.marker.write_text(json.dumps(asdict(self)))


def load(layout: Layout) -> Settings:
    """What the server of this folder was started with."""
    try:
        return Settings(**json.loads(layout.marker.read_text()))
    except FileNotFoundError:
        raise UsageError(f"no S3 server in {layout.folder}; scripts/s3-server start --folder {layout.folder}") from None


def check_folder(folder: Path) -> Layout:
    """The layout of a folder that is ours or that we may make."""
    folder = folder.resolve()
    if "%" in str(folder) or any(char.isspace() for char in str(folder)):
        raise UsageError(f"--folder {folder} has characters that Swift's configuration cannot hold")
    layout = Layout(folder)
    if folder.exists():
        if not folder.is_dir() or folder.stat().st_uid != os.getuid():
            raise UsageError(f"--folder {folder} belongs to somebody else")
        if any(folder.iterdir()) and not layout.marker.exists() and not layout.etc.exists():
            raise UsageError(f"--folder {folder} is not empty and holds no S3 server")
    return layout
