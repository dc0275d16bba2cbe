"""Messages from code that runs in the user's process: through the logger `slurmopt`, once the user has configured it.

While that logger has no handler of its own, a message is a line `slurmopt: …` on standard error. A handler or a level
set on it takes effect as with any library; to send the messages to the root logger, add a `logging.NullHandler`.
"""

from __future__ import annotations

import sys

_NAME = "slurmopt"
_INFO, _WARNING = 20, 30  # as in logging, which is not imported for this: a command's rank starts without it


def info(message: str) -> None:
    """Says what is going on."""
    _emit(_INFO, message)


def warning(message: str) -> None:
    """Says that something did not work, or needs the user's attention, and the program goes on."""
    _emit(_WARNING, message)


def _emit(level: int, message: str) -> None:
    # Nobody can have configured what nobody has imported; another thread may be importing it now.
    get_logger = getattr(sys.modules.get("logging"), "getLogger", None)
    logger = get_logger(_NAME) if get_logger is not None else None
    if logger is not None and logger.handlers:
        logger.log(level, "%s", message)
    elif logger is None or (not logger.disabled and level >= max(logger.level, logger.manager.disable + 1)):
        print(f"slurmopt: {message}", file=sys.stderr, flush=True)
