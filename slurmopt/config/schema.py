"""All groups of the config. All other keys at the root belong to the user."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from slurmopt.config.checkpoint import Checkpoint
from slurmopt.config.environment import Environment
from slurmopt.config.health import Health
from slurmopt.config.launch import Launch
from slurmopt.config.metrics import Metrics
from slurmopt.config.monitor import Monitor
from slurmopt.config.network import Network
from slurmopt.config.notify import Notify
from slurmopt.config.plan import Plan
from slurmopt.config.profile import Profile
from slurmopt.config.resources import Resources
from slurmopt.config.restart import Restart
from slurmopt.config.storage import Storage
from slurmopt.config.sweep import Sweep
from slurmopt.config.task import Task


@dataclass(kw_only=True)
class Settings:
    """The typed part of a config, with one field for each group."""

    task: Task = field(default_factory=Task)
    resources: Resources = field(default_factory=Resources)
    environment: Environment = field(default_factory=Environment)
    launch: Launch = field(default_factory=Launch)
    network: Network = field(default_factory=Network)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    restart: Restart = field(default_factory=Restart)
    storage: Storage = field(default_factory=Storage)
    health: Health = field(default_factory=Health)
    notify: Notify = field(default_factory=Notify)
    sweep: Sweep = field(default_factory=Sweep)
    monitor: Monitor = field(default_factory=Monitor)
    profile: Profile = field(default_factory=Profile)
    plan: Plan = field(default_factory=Plan)
    metrics: Metrics = field(default_factory=Metrics)


GROUPS: dict[str, Any] = {item.name: item.default_factory for item in fields(Settings)}
"""The dataclass of each group by name. These names are reserved at the root of a config."""
