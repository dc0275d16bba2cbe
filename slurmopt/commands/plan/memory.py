"""`slurmopt plan memory`: the memory of a model in training on one rank.

`--json` prints one object; sizes are bytes, an interval is a list of its two ends:

    model       name, parameters, active_parameters, layers, hidden
    layout      strategy, data, tensor, pipeline, stage, micro_batch, recompute
    work        sequence, global_batch, precision, optimizer, attention, loss
    tier        1: by formulas; 2: activations are those of the model, traced without weights
    modules     of a traced model, in its order: a list of name (`*`: each layer), count (how many of them), parameters,
                weights, gradients, activations (an interval; what the module leaves for backward, below 0 for what is
                freed between modules), of one of them, of one micro-batch, not sharded and without recomputation
    parts       part → interval, each at its own maximum
    phases      phase → interval, all that stands then
    peak        the interval of the largest phase
    gpu         name, memory
    fits        the probability that the peak is within the GPU's memory
    changes     what makes it smaller, the cheapest first: a list of what, cost, peak, saves; by formulas, and empty
                for a model of --build
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from slurmopt import command_output
from slurmopt.config.plan import MOST, Plan
from slurmopt.errors import InputError, one_line
from slurmopt.estimates.model_word import config_of, model_of
from slurmopt.estimates.tracing import OPTIMIZERS as TRACED_OPTIMIZERS
from slurmopt.estimates.tracing import traced
from slurmopt.option_parser import OptionParser
from slurmopt.planning.advice import Change, changes
from slurmopt.planning.hardware import Gpu, gpu_of
from slurmopt.planning.layout import ATTENTIONS, FULL, HSDP, LOSSES, RECOMPUTES, STRATEGIES, Layout, Work, why_not
from slurmopt.planning.memory.peak import Memory, memory
from slurmopt.planning.memory.traced import ModuleMemory, Trace, as_transformer
from slurmopt.planning.models.transformer import Transformer
from slurmopt.planning.ranges import Range
from slurmopt.planning.shapes import LIKELY
from slurmopt.planning.states import OPTIMIZERS, PRECISIONS
from slurmopt.runs import options
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.slow_notice import slow_notice
from slurmopt.units import human_bytes

_BUILD = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)
_NAME = 60
"""Characters of a module's name that are shown."""
_NODE = 8
"""GPUs of a node, for hsdp and advice, where --gpus-per-node does not tell."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is printed."""

    model: Transformer
    strategy: str
    work: Work
    layout: Layout
    gpu: Gpu
    trace: Trace | None
    found: Memory
    advice: list[Change]

    @property
    def tier(self) -> int:
        return 1 if self.trace is None else 2


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    answer = _answer(args)
    if args.json:
        command_output.print_json(_as_json(answer))
    else:
        print("\n".join(_lines(answer)))
    return 0


def _answer(args: argparse.Namespace) -> Answer:
    if args.model is None and args.build is None:
        raise InputError("plan memory: needs --model or --build")
    if args.model is not None and args.build is not None:
        raise InputError("plan memory: --model and --build: one of them, not both")
    if args.build is not None and _BUILD.fullmatch(args.build) is None:
        raise InputError(f"plan memory: --build {one_line(args.build)[:80]!r} is not valid; valid: MODULE:FUNCTION")
    gpu, layout, work = gpu_of(args.gpu, "plan memory: --gpu"), _layout(args), _work(args)
    model = None if args.model is None else model_of(args.model, "plan memory: --model")
    domain = min(gpu.domain, args.gpus_per_node)
    if model is not None and (reason := why_not(layout, model, work, domain)) is not None:
        command_output.warn(f"plan memory: {reason}")
    if model is not None and (remark := model.too_long(work.sequence)) is not None:
        command_output.warn(f"plan memory: {remark}")
    trace = _trace(args, work, layout, model)
    if model is None:
        assert trace is not None
        model = as_transformer(trace, args.build)
    activations = None if trace is None else trace.activations(model, work, layout)
    found = memory(model, work, layout, traced=activations)
    advice = [] if model.hidden == 0 else changes(model, work, layout, domain)
    return Answer(
        model=model, strategy=args.strategy, work=work, layout=layout, gpu=gpu, trace=trace, found=found, advice=advice
    )


def _trace(args: argparse.Namespace, work: Work, layout: Layout, model: Transformer | None) -> Trace | None:
    """What --trace and --build ask for. A model whose shape is known anyway falls back to formulas."""
    if not args.trace and args.build is None:
        return None
    if layout.tensor > 1 or layout.pipeline > 1 or (model is None and layout.recompute == FULL):
        raise InputError(
            "plan memory: a traced model is whole; valid: without --tensor, --pipeline and, with --build, --recompute"
        )
    if work.optimizer not in TRACED_OPTIMIZERS:
        raise InputError(
            f"plan memory: --optimizer {work.optimizer} is not traced; valid: {', '.join(TRACED_OPTIMIZERS)}"
        )
    config = None if args.model is None else config_of(args.model, "plan memory: --model")
    with slow_notice("tracing the model without its weights"):
        try:
            return traced(work, layout.micro_batch, build=args.build, config=config)
        except InputError as error:
            if model is None:
                raise
            command_output.warn(f"plan memory: {error}; by formulas instead")
            return None


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt plan memory`."""
    parser = OptionParser("slurmopt plan memory", description="The memory of a model in training, by part and phase.")
    add = parser.add_argument
    add("--model", help="a public model such as llama-8b, a config.json, or a count such as 7B")
    add("--build", metavar="MODULE:FUNCTION", help="your own function that returns the model: it is traced")
    add("--trace", action="store_true", help="trace --model by torch and transformers, without its weights")
    add("--gpu", default="h100", help="default: h100")
    add("--gpus", type=int, default=8, metavar="N", help="ranks in all (default: 8)")
    add("--gpus-per-node", type=int, default=_NODE, metavar="N", help=f"default: {_NODE}")
    add("--sequence", type=int, default=4096, metavar="N", help="tokens of a sample (default: 4096)")
    add("--micro-batch", type=int, default=1, metavar="N", help="samples of a rank at a time (default: 1)")
    add("--accumulate", type=int, default=1, metavar="N", help="micro-batches of a rank in a step (default: 1)")
    add("--strategy", choices=list(STRATEGIES), default="fsdp", help="default: fsdp")
    add("--tensor", type=int, default=1, metavar="N", help="ranks of tensor parallelism (default: 1)")
    add("--pipeline", type=int, default=1, metavar="N", help="stages of a pipeline (default: 1)")
    add("--recompute", choices=list(RECOMPUTES), default="no", help="activation checkpointing (default: no)")
    add("--precision", choices=list(PRECISIONS), help="default: policy with fsdp and hsdp, else autocast")
    add("--optimizer", choices=list(OPTIMIZERS), default="adamw", help="default: adamw")
    add("--attention", choices=list(ATTENTIONS), default="flash", help="default: flash")
    add("--loss", choices=list(LOSSES), default="plain", help="default: plain")
    options.add_json(parser)
    return parser


def _layout(args: argparse.Namespace) -> Layout:
    for name in ("gpus", "gpus_per_node", "sequence", "micro_batch", "accumulate", "tensor", "pipeline"):
        if not 1 <= (value := getattr(args, name)) <= MOST:
            shown = f"--{name.replace('_', '-')} {str(value)[:40]}"
            raise InputError(f"plan memory: {shown} is not valid; valid: 1 to {MOST:,}")
    copy = args.tensor * args.pipeline
    if args.gpus % copy:
        raise InputError(f"plan memory: --gpus {args.gpus} is no multiple of --tensor times --pipeline = {copy}")
    data = args.gpus // copy
    inside = max(1, args.gpus_per_node // args.tensor)
    shard = min(data, inside) if args.strategy == HSDP else None
    if shard is not None and data % shard:
        raise InputError(f"plan memory: hsdp shards over {shard} ranks, which do not divide {data}")
    return Layout(
        data=data,
        tensor=args.tensor,
        pipeline=args.pipeline,
        stage=STRATEGIES[args.strategy],
        shard=shard,
        micro_batch=args.micro_batch,
        recompute=args.recompute,
    )


def _work(args: argparse.Namespace) -> Work:
    data = args.gpus // (args.tensor * args.pipeline)
    names = ("sequence", "precision", "optimizer", "attention", "loss", "strategy")
    return Plan(**{name: getattr(args, name) for name in names}).work(args.micro_batch * args.accumulate * data)


def _lines(answer: Answer) -> list[str]:
    model, work, layout, gpu = answer.model, answer.work, answer.layout, answer.gpu
    peak, fits = answer.found.peak, answer.found.peak.probability_below(gpu.memory)
    what = f"data {layout.data} ({answer.strategy}), tensor {layout.tensor}, pipeline {layout.pipeline}"
    batches = layout.micro_batches(work)
    how = "by formulas (tier 1)" if answer.trace is None else "with the model's own activations (tier 2)"
    width = f", hidden {model.hidden:,}" if model.hidden else ""
    lines = [
        f"{model.name}: {model.parameters:,} parameters, {model.layers} layers{width}",
        f"{layout.ranks} ranks: {what}; {batches} micro-batch{'es' if batches > 1 else ''} of "
        f"{layout.micro_batch} with {work.sequence:,} tokens; "
        f"{work.precision}, {work.optimizer}",
        "",
        _table("PART", answer.found.parts),
        "",
        _table("PHASE", answer.found.phases),
        "",
        *_module_lines(answer),
        f"peak      {_ends_text(peak)}, {how}, a 90 % interval",
        f"fits      with {fits:.0%} into the {human_bytes(gpu.memory)} of {gpu.name}",
    ]
    if fits < LIKELY and answer.advice:
        rows = [
            [change.what, human_bytes(change.saves), _ends_text(change.peak), change.cost] for change in answer.advice
        ]
        lines += ["", table(["CHANGE ONE THING", "SAVES", "PEAK THEN", "COSTS"], rows, terminal_width())]
    return lines


def _table(title: str, ranges: Mapping[str, Range]) -> str:
    rows = [[name, human_bytes(each.low), human_bytes(each.high), ""] for name, each in ranges.items()]
    return table([title, "LOW", "HIGH", ""], rows, terminal_width())


def _modules(answer: Answer) -> tuple[ModuleMemory, ...]:
    return () if answer.trace is None else answer.trace.modules


def _module_lines(answer: Answer) -> list[str]:
    """A table of the modules of a traced model, and an empty line."""
    rows = [
        [one_line(each.name)[:_NAME], f"{each.count:,}", f"{each.parameters:,}", human_bytes(each.weights),
         human_bytes(each.gradients), human_bytes(each.activations.low), human_bytes(each.activations.high), ""]
        for each in _modules(answer)
    ]  # fmt: skip
    header = ["EACH MODULE, NOT SHARDED", "COUNT", "PARAMETERS", "WEIGHTS", "GRADIENTS", "ACTIVATIONS", "TO", ""]
    return [table(header, rows, terminal_width()), ""] if rows else []


def _ends_text(each: Range) -> str:
    return f"{human_bytes(each.low)} to {human_bytes(each.high)}"


def _ends(each: Range) -> list[float]:
    return [each.low, each.high]


def _as_json(answer: Answer) -> dict[str, Any]:
    def of(thing: object, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: getattr(thing, name) for name in names}

    found = answer.found
    return {
        "model": of(answer.model, ("name", "parameters", "active_parameters", "layers", "hidden")),
        "layout": {"strategy": answer.strategy}
        | of(answer.layout, ("data", "tensor", "pipeline", "stage", "micro_batch", "recompute")),
        "work": of(answer.work, ("sequence", "global_batch", "precision", "optimizer", "attention", "loss")),
        "tier": answer.tier,
        "modules": [asdict(each) | {"activations": _ends(each.activations)} for each in _modules(answer)],
        "parts": {name: _ends(each) for name, each in found.parts.items()},
        "phases": {name: _ends(each) for name, each in found.phases.items()},
        "peak": _ends(found.peak),
        "gpu": of(answer.gpu, ("name", "memory")),
        "fits": found.peak.probability_below(answer.gpu.memory),
        "changes": [
            {"what": change.what, "cost": change.cost, "peak": _ends(change.peak), "saves": change.saves}
            for change in answer.advice
        ],
    }
