"""Checks that the nodes of an attempt reach each other, and names those that do not.

The first rank of each node says in its heartbeat where it answers, and asks all others. It stays until they have asked
it too: a rank that goes on to import its modules may be deaf for a while. A node that has not come is left to the
rendezvous, which names it.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from slurmopt.checks.result import CheckResult, NotChecked, failed
from slurmopt.errors import RendezvousError
from slurmopt.job import signals
from slurmopt.job.facts.rank_facts import RankFacts, in_slurm_step, tasks_per_node
from slurmopt.job.health.bounded import Budget
from slurmopt.job.health.reach_listener import Listener, ask, silence
from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
from slurmopt.job.rendezvous.addresses import own_host
from slurmopt.job.rendezvous.attempt_secret import attempt_secret
from slurmopt.run_folder import heartbeat
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_ASKED_AT_ONCE = 16
_FIRST_LOOK, _LONGEST_LOOK = 0.01, 2.0
_READS_PER_SECOND = 5000.0
"""Reads of heartbeat files, by all nodes together."""
_ANSWER_SECONDS = 5.0
_LEAST_SECONDS = 2.0
_NAMED = 4
CHECKING = "checking"
"""The phase of a rank whose node is being checked."""


class Reach:
    """This node's part of the check."""

    def __init__(
        self, folder: RunFolder, attempt: int, facts: RankFacts, live: HeartbeatWriter, budget: Budget
    ) -> None:
        self._folder, self._attempt, self._facts, self._live, self._budget = folder, attempt, facts, live, budget
        self._key = b""
        self._answer_seconds = min(_ANSWER_SECONDS, budget.seconds / 3)
        self._beats: dict[int, Heartbeat] = {}
        self._asked: dict[int, Future[str | None]] = {}

    def run(self) -> CheckResult | None:
        """Publishes this node's address, asks the other nodes, and waits until they have asked this one."""
        if self._budget.seconds < _LEAST_SECONDS:
            raise NotChecked(f"{self._facts.node}: there was no time left to ask the other nodes (health.within)")
        try:
            self._key = attempt_secret(self._folder, self._attempt)
        except RendezvousError as error:
            raise NotChecked(f"{self._facts.node}: the other nodes are not asked: {error}") from error
        ranks = leaders(self._facts, os.environ)
        others = {node: ranks[node] for node in _from_the_next_on(self._facts.node_rank, self._facts.nodes)}
        host = own_host(os.environ.get("SLURMD_NODENAME"), self._facts)
        listener = Listener(host, self._key, self._facts.node_rank, set(others))
        listener.start()
        self._live.tell_address(f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}")
        troubles = self._ask(others)
        lost = {node: why for node, why in troubles.items() if why and not self._is_excused(node, why)}
        if lost:
            return self._finding(lost, len(troubles))
        self._wait_for(listener, {node for node, why in troubles.items() if why is None})
        return None

    def _ask(self, others: dict[int, int]) -> dict[int, str | None]:
        """The answer of each node that was asked."""
        from concurrent.futures import ThreadPoolExecutor, wait  # it brings logging along

        pool = ThreadPoolExecutor(_ASKED_AT_ONCE, "slurmopt-reach")
        try:
            self._gather(pool, dict(others))
            done, _ = wait(self._asked.values(), self._budget.left())
            return {node: answer.result() for node, answer in self._asked.items() if answer in done}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _gather(self, pool: ThreadPoolExecutor, waiting: dict[int, int]) -> None:
        """Asks each node as soon as it publishes its address, if there is time left."""
        pause = between_looks(len(waiting), self._facts.nodes)
        while waiting and self._budget.left() > self._answer_seconds and not self._is_over():
            for node, rank in list(waiting.items()):
                beat = self._beat(rank)
                if beat is None or (beat.address is None and beat.outcome is None):
                    continue
                del waiting[node]
                if beat.outcome is None and beat.address is not None:
                    self._beats[node] = beat
                    self._asked[node] = pool.submit(self._ask_one, node, beat.address)
            if waiting:
                time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads the nodes, hides nothing
                pause = max(min(1.0, pause * 1.5), between_looks(len(waiting), self._facts.nodes))

    def _ask_one(self, node: int, address: str) -> str | None:
        return ask(address, self._key, self._facts.node_rank, node, self._answer_seconds)

    def _is_over(self) -> bool:
        """Whether waiting is pointless: the job is to end, or a node has failed already."""
        return signals.requested() or any(answer.done() and answer.result() for answer in self._asked.values())

    def _beat(self, rank: int) -> Heartbeat | None:
        try:
            return heartbeat.read(self._folder.heartbeat(self._attempt, rank))
        except OSError:  # a stale NFS handle: replaced just now, and there at the next look
            return None

    def _is_excused(self, node: int, trouble: str) -> bool:
        """Whether the node's rank has ended and reports the reason itself, or has passed its check and no longer
        answers."""
        beat = self._beat(self._beats[node].rank)
        if beat is None:
            return False
        return beat.outcome is not None or (trouble == silence(self._answer_seconds) and beat.phase != CHECKING)

    def _still_checks(self, node: int) -> bool:
        beat = self._beat(self._beats[node].rank)
        return beat is None or beat.phase == CHECKING

    def _finding(self, lost: dict[int, str], asked: int) -> CheckResult:
        reasons = [f"{self._beats[node].node} ({self._beats[node].address}): {why}" for node, why in lost.items()]
        more = f" and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else ""
        alone = len(lost) == asked > 1  # none of several nodes is reached: it is this one that is cut off
        text = f"{self._facts.node} cannot reach {'; '.join(reasons[:_NAMED])}{more} (health.reach)"
        return failed("network", text, None if alone else tuple(self._beats[node].node for node in lost))

    def _wait_for(self, listener: Listener, nodes: set[int]) -> None:
        """Waits until the nodes have asked. A node that gave up waiting for this one will not ask any more."""
        pause = 0.25
        while not listener.wait_for(nodes, min(pause, self._budget.left())):
            if signals.requested() or not self._budget.left():
                return
            nodes = {node for node in nodes if self._still_checks(node)}
            pause = min(1.0, pause * 1.5)


def between_looks(waiting: int, nodes: int) -> float:
    """The least seconds between two polls: each of `nodes` nodes reads one file for each node that it waits for, all
    from one file server."""
    return min(_LONGEST_LOOK, max(_FIRST_LOOK, waiting * nodes / _READS_PER_SECOND))


def _from_the_next_on(me: int, nodes: int) -> list[int]:
    """The other nodes in cyclic order, beginning with the next one, so that not all nodes ask the same one at once."""
    return [(me + step) % nodes for step in range(1, nodes)]


def leaders(facts: RankFacts, environ: Mapping[str, str]) -> list[int]:
    """The first rank of each node. Raises NotChecked if Slurm did not distribute the ranks in blocks."""
    if facts.world_size == facts.nodes or environ.get("SLURM_DISTRIBUTION", "").startswith("cyclic"):
        return list(range(facts.nodes))
    counts = [facts.local_world_size] * facts.nodes
    if in_slurm_step(environ):
        counts = tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE", "1"))
    firsts = [0, *accumulate(counts)][:-1]
    if len(firsts) != facts.nodes or firsts[facts.node_rank] != facts.rank:
        order = environ.get("SLURM_DISTRIBUTION", "unknown")
        raise NotChecked(f"{facts.node}: nodes are not asked for answers: the ranks are in no known order ({order})")
    return firsts
