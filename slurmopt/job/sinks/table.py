"""The table of the metric sinks: the module of each."""

from __future__ import annotations

MODULES = {
    "tensorboard": "slurmopt.job.sinks.tensorboard",
    "prometheus": "slurmopt.job.sinks.prometheus.sink",
    "cloudwatch": "slurmopt.job.sinks.cloudwatch.sink",
    "wandb": "slurmopt.job.sinks.wandb",
    "mlflow": "slurmopt.job.sinks.mlflow",
}
"""Name of a sink, as in `metrics.NAME` → the module with its `open_sink(options, place)`."""
