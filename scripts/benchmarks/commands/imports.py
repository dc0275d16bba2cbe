"""Which modules a command of ours imports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import BenchError
from benchmarks.report import Report
from benchmarks.workbench import Workbench

COUNT = """import sys
from importlib import import_module
status = import_module(sys.argv[1]).main(sys.argv[2:])
print("\\n" + " ".join(sys.modules))
sys.exit(status)
"""


def check_imports(
    bench: Workbench, report: Report, cwd: Path, module: str, words: Sequence[str], never: Sequence[str]
) -> None:
    """A target: calling `module`.main(words) imports nothing of `never`."""
    output = bench.run([bench.python, "-c", COUNT, module, *words], cwd)
    imported = output.splitlines()[-1].split()
    if module not in imported:
        raise BenchError(f"{module} {words}: its modules are not told")
    found = sum(name in never for name in imported)
    what = " ".join([module, *words])
    report.target(f"{what} ({len(imported)} modules) imports {', '.join(never)}", found, 0, "modules")
