"""Checks of the folders and buckets that runs will use, as `slurmopt storage show` looks at them."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from slurmopt.checks.result import FAIL, PASS, CheckResult
from slurmopt.checks.side_by_side import Check
from slurmopt.doctor.folder import folder
from slurmopt.errors import InputError, why_failed
from slurmopt.run_folder.process import module_words

_SECONDS = 30.0
"""For a dozen requests to a bucket, or for the commands of Lustre."""


@dataclass(frozen=True)
class Place:
    """A folder or a bucket. `endpoint` and `region` belong to a bucket; None: those of boto3's configuration."""

    word: str
    """A path, or s3://BUCKET/PREFIX."""
    endpoint: str | None = None
    region: str | None = None


def checks(places: Iterable[Place]) -> list[Check]:
    """One check for each place."""
    return [Check(place.word, partial(looked_at, place), within=_SECONDS + 5) for place in places]


def looked_at(place: Place) -> Iterator[CheckResult]:
    """What the place is and permits. One that cannot be used at all is a failure."""
    try:
        for result in _bucket(place) if "://" in place.word else folder(Path(place.word)):
            yield replace(result, text=f"{place.word}: {result.text}") if result.verdict != PASS else result
    except InputError as error:
        yield CheckResult("place", FAIL, str(error))
    except FileNotFoundError:
        yield CheckResult("place", FAIL, f"{place.word}: no such folder")
    except PermissionError:
        mend = f"ls -ld {shlex.quote(place.word)}; ask its owner"
        yield CheckResult("place", FAIL, f"{place.word}: permission denied", mend)
    except NotADirectoryError:
        yield CheckResult("place", FAIL, f"{place.word} is no folder, or is below a file")
    except OSError as error:  # a stale handle, a failing disk, a loop of links
        yield CheckResult("place", FAIL, f"{place.word}: {why_failed(error)}")


def _bucket(place: Place) -> list[CheckResult]:
    """By a process of its own: what runs on login nodes does without boto3. Raises InputError."""
    options = [f"--{name}={value}" for name in ("endpoint", "region") if (value := getattr(place, name)) is not None]
    words = [sys.executable, *module_words("slurmopt"), "storage", "show", "--json", *options, "--", place.word]
    try:
        said = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False).stdout
    except subprocess.TimeoutExpired:
        raise InputError(f"{place.word}: no answer within {_SECONDS:g} s") from None
    answer = json.loads(said)
    if answer["data"] is None:
        raise InputError(answer["errors"][0]["message"])
    return [CheckResult(**result) for result in answer["data"]["results"]]
