"""`slurmopt checkpoint`: lists, shows, verifies, fetches, exports and prunes the checkpoints of a run."""

from __future__ import annotations

from slurmopt.commands.group import Group

COMMANDS = {
    "list": ("slurmopt.commands.checkpoint.list", "the complete checkpoints: where each lies, how large, how good"),
    "show": ("slurmopt.commands.checkpoint.show", "what is in one: tensors, files, what it refers to"),
    "verify": ("slurmopt.commands.checkpoint.verify", "read every byte and compare every checksum"),
    "fetch": ("slurmopt.commands.checkpoint.fetch", "copy one, whole and verified, to a folder"),
    "export": ("slurmopt.commands.checkpoint.export", "write one as torch.save, safetensors or DCP have it"),
    "prune": ("slurmopt.commands.checkpoint.prune", "delete some of a run that has ended"),
}
"""Each command's module, and a line of help."""

_GROUP = Group("checkpoint", "COMMAND [RUN] …", "What a run has saved.", COMMANDS)
main, parser = _GROUP.main, _GROUP.parser
