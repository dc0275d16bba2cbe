"""The storage tiers of checkpoints: `checkpoint.scratch`, `checkpoint.shared` and `checkpoint.s3`."""

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
"""S3's storage classes with immediate access. Objects of the other classes must be restored first, which takes
hours."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_URL = re.compile(r"s3://([^/]*)(?:/(.*))?", re.DOTALL)
_URL_FORM = "s3://BUCKET/PREFIX, the bucket of 3 to 63 lowercase letters, digits, dots and dashes"
_MOST_TAGS, _LONGEST_TAG, _LONGEST_TAG_VALUE = 10, 128, 256  # limits of S3


@dataclass(kw_only=True)
class Tier:
    """The fields that all tiers have."""

    name: ClassVar[str]
    """The key of the tier in `slurmopt.storage.kinds.KINDS`."""
    deferred: ClassVar[tuple[str, ...]] = ("path",)
    """The keys in which `${oc.env:NAME}` is resolved in the job."""

    every: str = "auto"
    """The interval of saves to this tier: a number of steps, a time such as `10min`, or `auto`: derived from the
    duration of a save and `checkpoint.mtbf`."""

    keep: int = 3
    """The number of the latest checkpoints that are kept."""

    keep_every: int | None = None
    """A number of steps. The first checkpoint at or after each multiple of it is kept permanently."""

    best: int = 0
    """The number of checkpoints with the best `checkpoint.metric` that are kept in addition."""

    compression: str | None = None
    """`zstd`; null: off. Random weights are reduced only by 8% in fp32 and 29% in bf16."""

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
        """The configured path or URL; None if the tier is off."""
        place: str | None = getattr(self, KINDS[self.name].place_key)
        return place

    @property
    def options(self) -> dict[str, Any]:
        """The fields that are specific to this kind of storage, except for its place."""
        common = {KINDS[self.name].place_key, *(item.name for item in fields(Tier))}
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in common}

    def _key(self, name: str) -> str:
        return f"checkpoint.{self.name}.{name}"


@dataclass(kw_only=True)
class Scratch(Tier):
    """The local disk of each node: the fastest tier, lost when the node fails."""

    name: ClassVar[str] = "scratch"

    path: str | None = None
    """A folder on the local disk of each node, such as `${oc.env:TMPDIR}`, which is resolved in the job; null: off. The
    NAME/ID of the run is appended."""

    keep: int = 2
    """The number of the latest checkpoints that are kept."""

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
    """A bucket of S3 or of an S3-compatible server. boto3 finds the credentials; they are never part of the config."""

    name: ClassVar[str] = "s3"
    deferred: ClassVar[tuple[str, ...]] = ("url", "endpoint", "region", "kms_key", "tags")

    url: str | None = None
    """`s3://BUCKET/PREFIX`; null: off. The NAME/ID of the run is appended."""

    endpoint: str | None = None
    """The URL of an S3-compatible server; null: AWS."""

    region: str | None = None
    """The region of the bucket. Default: boto3's."""

    storage_class: str | None = None
    """A storage class of S3 with immediate access, such as `STANDARD_IA` or `INTELLIGENT_TIERING`. Default: the
    bucket's."""

    kms_key: str | None = None
    """The ID, ARN or alias of the KMS key with which S3 encrypts the objects. Default: the bucket's."""

    tags: dict[str, str] = field(default_factory=dict)
    """Tags of each object, for lifecycle rules and cost allocation: `{team: vision}`."""

    accelerate: bool = False
    """Whether Transfer Acceleration is used; the bucket must have it enabled."""

    requester_pays: bool = False
    """Whether you pay for the requests to a bucket with Requester Pays."""

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
            raise ConfigError(f"{url!r} is not a bucket's URL; valid: {_URL_FORM}", self._key("url"))
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
        if "@" in str(self.endpoint):  # not shown in the message: the part before it may be a secret
            raise ConfigError("has credentials in it; boto3 finds them elsewhere", self._key("endpoint"))
        if not _is_server(str(self.endpoint)):
            raise ConfigError(f"{self.endpoint!r} is not a server; valid: https://HOST[:PORT]", self._key("endpoint"))

    def _check_storage_class(self) -> None:
        text_or_null(self.storage_class, self._key("storage_class"))
        if self.storage_class is not None and self.endpoint is None:  # other servers define their own classes
            one_of(self.storage_class, STORAGE_CLASSES, self._key("storage_class"))

    def _check_tags(self) -> None:
        key = self._key("tags")
        if not isinstance(self.tags, dict):
            raise ConfigError(f"{self.tags!r} is not a mapping; valid: {{NAME: VALUE}}", key)
        if len(self.tags) > _MOST_TAGS:
            raise ConfigError(f"has {len(self.tags)} tags; S3 takes up to {_MOST_TAGS}", key)
        for name, value in self.tags.items():
            _check_tag(name, value, f"{key}.{name}")


def known(value: str | None) -> bool:
    """Whether `value` is set and has no interpolation; `${oc.env:NAME}` is resolved only in the job."""
    return value is not None and "${" not in value


def _folder(value: Any, key: str, valid: str) -> None:
    text_or_null(value, key)
    if known(value) and not value.startswith(("/", "~/")):
        raise ConfigError(f"{value!r} is not an absolute path; valid: {valid}, or null", key)


def _is_server(endpoint: str) -> bool:
    try:
        url = urlsplit(endpoint)
        return url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:  # the port is not a number
        return False


def _check_tag(name: Any, value: Any, key: str) -> None:
    for word, longest in ((name, _LONGEST_TAG), (value, _LONGEST_TAG_VALUE)):
        if not isinstance(word, str) or len(word) > longest:
            raise ConfigError(f"{word!r} is not valid; valid: a text of up to {longest} characters", key)
        one_line_text(word, key)
    if not name or name.lower().startswith("aws:"):
        raise ConfigError("is not a name for a tag; valid: a text that does not begin with aws:", key)
