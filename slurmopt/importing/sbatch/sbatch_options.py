"""The options of sbatch and srun: their long names, and which take a value."""

from __future__ import annotations

SHORT = {
    "A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint", "c": "cpus-per-task",
    "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "h": "help",
    "I": "immediate", "i": "input", "J": "job-name", "K": "kill-on-bad-exit", "k": "no-kill", "L": "licenses",
    "l": "label", "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks", "O": "overcommit", "o": "output",
    "p": "partition", "Q": "quiet", "q": "qos", "S": "core-spec", "s": "oversubscribe", "t": "time", "u": "unbuffered",
    "V": "version", "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude",
}  # fmt: skip
_WITH_VALUE = """
account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint container container-id
core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution error exclude
export export-file extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres
gres-flags hint immediate input job-name licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu
mincpus network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket
open-mode output partition power prefer priority profile propagate qos reservation resv-ports segment signal
sockets-per-node switches thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid wait-all-nodes
wckey wrap jobid cpu-bind mpi container-image container-mounts container-workdir container-name multi-prog
het-group relative
task-epilog task-prolog prolog epilog bcast slurmd-debug msg-timeout
"""
_PERHAPS = "get-user-env nice no-kill parsable exclusive kill-on-bad-exit wait"
_WITHOUT = """
contiguous disable-stdout-job-summary extra hold ignore-pbs no-requeue oversubscribe overcommit quiet reboot requeue
spread-job stepmgr test-only use-min-nodes verbose label unbuffered no-container-mount-home exact overlap pty
help usage version
"""
VALUE, PERHAPS, NONE = "value", "perhaps", "none"
LONG = {
    **dict.fromkeys(_WITH_VALUE.split(), VALUE),
    **dict.fromkeys(_PERHAPS.split(), PERHAPS),
    **dict.fromkeys(_WITHOUT.split(), NONE),
}
"""Long option → whether it takes a value: always, only after `=`, or never."""


def long_name(word: str) -> str | None:
    """The long option that `word` (without dashes and value) names or begins, as getopt reads it; None if none does."""
    if word in LONG:
        return word
    begun = [name for name in LONG if name.startswith(word)]
    return begun[0] if word and len(begun) == 1 else None


def takes_next(word: str) -> bool:
    """Whether the word after this option is its value."""
    if word.startswith("--"):
        name = long_name(word[2:])
        return "=" not in word and name is not None and LONG[name] == VALUE
    name = SHORT.get(word[1:2])
    return len(word) == 2 and name is not None and LONG[name] == VALUE


def split_option(word: str) -> tuple[str, str | None]:
    """An option's long name (as typed, if it is none) and the value in the same word."""
    if word.startswith("--"):
        typed, sign, value = word[2:].partition("=")
        return long_name(typed) or typed, value if sign else None
    name = SHORT.get(word[1:2], word[1:2])
    return name, word[2:].removeprefix("=") or None
