"""Command-line flags for launchers that read no environment variables: accelerate and deepspeed.

torchrun takes its flags' defaults from PET_*. These two take flags alone, and without them each node trains a copy of
its own; so what the user has not said is put behind the program's name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from slurmopt.config.task_command.launchers import NODE, Launcher, of_words, option, own_words
from slurmopt.job.facts.rank_facts import RankFacts

HOSTFILE = "SLURMOPT_HOSTFILE"
"""Environment variable: a file with a line `node slots=N` for each node of the job."""
_OWN_KIND = {"--config_file", "--multi_gpu", "--cpu", "--tpu", "--use_deepspeed", "--use_fsdp", "--use_megatron_lm"}
"""The flags of accelerate that choose how its processes work together."""


def completed(words: Sequence[str], facts: RankFacts, environ: Mapping[str, str]) -> list[str]:
    """The command with the missing flags that its launcher needs; unchanged if it has no launcher.

    `facts`: of one process per node. The processes of each node are PET_NPROC_PER_NODE, as for torchrun.
    """
    launcher = of_words(words)
    if launcher is None:
        return list(words)
    flags: list[str] = []
    own_flags = {option(word) for word in own_words(words, launcher.at)}
    each = environ.get("PET_NPROC_PER_NODE", "")
    if launcher.name == "accelerate":
        flags = _of_accelerate(facts, int(each) if each.isdigit() else 1, own_flags, environ)
    elif launcher.name == "deepspeed":
        flags = _of_deepspeed(launcher, facts, environ)
    if "-H" in own_flags:
        own_flags.add("--hostfile")
    flags = [flag for flag in flags if option(flag) not in own_flags]
    return [*words[: launcher.at + 1], *flags, *words[launcher.at + 1 :]]


def _of_accelerate(facts: RankFacts, each: int, own_flags: Set[str], environ: Mapping[str, str]) -> list[str]:
    total = facts.nodes * each
    flags = [f"--num_processes={total}", f"--num_machines={facts.nodes}", f"--machine_rank={facts.node_rank}"]
    flags += [f"--main_process_ip={facts.master_addr}", f"--main_process_port={facts.master_port}"]
    if total > 1 and not own_flags & _OWN_KIND and not _has_accelerate_config(environ):
        flags.append("--multi_gpu")  # several processes, with GPUs or without
    return flags


def _has_accelerate_config(environ: Mapping[str, str]) -> bool:
    """Whether `accelerate config` has left a file that says how the processes work together."""
    cache = environ.get("XDG_CACHE_HOME", "~/.cache")
    home = Path(environ.get("HF_HOME", f"{cache}/huggingface")).expanduser() / "accelerate"
    return any(os.path.isfile(home / f"default_config.{kind}") for kind in ("yaml", "json"))


def _of_deepspeed(launcher: Launcher, facts: RankFacts, environ: Mapping[str, str]) -> list[str]:
    hostfile = [f"--hostfile={environ[HOSTFILE]}"] if HOSTFILE in environ else []
    if launcher.per != NODE:
        return hostfile
    flags = [f"--master_addr={facts.master_addr}", f"--master_port={facts.master_port}"]
    if facts.nodes > 1:  # with a hostfile of one node it would want ssh to it
        flags = ["--no_ssh", f"--node_rank={facts.node_rank}", *hostfile, *flags]
    return flags
