"""A job id names this user's own run, whatever others write into their journals."""

from __future__ import annotations

import os
import pwd
from typing import Any

import pytest

from slurmopt.runs.find import find


@pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: only root can give a run away")
def test_a_newer_run_of_somebody_else_does_not_take_a_job_id(make_run: Any) -> None:
    own = make_run("mine", "20261121-120000-aaaa").submitted("4")
    theirs = make_run("theirs", "20261124-235900-bbbb").submitted("4")
    assert find("4", own.folder.path.parent.parent).name == "theirs", "of one's own the newer counts"
    stranger = pwd.getpwnam("nobody")
    for path in (theirs.folder.path, *theirs.folder.path.rglob("*")):
        os.chown(path, stranger.pw_uid, stranger.pw_gid)
    assert find("4", own.folder.path.parent.parent).name == "mine"
