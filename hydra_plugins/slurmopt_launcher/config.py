"""The config of `hydra.launcher.*` and `hydra.sweeper.*`: slurmopt's groups and a few further options.

Hydra imports this module without an entry in `sys.modules`, which dataclasses need to resolve annotations that are
strings. It must not use `from __future__ import annotations`.
"""

from dataclasses import dataclass, field

from hydra.core.config_store import ConfigStore

from slurmopt.config.checkpoint import Checkpoint
from slurmopt.config.environment import Environment
from slurmopt.config.health import Health
from slurmopt.config.metrics import Metrics
from slurmopt.config.monitor import Monitor
from slurmopt.config.network import Network
from slurmopt.config.notify import Notify
from slurmopt.config.resources import Resources
from slurmopt.config.restart import Restart


@dataclass
class LauncherConf:
    """The options of `hydra/launcher=slurmopt`."""

    _target_: str = "hydra_plugins.slurmopt_launcher.launcher.SlurmoptLauncher"
    backend: str = "auto"
    """As `launch.backend`."""
    name: str = "${hydra.job.name}"
    """As `launch.name`."""
    folder: str = "${hydra.sweep.dir}/.slurmopt"
    """As `launch.folder`."""
    wait: bool = True
    """Wait for the jobs and return their values to the sweeper. `false`: return after they are submitted."""
    check: bool = True
    """As `launch.check`."""
    dry_run: bool | str = False
    """As `launch.dry_run`."""
    at_once: int | None = None
    """As `sweep.at_once`."""
    per_task: int = 1
    """As `sweep.per_task`."""
    side_by_side: int = 1
    """As `sweep.side_by_side`."""
    resources: Resources = field(default_factory=Resources)
    environment: Environment = field(default_factory=Environment)
    restart: Restart = field(default_factory=Restart)
    health: Health = field(default_factory=Health)
    notify: Notify = field(default_factory=Notify)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    monitor: Monitor = field(default_factory=Monitor)
    metrics: Metrics = field(default_factory=Metrics)
    network: Network = field(default_factory=Network)


@dataclass
class SweeperConf:
    """The options of `hydra/sweeper=slurmopt`, which are those of Hydra's basic sweeper."""

    _target_: str = "hydra_plugins.slurmopt_launcher.sweeper.SlurmoptSweeper"
    max_batch_size: int | None = None
    params: dict[str, str] = field(default_factory=dict)


_store = ConfigStore.instance()
_store.store(group="hydra/launcher", name="slurmopt", node=LauncherConf, provider="slurmopt")
_store.store(group="hydra/sweeper", name="slurmopt", node=SweeperConf, provider="slurmopt")
