"""Creates a boto3 client from the configuration, with the package's own HTTP transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import boto3
import botocore.session
from botocore import exceptions as boto
from botocore.config import Config

from slurmopt.errors import ConfigError, StorageError
from slurmopt.storage.s3.transport import Transport


def new_object(kms_key: str | None, tags: Mapping[str, str] | None) -> dict[str, str]:
    """The request parameters of every object that is created."""
    encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else {}
    return {**encryption, **({"Tagging": urlencode(tags)} if tags else {})}


def connect(url: str, endpoint: str | None, region: str | None, accelerate: bool, connections: int) -> Any:
    """A client with the default chain of credentials. Sends no request."""
    _check_endpoint(endpoint, accelerate)
    config = _config(endpoint, accelerate)
    try:
        session = botocore.session.Session()
        client = boto3.session.Session(botocore_session=session, region_name=region).client(
            "s3", endpoint_url=endpoint, config=config
        )
    except boto.InvalidRegionError:
        raise ConfigError(f"{region!r} is not a region, such as eu-central-1", "checkpoint.s3.region") from None
    except (boto.BotoCoreError, ValueError) as error:
        raise StorageError(f"{url}: {error}") from error
    transport = Transport(connections, session.get_config_variable("ca_bundle"))
    client.meta.events.register("before-send.s3", transport.send)
    return client


def _check_endpoint(endpoint: str | None, accelerate: bool) -> None:
    if endpoint is None:
        return
    key = "checkpoint.s3.endpoint"
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("is not an address such as https://s3.example.com:9000", key)
    if parts.username or parts.password:
        raise ConfigError("holds a name or password; credentials belong into the environment or ~/.aws", key)
    if parts.query or parts.fragment:
        raise ConfigError("has more than an address: nothing may follow a ? or #", key)
    if accelerate:
        raise ConfigError("Transfer Acceleration has an endpoint of its own; set endpoint to null", key)


def _config(endpoint: str | None, accelerate: bool) -> Any:
    return Config(
        retries={"total_max_attempts": 1, "mode": "standard"},  # S3Bucket.attempt retries until the deadline
        # SHA-256 would cost more than sending; S3 verifies the CRC-32 that is sent with each part.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={
            "payload_signing_enabled": False,
            "use_accelerate_endpoint": accelerate,
            # S3-compatible servers rarely support virtual-hosted bucket names.
            **({"addressing_style": "path"} if endpoint else {}),
        },
    )
