"""Holds a source of the sampler, and calls it as the lines of its standard input say; answers are lines of JSON."""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
import traceback
from typing import Any

source = importlib.import_module(sys.argv[1]).open_source()


def carry_out(words: list[str]) -> Any:
    if words[0] == "opened":
        return source is not None
    if words[0] == "read":
        time.sleep(float(words[1]))
        return source.read()
    if words[0] == "background":  # as the sampler calls it
        return threading.Thread(target=source.read, daemon=True).start()
    if words[0] == "close":
        started = time.monotonic()
        source.close()
        return {"events": source.events(), "seconds": time.monotonic() - started}
    if words[0] == "cpu":
        started_cpu = time.process_time()
        for _ in range(int(words[1])):
            source.read()
        return (time.process_time() - started_cpu) / int(words[1])
    return getattr(source, words[0])()


for line in sys.stdin:
    try:
        answer = {"returned": carry_out(line.split())}
    except Exception:  # noqa: BLE001 - the test is told
        answer = {"raised": traceback.format_exc()}
    print(json.dumps(answer), flush=True)
