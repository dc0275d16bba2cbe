"""Holds a source of the sampler, and calls it as the lines of its standard input say; answers are lines of JSON."""

from __future__ import annotations

import importlib
import json
import sys
import time
import traceback

source = importlib.import_module(sys.argv[1]).open_source()
for line in sys.stdin:
    words = line.split()
    try:
        if words[0] == "read":
            time.sleep(float(words[1]))
            returned = source.read()
        elif words[0] == "close":
            source.close()
            returned = source.events()
        elif words[0] == "opened":
            returned = source is not None
        else:
            returned = getattr(source, words[0])()
        answer = {"returned": returned}
    except Exception:  # noqa: BLE001 - the test is told
        answer = {"raised": traceback.format_exc()}
    print(json.dumps(answer), flush=True)
