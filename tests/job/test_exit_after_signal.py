"""Programs that end without an error because a signal told them to leave: that is no end of the run."""

from __future__ import annotations

import signal
import sys

import pytest
from job.harness import Runner, send, wait_for

PROGRAM = """
import os, signal, sys, threading, time
import slurmopt

class Terminated(SystemExit):
    "As Lightning's SIGTERMException: SystemExit without a status."

def leave_from_the_handler():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    work(forever)

def leave_at_the_next_step():
    "As HF Trainer's checkpoint just in time, which returns; the handler that was there before runs too."
    told, before = [], signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *given: (told.append(1), before(*given) if callable(before) else None))
    work(lambda: not told)

def leave_with_a_status():
    leave_at_the_next_step()
    sys.exit(3)

def crash_where_it_is_alone():
    "Rank 0 fails by itself; the other one, told to leave for that reason, has a status of its own."
    if os.environ["RANK"] == "0":
        while not os.path.exists("ready"):
            time.sleep(0.01)
        sys.exit(3)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))
    open("ready", "w").close()
    time.sleep(100)

def raise_at_the_next_step():
    try:
        leave_at_the_next_step()
    finally:
        raise Terminated

def ask():
    work(lambda: not slurmopt.stop_requested())

def take_usr1():
    "As Lightning: a signal that is taken is left alone."
    told = []
    if signal.getsignal(signal.SIGUSR1) in (None, signal.SIG_DFL):
        signal.signal(signal.SIGUSR1, lambda *_: told.append(1))
    work(lambda: not told)

def know_nothing():
    work(lambda: not os.path.exists("enough"))

def save_in_a_thread():
    def save():
        time.sleep(0.5)
        open("saved", "w").close()
    leave_at_the_next_step()
    threading.Thread(target=save).start()

def forever():
    return True

def work(goes_on):
    print("ready", flush=True)
    while goes_on():
        time.sleep(0.01)

def main(config):
    globals()[config.how]()
    return "done"
main.makes_process_group = True  # without torch

if __name__ == "__main__":
    globals()[sys.argv[1]]()
"""


@pytest.fixture
def program(runner: Runner) -> Runner:
    runner.module("program", PROGRAM)
    return runner


def _end(runner: Runner, kind: str, how: str, number: signal.Signals, *options: str) -> tuple[int, dict[str, object]]:
    runner.folder.config.write_text(f"how: {how}\n")
    task = ("--function", "program.main") if kind == "function" else ("--", sys.executable, "program.py", how)
    process = runner.start(1, "--heartbeat", "0.3", *options, *task)
    runner.wait_for_log(0, "ready")
    send(process, number)
    if how == "know_nothing":
        wait_for(lambda: (beat := runner.beat(0)) and beat.asked, "the signal's arrival")
        (runner.code / "enough").touch()
    return runner.finish(process), runner.result()


POLITE = ("leave_from_the_handler", "leave_at_the_next_step", "raise_at_the_next_step")


@pytest.mark.parametrize("how", POLITE)
@pytest.mark.parametrize("kind", ["function", "command"])
def test_who_leaves_on_sigterm_has_not_finished(program: Runner, kind: str, how: str) -> None:
    status, result = _end(program, kind, how, signal.SIGTERM)
    assert (status, result["outcome"]) == (75, "requeue"), program.log(0)
    assert "restart.exit_after_signal" in str(result["error"])


@pytest.mark.parametrize("kind", ["function", "command"])
def test_the_owner_may_say_that_it_has_finished(program: Runner, kind: str) -> None:
    words = ("--exit-after-signal", "finished")
    assert _end(program, kind, "leave_at_the_next_step", signal.SIGTERM, *words)[0] == 0


@pytest.mark.parametrize("how", ["ask", "take_usr1"])
def test_a_function_that_was_told_of_the_time_limit_has_not_finished(program: Runner, how: str) -> None:
    assert _end(program, "function", how, signal.SIGUSR1)[1]["cause"] == "time limit", program.log(0)


@pytest.mark.parametrize("number", ["USR1", "TERM"])
def test_a_command_that_got_the_signal_it_was_promised_has_not_finished(program: Runner, number: str) -> None:
    how = "take_usr1" if number == "USR1" else "leave_at_the_next_step"
    result = _end(program, "command", how, signal.SIGUSR1, "--forward", number)[1]
    assert result["cause"] == "time limit", program.log(0)


@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGUSR1, ("--forward", "TERM")), (signal.SIGTERM, ("--exit-after-signal", "finished"))],
)
def test_a_command_that_has_a_status_of_its_own_for_that_has_not_failed(
    program: Runner, number: signal.Signals, words: tuple[str, str]
) -> None:
    status, result = _end(program, "command", "leave_with_a_status", number, *words)
    assert (status, result["outcome"]) == (75, "requeue"), program.log(0)
    assert str(result["error"]).endswith("ended with exit status 3 after it had received SIGTERM")


def test_a_rank_that_failed_before_the_others_were_told_to_leave_is_the_users_error(program: Runner) -> None:
    assert program.run(2, "--", sys.executable, "program.py", "crash_where_it_is_alone") == 1
    assert (program.result()["outcome"], program.result()["exit_code"]) == ("user error", 3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["function", "command"])
def test_who_was_not_told_of_the_time_limit_has_finished(program: Runner, kind: str) -> None:
    status, result = _end(program, kind, "know_nothing", signal.SIGUSR1)
    assert (status, result["cause"]) == (0, "finished")
    assert result["result"] == ("done" if kind == "function" else None)


def test_a_command_that_asked_and_was_told_has_not_finished(program: Runner) -> None:
    process = program.start(1, "--heartbeat", "0.3", "--", sys.executable, "program.py", "ask")
    program.wait_for_log(0, "ready")
    program.folder.stop_request(0).touch()
    assert program.finish(process) == 75, program.log(0)


def test_what_threads_still_save_is_not_cut_short(program: Runner) -> None:
    assert _end(program, "function", "save_in_a_thread", signal.SIGTERM)[0] == 75
    assert (program.code / "saved").exists()
