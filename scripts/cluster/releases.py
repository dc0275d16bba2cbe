"""Other releases of Slurm than this machine's: unpacked from Debian's packages beside it, and never installed.

Each program is told (by patchelf) to use the loader and the libraries that it was unpacked with. So it runs in this
machine's file system like any other program: no change root, no mount, no variable that a job would inherit.
"""

import fcntl
import glob
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import daemons
from cluster.errors import ClusterError, UsageError

CACHE = Path("/var/cache/slurmopt-slurm")
SUITES = ("bookworm", "trixie", "forky", "sid")
PACKAGES = ("slurmctld", "slurmd", "slurmdbd", "slurm-client", "slurm-wlm-mysql-plugin", "patchelf")
KEYRINGS = "/usr/share/keyrings/debian-archive-keyring.gpg"
SECONDS = 600.0


def of_machine() -> str:
    """The release that is installed here, such as 22.05, or nothing."""
    if shutil.which("slurmctld", path=daemons.PATH) is None:
        return ""
    shown = subprocess.run(["slurmctld", "-V"], env={"PATH": daemons.PATH}, capture_output=True, text=True).stdout
    found = re.search(r"(\d+\.\d+)", shown)
    return found[1] if found else ""


def is_machines(release: str) -> bool:
    """Whether it is the release that is installed here, or none was named."""
    return not release or release == of_machine()


def provide(release: str) -> Path | None:
    """The folder of the release's programs, unpacked on first use; None for the one that is installed here."""
    if is_machines(release):
        return None
    if not re.fullmatch(r"\d\d\.\d\d", release):
        raise UsageError(f"--release {release!r}: give year and month of a release of Slurm, such as 24.11")
    home = CACHE / release
    CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
    with _locked(CACHE / f"{release}.lock"):
        if not home.exists():
            _make(release, home)
    return home / "bin"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(release: str, home: Path) -> None:
    mirror = _mirror()
    with tempfile.TemporaryDirectory(prefix=f"{release}-", dir=CACHE) as name:
        new = Path(name)
        _unpack(_download(release, mirror, new / "apt"), new / "root")
        _link_programs(new, home)
        shutil.rmtree(new / "apt")
        new.chmod(0o755)  # every user submits jobs
        new.rename(home)
        new.mkdir()  # what the with block removes


def _mirror() -> str:
    """Where this machine's own apt gets Debian's packages from."""
    mirrors = _mirrors()
    if not mirrors:
        _run("apt-get", "-qq", "update")  # apt knows whose packages they are once it has the lists
        mirrors = _mirrors()
    if not mirrors:
        raise UsageError("--release: apt of this machine names no mirror of Debian, where other releases come from")
    return mirrors[0]


def _mirrors() -> list[str]:
    columns = "$(ORIGIN) $(LABEL) $(REPO_URI)"
    lines = _run("apt-get", "indextargets", "--format", columns, "Created-By: Packages").splitlines()
    return [line.split()[2] for line in lines if line.startswith("Debian Debian ")]


def _download(release: str, mirror: str, work: Path) -> list[Path]:
    """The packages of the first suite that has the release, with all that they need."""
    seen = []
    for suite in SUITES:
        apt = _apt(mirror, suite, work / suite)
        _run(*apt, "update")
        version = _version(apt)
        if version.startswith(f"{release}."):
            _run(*apt, "--download-only", "install", *PACKAGES)
            return sorted((work / suite / "cache" / "archives").glob("*.deb"))
        seen.append(f"{version or 'none'} ({suite})")
    raise UsageError(f"--release {release}: Debian's suites have {', '.join(seen)}; the machine has {of_machine()}")


def _apt(mirror: str, suite: str, work: Path) -> list[str]:
    """apt-get with packages and lists of its own; proxies and the like stay as the machine has them."""
    for part in ("state/lists/partial", "cache/archives/partial"):
        (work / part).mkdir(parents=True)
    (work / "status").touch()
    (work / "sources.list").write_text(f"deb [signed-by={KEYRINGS}] {mirror} {suite} main\n")
    options = {
        "Dir::State": work / "state",
        "Dir::State::status": work / "status",
        "Dir::Cache": work / "cache",
        "Dir::Etc::SourceList": work / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",  # _apt cannot pass the temporary folder
    }
    return ["apt-get", "-qq", "-y", "--no-install-recommends", *_as_options(options)]


def _as_options(options: dict[str, object]) -> list[str]:
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def _version(apt: list[str]) -> str:
    shown = _run("apt-cache", *apt[apt.index("-o") :], "show", "--no-all-versions", PACKAGES[0], check=False)
    found = re.search(r"^Version: (\S+)", shown, re.MULTILINE)
    return found[1] if found else ""


def _unpack(packages: list[Path], root: Path) -> None:
    root.mkdir(mode=0o755)
    for package in packages:
        _run("dpkg-deb", "--extract", str(package), str(root))


def _link_programs(new: Path, home: Path) -> None:
    """Each of Slurm's programs with the loader and libraries below `home`, and a folder with their usual names."""
    root = new / "root"
    (plugins,) = root.glob("usr/lib/*/slurm-wlm")
    libraries = [plugins.relative_to(root), plugins.parent.relative_to(root)]
    loader = _only(str(plugins.parent / "ld-linux*"))
    path = ":".join(str(home / "root" / folder) for folder in libraries)
    # The release's own, too: it need not be installed here.
    patchelf = [loader, "--library-path", str(plugins.parent), str(root / "usr/bin/patchelf")]
    (new / "bin").mkdir()
    (new / "plugins").symlink_to(plugins.relative_to(new))
    for program in _slurms_programs(root):
        interpreter = home / Path(loader).relative_to(new)
        # An RPATH, not a RUNPATH: it also holds for what the plugins need.
        options = ["--set-interpreter", str(interpreter), "--force-rpath", "--set-rpath", path]
        _run(*patchelf, *options, str(program))
        name = program.name.removesuffix("-wlm")
        (new / "bin" / name).symlink_to(os.path.relpath(program, new / "bin"))


def _slurms_programs(root: Path) -> list[Path]:
    """All programs that load Slurm's library."""
    programs = [*(root / "usr/bin").iterdir(), *(root / "usr/sbin").iterdir()]
    return [one for one in programs if one.is_file() and not one.is_symlink() and b"libslurm" in one.read_bytes()]


def _only(pattern: str) -> str:
    found = glob.glob(pattern)
    if len(found) != 1:
        raise ClusterError(f"{pattern}: found {len(found)} files instead of one")
    return found[0]


def _run(*argv: str, check: bool = True) -> str:
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL
    )
    if check and done.returncode:
        raise ClusterError(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
