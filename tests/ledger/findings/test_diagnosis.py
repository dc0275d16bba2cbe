"""What findings say, cost and advise, beyond which one it is."""

from __future__ import annotations

import ast
import copy
import json
import random
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from ledger.findings import healthy, wasteful
from ledger.findings.attempts import (
    GIB,
    Attempt,
    attempt,
    event,
    evidence,
    series_of,
    set_ddp,
    set_gpu,
    set_node,
    set_spent,
    without_gpm,
    without_series,
)

from slurmopt.config.composition import override
from slurmopt.ledger.findings import finding
from slurmopt.ledger.findings.diagnosis import diagnose, diagnose_run
from slurmopt.ledger.findings.finding import KINDS, Diagnosis, Finding

PAGE = Path(__file__).parents[3] / "docs" / "findings.md"
OVERRIDE = re.compile(r"\+?[a-z_]+(\.\w+)+=")


def the_one(*attempts: Attempt) -> Finding:
    (found,) = diagnose_run([evidence(made) for made in attempts]).findings
    return found


def missing(diagnosis: Diagnosis) -> dict[str, tuple[str, ...]]:
    return {item.kind: item.missing for item in diagnosis.abstentions}


@pytest.mark.parametrize("name", wasteful.SCENARIOS)
def test_the_change_is_an_override_that_a_launch_takes_or_a_line_of_python(name: str) -> None:
    attempts, _ = wasteful.SCENARIOS[name]()
    change = the_one(*attempts).change
    if OVERRIDE.match(change.strip('"')):
        stored = {"task": {"command": ["true"]}, "resources": {"gpus_per_node": 8}}
        _, _, settings = override.overridden(stored, override.parse(shlex.split(change)))
        assert settings.task.command == ["true"]
    else:
        ast.parse(change if not change.startswith("if ") else change + "\n    pass")


def test_input_costs_what_the_ranks_waited() -> None:
    made = attempt(gpus=4, spent={"input": 0.5})
    assert the_one(made).cost == pytest.approx(4 * 0.5 * 3500 / 3600)


def test_a_finding_costs_no_more_than_its_bucket() -> None:
    made = attempt(gpus=4, spent={"input": 0.5})
    made["buckets"] = {"waiting for input": 3600.0, "compute": 4 * 3600.0 - 3600.0}
    assert the_one(made).cost == pytest.approx(1.0)


def test_a_straggler_costs_what_the_others_wait_for_it() -> None:
    made = attempt(gpus=4)
    set_ddp(made, exposed=0.06)
    set_ddp(made, [2], backward=0.17, exposed=0.01)
    steps = made["ranks"][0]["steps"]
    found = the_one(made)
    assert found.cost == pytest.approx(3 * 0.05 * steps / 3600, rel=0.01)
    assert found.change == "resources.exclude=node1"


def test_a_leak_names_the_process_that_grows() -> None:
    (made,), _ = wasteful.leak_in_the_workers_of_a_rank()
    growing = [line for line in the_one(made).evidence if line.startswith("grows most: ")]
    assert len(growing) == 1
    assert re.fullmatch(r"grows most: the workers of rank 1, by [\d.]+ GiB an hour", growing[0])


def test_nodes_that_are_excluded_already_stay_so() -> None:
    made = attempt(gpus=4, config={"resources": {"exclude": "node7"}})
    set_ddp(made, exposed=0.06)
    set_ddp(made, [2], backward=0.17, exposed=0.01)
    assert shlex.split(the_one(made).change) == ["resources.exclude='node7,node1'"]


def test_more_cpus_are_as_many_as_hide_the_wait() -> None:
    made = attempt(gpus=1, cpus=6, spent={"input": 0.6}, config={"resources": {"cpus_per_task": 6}})
    set_node(made, cpu=5.9)
    assert the_one(made).change == "resources.cpus_per_task=15"


def test_without_watched_loader_and_gpm_it_says_what_is_missing() -> None:
    made = without_gpm(attempt(gpus=1, card=wasteful.A100))
    set_gpu(made, util=40.0)
    for rank in made["ranks"]:
        rank["spent"].pop("input")
    for column in [name for name in series_of(made, "node1")["values"] if name.endswith(".input.share")]:
        del series_of(made, "node1")["values"][column]
    diagnosis = diagnose(evidence(made))
    assert diagnosis.findings == ()
    assert missing(diagnosis)["input-bound"] == ("time waiting for input: `for batch in slurmopt.watch(loader)`",)
    assert "SM activity of the GPU (not supported)" in missing(diagnosis)["low utilisation"]


def test_without_a_sampler_it_does_not_ask_for_steps_that_are_reported() -> None:
    told = missing(diagnose(evidence(without_series(attempt(gpus=1)))))
    assert "monitor.sampler=true" in told["falling throughput"][0]
    assert "monitor.sampler=true" in told["leak"][0]


def test_series_of_few_nodes_are_told_and_those_of_most_are_enough() -> None:
    made = attempt(nodes=4)
    few = {**made, "series": made["series"][:1]}
    assert missing(diagnose(evidence(few)))["throttled"] == ("measurements of node2, node3, node4",)
    assert "throttled" not in missing(diagnose(evidence({**made, "series": made["series"][:3]})))


def test_without_measurements_of_gpus_it_says_which_source_is_missing() -> None:
    made = attempt(gpus=2)
    made["series"][0]["facts"]["gpus"] = []
    told = missing(diagnose(evidence(made)))
    assert "`monitor.sources`" in told["XID"][0]
    assert "leak" not in told


def test_without_steps_it_asks_for_steps() -> None:
    made = without_series(attempt(gpus=1))
    made["ranks"][0]["steps"] = None
    assert missing(diagnose(evidence(made)))["falling throughput"] == ("steps: `slurmopt.progress(step)`",)


def test_without_a_sampler_workers_are_as_many_as_the_cpus_of_a_rank() -> None:
    made = without_series(attempt(gpus=0, ranks=1, cpus=2, spent={"input": 0.6}))
    assert the_one(made).change == "DataLoader(dataset, num_workers=2)"


def test_a_training_on_cpus_abstains_from_nothing_about_gpus() -> None:
    diagnosis = diagnose(evidence(attempt(gpus=0, ranks=2)))
    assert not {"throttled", "idle GPUs", "low utilisation"} & set(missing(diagnosis))


def test_fsdp_abstains_from_stragglers() -> None:
    assert set(missing(diagnose(evidence(attempt(ddp=False))))) >= {"straggler", "communication-bound"}


def test_a_busy_gpu_is_noted_as_compute_bound() -> None:
    assert diagnose(evidence(attempt())).notes == ("compute-bound: SM 85 %, tensor 45 %, DRAM 50 %",)


def test_a_leak_names_the_step_at_which_memory_is_full() -> None:
    made = attempt(gpus=1, cause=None)
    series_of(made, "node1")["facts"]["memory_limit"] = 100.0 * GIB
    set_node(made, memory=[(20 + at / 2) * GIB for at in range(120)])
    found = the_one(made)
    # 20 GiB and half a GiB for each of the 119 rows leave 20.5 GiB: 41 rows of 30 s at 4 steps/s.
    step = int(re.search(r"step ([\d,]+)", found.evidence[1])[1].replace(",", ""))  # type: ignore[index]
    assert step == pytest.approx(14_000 + 41 * 30 * 4, rel=0.03)


def test_findings_that_endanger_the_run_come_first_then_the_dearest() -> None:
    made = attempt(nodes=2, spent={"input": 0.15, "checkpoint": 0.25}, cause="infrastructure")
    event(made, "node2", "xid", gpu=4, xid=79)
    assert [item.kind for item in diagnose(evidence(made)).findings] == ["XID", "checkpoint stall", "input-bound"]


def test_work_that_falls_is_told_in_its_unit_although_steps_do_not() -> None:
    made = attempt(gpus=1)
    values = series_of(made, "node1")["values"]
    values["rank0.tokens"] = [8000.0] * 70 + [4000.0] * 50
    found = the_one(made)
    assert found.kind == "falling throughput"
    assert "8,040 tokens/s in the first quarter, 4,020 in the last" in found.evidence[0]


def test_the_same_finding_of_several_attempts_is_one() -> None:
    attempts = [attempt(gpus=2, number=number, spent={"input": 0.4}) for number in range(3)]
    found = the_one(*attempts)
    assert found.cost == pytest.approx(3 * 2 * 0.4 * 3500 / 3600)
    assert found.evidence[-1] == "in attempts 0, 1, 2"


RESET, RESTART = (46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 158), (13, 31, 69)


@pytest.mark.parametrize("xid", [*RESET, *RESTART, 43, 45, 63, 68, 92, 94, 121, 137, 154])
def test_only_xids_that_nvidias_catalog_has_reset_the_gpu_or_lays_to_the_program_are_told(xid: int) -> None:
    made = attempt(gpus=1, cause="infrastructure")
    event(made, "node1", "xid", gpu=0, xid=xid)
    cause = "hardware" if xid in RESET else "program" if xid in RESTART else None
    assert [item.cause for item in diagnose(evidence(made)).findings] == ([cause] if cause else [])


def test_a_hang_of_ranks_that_are_equally_far_accuses_none_of_them() -> None:
    made, _ = wasteful.hang_in_a_collective()
    made[0]["hang"]["alike"] = 8
    found = the_one(*made)
    assert (found.cause, found.rank, found.node) == ("collective", None, None)
    assert found.summary == "A rank stopped at step 812, and the others waited for it in a collective"
    assert "8 ranks are equally far: their stacks tell for which one the others wait, slurmopt logs --rank all" in (
        found.evidence
    )


def test_the_page_lists_the_xids() -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"({', '.join(map(str, RESET))})" in page
    assert f"({', '.join(map(str, RESTART))})" in page


def test_the_same_finding_in_different_places_is_one_that_names_them_all() -> None:
    attempts = [attempt(nodes=2, number=number, cause="infrastructure") for number in range(3)]
    for made, (node, gpu) in zip(attempts, [("node1", 4), ("node2", 1), ("node1", 4)], strict=True):
        event(made, node, "xid", gpu=gpu, xid=79)
    found = the_one(*attempts)
    places = "0 (node1, GPU 4, rank 4), 1 (node2, GPU 1, rank 9), 2 (node1, GPU 4, rank 4)"
    assert found.evidence[-1] == f"in attempts {places}"
    assert found.change == "\"resources.exclude='node1,node2'\""


def test_a_straggler_that_moves_to_another_rank_is_one_finding_with_the_cost_of_both() -> None:
    attempts = [attempt(gpus=8, number=number) for number in range(2)]
    for number, made in enumerate(attempts):
        set_spent(made, {"input": 0.4}, ranks=[3 + number])
    found = the_one(*attempts)
    alone = [the_one(made).cost or 0.0 for made in attempts]
    assert found.cost == pytest.approx(sum(alone))
    assert found.evidence[-1] == "in attempts 0 (node1, GPU 3, rank 3), 1 (node1, GPU 4, rank 4)"


def test_different_causes_stay_apart() -> None:
    first, second = (attempt(nodes=1, number=number, cause="infrastructure") for number in range(2))
    event(first, "node1", "xid", gpu=0, xid=79)
    event(second, "node1", "xid", gpu=0, xid=31)
    found = diagnose_run([evidence(first), evidence(second)]).findings
    assert [item.cause for item in found] == ["hardware", "program"]


def test_a_finding_of_many_attempts_names_the_newest() -> None:
    attempts = [attempt(gpus=2, number=number, spent={"input": 0.4}) for number in range(12)]
    assert the_one(*attempts).evidence[-1] == "in attempts 4, 5, 6, 7, 8, 9, 10, 11 and 4 earlier ones"


def slow_rank(number: int, rank: int, *names: str) -> Attempt:
    made: Any = attempt(nodes=2, gpus=2, number=number)
    made = json.loads(json.dumps(made).replace("node1", names[0]).replace("node2", names[1]))
    set_ddp(made, exposed=0.06)
    set_ddp(made, [rank], backward=0.17, exposed=0.01)
    return made  # type: ignore[no-any-return]


def test_a_rank_that_is_slow_on_several_nodes_has_more_work() -> None:
    found = the_one(slow_rank(0, 2, "node1", "node2"), slow_rank(1, 2, "node3", "node4"))
    assert (found.kind, found.rank, found.node, found.gpu) == ("straggler", 2, None, None)
    assert found.change == "torch.profiler.profile()  # around some steps of rank 2 and of another one"


def test_different_ranks_that_are_slow_on_different_nodes_leave_these_out() -> None:
    found = the_one(slow_rank(0, 2, "node1", "node2"), slow_rank(1, 0, "node3", "node4"))
    assert (found.rank, found.node) == (None, None)
    assert shlex.split(found.change) == ["resources.exclude='node2,node3'"]


def test_an_attempt_of_a_few_seconds_is_not_judged() -> None:
    made = attempt(gpus=2, seconds=110, startup=100)
    set_spent(made, {"input": 0.6})
    diagnosis = diagnose(evidence(made))
    assert diagnosis.findings == ()
    assert diagnosis.notes == ("the training was not judged: that needs 20 s and 20 steps of one attempt",)


def test_nothing_at_all_is_no_error() -> None:
    assert diagnose_run([]) == Diagnosis()


@pytest.mark.parametrize("seed", range(20))
def test_damaged_records_raise_nothing_and_cost_no_more_than_was_allocated(seed: int) -> None:
    noise = random.Random(seed)
    names = noise.sample([*wasteful.SCENARIOS], 5)
    for name in names:
        attempts = copy.deepcopy(wasteful.SCENARIOS[name]()[0])
        for made in attempts:
            damage(made, noise)
        diagnosis = diagnose_run([evidence(made) for made in attempts])
        for item in diagnosis.findings:
            assert item.cost is None or 0 <= item.cost <= diagnosis.hours + 1e-6


def damage(made: Any, noise: random.Random) -> None:
    """Replaces some numbers by odd ones, at any depth, and drops some series."""
    items = list(made.items() if isinstance(made, dict) else enumerate(made))
    for key, value in items:
        if isinstance(value, (dict, list)):
            damage(value, noise)
        elif isinstance(value, float) and noise.random() < 0.1:
            made[key] = noise.choice([0.0, 1e-9, value * 1e6, value / 3])
    if isinstance(made, dict) and "series" in made and noise.random() < 0.3:
        made["series"] = made["series"][1:]


def test_the_page_describes_each_kind_and_each_cause() -> None:
    page = PAGE.read_text(encoding="utf-8")
    headings = set(re.findall(r"^## (.+)$", page, re.MULTILINE))
    assert {kind[0].upper() + kind[1:] for kind in KINDS} <= headings
    words = " ".join(page.split())  # a cause may be on two lines
    causes = {expected["cause"] for expected in (made()[1] for made in wasteful.SCENARIOS.values())}
    assert [cause for cause in causes if cause and f"`{cause}`" not in words] == []


def test_each_missing_signal_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert finding.LOW_UTILISATION in page.lower()


def test_healthy_attempts_abstain_only_where_signals_are_missing() -> None:
    assert missing(diagnose_run([evidence(made) for made in healthy.SCENARIOS["healthy-single-gpu"]()])) == {
        "lost work": ("the ledger of the attempts",)
    }
