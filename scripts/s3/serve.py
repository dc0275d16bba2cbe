"""One of Swift's servers, in Swift's own Python: `serve.py DAEMON CONF SWIFT_CONF`."""

import sys
from typing import Any

import swift.common.utils  # type: ignore[import-not-found]
import swift.common.utils.config  # type: ignore[import-not-found]


def main(daemon: str, conf: str, swift_conf: str) -> int:
    """Serve until killed."""
    # Before anything else is imported, for Swift reads it on import and would look into /etc.
    swift.common.utils.SWIFT_CONF_FILE = swift_conf
    swift.common.utils.config.SWIFT_CONF_FILE = swift_conf
    from swift.common.wsgi import run_wsgi  # type: ignore[import-not-found]

    options: dict[str, Any] = {}
    if daemon == "object":
        from swift.obj.server import global_conf_callback  # type: ignore[import-not-found]

        options["global_conf_callback"] = global_conf_callback
    return int(run_wsgi(conf, f"{daemon}-server", **options) or 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
