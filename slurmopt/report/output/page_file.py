"""Writes a page to a file, and opens it in a browser."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from pathlib import Path

from slurmopt import command_output
from slurmopt.errors import InputError, one_line, why_failed
from slurmopt.run_folder.access.files import replace_text


def write(command: str, path: Path, page: str) -> None:
    """Writes the page as `save` does, and prints the path; `-` prints the page."""
    if str(path) == "-":
        sys.stdout.write(page)
        return
    save(command, path, page)
    print(one_line(str(path)))


def save(command: str, path: Path, page: str) -> None:
    """Writes the page so that only its owner can read it, over an earlier one. InputError where it cannot be written;
    `command` is what the user typed."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError(f"{command}: --html {one_line(str(path))} is no regular file; valid: the name of a file")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{command}: --html {one_line(str(path))}: there is no folder {one_line(str(path.parent))}")
    try:
        replace_text(path.absolute(), page, mode=0o600)
    except OSError as error:  # names the temporary file
        raise InputError(f"{command}: --html {one_line(str(path))} cannot be written: {why_failed(error)}") from error


def open_in_browser(path: Path) -> None:
    """Opens the page in the browser of this machine, where it has a display; else says how to get the page to one."""
    import webbrowser

    shown = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if not shown or not webbrowser.open(path.as_uri()):
        copy = f"scp {socket.gethostname()}:{shlex.quote(str(path))} ."
        command_output.warn(f"no browser can be opened here; on your own machine: {one_line(copy)}")
