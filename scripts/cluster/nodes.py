"""Nodes that start, die, lose their network and come back."""

import re
import shutil
import time

from cluster import daemons, processes
from cluster.layout import Layout
from cluster.polling import tail, wait_until

RETURN_SECONDS = 60.0
SERVING = frozenset({"IDLE", "MIXED", "ALLOCATED"})


def start(layout: Layout, node: str) -> None:
    """Start a node's slurmd, on a disk that may be new."""
    scratch = layout.scratch(node)
    scratch.mkdir(parents=True, exist_ok=True)
    scratch.chmod(0o1777)
    # slurmd would start the machine's own slurmstepd.
    stepd = ["-d", str(layout.programs.resolve() / "slurmstepd")] if layout.programs.exists() else []
    daemons.spawn(layout, node, ["slurmd", "-D", "-N", node, "-f", str(layout.conf), *stepd])


def wait_until_serving(layout: Layout, node: str, since: float) -> None:
    """Wait until the controller has heard from the slurmd started at `since` and uses the node."""

    def serving() -> bool:
        state, started = _state(layout, node)
        return state in SERVING and started >= int(since)

    def explain() -> str:
        state = daemons.run(layout, "sinfo", "-h", "-N", "-n", node, "-o", "%N %T %E").stdout
        return "\n".join([state.strip(), tail(layout.logs_of(node))])

    wait_until(serving, RETURN_SECONDS, f"{node} serves", explain)


def _state(layout: Layout, node: str) -> tuple[str, int]:
    show = daemons.run(layout, "scontrol", "-o", "show", "node", node, SLURM_TIME_FORMAT="%s")
    state = re.search(r" State=(\S+)", show.stdout)
    started = re.search(r" SlurmdStartTime=(\d+)", show.stdout)
    return state[1] if state else "", int(started[1]) if started else 0


def states(layout: Layout) -> dict[str, str]:
    """Each node's state in Slurm's words; nothing while the controller does not answer."""
    lines = daemons.run(layout, "sinfo", "-h", "-N", "-p", "main", "-o", "%N %T", seconds=15).stdout.splitlines()
    return dict(line.split() for line in lines)


def wait_until_known(layout: Layout, names: list[str]) -> None:
    """Wait until a new controller has heard from every node that is there; it starts by knowing none."""
    present = [name for name in names if daemons.find(layout, name)]

    def known() -> bool:
        found = states(layout)
        return all(found.get(name, "unknown").rstrip("*") not in ("unknown", "unk") for name in present)

    wait_until(known, RETURN_SECONDS, "slurmctld hears from its nodes", lambda: str(states(layout)))


def partition(layout: Layout, node: str) -> None:
    """Cut a node off: Slurm's own processes there end, the job's live on."""
    processes.kill(lambda: _slurm_of(layout, node), f"slurmd and slurmstepd of {node}")


def kill(layout: Layout, node: str) -> None:
    """Pull the plug: everything that runs on the node ends, and its disk is lost."""
    processes.kill(lambda: processes.on_node(layout, node), f"all of {node}")
    shutil.rmtree(layout.scratch(node), ignore_errors=True)


def restore(layout: Layout, node: str) -> None:
    """Bring a node back and wait until the controller uses it."""
    since = time.time()
    if daemons.find(layout, node):
        since = 0  # it never left: any registration will do
    else:
        start(layout, node)
    wait_until_serving(layout, node, since)


def _slurm_of(layout: Layout, node: str) -> list[int]:
    return [one.pid for one in processes.of_cluster(layout) if one.daemon == node]
