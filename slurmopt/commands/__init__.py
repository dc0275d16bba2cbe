"""One module per command of `slurmopt`; nothing else imports them."""

from __future__ import annotations

COMMANDS = {
    "run": ("slurmopt.commands.run", "run a command on the cluster, without a config: slurmopt run -G 1 -- COMMAND"),
    "launch": ("slurmopt.launch", "compose a config, check it against the cluster and submit it"),
    "init": ("slurmopt.commands.init", "write a small project that fits this cluster: configs and a training"),
    "import": ("slurmopt.commands.import_script", "make an experiment from an existing batch script"),
    "status": ("slurmopt.commands.status", "state and progress of runs and sweeps, and why they wait or failed"),
    "top": ("slurmopt.commands.top", "all runs on the whole terminal: progress, metrics, logs, cancel, retry"),
    "wait": ("slurmopt.commands.wait", "wait until runs have ended; the exit status says whether they finished"),
    "logs": ("slurmopt.commands.logs", "logs of the ranks; --errors shows the rank that failed first"),
    "results": (
        "slurmopt.commands.results",
        "the best points of a sweep and the effect of each axis: tables and plots",
    ),
    "history": ("slurmopt.commands.history", "the attempts of a run: causes of their ends, lost steps and GPU-hours"),
    "report": ("slurmopt.commands.report", "where the GPU-hours of a run went, and what to change; --html for a page"),
    "compare": (
        "slurmopt.commands.compare",
        "runs side by side: what differs in their configs, metrics, ledger, speed",
    ),
    "metrics": ("slurmopt.commands.metrics", "what was measured on the nodes of a run: table, CSV, JSON or Parquet"),
    "monitor": ("slurmopt.commands.monitor", "measure a job that slurmopt did not launch: slurmopt monitor -- COMMAND"),
    "retry": ("slurmopt.commands.retry", "continue runs that failed, with changed resources"),
    "cancel": ("slurmopt.commands.cancel", "stop a run, a sweep or points of it"),
    "throttle": ("slurmopt.commands.throttle", "limit the array tasks of a sweep that run at a time"),
    "tend": ("slurmopt.commands.tend", "restart runs that Slurm does not restart; for cron, or with --watch"),
    "list": ("slurmopt.commands.list", "all runs and sweeps, newest first"),
    "checkpoint": (
        "slurmopt.commands.checkpoint.main",
        "checkpoints of a run: list, show, verify, fetch, export, prune",
    ),
    "doctor": (
        "slurmopt.commands.doctor",
        "check this machine, Slurm and compute nodes, and say what to mend",
    ),
    "network": (
        "slurmopt.commands.network.main",
        "the network of a node: what it has, and which variables NCCL needs for it",
    ),
    "storage": (
        "slurmopt.commands.storage.main",
        "file systems and buckets: facts, layouts, rates, loading from S3",
    ),
    "profile": ("slurmopt.commands.profile.main", "traces of a running run: slurmopt profile RUN"),
    "plan": ("slurmopt.commands.plan.main", "whether a training fits, how long it takes and what it costs"),
    "tune": ("slurmopt.commands.tune.main", "look for settings of a training by short trials: the batch size"),
    "bench": ("slurmopt.commands.bench.main", "measure the machine: collectives between ranks and nodes"),
    "export": ("slurmopt.commands.export", "dashboards and alarms for the metrics that runs send, as JSON"),
    "completion": ("slurmopt.commands.completion", "shell completion for bash, zsh and fish"),
}
"""Name → the module with `main(argv)` and `parser()`, and a line of help."""
