"""`hydra/sweeper=slurmopt`: Hydra's basic sweeper, without composing every job before the first one starts."""

from __future__ import annotations

from collections.abc import Sequence

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper


class SlurmoptSweeper(BasicSweeper):
    """The syntax, order and batches of `hydra/sweeper=basic`. Each value is checked once, not each combination."""

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Raises what composing the first job with a value raises, for every value in `batch`."""
        from hydra_plugins.slurmopt_launcher._check import check_values

        assert self.hydra_context is not None
        assert self.config is not None
        check_values(self.hydra_context.config_loader, self.config, batch)
