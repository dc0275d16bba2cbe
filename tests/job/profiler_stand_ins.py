"""Stand-ins for nsys and ncu, which need an NVIDIA GPU: SIMULATED. They behave as their documentation says of the
command line: write down their arguments, run the program, and leave a report. What they find out is not simulated."""

from __future__ import annotations

import os
import sys
from pathlib import Path

STAND_IN = """#!{python}
# SIMULATED: not a profiler
import json, os, pathlib, subprocess, sys, time

words = sys.argv[1:]
how = os.environ.get("STAND_IN", "")
pathlib.Path(os.environ["STAND_IN_NOTES"], f"{name}-{{os.getpid()}}").write_text(json.dumps(words))
if how == "refuses":
    sys.exit("unrecognised option")
first = next(i for i, word in enumerate(words) if not word.startswith("-") and word != "profile")
output = next(word.split("=", 1)[1] for word in words[:first] if word.startswith(("--output=", "--export=")))
child = subprocess.Popen(words[first:])
if how == "dies":
    begun = pathlib.Path(words[first + 4], "training")  # of what stands between the profiler and the training
    while not begun.exists() and child.poll() is None:
        time.sleep(0.02)
    os._exit(3)
status = child.wait()
if how != "loses":
    pathlib.Path(output + "{suffix}").write_text("SIMULATED report")
sys.exit(0 if how == "hides" else max(0, status))
"""


def stand_ins(place: Path) -> dict[str, str]:
    """Makes stand-ins for nsys and ncu in `place`; returns the environment in which they are found."""
    place.mkdir()
    for name, suffix in (("nsys", ".nsys-rep"), ("ncu", ".ncu-rep")):
        path = place / name
        path.write_text(STAND_IN.format(python=sys.executable, name=name, suffix=suffix))
        path.chmod(0o755)
    return {"PATH": f"{place}{os.pathsep}{os.environ['PATH']}", "STAND_IN_NOTES": str(place)}
