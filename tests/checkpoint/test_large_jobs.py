"""What keeps a rank's work small however many ranks there are: items described by part, files fetched where they are
needed, and whole tensors read once a node."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import xxhash
from checkpoint.ranks import on_ranks
from json_answer import data_of
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from slurmopt.checkpoint import Checkpointer
from slurmopt.checkpoint.format import index, ledger
from slurmopt.checkpoint.format.manifest import Manifest
from slurmopt.checkpoint.restore import node_cache, node_window, optimizer_state
from slurmopt.checkpoint.rng import rng_state
from slurmopt.cli import main
from slurmopt.job.worker.current_run import CurrentRun
from slurmopt.storage.folder import FolderStore

Journal = Callable[[str], list[dict[str, Any]]]
ROWS, WIDTH = 1021, 600
FREE = namedtuple("FREE", "free")


def values(outcomes: list[Any]) -> list[Any]:
    assert [each.error for each in outcomes] == [None] * len(outcomes), outcomes[0].log
    return [each.value for each in outcomes]


def rows(step: int) -> torch.Tensor:
    return torch.arange(ROWS * WIDTH, dtype=torch.float32).view(ROWS, WIDTH) + step


def state_of(step: int, run: CurrentRun) -> dict[str, Any]:
    """Sharded rows, tensors that all have, and each rank's own."""
    model = {name: rows(step) + n for n, name in enumerate("ab")}
    if run.rank.world_size > 1:
        mesh = init_device_mesh("cpu", (run.rank.world_size,))
        model = {name: distribute_tensor(whole, mesh, [Shard(0)]) for name, whole in model.items()}
    return {"model": model, "scale": torch.full((5,), float(step)), "rng": rng_state(), "note": step}


def is_step(state: dict[str, Any], step: int) -> bool:
    model = [each.full_tensor() if isinstance(each, DTensor) else each for each in state["model"].values()]
    right = all(torch.equal(each, rows(step) + n) for n, each in enumerate(model))
    return right and state["note"] == step and torch.equal(state["scale"], torch.full((5,), float(step)))


def config(run: CurrentRun, disks: Path | None, shared: int | None = 1) -> dict[str, Any]:
    tiers: dict[str, Any] = {"shared": {"every": shared, "keep": 9} if shared else {"path": None}}
    if disks is not None:
        tiers["scratch"] = {"path": str(disks / run.rank.node), "every": 1, "keep": 9}
    return {**tiers, "durable": "shared" if shared else "scratch"}


def save(run: CurrentRun, disks: Path | None, shared: int | None, *steps: int, described: bool = True) -> None:
    if described:
        index.INLINE_ITEMS = 0
    with Checkpointer(config(run, disks, shared), run) as saving:
        for step in steps:
            assert saving.save(step, state_of(step, run))
            assert saving.wait()


def load(run: CurrentRun, disks: Path | None, shared: int | None) -> tuple[int, bool, set[int], list[str]]:
    """The step, whether all is right, which parts were opened, and the payload files of this node."""
    opened: set[int] = set()
    read = index._items

    def noted(store: Any, manifest: Manifest, part: int) -> Any:
        opened.add(part)
        return read(store, manifest, part)

    index._items = noted
    state = state_of(0, run)
    with Checkpointer(config(run, disks, shared), run) as saving:
        step = saving.restore(state)
    there = sorted(path.name for path in disks.glob(f"{run.rank.node}/**/*.bin")) if disks else []
    return step, is_step(state, step), opened, there


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def manifests(folder: Path) -> dict[int, Path]:
    return {int(path.parts[-3].removeprefix("step-")): path for path in folder.glob("step-*/*/manifest.json")}


def test_each_rank_opens_the_parts_that_concern_it_and_no_others(folder: Path) -> None:
    values(on_ranks(save, folder, None, 1, 1, nodes=["a"] * 4))
    written = json.loads(manifests(folder / "checkpoints")[1].read_bytes())
    assert (written["items"], written["format"]) == ([], 3)
    outcomes = values(on_ranks(load, folder, None, 1, nodes=["a"] * 4, attempt=1))
    assert [(step, right) for step, right, *_ in outcomes] == [(1, True)] * 4
    for rank, (_, _, opened, _) in enumerate(outcomes):
        assert opened == {0, rank}, "its own, and that of rank 0, which has what all ranks have"


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_described_checkpoint_comes_back_on_another_number_of_ranks(folder: Path, ranks: int) -> None:
    values(on_ranks(save, folder, None, 1, 1, 2, nodes=["a"] * 2))
    outcomes = values(on_ranks(load, folder, None, 1, nodes=["a"] * ranks, attempt=1))
    assert [(step, right) for step, right, *_ in outcomes] == [(2, True)] * ranks


def test_a_damaged_description_is_found_and_the_checkpoint_before_is_taken(
    folder: Path, journal: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    values(on_ranks(save, folder, None, 1, 1, 2, nodes=["a"] * 2))
    (path,) = [path for step, path in manifests(folder / "checkpoints").items() if step == 2]
    written = json.loads(path.read_bytes())
    files, offset, *_ = written["parts"][1]
    victim = folder / "checkpoints" / written["files"][files[0]][0]
    assert main(["checkpoint", "verify", str(folder / "checkpoints"), "2"]) == 0
    flip(victim, offset + 7)
    assert main(["checkpoint", "verify", str(folder / "checkpoints"), "2"]) == 1
    assert "damaged at byte" in capsys.readouterr().out
    outcomes = values(on_ranks(load, folder, None, 1, nodes=["a"] * 2, attempt=1))
    assert [(step, right) for step, right, *_ in outcomes] == [(1, True)] * 2
    assert [event["step"] for event in journal("checkpoint-damaged")] == [2]


def test_what_is_described_can_be_shown_fetched_and_exported(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values(on_ranks(save, folder, None, 1, 1, nodes=["a"] * 2))
    place = str(folder / "checkpoints")
    assert main(["checkpoint", "show", place, "1", "--json"]) == 0
    shown = data_of(capsys.readouterr().out)
    assert shown["tensors"]["model.a"]["bytes"] == ROWS * WIDTH * 4
    assert shown["objects"].keys() == {"model", "scale", "note", "rng/rank-00000", "rng/rank-00001"}
    assert main(["checkpoint", "fetch", place, "1", "--to", str(tmp_path / "copy")]) == 0
    assert main(["checkpoint", "verify", str(tmp_path / "copy"), "1"]) == 0
    file = tmp_path / "model.pt"
    assert main(["checkpoint", "export", place, "1", "--format", "torch", "--key", "model", "--to", str(file)]) == 0
    assert torch.equal(torch.load(file, weights_only=True)["b"], rows(1) + 1)


def test_a_described_checkpoint_goes_from_the_nodes_to_shared_after_a_crash(folder: Path, tmp_path: Path) -> None:
    disks = tmp_path / "disks"
    values(on_ranks(save, folder, disks, None, 1, nodes=["a", "b"]))
    values(on_ranks(_pass_on, folder, disks, nodes=["b", "a", "a"], attempt=1))
    shutil.rmtree(disks)
    outcomes = values(on_ranks(load, folder, None, 1, nodes=["c"] * 2, attempt=2))
    assert [(step, right) for step, right, *_ in outcomes] == [(1, True)] * 2


def _pass_on(run: CurrentRun, disks: Path) -> None:
    with Checkpointer(config(run, disks), run) as saving:
        state = state_of(0, run)
        assert saving.restore(state) == 1
        assert is_step(state, 1)


@pytest.mark.parametrize("described", [True, False])
def test_a_node_is_given_only_the_files_that_its_ranks_need(folder: Path, tmp_path: Path, described: bool) -> None:
    disks = tmp_path / "disks"
    nodes = ["a", "b", "c"]
    values(on_ranks(_save_here, folder, disks, described, nodes=nodes))
    outcomes = values(on_ranks(load, folder, disks, None, nodes=["a", "c", "b"], attempt=1))
    assert [(step, right) for step, right, *_ in outcomes] == [(1, True)] * 3
    assert outcomes[0][3] == ["rank-00000.bin"]
    # Rank 1 is on node c now: it needs its own shards, and what all ranks have, which rank 0 wrote.
    assert outcomes[1][3] == ["rank-00000.bin", "rank-00001.bin", "rank-00002.bin"]


def _save_here(run: CurrentRun, disks: Path, described: bool) -> None:
    save(run, disks, None, 1, described=described)


def _load_without_room(run: CurrentRun, disks: Path) -> Any:
    shutil.disk_usage = lambda path: FREE(1000)  # type: ignore[assignment,misc]
    return load(run, disks, 2)


def test_a_disk_without_room_is_told_before_anything_is_copied(folder: Path, tmp_path: Path, journal: Journal) -> None:
    disks = tmp_path / "disks"
    values(on_ranks(save, folder, disks, 2, 1, 2, 3, nodes=["a", "b"], attempt=0))
    outcomes = on_ranks(_load_without_room, folder, disks, nodes=["b", "a"], attempt=1)
    assert [(step, right) for step, right, *_ in values(outcomes)] == [(2, True)] * 2
    assert [(event["step"], event["tier"]) for event in journal("restored")] == [(2, "shared")]
    assert "are to come here, and 1000 B are free" in outcomes[0].log


# --- whole tensors, once a node


def _whole(step: int) -> dict[str, Any]:
    tensors = {f"w{n}": torch.full((300_000 + n,), float(step + n)) for n in range(12)}
    return {**tensors, "strided": torch.full((500, 300), float(step)).t(), "note": step}


def _save_whole(run: CurrentRun, *steps: int) -> None:
    with Checkpointer(config(run, None), run) as saving:
        for step in steps:
            assert saving.save(step, _whole(step))
            assert saving.wait()


def _load_whole(run: CurrentRun, window: int) -> tuple[int, int, bool]:
    """The step, the bytes of payload files that this rank read, and whether all is right."""
    node_cache.SHARED_FROM, node_window.WINDOW_BYTES = 0, window
    read = 0
    whole = FolderStore.read_into

    def counted(self: FolderStore, key: str, offset: int, buffer: memoryview) -> None:
        nonlocal read
        read += len(buffer)
        whole(self, key, offset, buffer)

    FolderStore.read_into = counted  # type: ignore[method-assign]
    state = _whole(0)
    with Checkpointer(config(run, None), run) as saving:
        step = saving.restore(state)
    expected = _whole(step)
    return step, read, all(torch.equal(state[n], each) for n, each in expected.items() if n != "note")


@pytest.mark.parametrize("window", [64 << 20, 5 << 20, 1 << 20])
def test_what_all_ranks_need_is_read_once_a_node(folder: Path, window: int) -> None:
    """Also in many turns, and where some items are too large for the window."""
    values(on_ranks(_save_whole, folder, 1, nodes=["a"] * 3))
    outcomes = values(on_ranks(_load_whole, folder, window, nodes=["a", "a", "b"], attempt=1))
    assert [(step, right) for step, _, right in outcomes] == [(1, True)] * 3
    first, second, alone = (read for _, read, _ in outcomes)
    size = sum(each.nbytes for each in _whole(1).values() if isinstance(each, torch.Tensor))
    assert alone >= size, "a rank that has a node to itself reads everything"
    if window > 4 << 20:
        assert first + second < 1.1 * size
        assert min(first, second) > 0.2 * size, "each of the two reads its share"


def test_a_damage_that_one_rank_of_a_node_finds_is_told_by_all(folder: Path, journal: Journal) -> None:
    values(on_ranks(_save_whole, folder, 1, 2, nodes=["a"] * 3))
    flip(manifests(folder / "checkpoints")[2].with_name("rank-00000.bin"), 1_000_000)
    outcomes = values(on_ranks(_load_whole, folder, 5 << 20, nodes=["a"] * 3, attempt=1))
    assert [(step, right) for step, _, right in outcomes] == [(1, True)] * 3
    (damaged,) = journal("checkpoint-damaged")
    assert "damaged at byte" in damaged["reason"]


def test_an_optimizer_on_a_device_gets_its_state_there_before_it_is_read() -> None:
    """`meta` stands for the device; the parameters stay as they are."""
    model = torch.nn.Linear(4, 4, device="meta")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    optimizer_state.create_optimizer_states({"optimizer": optimizer, "model": model})
    averages = [each["exp_avg"] for each in optimizer.state.values()]
    assert [each.device.type for each in averages] == ["meta", "meta"]
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert all(parameter.grad is None for parameter in model.parameters())
    host = torch.optim.AdamW(torch.nn.Linear(4, 4).parameters())
    optimizer_state.create_optimizer_states({"optimizer": host})
    assert not host.state, "in the host's memory it is read to where the optimizer takes it from"


def test_an_optimizer_on_a_device_that_wants_a_closure_is_left_as_it_is() -> None:
    model = torch.nn.Linear(4, 4, device="meta")
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5)
    optimizer_state.create_optimizer_states({"optimizer": optimizer})
    assert not optimizer.state, "its state is read by way of the host's memory"
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert all(parameter.grad is None for parameter in model.parameters())


# --- what was saved before


def test_a_manifest_of_the_first_format_still_restores(folder: Path, attempt: Callable[..., Any]) -> None:
    with Checkpointer(config(attempt(0), None), attempt(0)) as saving:
        assert saving.save(1, _whole(1))
        assert saving.wait()
    path = manifests(folder / "checkpoints")[1]
    written = json.loads(path.read_bytes())
    assert written["format"] == 2, "it has its items, so what knows that format alone can read it"
    assert not {"parts", "spread"} & written.keys()
    old = dict(written)
    old["items"] = [[*item[:3], [segment[:5] for segment in item[3]]] for item in old["items"]]
    path.write_text(json.dumps({**old, "format": 1}, separators=(",", ":")))
    for record in folder.glob("checkpoints/commits/*.json"):
        held = json.loads(record.read_bytes())
        if held.pop("xxh3") and held["kind"] == "commit":
            record.write_bytes(ledger._encoded({**held, "manifest_xxh3": xxhash.xxh3_128_hexdigest(path.read_bytes())}))
    state = _whole(0)
    with Checkpointer(config(attempt(1), None), attempt(1)) as saving:
        assert saving.restore(state) == 1
        assert all(torch.equal(state[name], each) for name, each in _whole(1).items() if name != "note")
        assert saving.save(2, _whole(2))
        assert saving.wait()
