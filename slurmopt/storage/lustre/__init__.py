"""Lustre: the one caller of `lfs` and `lctl`, layouts, and files that are not loaded from S3 yet. Standard library
only: ranks import it."""

from slurmopt.storage.lustre.checkpoint_folder import on_lustre, stripe
from slurmopt.storage.lustre.layouts import layout

__all__ = ["layout", "on_lustre", "stripe"]
