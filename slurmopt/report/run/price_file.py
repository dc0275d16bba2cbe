"""Reads the prices that a report uses: those of the file that SLURMOPT_PRICES names, else those that ship."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from slurmopt.errors import ConfigError, one_line, with_place
from slurmopt.ledger.prices import Prices, parse
from slurmopt.run_folder.access.files import read_whole

VARIABLE = "SLURMOPT_PRICES"
SHIPPED = "prices.yaml"


def read_prices(environ: Mapping[str, str] | None = None) -> Prices:
    """The prices. Raises ConfigError, in one line, where the file cannot be read or has nonsense in it."""
    from yaml import YAMLError

    from slurmopt.config.composition import stored_yaml

    named = (os.environ if environ is None else environ).get(VARIABLE)
    if not named:
        text = resources.files("slurmopt.report.run").joinpath(SHIPPED).read_text(encoding="utf-8")
        return parse(stored_yaml.parse(text), SHIPPED)
    try:
        value = stored_yaml.parse(read_whole(Path(named)).decode("utf-8", "replace"))
    except OSError as error:
        raise ConfigError(f"cannot be read: {one_line(with_place(error))}", VARIABLE) from error
    except YAMLError as error:
        raise ConfigError(f"is no YAML: {one_line(str(error))[:200]}", f"{VARIABLE}: {one_line(named)}") from error
    return parse(value, named)
