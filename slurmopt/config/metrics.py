"""The group `metrics`: where the training's metrics and the node's measurements are sent.

The job imports this module too, so it does not import Hydra or OmegaConf.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar

from slurmopt.config.check import one_line_text, one_of, readable, text_or_null, true_or_false
from slurmopt.errors import ConfigError
from slurmopt.units import seconds

WANDB_MODES = ("online", "offline")
MOST_DIMENSIONS = 28
"""CloudWatch takes 30 of a metric; with `gpu`, two are the node and the GPU."""
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})")
_SECRET = re.compile(r"\$\{oc\.env:[A-Za-z_][A-Za-z0-9_]*\}")
_WEB = ("http://", "https://")
_NAMESPACE = re.compile(r"(?!AWS/)[A-Za-z0-9._/#][A-Za-z0-9._/#:-]{0,254}")


@dataclass(kw_only=True)
class TensorBoard:
    """Event files for TensorBoard."""

    deferred: ClassVar[tuple[str, ...]] = ("folder",)
    switch: ClassVar[tuple[str, ...]] = ("folder",)
    every_node: ClassVar[bool] = True
    of_pack: ClassVar[bool] = False

    folder: str | None = None
    """`auto`: `tensorboard` in the run folder; an absolute path, to which the NAME/ID of the run is appended; null:
    off. All attempts of a run share the folder."""

    hardware: bool = True
    """Whether the measurements of each node are written too, in `hardware/NODE`."""

    def __post_init__(self) -> None:
        if self.folder != "auto":
            _folder(self.folder, "metrics.tensorboard.folder", "auto, an absolute path, or null")
        true_or_false(self.hardware, "metrics.tensorboard.hardware")


@dataclass(kw_only=True)
class Prometheus:
    """Prometheus, by a file for node_exporter or by HTTP on each node."""

    deferred: ClassVar[tuple[str, ...]] = ("textfile", "token", "file_sd")
    switch: ClassVar[tuple[str, ...]] = ("textfile", "http")
    every_node: ClassVar[bool] = True
    of_pack: ClassVar[bool] = True

    textfile: str | None = None
    """The folder on each node that node_exporter reads (`--collector.textfile.directory`); null: off."""

    http: str | None = None
    """HOST:PORT at which each node answers, such as `127.0.0.1:9400`; port 0: one that the kernel chooses, see
    `file_sd`; null: off. Another host than 127.0.0.1 or localhost needs `token`."""

    token: str | None = None
    """`${oc.env:NAME}`: the environment variable with the bearer token that a request must have."""

    file_sd: str | None = None
    """A folder of Prometheus' file-based service discovery. Each node has an entry there while the job runs."""

    def __post_init__(self) -> None:
        _folder(self.textfile, "metrics.prometheus.textfile")
        _folder(self.file_sd, "metrics.prometheus.file_sd")
        text_or_null(self.token, "metrics.prometheus.token")
        if self.token is not None and not _SECRET.fullmatch(self.token):
            raise ConfigError("is a secret; valid: ${oc.env:NAME}, or null", "metrics.prometheus.token")
        text_or_null(self.http, "metrics.prometheus.http")
        if self.http is not None:
            self._check_address(self.http)
        elif self.token is not None or self.file_sd is not None:
            name = "token" if self.token is not None else "file_sd"
            raise ConfigError("needs metrics.prometheus.http", f"metrics.prometheus.{name}")

    def _check_address(self, address: str) -> None:
        match = _ADDRESS.fullmatch(address)
        if match is None or int(match[2]) > 65535:
            raise ConfigError(f"{address!r} is no address; valid: HOST:PORT, or null", "metrics.prometheus.http")
        if match[1] not in ("127.0.0.1", "localhost", "[::1]") and self.token is None:
            raise ConfigError(
                f"{address!r} is open to others; valid: 127.0.0.1:PORT, or set metrics.prometheus.token",
                "metrics.prometheus.http",
            )


@dataclass(kw_only=True)
class CloudWatch:
    """Amazon CloudWatch. boto3 finds the credentials; they are never part of the config."""

    deferred: ClassVar[tuple[str, ...]] = ("region", "endpoint", "dimensions", "emf")
    switch: ClassVar[tuple[str, ...]] = ("namespace",)
    every_node: ClassVar[bool] = True
    of_pack: ClassVar[bool] = True

    namespace: str | None = None
    """The namespace of the metrics, such as `slurmopt`; null: off."""

    region: str | None = None
    """The region. Default: boto3's."""

    endpoint: str | None = None
    """The URL of another endpoint, such as that of a VPC. Default: AWS."""

    every: str = "60s"
    """The interval of the requests of each node, 10 seconds or more. CloudWatch stores one minute as the shortest
    period."""

    dimensions: dict[str, str] = field(default_factory=dict)
    """Dimensions of all metrics. Each combination of values is billed as a metric of its own, so run or job ids do not
    belong here. Default: `Experiment`, with the name of the run."""

    gpu: bool = False
    """Whether each GPU has metrics of its own, with the dimensions `Node` and `GPU`. By default, the values of all GPUs
    of a run go into one metric, of which CloudWatch shows mean, minimum, maximum and percentiles."""

    emf: str | None = None
    """An absolute path: instead of calling the API, each node appends lines in the embedded metric format to a file in
    this folder, which the CloudWatch agent reads."""

    def __post_init__(self) -> None:
        for name in ("namespace", "region", "endpoint"):
            text_or_null(getattr(self, name), f"metrics.cloudwatch.{name}")
        if self.namespace is not None and not _NAMESPACE.fullmatch(self.namespace):
            raise ConfigError(
                f"{self.namespace!r} is no namespace; valid: up to 255 letters, digits and ._-/#:, not AWS/…",
                "metrics.cloudwatch.namespace",
            )
        _no_credentials(self.endpoint, "metrics.cloudwatch.endpoint")
        if self.endpoint is not None and "${" not in self.endpoint and not self.endpoint.lower().startswith(_WEB):
            raise ConfigError(f"{self.endpoint!r} is no URL; valid: https://…, or null", "metrics.cloudwatch.endpoint")
        readable(self.every, seconds, "metrics.cloudwatch.every")
        if seconds(self.every) < 10:
            raise ConfigError(f"{self.every!r} is too short; valid: 10s or more", "metrics.cloudwatch.every")
        _check_dimensions(self.dimensions)
        true_or_false(self.gpu, "metrics.cloudwatch.gpu")
        _folder(self.emf, "metrics.cloudwatch.emf")


@dataclass(kw_only=True)
class Wandb:
    """Weights & Biases, by its own client. The key is the client's: WANDB_API_KEY, or its login."""

    deferred: ClassVar[tuple[str, ...]] = ("project", "entity")
    switch: ClassVar[tuple[str, ...]] = ("project",)
    every_node: ClassVar[bool] = False
    of_pack: ClassVar[bool] = False

    project: str | None = None
    """The project; null: off."""

    entity: str | None = None
    """The user or team. Default: the client's."""

    mode: str = "online"
    """`online`, or `offline`: files in `wandb` of the run folder, for `wandb sync`."""

    def __post_init__(self) -> None:
        for name in ("project", "entity"):
            text_or_null(getattr(self, name), f"metrics.wandb.{name}")
        one_of(str(self.mode), WANDB_MODES, "metrics.wandb.mode")


@dataclass(kw_only=True)
class Mlflow:
    """MLflow, by its own client. Credentials are the client's: MLFLOW_TRACKING_TOKEN, or its user and password."""

    deferred: ClassVar[tuple[str, ...]] = ("tracking_uri", "experiment")
    switch: ClassVar[tuple[str, ...]] = ("tracking_uri",)
    every_node: ClassVar[bool] = False
    of_pack: ClassVar[bool] = False

    tracking_uri: str | None = None
    """The URL of the server, or a store that the client knows; null: off."""

    experiment: str | None = None
    """The experiment there. Default: the name of the run."""

    def __post_init__(self) -> None:
        for name in ("tracking_uri", "experiment"):
            text_or_null(getattr(self, name), f"metrics.mlflow.{name}")
        _no_credentials(self.tracking_uri, "metrics.mlflow.tracking_uri")


@dataclass(kw_only=True)
class Metrics:
    """Where the metrics of `progress` and the measurements of the nodes are sent. Rank 0 sends the metrics of the
    training, each node its own measurements. Nothing is sent by default."""

    tensorboard: TensorBoard = field(default_factory=TensorBoard)
    prometheus: Prometheus = field(default_factory=Prometheus)
    cloudwatch: CloudWatch = field(default_factory=CloudWatch)
    wandb: Wandb = field(default_factory=Wandb)
    mlflow: Mlflow = field(default_factory=Mlflow)

    @property
    def on(self) -> dict[str, Any]:
        """The sinks that are switched on, by name."""
        sinks = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: sink for name, sink in sinks.items() if any(getattr(sink, key) for key in sink.switch)}

    def to_json_arg(self) -> str | None:
        """Returns the sinks that are on as JSON without spaces, one argument in the job script; None if there are none.
        It holds no secrets: those are `${oc.env:NAME}`, which the job resolves."""
        sinks = {name: _set_options(sink) for name, sink in self.on.items()}
        return json.dumps(sinks, separators=(",", ":")) if sinks else None


SINKS: dict[str, Any] = {item.name: item.default_factory for item in fields(Metrics)}
"""The dataclass of each sink."""


def from_word(word: str) -> dict[str, Any]:
    """Parses the JSON written by `Metrics.to_json_arg`: the sinks that are on. Raises ValueError if it is invalid."""
    value = json.loads(word)
    if not isinstance(value, dict) or not all(isinstance(options, dict) for options in value.values()):
        raise ValueError(f"not the sinks: {word!r}")
    known = {name: {item.name for item in fields(kind)} for name, kind in SINKS.items()}
    return {
        name: SINKS[name](**{key: item for key, item in options.items() if key in known[name]})
        for name, options in value.items()
        if name in SINKS  # another version may know more
    }


def sinks_of_pack(sinks: dict[str, Any]) -> dict[str, Any]:
    """Of the sinks that are on, those that get the measurements of a node whose array task runs several points. The
    others send them along with the steps of a run, which such a node has none of."""
    taken = {name: options for name, options in sinks.items() if options.of_pack}
    exposed = taken.get("prometheus")
    if exposed is not None and exposed.http is not None and not exposed.http.endswith(":0"):
        taken["prometheus"] = replace(exposed, http=None, token=None, file_sd=None)  # the points need the port
    return {name: options for name, options in taken.items() if any(getattr(options, key) for key in options.switch)}


def _set_options(sink: Any) -> dict[str, Any]:
    defaults = asdict(type(sink)())
    return {name: value for name, value in asdict(sink).items() if value != defaults[name]}


def _folder(value: Any, key: str, valid: str = "an absolute path, or null") -> None:
    text_or_null(value, key)
    if value is not None and "${" not in value and not value.startswith(("/", "~/")):
        raise ConfigError(f"{value!r} is no absolute path; valid: {valid}", key)


def _no_credentials(url: str | None, key: str) -> None:
    """Raises ConfigError, without the value, which may be a secret."""
    if url is not None and "@" in url:
        raise ConfigError("has credentials in it; the client finds them in the environment", key)
    if url is not None and url.lower().startswith(_WEB) and "?" in url:
        raise ConfigError("has a query, which may be a secret; valid: a URL without ?, or null", key)


def _check_dimensions(dimensions: Any) -> None:
    key = "metrics.cloudwatch.dimensions"
    if not isinstance(dimensions, dict):
        raise ConfigError(f"{dimensions!r} is no mapping; valid: {{NAME: VALUE}}", key)
    if len(dimensions) > MOST_DIMENSIONS:
        raise ConfigError(f"has {len(dimensions)} entries; valid: up to {MOST_DIMENSIONS}", key)
    for name, value in dimensions.items():
        if not isinstance(value, str) or not 0 < len(value) <= 1024:
            raise ConfigError(f"{value!r} is not valid; valid: a text of up to 1024 characters", f"{key}.{name}")
        one_line_text(value, f"{key}.{name}")
        is_name = isinstance(name, str) and name.isascii() and name.isprintable() and 0 < len(name) <= 255
        if not is_name or name.startswith(":") or name in ("Node", "GPU"):
            raise ConfigError("is no name for a dimension; valid: a text other than Node, GPU and :…", f"{key}.{name}")
