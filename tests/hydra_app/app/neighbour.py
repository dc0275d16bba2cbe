"""Found only where the script's own folder is on the path."""

import json
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback


def twice(number: int) -> int:
    return 2 * number


class Notes(Callback):
    """Writes down when it is called."""

    def __init__(self, file: str) -> None:
        self.file = Path(file)

    def _note(self, **what: Any) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps(what) + "\n")

    def on_multirun_start(self, config: Any, **kwargs: Any) -> None:
        self._note(event="multirun start")

    def on_multirun_end(self, config: Any, **kwargs: Any) -> None:
        self._note(event="multirun end")

    def on_job_start(self, config: Any, **kwargs: Any) -> None:
        self._note(event="job start", num=config.hydra.job.num)

    def on_job_end(self, config: Any, job_return: Any, **kwargs: Any) -> None:
        self._note(event="job end", num=config.hydra.job.num, status=job_return.status.name)
