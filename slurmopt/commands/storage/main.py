"""`slurmopt storage`: facts, layouts and rates of file systems and buckets."""

from __future__ import annotations

from slurmopt.commands.group import Group

COMMANDS = {
    "show": ("slurmopt.commands.storage.show", "what a file system or bucket is, with a verdict and the mend for each"),
    "plan": ("slurmopt.commands.storage.plan", "the Lustre layout for a kind of data, with its reason"),
    "stripe": ("slurmopt.commands.storage.stripe", "give a folder that layout, and move its files to it on request"),
    "bench": ("slurmopt.commands.storage.bench", "measure a folder or bucket, for a few seconds"),
    "prefetch": ("slurmopt.commands.storage.prefetch", "load files of an FSx data repository from S3 before the job"),
    "stage": (
        "slurmopt.commands.storage.stage",
        "copy a folder, file or bucket to a disk of this machine, as a job does",
    ),
}
"""Each command's module, and a line of help."""

_GROUP = Group("storage", "COMMAND PATH …", "File systems and buckets.", COMMANDS)
main, parser = _GROUP.main, _GROUP.parser
