"""all_reduce between two ranks over gloo: by slurmopt's timer beside a bare loop of torch, or by the bare loop alone.

python loop.py pairs ROUNDS SIZE…   prints {size: [[seconds of a call by slurmopt, by the bare loop] of each round]}
python loop.py bare SIZE            prints the seconds of a call
"""

import json
import os
import subprocess
import sys
import tempfile
import time

RANKS, CALLS, WARMUP = 2, 20, 5


def bare(size: int) -> float:
    """What somebody would write who wants to know: seconds of a call, in this rank."""
    import torch
    import torch.distributed as dist

    tensor = torch.zeros(size // 4)
    for _ in range(WARMUP):
        dist.all_reduce(tensor)
    dist.barrier()
    started = time.perf_counter()
    for _ in range(CALLS):
        dist.all_reduce(tensor)
    seconds = torch.tensor((time.perf_counter() - started) / CALLS, dtype=torch.float64)
    dist.all_reduce(seconds)
    return float(seconds) / RANKS


def pairs(rounds: int, sizes: list[int]) -> dict[int, list[list[float]]]:
    """Both, one after the other, in changing order."""
    import torch
    import torch.distributed as dist

    from slurmopt.benchmarks.collective_rows import Timer
    from slurmopt.collectives.options import options_of

    options = options_of({"iterations": CALLS, "warmup": WARMUP, "seconds": 3600})
    timer = Timer(options, dist.get_rank(), RANKS, torch.device("cpu"))

    def ours(size: int) -> float:
        row = timer.row("all_reduce", size)
        assert row is not None
        assert not row.wrong
        return row.seconds

    found: dict[int, list[list[float]]] = {}
    for size in sizes:
        bare(size)  # the caches
        for number in range(rounds):
            if number % 2:
                second, first = bare(size), ours(size)
            else:
                first, second = ours(size), bare(size)
            found.setdefault(size, []).append([first, second])
    return found


def rank(words: list[str]) -> None:
    """One rank."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=words[0], rank=int(words[1]), world_size=RANKS)
    found = bare(int(words[3])) if words[2] == "bare" else pairs(int(words[3]), [int(size) for size in words[4:]])
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def main(words: list[str]) -> int:
    """Starts the ranks."""
    with tempfile.TemporaryDirectory() as folder:
        own = [sys.executable, __file__, "rank", f"file://{folder}/store"]
        env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
        ranks = [subprocess.Popen([*own, str(number), *words], env=env) for number in range(RANKS)]
        return max(process.wait() for process in ranks)


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        rank(sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1:]))
