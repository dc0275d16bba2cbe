"""Links inside a source: which stay inside it, and what they point to in the copy."""

from __future__ import annotations

import os


def staged_target(root: str, path: str, target: str) -> str | None:
    """The target of the link at `path`, for its copy; None if it leads out of `root`, which has no links itself.

    A relative target that stays inside is kept; an absolute one, or one that leads out and in again, becomes the
    relative path of what it leads to."""
    folder = os.path.dirname(path)
    leads_to = os.path.realpath(os.path.join(root, path))
    if leads_to != root and not leads_to.startswith(root.rstrip("/") + "/"):
        return None
    plain = os.path.normpath(os.path.join(folder, target))
    if not os.path.isabs(target) and plain != ".." and not plain.startswith("../"):
        return target
    return os.path.relpath(leads_to, os.path.realpath(os.path.join(root, folder)))
