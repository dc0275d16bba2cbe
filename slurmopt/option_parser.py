"""An argparse parser that reports a usage error in one line, like every other error of slurmopt."""

from __future__ import annotations

import argparse
from typing import NoReturn

from slurmopt.errors import InputError


class OptionParser(argparse.ArgumentParser):
    """Raises InputError for a usage error; long options cannot be abbreviated."""

    def __init__(self, prog: str, **options: object) -> None:
        super().__init__(prog=prog, allow_abbrev=False, **options)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog.removeprefix('slurmopt ')}: {message}; see {self.prog} --help")
