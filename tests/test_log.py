"""Messages in the user's process: lines on standard error, until the program configures the logger `slurmopt`."""

from __future__ import annotations

import subprocess
import sys

import pytest

TWO_MESSAGES = "log.info('checkpoints to scratch'); log.warning('the journal cannot be written')"


def said(*lines: str) -> tuple[list[str], list[str]]:
    """The lines of standard output and of standard error of a program."""
    code = "\n".join(["from slurmopt import log", *lines])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=True)
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_a_message_is_a_line_on_standard_error() -> None:
    lines = ["slurmopt: checkpoints to scratch", "slurmopt: the journal cannot be written"]
    assert said(TWO_MESSAGES) == ([], lines)
    assert said("import logging", TWO_MESSAGES) == ([], lines)


def test_logging_is_not_imported_for_it() -> None:
    assert said(TWO_MESSAGES, "import sys; print('logging' in sys.modules)")[0] == ["False"]


def test_a_thread_may_import_logging_meanwhile() -> None:
    half = "import sys, types; sys.modules['logging'] = types.ModuleType('logging')"
    assert len(said(half, TWO_MESSAGES)[1]) == 2


def test_a_handler_gets_the_messages_instead() -> None:
    out, err = said(
        "import logging, sys",
        "handler = logging.StreamHandler(sys.stdout)",
        "handler.setFormatter(logging.Formatter('%(name)s %(levelname)s %(message)s'))",
        "logging.getLogger('slurmopt').addHandler(handler)",
        "logging.getLogger('slurmopt').setLevel(logging.INFO)",
        TWO_MESSAGES,
    )
    assert out == ["slurmopt INFO checkpoints to scratch", "slurmopt WARNING the journal cannot be written"]
    assert err == []


def test_a_null_handler_hands_them_to_the_root_logger() -> None:
    configured = "import logging, sys; logging.basicConfig(stream=sys.stdout, level=20, format='%(message)s')"
    null = "logging.getLogger('slurmopt').addHandler(logging.NullHandler())"
    assert said(configured, null, TWO_MESSAGES) == (["checkpoints to scratch", "the journal cannot be written"], [])


@pytest.mark.parametrize("setting", ["logging.getLogger('slurmopt').setLevel(30)", "logging.disable(20)"])
def test_a_level_holds_without_a_handler_too(setting: str) -> None:
    assert said("import logging", setting, TWO_MESSAGES) == ([], ["slurmopt: the journal cannot be written"])
