"""The places of a checkpoint: each one's group within `checkpoint`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar
from urllib.parse import urlsplit

from slurmopt.config.check import one_line_text, one_of, readable, text_or_null, true_or_false, whole_number
from slurmopt.errors import ConfigError
from slurmopt.storage.kinds import KINDS
from slurmopt.units import steps_or_seconds

STORAGE_CLASSES = (
    "STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR", "REDUCED_REDUNDANCY",
    "EXPRESS_ONEZONE",
)  # fmt: skip
"""S3's storage classes that can be read at once; what lies in the others needs hours of restoring first."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_URL = re.compile(r"s3://([^/]*)(?:/(.*))?", re.DOTALL)
_URL_FORM = "s3://BUCKET/PREFIX, the bucket of 3 to 63 lowercase letters, digits, dots and dashes"
_MOST_TAGS, _LONGEST_TAG, _LONGEST_TAG_VALUE = 10, 128, 256  # S3's own bounds


@dataclass(kw_only=True)
class Tier:
    """What all tiers have in common."""

    name: ClassVar[str]
    """Its entry in `slurmopt.storage.kinds.KINDS`."""
    deferred: ClassVar[tuple[str, ...]] = ("path",)
    """The keys in which `${oc.env:NAME}` is filled in within the job."""

    every: str = "auto"
    """How often a checkpoint goes there: a number of steps, a time such as `10min`, or `auto`: from what a save costs
    and `checkpoint.mtbf`."""

    keep: int = 3
    """How many of the last checkpoints are kept."""

    keep_every: int | None = None
    """The first checkpoint at or after each multiple of this is kept for ever."""

    best: int = 0
    """How many of the best by `checkpoint.metric` are kept besides."""

    compression: str | None = None
    """`zstd`, or none. Random weights hardly shrink (8% in fp32, 29% in bf16)."""

    def __post_init__(self) -> None:
        readable(str(self.every), steps_or_seconds, self._key("every"))
        self.every = str(self.every)
        whole_number(self.keep, 1, self._key("keep"))
        if self.keep_every is not None:
            whole_number(self.keep_every, 1, self._key("keep_every"))
        whole_number(self.best, 0, self._key("best"))
        if self.compression is not None:
            one_of(str(self.compression), ("zstd",), self._key("compression"))

    @property
    def place(self) -> str | None:
        """Where it lies as the config says it; None: the tier is off."""
        place: str | None = getattr(self, KINDS[self.name].place_key)
        return place

    @property
    def options(self) -> dict[str, Any]:
        """The fields that only this kind of storage has, besides its place."""
        common = {KINDS[self.name].place_key, *(item.name for item in fields(Tier))}
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in common}

    def _key(self, name: str) -> str:
        return f"checkpoint.{self.name}.{name}"


@dataclass(kw_only=True)
class Scratch(Tier):
    """The disk of each node: the fastest tier, gone with the node."""

    name: ClassVar[str] = "scratch"

    path: str | None = None
    """A folder on each node's own disk, such as `${oc.env:TMPDIR}`, which is filled in within the job; null: off. The
    run's NAME/ID is appended."""

    keep: int = 2
    """How many of the last checkpoints are kept."""

    def __post_init__(self) -> None:
        _folder(self.path, self._key("path"), "an absolute path")
        super().__post_init__()


@dataclass(kw_only=True)
class Shared(Tier):
    """The file system that all nodes share."""

    name: ClassVar[str] = "shared"

    path: str | None = "auto"
    """A folder that all nodes can access, to which the NAME/ID of the run is appended; `auto`: `checkpoints` in the run
    folder; null: off."""

    def __post_init__(self) -> None:
        if self.path != "auto":
            _folder(self.path, self._key("path"), "auto, or an absolute path")
        super().__post_init__()


@dataclass(kw_only=True)
class S3(Tier):
    """A bucket of S3, or of a server that speaks its language. Credentials are boto3's to find, never the config's."""

    name: ClassVar[str] = "s3"
    deferred: ClassVar[tuple[str, ...]] = ("url", "endpoint", "region", "kms_key", "tags")

    url: str | None = None
    """`s3://BUCKET/PREFIX`; null: off. The run's NAME/ID is appended."""

    endpoint: str | None = None
    """The server's URL, where it is not AWS."""

    region: str | None = None
    """The bucket's region. Default: as boto3 finds it."""

    storage_class: str | None = None
    """S3's storage class, such as `STANDARD_IA` or `INTELLIGENT_TIERING`; one that can be read at once. Default: the
    bucket's."""

    kms_key: str | None = None
    """The KMS key that S3 encrypts with: its ID, ARN or alias. Default: as the bucket is set up."""

    tags: dict[str, str] = field(default_factory=dict)
    """Tags of each object, for lifecycle rules and bills: `{team: vision}`."""

    accelerate: bool = False
    """Whether Transfer Acceleration is used; the bucket must have it enabled."""

    requester_pays: bool = False
    """Whether you pay for the requests, in a bucket whose owner does not."""

    def __post_init__(self) -> None:
        text_or_null(self.url, self._key("url"))
        if known(self.url):
            self._check_url(str(self.url))
        for name in ("region", "kms_key"):
            text_or_null(getattr(self, name), self._key(name))
        self._check_endpoint()
        self._check_storage_class()
        for name in ("accelerate", "requester_pays"):
            true_or_false(getattr(self, name), self._key(name))
        self._check_tags()
        super().__post_init__()

    def _check_url(self, url: str) -> None:
        match = _URL.fullmatch(url)
        if match is None or not _BUCKET.fullmatch(match[1]):
            raise ConfigError(f"{url!r} is no bucket's URL; valid: {_URL_FORM}", self._key("url"))
        parts = (match[2] or "").removesuffix("/").split("/")
        if parts != [""] and not all(part and part not in (".", "..") for part in parts):
            raise ConfigError(
                f"{url!r} has an empty or dotted part in its prefix; valid: {_URL_FORM}", self._key("url")
            )
        if self.accelerate and "." in match[1]:
            raise ConfigError("needs a bucket without dots in its name", self._key("accelerate"))

    def _check_endpoint(self) -> None:
        text_or_null(self.endpoint, self._key("endpoint"))
        if self.endpoint is not None and self.accelerate:
            raise ConfigError(f"only one of these can be set: {self._key('endpoint')}, {self._key('accelerate')}")
        if not known(self.endpoint):
            return
        if "@" in str(self.endpoint):  # never shown: what is before it may be a secret
            raise ConfigError("has credentials in it; boto3 finds them elsewhere", self._key("endpoint"))
        if not _is_server(str(self.endpoint)):
            raise ConfigError(f"{self.endpoint!r} is no server; valid: https://HOST[:PORT]", self._key("endpoint"))

    def _check_storage_class(self) -> None:
        text_or_null(self.storage_class, self._key("storage_class"))
        if self.storage_class is not None and self.endpoint is None:  # other servers have classes of their own
            one_of(self.storage_class, STORAGE_CLASSES, self._key("storage_class"))

    def _check_tags(self) -> None:
        key = self._key("tags")
        if not isinstance(self.tags, dict):
            raise ConfigError(f"{self.tags!r} is no mapping; valid: {{NAME: VALUE}}", key)
        if len(self.tags) > _MOST_TAGS:
            raise ConfigError(f"has {len(self.tags)} tags; S3 takes up to {_MOST_TAGS}", key)
        for name, value in self.tags.items():
            _check_tag(name, value, f"{key}.{name}")


def known(value: str | None) -> bool:
    """Whether there is a value to check; `${oc.env:NAME}` is known only within the job."""
    return value is not None and "${" not in value


def _folder(value: Any, key: str, valid: str) -> None:
    text_or_null(value, key)
    if known(value) and not value.startswith(("/", "~/")):
        raise ConfigError(f"{value!r} is no absolute path; valid: {valid}, or null", key)


def _is_server(endpoint: str) -> bool:
    try:
        url = urlsplit(endpoint)
        return url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:  # a port that is no number
        return False


def _check_tag(name: Any, value: Any, key: str) -> None:
    for word, longest in ((name, _LONGEST_TAG), (value, _LONGEST_TAG_VALUE)):
        if not isinstance(word, str) or len(word) > longest:
            raise ConfigError(f"{word!r} is not valid; valid: a text of up to {longest} characters", key)
        one_line_text(word, key)
    if not name or name.lower().startswith("aws:"):
        raise ConfigError("is no name for a tag; valid: a text that does not begin with aws:", key)
