"""What a launch accepts, from the user's folder and the schema.

A model is plain JSON:
    keys     key → {"type", "text", "now", "values", "own"}: `values` are all that are valid, where these are a few
             words; `own` tells that it is the user's key, not one of slurmopt's
    groups   config group → option → what the option's file says in its first comment
    chosen   the groups in the defaults list
    fixed    the keys that a retry cannot change
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from slurmopt.commands.complete.config_folders import folders
from slurmopt.commands.complete.stored import PACKAGE, remembered

Model = dict[str, Any]


def load(config_dir: str | None, choices: list[str]) -> Model:
    """The model of a launch with these choices of groups (`+experiment=mine`)."""

    def made() -> Model:
        from slurmopt.commands.complete.build_model import build

        with contextlib.redirect_stdout(sys.stderr):  # the user's resolvers may print
            return build(config_dir, choices)

    return remembered(["launch", *choices], [*folders(config_dir), PACKAGE / "config"], made)
