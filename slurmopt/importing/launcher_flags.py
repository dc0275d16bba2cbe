"""The flags with which torchrun, accelerate and deepspeed are told what slurmopt tells them itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurmopt.config.task_command.launchers import Launcher, option

_RANKS = {"torchrun": "--nproc_per_node", "accelerate": "--num_processes", "deepspeed": "--num_gpus"}
_OWN = {
    "torchrun": "--nnodes --nproc_per_node --rdzv_id --rdzv_backend --rdzv_endpoint --rdzv_conf --master_addr "
    "--master_port --node_rank --standalone --use_env",
    "accelerate": "--num_processes --num_machines --machine_rank --main_process_ip --main_process_port --multi_gpu "
    "--rdzv_backend --same_network --max_restarts",
    "deepspeed": "--num_gpus --num_nodes --hostfile --master_addr --master_port --no_ssh --no_ssh_check --node_rank",
}
_WITHOUT_VALUE = frozenset(["--standalone", "--use_env", "--multi_gpu", "--no_ssh", "--no_ssh_check", "--same_network"])


@dataclass(frozen=True)
class Flags:
    """Which words of a command are such flags."""

    dropped: frozenset[int]
    ranks: int | None
    """The index of the word with the number of ranks, or of the flag that has it after `=`."""


def flags_of(words: Sequence[str], launcher: Launcher) -> Flags:
    """The flags of the launcher in `words`, as they are written."""
    own, dropped, ranks = _OWN[launcher.name].split(), set(), None
    position = launcher.at + 1
    while position < len(words) and words[position].startswith("-"):
        name = option(words[position])
        has_value = "=" not in words[position] and name not in _WITHOUT_VALUE and _is_value(words, position + 1)
        taken = {position, position + 1} if has_value else {position}
        if name in own:
            dropped |= taken
            ranks = max(taken) if name == _RANKS[launcher.name] else ranks
        if name in ("-m", "--module", "--no_python"):
            break
        position += len(taken)
    return Flags(frozenset(dropped), ranks)


def _is_value(words: Sequence[str], at: int) -> bool:
    return at < len(words) and not words[at].startswith("-") and not words[at].endswith((".py", ".sh"))
