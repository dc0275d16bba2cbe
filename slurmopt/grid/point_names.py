"""Makes the readable name of a point: fills in `sweep.folder`, and makes it a valid folder name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers import oc

from slurmopt.config.composition.resolved import environment_reads
from slurmopt.errors import ConfigError, one_line
from slurmopt.grid.resolvers import hydra_answers
from slurmopt.run_folder.layout import folder_name

REFERENCE = re.compile(r"\$\{\s*([^{}]+?)\s*\}")
"""`${key}`, nothing nested."""
_LONGEST = 90
_PLACE = "sweep.folder"
"""A key that no config has at its root, because keys there have no dots."""


def fill(template: str, values: dict[str, Any], root: Callable[[], DictConfig], described: float) -> str:
    """`template` with each `${key}` filled in: the value of a swept key (for a group its choice), else that in the
    config.

    `root` returns the point's config; it is called only where the template names a key that is not swept.
    """

    def answer(match: re.Match[str]) -> str:
        key = match[1]
        return as_text(values[key]) if key in values else as_text(_looked_up(root(), match[0], described))

    return REFERENCE.sub(answer, template)


def readable(text: str, number: str | None) -> str:
    """`text` as a folder name; `number` distinguishes points that would have the same name."""
    name = folder_name(text)[:_LONGEST]
    return name if number is None else f"{name}-{number}"


def as_text(value: Any) -> str:
    """A value as a part of a name."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(OmegaConf.to_container(value) if OmegaConf.is_config(value) else value)


def _looked_up(root: DictConfig, reference: str, described: float) -> Any:
    try:
        with open_dict(root), hydra_answers(root, described), environment_reads(oc.env) as reads:
            root[_PLACE] = reference
            value = root[_PLACE]
            value = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except OmegaConfBaseException as error:
        reason = one_line(str(error.msg or error).splitlines()[0])
        raise ConfigError(f"{reference} cannot be resolved: {reason}", "sweep.folder") from error
    if reads.count:
        raise ConfigError(f"{reference} reads the environment, and a folder's name would show it", "sweep.folder")
    return value
