"""All remarks on a launch, a line each."""

from __future__ import annotations

from collections.abc import Iterator

from slurmopt.config.schema import Settings
from slurmopt.launching.remarks.cloudwatch_price import price_line
from slurmopt.launching.remarks.network_variables import variable_lines
from slurmopt.launching.remarks.past_runs import short_time_limit
from slurmopt.launching.remarks.profiler import missing_profiler
from slurmopt.launching.remarks.unset_secrets import unset_secrets
from slurmopt.run_folder.layout import RunFolder


def remarks(settings: Settings, first: RunFolder | None) -> Iterator[str]:
    """The remarks on a config. `first`: the folder of a run that is launched for the first time, and is compared with
    earlier ones of its name; None for a sweep and for a retry."""
    for key in settings.notify.written_secrets():
        yield f"{key} is written into the run folder as it is; if it is a secret, write ${{oc.env:NAME}}"
    yield from variable_lines(settings)
    short = short_time_limit(settings, first) if first is not None else None
    yield from filter(None, (price_line(settings), short, unset_secrets(settings), missing_profiler(settings)))
