"""Why a hook failed."""

from __future__ import annotations

from collections.abc import Mapping

from slurmopt.run_folder.variables import Unset, fill


class HookError(Exception):
    """Why a hook failed, without the URL or any value from the environment."""


def filled(text: str, environ: Mapping[str, str]) -> str:
    """`text` with `${oc.env:NAME}` filled in. Raises HookError for a variable that is not set."""
    try:
        return fill(text, environ)
    except Unset as error:
        raise HookError(f"needs the environment variable {error}, which is not set here") from error
