"""`slurmopt plan memory` and `slurmopt plan` on a machine without Slurm."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

EXPERIMENT = """# @package _global_
task: {command: [python, train.py]}
launch: {backend: local}
resources: {nodes: 2, gpus_per_node: 8, gpu_type: h100}
plan:
  model: llama-8b
  network: 3200
  sequence: 4096
  global_batch: 512
  tokens: 1e9
  strategy: fsdp
  keys: {micro_batch: train.batch, strategy: train.strategy}
train: {batch: 1, strategy: fsdp}
"""


NCCL_TESTS = """# nThread 1 nGpus 1 minBytes 1 maxBytes 1 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1
# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid 1 on a device  0 [0000:01:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 1 on b device  0 [0000:01:00] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("plan")
    (place / "conf" / "experiment").mkdir(parents=True)
    (place / "conf" / "experiment" / "mine.yaml").write_text(EXPERIMENT)
    (place / "train.py").write_text("")
    return place


def slurmopt(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "slurmopt", *words]
    return subprocess.run(argv, cwd=place, capture_output=True, text=True, timeout=180)


def plan(place: Path, *words: str) -> dict[str, Any]:
    done = slurmopt(place, "plan", "+experiment=mine", "--json", *words)
    assert done.returncode == 0, done.stderr
    found = data_of(done.stdout)
    assert isinstance(found, dict)
    return found


def test_the_plan_of_an_experiment(place: Path) -> None:
    found = plan(place)
    assert [row["nodes"] for row in found["shapes"]] == [1, 2, 4, 8]
    for row in found["shapes"]:
        assert row["gpus"] == 8 * row["nodes"]
        assert row["fits"] >= 0.9
        assert row["step"][0] < row["step"][1]
        assert row["run_p90"] < row["run"][1]
        steps = 1e9 / (512 * 4096)
        assert row["run"] == [pytest.approx(end * steps) for end in row["step"]]
        assert row["gpu_hours"][0] == pytest.approx(row["run"][0] * row["gpus"] / 3600)
        assert row["money"]["currency"] == "USD"
        assert row["money"]["amount"][0] == pytest.approx(6.88 * row["gpu_hours"][0])
        assert set(row["overrides"]) == {
            f"resources.nodes={row['nodes']}", f"train.batch={row['micro_batch']}", f"train.strategy={row['strategy']}",
        }  # fmt: skip
        assert row["wait"] is None
    assert found["chosen"] in (1, 2, 4, 8)
    assert plan(place) == found, "the same answer twice"
    assert not (place / "runs").exists()


def test_only_what_has_a_key_is_varied(place: Path) -> None:
    found = plan(place, "~plan.keys.strategy")
    assert {row["strategy"] for row in found["shapes"]} == {"fsdp"}
    assert all(not any("strategy" in word for word in row["overrides"]) for row in found["shapes"])


def test_a_file_of_prices_is_yours_to_replace(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place / "prices.yaml"
    file.write_text("currency: EUR\nprices:\n- {gpu: H100, per_hour: 2.5, date: 2026-01-01, source: our contract}\n")
    monkeypatch.setenv("SLURMOPT_PRICES", str(file))
    found = plan(place)
    assert found["shapes"][0]["money"]["currency"] == "EUR"
    assert "prices of 2026-01-01: our contract" in found["notes"]
    file.write_text("currency: EUR\nprices: []\n")
    found = plan(place)
    assert found["shapes"][0]["money"] is None
    assert "no price is known of h100; SLURMOPT_PRICES names a file with yours" in found["notes"]
    file.write_text("currency: EUR\nprices:\n- {gpu: H100, per_hour: 3, date: 2999-01-01, source: a dream}\n")
    assert plan(place)["shapes"][0]["money"] is None, "it is not valid yet"
    file.write_text("currency: EUR\nprices: 3\n")
    done = slurmopt(place, "plan", "+experiment=mine")
    assert done.returncode == 2
    assert "prices: 3 is not valid; valid: a list of prices" in done.stderr


WAYS = """currency: EUR
prices:
- {gpu: H100, per_hour: 4, date: 2026-01-01, source: list}
- {gpu: H100, per_hour: 2, date: 2026-01-01, source: contract, kind: reserved, terms: 1 year}
- {gpu: H100, per_hour: 3, date: 2026-01-01, source: block, kind: capacity-block}
- {gpu: H100, per_hour: 1, date: 2026-01-01, source: market, kind: spot}
storage: [{name: bucket, per_gb_month: 0.02, date: 2026-01-01, source: list}]
transfer: {per_gb: 0.1, date: 2026-01-01, source: list}
"""
STORED = ("checkpoint.s3.url=s3://bucket/x", "plan.storage.s3=bucket", "plan.transfers=1G", "plan.boot=30min")


def test_the_bill_of_the_shape_to_take(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 8 nodes: 64 GPUs, 32 idle GPU-hours of boot; 3 checkpoints of 12 bytes for each of 8.03e9 parameters at 0.02
    a GB and month; 1 GiB out at 0.1 a GB."""
    file = place / "ways.yaml"
    file.write_text(WAYS)
    monkeypatch.setenv("SLURMOPT_PRICES", str(file))
    found = plan(place, *STORED, "plan.nodes=[8]")
    (shape,), cost = found["shapes"], found["cost"]
    ways = {way["kind"]: way for way in cost["ways"]}
    high = shape["gpu_hours"][1]
    beside = cost["storage_amount"][1] + cost["transfers"]["amount"]
    assert [way["kind"] for way in cost["ways"]] == ["on-demand", "reserved", "spot", "capacity-block"]
    assert ways["on-demand"]["amount"][1] == pytest.approx(4 * (high + 32))
    assert ways["on-demand"]["total"][1] == pytest.approx(4 * (high + 32) + beside)
    assert shape["money"]["amount"] == ways["on-demand"]["amount"]
    assert ways["reserved"]["amount"][1] == pytest.approx(2 * high)
    assert "pays from 50% of its hours" in ways["reserved"]["remark"]
    assert "up to 300% more hours" in ways["spot"]["remark"]
    assert shape["run_p90"] < 23.5 * 3600, "it fits into a block of a day"
    assert ways["capacity-block"]["amount"] == [64 * 24 * 3] * 2
    (stored,) = cost["storage"]
    assert (stored["tier"], stored["copies"]) == ("s3", 3)
    assert stored["size"] == 12 * found["model"]["parameters"]
    assert stored["a_month"] == pytest.approx(3 * 12 * 8.030261248 * 0.02)
    assert cost["storage_amount"][1] == pytest.approx(stored["a_month"] * shape["run"][1] / (730 * 3600))
    assert cost["transfers"]["amount"] == pytest.approx(2**30 / 1e9 * 0.1)
    low, high = cost["storage_amount"]
    parts = (ways["reserved"]["amount"][0] * ways["reserved"]["amount"][1]) ** 0.5 + (low * high) ** 0.5
    assert ways["reserved"]["median"] == pytest.approx(parts + cost["transfers"]["amount"])
    assert {f"prices of 2026-01-01: {source}" for source in ("list", "contract", "block", "market")} <= set(
        found["notes"]
    )
    assert "costs by use have 30m00s of each GPU around the job, which GPU-H has not" in found["notes"]
    shown = slurmopt(place, "plan", "+experiment=mine", "plan.nodes=[8]", *STORED, "--html", "bill.html").stdout
    page = (place / "bill.html").read_text()
    assert "What it costs" in page
    assert "pays from 50% of its hours" in page
    assert "3 checkpoints of 89.7 GiB on bucket at 0.02 a GB and month: " in page
    assert "capacity-block" in shown
    assert "3 checkpoints of 89.7 GiB on bucket at 0.02 a GB and month: " in shown


def test_what_cannot_be_counted_is_told_and_the_rest_stands(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "ways.yaml").write_text(WAYS)
    monkeypatch.setenv("SLURMOPT_PRICES", str(place / "ways.yaml"))
    found = plan(place, "plan.nodes=[8]", "plan.storage.s3=bucket", "plan.storage.shared=tape")
    assert "plan.storage.s3: nothing is counted: checkpoint.s3 is off" in found["notes"]
    assert "plan.storage.shared: 'tape' is no rate of storage; valid: bucket" in found["notes"]
    assert len(found["cost"]["ways"]) == 4
    (place / "ways.yaml").write_text(
        WAYS.replace("transfer: {per_gb: 0.1, date: 2026", "transfer: {per_gb: 0.1, date: 2999")
    )
    found = plan(place, "plan.nodes=[8]", "plan.transfers=1T")
    assert "plan.transfers: the file of prices has no `transfer` that is valid today" in found["notes"]
    assert found["cost"]["transfers"] is None


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("plan.storage.tape=bucket", "plan.storage.tape: unknown key; valid in 'plan.storage': shared, s3"),
        ("plan.boot=soon", "plan.boot: not a time: 'soon'"),
        ("plan.transfers=much", "plan.transfers: not a size: 'much'"),
    ],
)
def test_costs_that_cannot_be_told(place: Path, word: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "ways.yaml").write_text(WAYS)
    monkeypatch.setenv("SLURMOPT_PRICES", str(place / "ways.yaml"))
    done = slurmopt(place, "plan", "+experiment=mine", STORED[0], word)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_recording_of_collectives_makes_steps_longer(place: Path) -> None:
    lines = [
        f"{1 << power:>12} {1 << (power - 2):>12} float sum -1 {3e-5 * (1 << power):.1f} 1 1 0" for power in (24, 28)
    ]
    (place / "slow.txt").write_text(NCCL_TESTS + "\n".join(lines) + "\n")
    found, usual = plan(place, "--collectives", "slow.txt", "plan.nodes=[8]"), plan(place, "plan.nodes=[8]")
    assert found["shapes"][0]["step"][1] > usual["shapes"][0]["step"][1]
    assert any("times NCCL's model, as was measured" in note for note in found["notes"])
    done = slurmopt(place, "plan", "+experiment=mine", "--collectives", "missing.json")
    assert done.returncode == 2
    assert "missing.json: no such file or directory" in done.stderr


def test_tier_1_imports_no_torch(place: Path) -> None:
    code = (
        "import sys; from slurmopt.cli import main; "
        "assert main(['plan', '+experiment=mine']) == 0; assert main(['plan', 'memory', '--model', '7B']) == 0; "
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("plan.model=llama-9b",),
            "plan.model: 'llama-9b' is no model; valid: a count such as 7B, the path of a config",
        ),
        (("plan.model=null",), "plan.model: is not set; valid: a model such as llama-8b, a config.json, or a count"),
        (("plan.model=1e3",), "plan.model: '1000.0' is not valid; valid: 20M to 100T"),
        (("plan.model=missing.json",), "plan.model: missing.json: no such file or directory"),
        (("plan.gpu=gtx",), "plan.gpu: 'gtx' is not known; valid: v100-16gb"),
        (("resources.gpu_type=a100",), "resources.gpu_type: 'a100' is not known; valid: v100-16gb"),
        (("resources.gpus_per_node=0", "resources.gpu_type=null"), "resources.gpus_per_node: is 0; valid: the GPUs"),
        (("plan.sequence=0",), "plan.sequence: 0 is not valid; valid: a whole number, 1 to 1000000000"),
        (("plan.sequence=null",), "plan.sequence: is not set; valid: the tokens of a sample, such as 4096"),
        (("plan.tokens=-1",), "plan.tokens: -1 is not valid; valid: 1 to 1e+18"),
        (("plan.tokens=nan",), "plan.tokens: nan is not valid; valid: 1 to 1e+18"),
        (("plan.network=0",), "plan.network: 0 is not valid; valid: 0.1 to 1e+06"),
        (("plan.network=1e-300",), "plan.network: 1e-300 is not valid; valid: 0.1 to 1e+06"),
        (("plan.nodes=[1,0]",), "plan.nodes[1]: 0 is not valid; valid: a whole number, 1 to 100000"),
        (("plan.strategy=fsdb",), "plan.strategy: 'fsdb' is not valid (did you mean 'fsdp'?)"),
        (
            ("plan.precision=fp64",),
            "plan.precision: 'fp64' is not valid; valid: fp32, autocast, policy, mixed, bf16",
        ),
        (("train.strategy=fast",), "plan.keys.strategy: train.strategy is 'fast'; valid: ddp, fsdp, hsdp, zero1"),
        (("train.batch=0.5",), "plan.keys.micro_batch: train.batch is 0.5; valid: a whole number from 1"),
        (("plan.keys.micro_batch=train",), "plan.keys.micro_batch: train is {'batch': 1, 'strategy': 'fsdp'}; valid:"),
        (("plan.keys.micro_batch=resources.nodes",), "plan.keys.micro_batch: resources.nodes is a key of slurmopt"),
        (("plan.network=null",), "plan.network: is not set; valid: Gbit/s of a node such as 400; without it only one"),
        ((f"plan.tokens={10**400}",), "too large for a number with decimals"),
        ((f"plan.sequence={10**400}",), "is not valid; valid: a whole number, 1 to 1000000000"),
        ((f"plan.nodes=[{','.join(['1'] * 51)}]",), "plan.nodes: has 51 numbers; valid: up to 50"),
        (("+plan.keys.tensor=no.such",), "plan.keys.tensor: 'no.such' is not in the config; valid: a key of it"),
        (("+plan.keys.colour=train.batch",), "plan.keys: 'colour' is not valid; valid: micro_batch, strategy, tensor"),
        (("plan.times=[soon]",), "plan.times[0]: not a time: 'soon'"),
        (("plan.partitions=['']",), "plan.partitions[0]: is empty; valid: the name of a partition"),
        ((f"plan.times=[{','.join(['1h'] * 11)}]",), "plan.times: has 11; valid: up to 10"),
        (("plan.nope=1",), "plan.nope"),
    ],
)
def test_what_a_plan_cannot_use_is_one_line(place: Path, words: tuple[str, ...], message: str) -> None:
    done = slurmopt(place, "plan", "+experiment=mine", *words)
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_sequence_that_the_model_is_not_made_for_is_told(place: Path) -> None:
    (place / "gpt.json").write_text(
        json.dumps(
            {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
        )
    )
    said = "a sequence of 4,096 tokens is longer than the 1,024 that gpt is made for"
    assert said in plan(place, "plan.model=gpt.json")["notes"]
    assert said in slurmopt(place, "plan", "memory", "--model", "gpt.json", "--sequence", "4096").stderr
    assert "longer than" not in slurmopt(place, "plan", "memory", "--model", "gpt.json", "--sequence", "1024").stderr


def test_nothing_fits_says_what_comes_nearest(place: Path) -> None:
    done = slurmopt(place, "plan", "+experiment=mine", "plan.model=llama-405b")
    assert done.returncode == 1
    assert "8 nodes: nothing fits: of fsdp b1, its peak is " in done.stdout
    assert "slurmopt: error: plan: nothing fits: on 8 nodes, which come nearest, its peak is" in done.stderr


def memory(place: Path, *words: str) -> dict[str, Any]:
    done = slurmopt(place, "plan", "memory", "--json", *words)
    assert done.returncode == 0, done.stderr
    found = data_of(done.stdout)
    assert isinstance(found, dict)
    return found


def test_the_memory_of_a_model(place: Path) -> None:
    found = memory(place, "--model", "llama-8b", "--gpus", "8")
    assert found["model"]["parameters"] == 8_030_261_248
    assert found["parts"]["weights"] == [4 * 8_030_261_248 / 8] * 2
    assert found["peak"] == [max(ends[at] for ends in found["phases"].values()) for at in (0, 1)]
    assert (found["layout"]["stage"], found["layout"]["strategy"]) == (3, "fsdp")
    assert found["work"]["precision"] == "policy"
    assert memory(place, "--model", "llama-8b", "--strategy", "ddp")["work"]["precision"] == "autocast"
    assert found["fits"] > 0.99


def test_a_layout_that_a_plan_would_not_try_is_told(place: Path) -> None:
    done = slurmopt(place, "plan", "memory", "--model", "llama-8b", "--gpus", "16", "--tensor", "16")
    assert done.returncode == 0
    assert "tensor parallelism over 16 GPUs leaves the 8 that fast links join" in done.stderr


def test_a_plan_and_its_memory_agree(place: Path) -> None:
    row = plan(place, "plan.nodes=[2]", "train.batch=1", "~plan.keys.micro_batch")["shapes"][0]
    words = ("--gpus", "16", "--strategy", row["strategy"], "--accumulate", str(512 // 16))
    found = memory(place, "--model", "llama-8b", *words)
    assert found["peak"] == pytest.approx(row["peak"])


def test_a_config_file_is_a_model(place: Path) -> None:
    config = {
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    }  # fmt: skip
    (place / "config.json").write_text(json.dumps(config))
    own, public = memory(place, "--model", "config.json"), memory(place, "--model", "llama-8b")
    assert own["peak"] == public["peak"]


def test_what_does_not_fit_comes_with_what_to_change(place: Path) -> None:
    done = slurmopt(place, "plan", "memory", "--model", "llama-70b", "--gpus", "16")
    assert done.returncode == 0
    assert "fits      with 0% into the 79.1 GiB of h100" in done.stdout
    lines = done.stdout.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("CHANGE ONE THING"))
    assert any(line.startswith("activation checkpointing of each layer") for line in lines[at:])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "nope"), "plan memory: --model: 'nope' is no model"),
        (("--model", "7B", "--gpu", "k80"), "plan memory: --gpu: 'k80' is not known"),
        (("--model", "7B", "--gpus", "0"), "plan memory: --gpus 0 is not valid; valid: 1 to 1,000,000,000"),
        (("--model", "7B", "--tensor", "3"), "plan memory: --gpus 8 is no multiple of --tensor times --pipeline = 3"),
        (("--model", "7B", "--sequence", "-4"), "plan memory: --sequence -4 is not valid; valid: 1 to"),
        (("--model", "7B", "--gpus", "12", "--strategy", "hsdp"), "hsdp shards over 8 ranks, which do not divide 12"),
        (("--model", "bad.json"), "bad.json: is no JSON"),
        (("--model", "list.json"), "list.json: is not a mapping; valid: a config.json of transformers"),
        (("--model", "deep.json"), "deep.json: is no JSON"),
        (("--model", "."), "'.' is a folder; valid: the config.json in it"),
        (("--model", "type.json"), "type.json: model_type: '[1]' is not known"),
        (("--model", "7B", "--sequence", "1" + "0" * 400), "is not valid; valid: 1 to 1,000,000,000"),
        (("--build", "mine"), "plan memory: --build 'mine' is not valid; valid: MODULE:FUNCTION"),
        (("--build", "a\n:b"), "is not valid; valid: MODULE:FUNCTION"),
        (("--build", "a:b", "--model", "7B"), "--model and --build: one of them, not both"),
        ((), "plan memory: needs --model or --build"),
    ],
)
def test_a_memory_that_cannot_be_told_is_one_line(place: Path, words: tuple[str, ...], message: str) -> None:
    (place / "bad.json").write_text("{")
    (place / "list.json").write_text("[1]")
    (place / "type.json").write_text('{"model_type": [1]}')
    (place / "deep.json").write_text("[" * 100_000)
    done = slurmopt(place, "plan", "memory", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "plan probe: no experiment; valid: slurmopt plan probe +experiment=NAME"),
        (("+experiment=mine", "--nodes", "2"), "--nodes 2: one number tells nothing of others; valid: two or more"),
        (("+experiment=mine", "--nodes", "2,2"), "--nodes 2,2: one number tells nothing of others"),
        (("+experiment=mine", "--nodes", "0,1"), "--nodes '0,1' is not valid; valid: numbers of nodes such as 1,2,4"),
        (("+experiment=mine", "--predict", "x"), "--predict 'x' is not valid; valid: numbers of nodes such as 1,2,4"),
        (("+experiment=mine", "--steps", "1"), "--steps 1 is not valid; valid: 10 or more"),
        (("+experiment=mine", "--time", "soon"), "resources.time: not a time: 'soon'; valid are"),
        (("+experiment=mine", "--read", "mine"), "+experiment=mine: --read launches nothing"),
        (("--read", "mine"), "mine has no probes; valid: slurmopt plan probe +experiment=NAME --nodes 1,2"),
        (("+experiment=none",), "none"),
    ],
)
def test_probes_that_cannot_be_made_are_one_line(place: Path, words: tuple[str, ...], message: str) -> None:
    done = slurmopt(place, "plan", "probe", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (place / "runs").exists()


def test_a_word_that_is_no_command_lists_them(place: Path) -> None:
    done = slurmopt(place, "plan", "memroy")
    assert done.returncode == 2
    assert (
        "plan: no command 'memroy' (did you mean 'memory'?); valid: shapes, cluster, storage, probe, size, memory"
        in done.stderr
    )
