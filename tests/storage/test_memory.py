"""Memory for direct I/O: right for every size, and of huge pages where the kernel has them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from slurmopt.storage.direct_io import ALIGNMENT, address
from slurmopt.storage.folder import FolderStore
from slurmopt.storage.memory import HUGE_PAGE, staging


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 1, (8 << 20) + 8192])
def test_direct_io_reads_into_it(tmp_path: Path, size: int) -> None:
    memory = staging(size)
    assert len(memory) >= size
    assert address(memory) % ALIGNMENT == len(memory) % ALIGNMENT == 0
    data = os.urandom(len(memory))
    (tmp_path / "file").write_bytes(data)
    FolderStore(tmp_path).read_into("file", 0, memory)
    assert memory == data


def test_large_memory_is_of_huge_pages() -> None:
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.exists() or "[never]" in enabled.read_text():
        pytest.skip("this kernel gives no huge pages")
    memory = staging(8 << 20)
    start = address(memory)
    for area in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        first, last = (int(each, 16) for each in area.split(" ", 1)[0].split("-"))
        if first <= start < last:
            assert re.search(r"^VmFlags:.* hg\b", area, re.MULTILINE), area
            return
    pytest.fail("the memory is nowhere in /proc/self/smaps")
