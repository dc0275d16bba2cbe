"""A profiler around the training: nsys, ncu or py-spy.

The job imports this module too, so it does not import Hydra or OmegaConf.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from slurmopt.config.check import true_or_false, whole_number
from slurmopt.errors import ConfigError
from slurmopt.run_folder.json_values import from_json

NSYS, NCU, PY_SPY = "nsys", "ncu", "py-spy"
PROFILERS = (NSYS, NCU, PY_SPY)
"""The values of `task.profiler`."""
_RANKS = {NSYS: "node", NCU: "0", PY_SPY: "0"}
_TAKEN = {
    NSYS: {
        **{word: "the report is collected into the run folder" for word in ("-o", "--output")},
        **{word: "a training is not ended by its profiler" for word in ("--kill", "--capture-range-end")},
        **{word: "task.profiler_options.cuda_range sets it" for word in ("-c", "--capture-range")},
        **{word: "task.profiler_options.seconds sets it" for word in ("-d", "--duration")},
        **{word: "task.profiler_options.delay sets it" for word in ("-y", "--delay")},
        "--stop-on-exit": "the report would not be written",
    },
    NCU: {
        **{word: "the report is collected into the run folder" for word in ("-o", "--export", "-i", "--import")},
        **{word: "NCCL kernels must not be replayed" for word in ("-k", "--kernel-name", "--kernel-id")},
        "--kernel-name-base": "NCCL kernels must not be replayed",
        "--kill": "a training is not ended by its profiler",
        "--replay-mode": "it would run the whole training again and again",
        "--mode": "the profiler starts the training",
        **{word: "task.profiler_options.launches sets it" for word in ("-c", "--launch-count")},
        "--profile-from-start": "task.profiler_options.cuda_range sets it",
        "--range-filter": "task.profiler_options.cuda_range sets it",
    },
    PY_SPY: {
        **{word: "the report is collected into the run folder" for word in ("-o", "--output", "-f", "--format")},
        **{word: "slurmopt says what is sampled" for word in ("-p", "--pid", "-s", "--subprocesses")},
        **{word: "task.profiler_options.seconds sets it" for word in ("-d", "--duration")},
        **{word: "it stops the training for each sample" for word in ("-n", "--native")},
    },
}
"""Arguments that would end the training, or that slurmopt gives itself, with the reason."""
_SEVERAL = re.compile(r"-[A-Za-z]{2,}")


@dataclass(kw_only=True)
class ProfilerOptions:
    """What `task.profiler` records. See [Profiling](profiling.md#nsys-ncu-and-py-spy)."""

    ranks: str = "auto"
    """Which ranks are profiled: `node` (local rank 0 of each node), `all`, or numbers such as `0,3`. `auto`: `node` for
    nsys, `0` for ncu and py-spy. With ncu it is one rank."""

    delay: int = 60
    """Seconds from the start of the training to the start of the recording, of nsys and py-spy."""

    seconds: int = 30
    """How many seconds nsys and py-spy record."""

    launches: int = 20
    """How many kernels ncu profiles. It replays each of them many times."""

    cuda_range: bool = False
    """Whether nsys and ncu record only between `torch.cuda.profiler.start()` and `stop()` of the training, in the place
    of `delay` and `seconds`."""

    arguments: list[str] = field(default_factory=list)
    """More arguments of the profiler, one per word, such as `[--trace=cuda,nvtx,osrt]`. None that would end the
    training or write the report elsewhere."""

    def __post_init__(self) -> None:
        self._check_ranks()
        whole_number(self.delay, 0, "task.profiler_options.delay")
        whole_number(self.seconds, 1, "task.profiler_options.seconds")
        whole_number(self.launches, 1, "task.profiler_options.launches")
        true_or_false(self.cuda_range, "task.profiler_options.cuda_range")

    def _check_ranks(self) -> None:
        self.ranks = str(self.ranks).replace(" ", "")
        if self.ranks not in ("auto", "node", "all") and not all(word.isdecimal() for word in self.ranks.split(",")):
            message = f"{self.ranks!r} is not valid; valid: auto, node, all, or numbers such as 0,3"
            raise ConfigError(message, "task.profiler_options.ranks")


@dataclass(frozen=True, kw_only=True)
class Profiler:
    """What a rank is told of the profiler."""

    name: str
    ranks: str
    delay: int = 60
    seconds: int = 30
    launches: int = 20
    cuda_range: bool = False
    arguments: list[str] = field(default_factory=list)

    def to_json_arg(self) -> str:
        """Returns it as JSON without spaces, one argument in the job script."""
        return json.dumps(asdict(self), separators=(",", ":"))

    def wants(self, rank: int, local_rank: int) -> bool:
        """Whether that rank is profiled."""
        if self.ranks in ("all", "node"):
            return self.ranks == "all" or local_rank == 0
        return rank in map(int, self.ranks.split(","))


def profiler_of(name: str | None, options: ProfilerOptions) -> Profiler | None:
    """What the ranks are told for a config; None for no profiler."""
    if name is None:
        return None
    told: dict[str, Any] = asdict(options)
    told["ranks"] = _RANKS[name] if options.ranks == "auto" else options.ranks
    return Profiler(name=name, **told)


def from_word(word: str) -> Profiler:
    """Parses the JSON written by `Profiler.to_json_arg`. Raises ValueError if it is invalid."""
    return from_json(Profiler, word)


def claims_cupti(name: str | None) -> bool:
    """Whether the profiler needs CUPTI for itself, so that torch.profiler (Kineto) records no kernels in the same
    process: CUPTI has one subscriber."""
    return name in (NSYS, NCU)


def check_options(name: str, options: ProfilerOptions) -> None:
    """Raises ConfigError for options that would end the training, or that the profiler cannot follow."""
    key = "task.profiler_options"
    if options.cuda_range and name == PY_SPY:
        raise ConfigError("py-spy has no ranges; valid: false, with delay and seconds", f"{key}.cuda_range")
    if name == NCU and not (options.ranks == "auto" or options.ranks.isdecimal()):
        message = (
            f"{options.ranks!r} is not valid: ncu replays kernels while the others wait; valid: one rank, such as 0"
        )
        raise ConfigError(message, f"{key}.ranks")
    for word in options.arguments:
        _check_argument(name, word, f"{key}.arguments")


def _check_argument(name: str, word: str, key: str) -> None:
    if "\0" in word:
        raise ConfigError("a word has a NUL character", key)
    if word == "--":
        raise ConfigError("'--' would end the arguments of the profiler; leave it out", key)
    option = word.split("=", 1)[0]
    for taken, why in _TAKEN[name].items():
        is_short = len(taken) == 2 and not word.startswith("--") and word.startswith(taken)
        # py-spy takes several options without a value in one word: -in
        is_short |= len(taken) == 2 and name == PY_SPY and bool(_SEVERAL.fullmatch(word)) and taken[1] in word
        # an abbreviation of a long option is that option
        is_long = option.startswith("--") and len(option) > 3 and taken.startswith(option)
        if is_short or is_long:
            raise ConfigError(f"{word!r} is not possible with {name}: {why}", key)
