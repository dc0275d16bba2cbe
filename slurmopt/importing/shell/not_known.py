"""What only a shell can find out."""

from __future__ import annotations


class NotKnown(Exception):
    """A value that only a shell can find out. Its message says why."""
