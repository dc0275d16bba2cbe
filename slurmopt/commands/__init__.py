"""One module per command of `slurmopt`; nothing else imports them."""

from __future__ import annotations

COMMANDS = {
    "launch": ("slurmopt.launch", "compose a config, check it against the cluster and submit it"),
    "status": ("slurmopt.commands.status", "how runs and sweeps are: state, progress, why one waits or failed"),
    "logs": ("slurmopt.commands.logs", "what the ranks wrote; --errors shows the first that failed"),
    "results": ("slurmopt.commands.results", "a sweep's best points, and what each axis does; tables and pictures"),
    "history": ("slurmopt.commands.history", "the story of a run: its attempts, why each ended, what that cost"),
    "retry": ("slurmopt.commands.retry", "let runs that failed go on, with changed needs"),
    "cancel": ("slurmopt.commands.cancel", "stop a run, a sweep or points of it"),
    "throttle": ("slurmopt.commands.throttle", "how many array tasks of a sweep may run at a time"),
    "tend": ("slurmopt.commands.tend", "bring back runs that nobody brings back; for cron, or --watch"),
    "list": ("slurmopt.commands.list", "all runs and sweeps, newest first"),
    "checkpoint": ("slurmopt.commands.checkpoint.main", "what a run has saved: list, verify, fetch, export, prune"),
    "completion": ("slurmopt.commands.completion", "shell completion for bash, zsh and fish"),
}
"""Name → the module with `main(argv)` and `parser()`, and a line of help."""
