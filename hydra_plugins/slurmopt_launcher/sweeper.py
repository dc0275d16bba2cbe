"""`hydra/sweeper=slurmopt`: Hydra's basic sweeper, which does not compose every job before the launch."""

from __future__ import annotations

from collections.abc import Sequence

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper


class SlurmoptSweeper(BasicSweeper):
    """The syntax, order and batches of `hydra/sweeper=basic`. Each value is checked once, not each combination."""

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Checks every value in `batch` by composing the first job with it. Raises Hydra's exception for an invalid
        value."""
        from hydra_plugins.slurmopt_launcher._check import check_values

        assert self.hydra_context is not None
        assert self.config is not None
        check_values(self.hydra_context.config_loader, self.config, batch)
