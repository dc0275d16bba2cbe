"""s3:// URLs, without boto3."""

from __future__ import annotations

import re

from slurmopt.errors import ConfigError

BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]|arn:[^/]+(/[^/]+)?")


def split(url: str, key: str | None = "checkpoint.s3.url") -> tuple[str, str]:
    """Splits s3://BUCKET/PREFIX into the bucket and the prefix, empty or with a slash at its end. Raises ConfigError,
    which names `key`."""
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not BUCKET.fullmatch(bucket):
        raise ConfigError(f"{url!r} is not a place in S3; write s3://BUCKET or s3://BUCKET/PREFIX", key)
    names = prefix.strip("/").split("/") if prefix.strip("/") else []
    if not url.isprintable() or {"", ".", ".."} & set(names):
        raise ConfigError(f"{url!r}: a prefix has plain names between its slashes", key)
    return bucket, "".join(f"{name}/" for name in names)
