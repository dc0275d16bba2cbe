"""What the owner of a run asked for, as one value that fits into one word of the job script."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from slurmopt.restart.causes import Budgets
from slurmopt.run_folder.json_values import from_json


@dataclass(frozen=True, kw_only=True)
class Policy:
    """When a run comes back. The defaults are those of the group `restart`."""

    budgets: dict[str, int | None] = field(default_factory=lambda: asdict(Budgets()))
    """Key of a cause → how often the run comes back after it; None for no limit."""
    no_progress: int = 2
    """The run ends after so many attempts in a row without a new checkpointed step."""
    patterns: dict[str, str] = field(default_factory=dict)
    """Regular expression → key of the cause that it indicates."""
    exclude_nodes: int = 2
    exclude_span: int = 21600
    """Seconds."""
    excluded: str | None = None
    """The nodes that the config excludes (`resources.exclude`)."""
    checkpoints: str | None = None
    """A glob of files whose newest one shows a plain command's progress."""
    workdir: str | None = None
    """What a relative `checkpoints` is relative to."""
    durable: str | None = None
    """The checkpoint tier that a stop waits for."""

    def to_json_arg(self) -> str:
        """The policy as one argument in the job script."""
        return json.dumps(asdict(self), separators=(",", ":"))


def from_word(word: str) -> Policy:
    """Parses the policy of a job script. Raises ValueError."""
    return from_json(Policy, word)
