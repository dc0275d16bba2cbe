"""The options of `slurmopt launch`: short ways to write keys of the group `launch`, and Hydra's own options."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

from slurmopt.config.composition.shipped import shipped
from slurmopt.config.launch import BACKENDS
from slurmopt.grid.override_syntax import override_value
from slurmopt.option_parser import OptionParser

_KEYS = ("backend", "name", "folder", "id", "dry_run", "wait", "json")
"""The options that stand for a key of the group `launch`."""
_CFG_KINDS = ("job", "hydra", "all")
_NAMES_WIDTH = 60
_INFO_KINDS = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


def parser() -> argparse.ArgumentParser:
    """The parser of `slurmopt launch`; `overrides` are the words that are no options."""
    parser = _LaunchParser(
        "slurmopt launch",
        usage="slurmopt launch [OPTIONS] +experiment=NAME [KEY=VALUE ...]",
        description="Compose a config, check it against the cluster, and submit it.",
        formatter_class=HelpFormatter,
        add_help=False,
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=argparse.SUPPRESS)
    add_launch_options(parser)
    parser.add_argument("-m", "--multirun", action="store_true", help="a sweep: each key may have several values")
    parser.add_argument("--config-dir", metavar="DIR", help="the folder of your configs (default: conf)")
    cfg = "print the composed config; KIND: job, hydra or all"
    parser.add_argument("-c", "--cfg", choices=_CFG_KINDS, metavar="KIND", help=cfg)
    _add_hidden(parser)
    return parser


def add_launch_options(parser: argparse._ActionsContainer) -> None:
    """Adds the options that stand for keys of the group `launch`."""
    where = parser.add_mutually_exclusive_group()
    local = "run on this machine, without Slurm"
    where.add_argument("--local", dest="backend", action="store_const", const="local", help=local)
    where.add_argument("--backend", choices=BACKENDS, metavar="NAME", help="auto, sbatch, submitit or local")
    parser.add_argument("--name", help="the run's name (default: the experiment's)")
    parser.add_argument("--folder", metavar="DIR", help="the folder of your runs (default: runs)")
    parser.add_argument("--id", help="repeating a launch with the same ID never submits twice")
    parser.add_argument("--dry-run", action="store_true", help="print the job script; submit nothing")
    wait = "wait for the end; the exit status is the run's"
    parser.add_argument("--wait", action=argparse.BooleanOptionalAction, help=wait)
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")


def as_overrides(args: argparse.Namespace) -> list[str]:
    """The overrides for which the given options stand."""
    given = {key: getattr(args, key) for key in _KEYS}
    is_given = {key: value for key, value in given.items() if value is not None and (value or key == "wait")}
    return [f"launch.{key}={override_value(value)}" for key, value in is_given.items()]


def hydra_words(args: argparse.Namespace) -> list[str]:
    """The words for Hydra, where one of its own options asks it to show something; else an empty list."""
    valued = {"--cfg": args.cfg, "--info": args.info, "--package": args.package}
    words = [word for option, value in valued.items() if value is not None for word in (option, value)]
    words += ["--resolve"] if args.resolve else []
    words += ["--hydra-help"] if args.hydra_help else []
    return words if {"--cfg", "--info", "--hydra-help"} & set(words) else []


def _add_hidden(parser: argparse.ArgumentParser) -> None:
    """Options of Hydra that few people need; `slurmopt launch --hydra-help` shows them."""
    hidden = argparse.SUPPRESS
    parser.add_argument("-h", "--help", action="store_true", help=hidden)
    parser.add_argument("-cd", dest="config_dir", help=hidden)
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=_INFO_KINDS, help=hidden)
    parser.add_argument("--package", "-p", help=hidden)
    parser.add_argument("--resolve", action="store_true", help=hidden)
    parser.add_argument("--hydra-help", action="store_true", help=hidden)
    parser.add_argument("--version", action="store_true", help=hidden)


class _LaunchParser(OptionParser):
    """Lists the experiments that there are below its options."""

    def format_help(self) -> str:
        self.epilog = f"""experiments here  {_names("experiment")}
clusters          {_names("cluster")}
all keys          slurmopt launch +experiment=quickstart --cfg job
no config at all  slurmopt run --help

  slurmopt launch +experiment=quickstart resources.nodes=2 --dry-run
  slurmopt launch -m +experiment=quickstart lr=0.1,0.01"""
        return super().format_help()


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """One line for each option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=25, width=80)


def configs_in(folder: Path) -> list[str]:
    """The names of the configs in a folder of a config group, as an override gives them."""
    return [str(path.relative_to(folder).with_suffix("")) for path in sorted(folder.rglob("*.yaml"))]


def _names(group: str) -> str:
    """The configs of a group, those of the current folder first; of many the first."""
    names = list(dict.fromkeys([*configs_in(Path("conf") / group), *configs_in(shipped("conf") / group)]))
    shown = textwrap.shorten(", ".join(names), _NAMES_WIDTH, placeholder=" …")
    return shown or f"{names[0][:_NAMES_WIDTH]} …"
