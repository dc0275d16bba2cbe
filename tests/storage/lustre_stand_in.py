#!/usr/bin/env python3
"""SIMULATED `lfs` and `lctl`: there is no Lustre on test machines. Runs as either, by the name that it is called by.

It accepts what lfs-setstripe(1), lfs-getstripe(1), lfs-migrate(1), lfs-df(1), lfs-quota(1), lfs-hsm(1) and
lctl-get_param(8) document, refuses everything else as the real ones do (usage, exit status 1 or 22), and answers with
their formats and errors. Its file system is a folder; its state is a JSON file beside the program.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NOT_LUSTRE = "Inappropriate ioctl for device"
SIZE = re.compile(r"\d+[KMGTP]?")


class Refused(Exception):
    """A message for standard error, and the exit status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def main(words: list[str]) -> int:
    with open(HERE / "state.json", "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        state = json.load(file)
        with open(HERE / "calls", "a") as calls:
            calls.write(json.dumps(words) + "\n")
        try:
            command = {"lfs": LFS, "lctl": LCTL}[words[0]].get(words[1] if len(words) > 1 else "")
            if command is None:
                raise Refused(f"{' '.join(words)}: unknown command", 1)
            command(words[2:], state)
            status = 0
        except Refused as refused:
            print(refused, file=sys.stderr)
            status = refused.status
        file.seek(0)
        file.truncate()
        json.dump(state, file)
    return status


def taken(words: list[str], flags: str, valued: dict[str, re.Pattern[str]]) -> tuple[list[tuple[str, str]], list[str]]:
    """getopt: the options with their values, and the rest. `flags`: names without a value, separated by blanks."""
    known, found, rest = flags.split(), [], []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if not word.startswith("-") or word == "-":
            rest.append(word)
            continue
        if word in known:
            found.append((word, ""))
        elif word in valued and queue:
            value = queue.pop(0)
            if not valued[word].fullmatch(value):
                raise Refused(f"error: bad value '{value}' of {word}", 22)
            found.append((word, value))
        else:
            raise Refused(f"unrecognized option '{word}'\nusage: see lfs help", 1)
    return found, rest


def inside(path: str, state: dict[str, Any]) -> bool:
    return os.path.isabs(path) and Path(os.path.realpath(path)).is_relative_to(state["mount"])


STRIPE = {
    "-E": re.compile(r"\d+[KMGTP]?|-1|eof"),
    "-c": re.compile(r"-1|\d+"),
    "-S": SIZE,
    "-i": re.compile(r"-1|\d+"),
    "-p": re.compile(r"\w{1,15}"),
}


def stripe_options(found: list[tuple[str, str]], osts: int) -> list[str]:
    """Checks the order of components; returns the options as they were given."""
    ends = [value for name, value in found if name == "-E"]
    numbers = [bytes_of(end) for end in ends]
    if numbers != sorted(numbers) or len(set(numbers)) < len(numbers):
        raise Refused("error: setstripe: components must be in increasing order", 22)
    if ends and found[0][0] != "-E":
        raise Refused("error: setstripe: options before the first -E", 22)
    if any(name == "-c" and int(value) > 2000 for name, value in found):
        raise Refused("error: setstripe: bad stripe count", 22)
    if not found:
        raise Refused("error: setstripe: no options", 22)
    return [word for name, value in found for word in (name, value)]


def bytes_of(end: str) -> float:
    if end in ("-1", "eof"):
        return float("inf")
    return int(end.rstrip("KMGTP")) * 1024 ** " KMGTP".index(end[-1] if end[-1] in "KMGTP" else " ")


def setstripe(words: list[str], state: dict[str, Any]) -> None:
    found, rest = taken(words, "", STRIPE)
    if len(rest) != 1:
        raise Refused("error: setstripe: missing filename|dirname", 1)
    options = stripe_options(found, state["osts"])
    if not inside(rest[0], state):
        raise Refused(f"error on ioctl 0x4008669a for '{rest[0]}' (3): {NOT_LUSTRE}", 25)
    if not os.path.isdir(rest[0]):
        raise Refused(f"error: setstripe: create stripe file '{rest[0]}' failed: File exists", 17)
    if os.path.basename(rest[0]) in state["denied"]:
        raise Refused(f"lfs setstripe: dirstripe error on '{rest[0]}': Permission denied", 13)
    state["layouts"][rest[0]] = options


def migrate(words: list[str], state: dict[str, Any]) -> None:
    found, rest = taken(words, "-b --block -n --non-block -D --non-direct -v --verbose", STRIPE)
    options = stripe_options([one for one in found if one[0] in STRIPE], state["osts"])
    if not rest:
        raise Refused("lfs migrate: missing filename", 1)
    for path in rest:
        if not inside(path, state):
            raise Refused(f"lfs migrate: cannot get lov name: {NOT_LUSTRE}", 25)
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise Refused(f"lfs migrate: cannot migrate '{path}': Is a directory", 21)
        if os.path.basename(path) in state["busy"]:
            raise Refused(f"lfs migrate: cannot migrate '{path}': Device or resource busy", 16)
        state["layouts"][path] = options


def getstripe(words: list[str], state: dict[str, Any]) -> None:
    _, rest = taken(words, "-d --directory -y --yaml -c -S -q -v -r", {})
    if not rest:
        raise Refused("lfs getstripe: missing filename", 1)
    for path in rest:
        if not inside(path, state):
            message = f"lfs getstripe: cannot get lov name: {NOT_LUSTRE} (25)\nerror: getstripe failed for {path}."
            raise Refused(message, 25)
        options = state["layouts"].get(path, ["-c", "1"])
        count = options[options.index("-c") + 1]
        print(f"{path}\nstripe_count:  {count} stripe_size:   1048576 pattern:       0 stripe_offset: -1\n")


def df(words: list[str], state: dict[str, Any]) -> None:
    _, rest = taken(words, "-i --inodes -h -H -l --lazy -m --mdt -o --ost -v --verbose", {"-p": re.compile(r".+")})
    if len(rest) > 1:
        raise Refused("lfs df: too many paths", 1)
    if rest and not inside(rest[0], state):
        raise Refused(f"lfs df: '{rest[0]}' not on a mounted Lustre filesystem", 22)
    mount = state["mount"]
    print("UUID                   1K-blocks        Used   Available Use% Mounted on")
    print(f"abcd-MDT0000_UUID       41699840        3840    41693952   1% {mount}[MDT:0]")
    for index in range(state["osts"]):
        free, flags = state["free"].get(str(index), 93088768), state["flags"].get(str(index), "")
        used = 98706432 - free
        line = f"abcd-OST{index:04x}_UUID       98706432     {used}    {free}   6% {mount}[OST:{index}] {flags}"
        print(line.rstrip())
    print(f"\nfilesystem_summary:    198745088     9206784   189534208   5% {mount}\n")


def quota(words: list[str], state: dict[str, Any]) -> None:
    of = {"-u": re.compile(r"\w+"), "-g": re.compile(r"\w+"), "-p": re.compile(r"\d+")}
    _, rest = taken(words, "-h -q -v", of)
    if len(rest) != 1:
        raise Refused("lfs quota: filesystem not specified or missing options", 1)
    if not inside(rest[0], state):
        raise Refused(f"lfs quota: '{rest[0]}' not on a mounted Lustre filesystem", 22)
    print(f"     {rest[0]}  {state['quota']}")


def hsm_state(words: list[str], state: dict[str, Any]) -> None:
    for path in hsm_paths(words, state, "state"):
        of_file = state["hsm"].get(os.path.basename(path), {"state": "(0x00000000)"})
        print(f"{path}: {of_file['state']}", flush=True)


def hsm_action(words: list[str], state: dict[str, Any]) -> None:
    for path in hsm_paths(words, state, "action"):
        of_file = state["hsm"].get(os.path.basename(path), {})
        left = of_file.get("asked_left")
        if not left:
            print(f"{path}: NOOP", flush=True)
            continue
        of_file["asked_left"] = left - 1
        if left == 1:
            of_file["state"] = "(0x00000009) exists archived, archive_id:1"
        print(f"{path}: RESTORE running (4096 bytes moved)", flush=True)


def hsm_paths(words: list[str], state: dict[str, Any], what: str) -> Any:
    if not words:
        raise Refused(f"usage: hsm_{what} <file> ...", 1)
    for path in words:
        if not os.path.lexists(path):
            raise Refused(f"can't get hsm {what} for {path}: No such file or directory", 2)
        if not inside(path, state):
            raise Refused(f"can't get hsm {what} for {path}: {NOT_LUSTRE}", 25)
        yield path


def hsm_restore(words: list[str], state: dict[str, Any]) -> None:
    _, rest = taken(words, "", {"--filelist": re.compile(r".+"), "--data": re.compile(r".+")})
    if not rest:
        raise Refused("usage: hsm_restore [--filelist FILELIST] [--data DATA] <file> ...", 1)
    if state["root_only"]:
        raise Refused(f"Cannot send HSM request (use of {rest[0]}): Operation not permitted", 1)
    active = sum(bool(one.get("asked_left")) for one in state["hsm"].values())
    state["most_at_once"] = max(state["most_at_once"], active + len(rest))
    for path in rest:
        if not os.path.lexists(path):
            raise Refused(f"Cannot stat {path}: No such file or directory", 2)
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise Refused(f'error: "{path}" is not a regular file', 1)
        of_file = state["hsm"][os.path.basename(path)]
        if not of_file.get("is_gone"):
            of_file["asked_left"] = 2


def get_param(words: list[str], state: dict[str, Any]) -> None:
    _, rest = taken(words, "-F -H -l -L -n -N -R -y", {})
    if not rest:
        raise Refused("usage: lctl get_param [-FHlLnNRy] PARAM_PATH ...", 1)
    missing = None
    for pattern in rest:
        found = {name: value for name, value in state["parameters"].items() if fnmatchcase(name, pattern)}
        for name, value in found.items():
            print(f"{name}={value}")
        missing = missing if found else pattern
    if missing:
        raise Refused(f"error: get_param: param_path '{missing}': No such file or directory", 2)


LFS = {
    "setstripe": setstripe,
    "getstripe": getstripe,
    "migrate": migrate,
    "df": df,
    "quota": quota,
    "hsm_state": hsm_state,
    "hsm_action": hsm_action,
    "hsm_restore": hsm_restore,
}
LCTL = {"get_param": get_param}

if __name__ == "__main__":
    sys.exit(main([Path(sys.argv[0]).name, *sys.argv[1:]]))
