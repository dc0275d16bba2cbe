"""The records of ended points move into three files of their array task: kills between any two steps, others who go on
with a point meanwhile, and what keeps files of its own."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from slurmopt.errors import RunError
from slurmopt.grid import submissions
from slurmopt.grid.point_folder import _link, unlink
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.records import Records, readable
from slurmopt.grid.submissions import Submission
from slurmopt.job.pack.archive import archive
from slurmopt.job.pack.archiving import left_behind
from slurmopt.run_folder import events
from slurmopt.run_folder.archive import TaskArchive
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.find import Selection, started_point
from slurmopt.sweeps.cancel import note_in_points
from slurmopt.sweeps.status.ended_points import Ends
from slurmopt.sweeps.status.point_states import Point, SweepStates

COUNT = 2
OF_FILES = ("open", "os.scandir", "os.listdir", "os.mkdir", "os.rename", "os.remove", "os.rmdir")


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    return make_sweep(tmp_path / "runs" / "test" / "one")


def make_sweep(path: Path) -> SweepFolder:
    sweep = SweepFolder(path)
    sweep.task(0, 0).path.mkdir(parents=True)
    sweep.path.chmod(0o700)
    sweep.task(0, 0).path.chmod(0o700)
    sweep.points_file.write_text("{}")
    points = Ranges([(0, COUNT - 1)])
    submissions.write(
        sweep.sweep_file, COUNT, [Submission(number=0, points=points, per_task=COUNT, packed=True, job="7")]
    )
    for number in range(COUNT):
        make_point(sweep, number)
    return sweep


def make_point(sweep: SweepFolder, number: int, attempts: int = 1, cause: str = "finished") -> RunFolder:
    """As the parent leaves a point that has ended."""
    run = of(sweep, number)
    for folder in (run.logs, *(run.attempt_logs(one) for one in range(attempts))):
        folder.mkdir(parents=True)
    run.config.write_text(f"task:\n  _target_: train.main\nn: {number}\n")
    events.append(run.events, "created", name="test", id=f"one/{number}", cwd="/", values={"n": number})
    for attempt in range(attempts):
        events.append(run.events, "attempt", attempt=attempt, job="7_0", task="0-0", task_attempt=0)
        run.rank_log(attempt, 0).write_text(f"point {number} in attempt {attempt}\n")
        final = attempt == attempts - 1
        following = None if final else "requeue"
        fields = {"outcome": "finished", "cause": cause, "next": following, "result": {"score": number}}
        events.append(run.events, "end", attempt=attempt, **fields)
    descriptor = os.open(run.returned, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(descriptor, b"returned %d" % number)
    os.close(descriptor)
    return run


def move(sweep: SweepFolder) -> None:
    archive(sweep.task(0, 0), [run for number in range(COUNT) if os.path.lexists((run := of(sweep, number)).events)])


def elsewhere(sweep: SweepFolder, number: int, task: str) -> RunFolder:
    """The same point in another array task, which goes on with it."""
    run = sweep.packed_point(number, task)
    run.kept.parents[1].mkdir(mode=0o700, exist_ok=True)
    Records(sweep).inherit(number, run)
    return run


def of(sweep: SweepFolder, number: int) -> RunFolder:
    return sweep.packed_point(number, "0-0")


def at_operation(due: int, work: Callable[[], object], do: Callable[[], None]) -> int:
    """The process id of a child that does `work`, and `do` just before its operation `due` on files; with as many
    writes as operations, `do` comes in the middle of what is written."""
    pid = os.fork()
    if pid == 0:
        _count(due, work, do)
    return pid


def _count(due: int, work: Callable[[], object], do: Callable[[], None]) -> NoReturn:
    seen = 0

    def next_one(*_: object) -> bool:
        nonlocal seen
        seen += 1
        if seen == due + 1:
            do()
        return seen == due

    write, fsync = os.write, os.fsync

    def in_two(descriptor: int, data: bytes) -> int:
        next_one()
        done = write(descriptor, data[: len(data) // 2])
        next_one()
        return done + write(descriptor, data[done:])

    def flushed(descriptor: int) -> None:
        next_one()
        fsync(descriptor)

    os.write, os.fsync = in_two, flushed  # type: ignore[assignment]
    sys.addaudithook(lambda event, args: next_one() if event in OF_FILES else None)
    try:
        work()
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the last frame of this process
        sys.excepthook(*sys.exc_info())
        os._exit(3)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def was_killed(pid: int) -> bool:
    """Whether the child was killed; else it has done all, without an error."""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


def whole(sweep: SweepFolder, number: int) -> None:
    """All that the point left is there, as files of its own or in those of its array task."""
    records = Records(sweep)
    run, found = readable(sweep.point(number)), records.latest(number)
    assert found is not None
    assert f"n: {number}" in run.config.read_text()
    told = [event for event in events.read(run.events) if event["event"] == "end" and event["next"] is None]
    assert [end["result"] for end in told] == [{"score": number}]
    assert run.rank_log(0, 0).read_text() == f"point {number} in attempt 0\n"
    if isinstance(found, RunFolder):
        assert found.returned.read_bytes() == b"returned %d" % number
    else:
        assert found.returned is not None
        place, size = found.returned
        assert found.returns.read_bytes()[place : place + size] == b"returned %d" % number


def left(sweep: SweepFolder) -> list[str]:
    task = sweep.task(0, 0).path
    return sorted(path.name for path in (*(task / "points").iterdir(), *task.iterdir()) if path.name != "points")


ALL_ARCHIVED = ["points.jsonl", "points.log", "points.return"]


@pytest.mark.slow
def test_a_kill_at_any_step_loses_nothing_and_the_next_attempt_completes_it(tmp_path: Path) -> None:
    due, killed = 0, True
    while killed:
        sweep = make_sweep(tmp_path / str(due))
        killed = was_killed(at_operation(due, lambda: move(sweep), kill))  # noqa: B023
        for number in range(COUNT):
            whole(sweep, number)
        for run in (of(sweep, number).kept for number in range(COUNT)):
            if run.exists():
                os.utime(run, (0, 0))  # as old as what a kill has left is by then
        archive(sweep.task(0, 0), left_behind(sweep.task(0, 0), sweep))
        assert left(sweep) == ALL_ARCHIVED
        for number in range(COUNT):
            whole(sweep, number)
        due += 1
    assert due > 30  # operations, so this has seen them


@pytest.mark.slow
def test_another_array_task_goes_on_with_all_that_was_whatever_moves_meanwhile(tmp_path: Path) -> None:
    """The move stops at one operation after the other; meanwhile another array task starts the point again."""
    due, stopped = 0, True
    while stopped:
        sweep = make_sweep(tmp_path / str(due))
        pid = at_operation(due, lambda: move(sweep), stop)  # noqa: B023
        stopped = os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
        newer = elsewhere(sweep, 0, "1-0")
        if stopped:
            os.kill(pid, signal.SIGCONT)
            was_killed(pid)
        assert newer.attempts() == [0]
        assert newer.rank_log(0, 0).read_text() == "point 0 in attempt 0\n"
        assert [event["event"] for event in events.read(newer.events)] == ["created", "attempt", "end"]
        assert not newer.config.exists()  # it makes its own
        whole(sweep, 1)
        due += 1
    assert due > 30


@pytest.mark.slow
def test_a_cancel_of_a_point_that_ends_at_this_moment_goes_on(tmp_path: Path) -> None:
    due, stopped = 0, True
    while stopped:
        sweep = make_sweep(tmp_path / str(due))
        seen = SweepStates(sweep, COUNT, [], Ends(with_metrics=False))
        seen.points = {number: Point(number, "running", job="7_0") for number in range(COUNT)}
        pid = at_operation(due, lambda: note_in_points(seen, Ranges([(0, COUNT - 1)])), stop)  # noqa: B023
        stopped = os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
        move(sweep)
        if stopped:
            os.kill(pid, signal.SIGCONT)
            assert not was_killed(pid)
        for number in range(COUNT):
            whole(sweep, number)
        due += 1
    assert due > 2


def test_what_keeps_files_of_its_own(tmp_path: Path) -> None:
    def keeps(change: Callable[[RunFolder], object], why: str) -> None:
        sweep = make_sweep(tmp_path / why)
        change(of(sweep, 0))
        move(sweep)
        assert "00000" in left(sweep), why
        assert "00001" not in left(sweep), f"{why}: the others do not wait for it"
        whole(sweep, 1)

    keeps(lambda run: (run.kept / "mine").write_text("mine"), "a file of the user's")
    keeps(lambda run: (run.kept / "checkpoints").mkdir(), "a folder")
    keeps(lambda run: (run.logs / "attempt-0" / "link").symlink_to("/"), "a link")
    keeps(lambda run: run.attempt_logs(1).mkdir(), "a further attempt that is claimed")
    keeps(lambda run: events.append(run.events, "attempt", attempt=1), "one that has started")
    keeps(_died, "an attempt that died without a word, and may be alive on a node that is cut off")
    keeps(lambda run: events.append(run.events, "retry", changes={}), "a retry")
    keeps(lambda run: events.append(run.events, "cancel", job="7_0"), "a cancel")
    keeps(lambda run: events.append(run.events, "checkpoint", attempt=0, step=1), "a checkpoint elsewhere")
    keeps(lambda run: run.events.write_text(run.events.read_text() + '{"torn'), "a journal with a torn line")
    keeps(lambda run: run.rank_log(0, 0).write_bytes(bytes(1 << 24)), "a long log")
    keeps(lambda run: (run.returned).chmod(0o666), "a return that others could have written")
    keeps(_link_return(tmp_path), "a return that leads elsewhere")
    keeps(_cancel, "one that was cancelled: another array task may go on with it")


def _died(run: RunFolder) -> None:
    lines = run.events.read_text().replace('"outcome": "finished"', '"by": "next attempt", "outcome": "killed"')
    run.events.write_text(lines)


def _cancel(run: RunFolder) -> None:
    run.events.write_text(run.events.read_text().replace('"cause": "finished"', '"cause": "cancelled"'))


def _link_return(tmp_path: Path) -> Callable[[RunFolder], object]:
    (tmp_path / "other").write_bytes(b"a stranger's")

    def link(run: RunFolder) -> None:
        (run.returned).unlink()
        (run.returned).symlink_to(tmp_path / "other")

    return link


def test_an_earlier_attempts_end_does_not_count(sweep: SweepFolder) -> None:
    shutil.rmtree(of(sweep, 0).kept)
    run = make_point(sweep, 0, attempts=2)
    lines = run.events.read_text().splitlines(keepends=True)
    late = [line for line in lines if '"event": "end", "attempt": 0' in line]
    run.events.write_text("".join([line for line in lines if line not in late] + late).replace("requeue", "x"))
    move(sweep)
    assert "00000" in left(sweep)


def test_returns_stay_with_their_owner(sweep: SweepFolder) -> None:
    sweep.path.chmod(0o750)
    move(sweep)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in sweep.task(0, 0).path.iterdir()}
    assert modes["points.return"] == 0o600
    assert modes["points.log"] & 0o007 == modes["points.jsonl"] & 0o007 == 0
    text = (sweep.task(0, 0).path / "points.jsonl").read_text() + (sweep.task(0, 0).path / "points.log").read_text()
    assert "returned" not in text.replace('"return": ', "")
    assert not readable(sweep.point(0)).returned.exists()


@pytest.mark.parametrize("name", ["points.return", "points.log", "points.jsonl"])
def test_a_file_that_others_can_write_gets_nothing_and_folders_stay(sweep: SweepFolder, name: str) -> None:
    from slurmopt.errors import JobError

    path = sweep.task(0, 0).path / name
    path.touch()
    path.chmod(0o666)
    with pytest.raises(JobError, match="can be written by others"):
        move(sweep)
    assert {"00000", "00001"} <= set(left(sweep))
    path.unlink()
    path.symlink_to(sweep.path / "elsewhere")
    with pytest.raises(OSError, match="is a link"):
        move(sweep)
    assert not (sweep.path / "elsewhere").exists()
    assert {"00000", "00001"} <= set(left(sweep))


def test_the_line_of_the_highest_attempt_counts_and_tasks_that_sweep_json_lacks_are_asked(sweep: SweepFolder) -> None:
    move(sweep)
    other = RunFolder(sweep.tasks / "10-3")  # its submission's answer was lost
    run = elsewhere(sweep, 0, "10-3")
    run.config.write_text("n: 0\n")
    run.attempt_logs(1).mkdir()
    events.append(run.events, "attempt", attempt=1, job="9_3", task="10-3", task_attempt=0)
    events.append(run.events, "end", attempt=1, outcome="finished", cause="finished", next=None, result="newer")
    archive(other, [run])
    assert not run.kept.exists()
    assert Records(sweep).journal(0)[-1]["result"] == "newer"
    both = readable(sweep.point(0))
    assert both.attempts() == [0, 1]
    assert both.rank_log(0, 0).read_text() == "point 0 in attempt 0\n"


@pytest.mark.slow
def test_a_point_whose_files_are_archived_between_two_looks_is_found(tmp_path: Path) -> None:
    lexists = os.path.lexists

    def look(sweep: SweepFolder) -> None:
        """These are looks, too, which the interpreter does not report."""
        os.path.lexists = lambda path: (sys.audit("os.listdir", path), lexists(path))[1]
        assert [event["event"] for event in Records(sweep).journal(0)] == ["created", "attempt", "end"]

    due, moved = 0, True
    while moved:
        sweep = make_sweep(tmp_path / str(due))
        assert not was_killed(at_operation(due, lambda: look(sweep), lambda: move(sweep)))  # noqa: B023
        moved = not of(sweep, 0).kept.exists()
        due += 1
    assert due > 3


def test_a_retry_counts_for_what_was_submitted_before_it_whatever_the_clocks_say(sweep: SweepFolder) -> None:
    move(sweep)
    events.append(sweep.events, "submitting", number=0, token="a")
    events.append(sweep.events, "submitting", number=1, token="b")
    events.append(sweep.events, "submit-failed", token="b")
    events.append(sweep.events, "retry", points="0", changes={"resources.mem": ["1G", "2G"]}, time=1.0)
    assert [event["event"] for event in Records(sweep).journal(0)][-1] == "retry"
    assert [event["event"] for event in Records(sweep).journal(1)][-1] == "end"
    events.append(sweep.events, "submitting", number=1, token="c")
    run = elsewhere(sweep, 0, "1-0")
    events.append(run.events, "attempt", attempt=1, job="9_3", task="1-0", task_attempt=0)
    run.attempt_logs(1).mkdir()
    words = [event["event"] for event in Records(sweep).journal(0)]
    assert words == ["created", "attempt", "end", "retry", "attempt"]


def test_an_attempt_as_an_array_task_of_its_own_counts_before_any_rank_has_a_log(sweep: SweepFolder) -> None:
    move(sweep)
    own = sweep.point(0)
    Records(sweep).inherit(0, own)  # as a retry with sweep.per_task=1 does
    points = Ranges([(0, COUNT - 1)])
    first = Submission(number=0, points=points, per_task=COUNT, packed=True, job="7")
    again = Submission(number=1, points=points, per_task=1, packed=False, job="8")
    submissions.write(sweep.sweep_file, COUNT, [first, again])
    own.attempt_logs(1).mkdir()
    events.append(own.events, "attempt", attempt=1, job="8_0")
    events.append(own.events, "end", attempt=1, outcome="user error", cause="user error", next=None, error="setup")
    assert Records(sweep).journal(0)[-1]["error"] == "setup"
    Records(sweep).inherit(0, own)
    assert events.read(own.events)[-1]["error"] == "setup"


def test_one_journal_that_cannot_be_read_holds_nothing_else_up(sweep: SweepFolder) -> None:
    broken = of(sweep, 0).events
    broken.unlink()
    broken.symlink_to(broken.name)  # a loop: reading it fails, for root too
    move(sweep)
    assert "00001" not in left(sweep)
    whole(sweep, 1)


@pytest.mark.parametrize("line", [
    '{"point": ' + "9" * 5000 + ', "like": 0}',
    '{"point": 0, "attempts": [1e999], "logs": [], "return": null, "journal": []}',
    '{"point": 0, "attempts": [0], "logs": [[0, 0, 0, 1000000000000000000]], "return": null, "journal": []}',
    '{"point": 0, "attempts": [0], "logs": [[0, 0, -5, 10]], "return": [0, 1], "journal": 7}', '{"point": 0, }',
])  # fmt: skip
def test_a_line_that_a_foreign_hand_has_written_stops_nobody(sweep: SweepFolder, line: str) -> None:
    move(sweep)
    with (sweep.task(0, 0).path / "points.jsonl").open("a") as file:
        file.write(line + "\n")
    whole(sweep, 1)
    readable(sweep.point(0))


@pytest.fixture
def limited_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_sparse_terabyte_in_place_of_the_lines_is_no_line(sweep: SweepFolder, limited_memory: None) -> None:
    with (sweep.task(0, 0).path / "points.jsonl").open("wb") as file:
        file.truncate(1 << 40)
    whole(sweep, 0)


def test_a_sparse_terabyte_as_the_log_of_a_point_takes_no_memory(sweep: SweepFolder, limited_memory: None) -> None:
    task, size = sweep.task(0, 0).path, 1 << 39
    line = {"point": 0, "attempts": [0], "logs": [[0, 0, 0, size + 6]], "return": None, "journal": [], "config": ""}
    (task / "points.jsonl").write_text(json.dumps(line) + "\n")
    shutil.rmtree(task / "points" / "00000")
    with (task / "points.log").open("wb") as file:
        file.seek(size)
        file.write(b"ended\n")
    log = readable(sweep.point(0)).rank_log(0, 0)
    assert (log.stat().st_size, log.stat().st_blocks < 8192) == (size + 6, True)
    with log.open("rb") as file:
        file.seek(size)
        assert file.read() == b"ended\n"


def test_a_fifo_in_place_of_the_files_is_not_waited_for(sweep: SweepFolder) -> None:
    os.mkfifo(sweep.task(0, 0).path / "points.jsonl")
    whole(sweep, 0)


def test_links_of_one_name_come_and_go_side_by_side(sweep: SweepFolder) -> None:
    sweep.by_name.mkdir()

    def link_and_unlink(number: int) -> None:
        for _ in range(300):
            _link(sweep, of(sweep, number), "same")
            unlink(sweep, of(sweep, number), "same")

    pids = []
    for number in range(COUNT):
        if (pid := os.fork()) == 0:
            _count(-1, lambda: link_and_unlink(number), kill)  # noqa: B023
        pids.append(pid)
    assert not any(was_killed(pid) for pid in pids)
    assert not list(sweep.by_name.iterdir())


def test_ranks_of_an_attempt_elsewhere_see_that_another_goes_on(sweep: SweepFolder) -> None:
    for number, ended in ((0, False), (1, True)):
        run = of(sweep, number)
        if not ended:
            run.events.write_text("".join(run.events.read_text().splitlines(keepends=True)[:-1]))
        elsewhere(sweep, number, "1-0")
        assert run.attempts() == ([0] if ended else [0, 1])  # the claim is what they look for


def test_a_log_that_somebody_has_deleted_hides_no_verdict(sweep: SweepFolder) -> None:
    move(sweep)
    (sweep.task(0, 0).path / "points.log").unlink()
    run = readable(sweep.point(0))
    assert events.read(run.events)[-1]["outcome"] == "finished"
    assert run.rank_log(0, 0).read_text() == ""


def test_memory_does_not_grow_with_the_points(tmp_path: Path) -> None:
    """A line each, of which the reader keeps the place."""
    task = RunFolder(tmp_path)
    with (tmp_path / "points.jsonl").open("w") as file:
        for number in range(1000):
            told = {"point": number, "like": number, "time": 1.0, "config": "a: 1\n" * 1000, "attempts": [0]}
            file.write(json.dumps({**told, "logs": [], "return": None, "journal": []}) + "\n")
        file.write('{"point": 7, "like": 7, "ti')
    lines = TaskArchive(task)
    found = lines.find(7)
    assert found is not None
    assert found.config == "a: 1\n" * 1000
    assert lines.find(1000) is None
    import tracemalloc

    tracemalloc.start()
    many = TaskArchive(task)
    many.find(0)
    assert tracemalloc.get_traced_memory()[0] < 1_000_000  # of five megabytes
    tracemalloc.stop()


def test_points_are_held_in_memory_a_slice_at_a_time(sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each slice can be read without the others: its first line has the whole config."""
    monkeypatch.setattr("slurmopt.job.pack.archive._SLICE", 1)
    move(sweep)
    lines = (sweep.task(0, 0).path / "points.jsonl").read_text().splitlines()
    assert [json.loads(line)["like"] for line in lines] == [0, 1]
    for number in range(COUNT):
        whole(sweep, number)


@pytest.mark.parametrize(
    "put", [Path.touch, Path.mkdir, os.mkfifo, lambda path: path.write_text('{"point": 1, "torn}\n')]
)
def test_a_damaged_record_of_a_point_that_has_ended_is_told(sweep: SweepFolder, put: Callable[[Path], None]) -> None:
    events.append(sweep.task(0, 0).events, "point", point=1, state="ended", attempt=0)
    move(sweep)
    lines = sweep.task(0, 0).path / "points.jsonl"
    lines.unlink()
    put(lines)
    with pytest.raises(RunError, match=r"one/1 has started, and its record in \S+/points.jsonl is damaged or gone"):
        started_point(Selection(sweep, Ranges.of([1])))
    with pytest.raises(RunError, match="one/0 has not started yet"):
        started_point(Selection(sweep, Ranges.of([0])))
