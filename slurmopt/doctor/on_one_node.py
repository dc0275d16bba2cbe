"""`python -m slurmopt.doctor.on_one_node FOLDER [PLACES]`: checks the node on which it runs; prints what it finds.

FOLDER: that of the runs. PLACES: a JSON list of the fields of `slurmopt.doctor.places.Place`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from slurmopt.checks import side_by_side
from slurmopt.doctor.machine import of_machine
from slurmopt.doctor.on_nodes import answer_lines
from slurmopt.doctor.places import Place


def main(argv: list[str]) -> None:
    """Prints what was found, for `slurmopt.doctor.on_nodes`."""
    asked = time.time()
    used = [Place(**fields) for fields in json.loads(argv[1])] if len(argv) > 1 else []
    results = side_by_side.run(of_machine(Path(argv[0]), used))
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    answer = {"node": node, "time": asked, "results": [each.as_dict() for each in results]}
    os.write(1, answer_lines(answer).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # a check that hangs in a dead driver would keep the process
