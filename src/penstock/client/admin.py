"""Administration: topics, consumer groups, schedules, webhooks, pipelines, and all definitions."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from penstock.client.bootstrap import CONNECT_TIMEOUT_S
from penstock.client.cluster import REQUEST_TIMEOUT_S, Cluster
from penstock.client.definitions import Definitions
from penstock.client.groups import Groups
from penstock.client.internal_connection import InternalConnection
from penstock.client.option_names import check_names
from penstock.client.pipelines import Pipelines
from penstock.client.schedules import Schedules
from penstock.client.topics import Topics
from penstock.client.webhooks import Webhooks


class AdminOptions(TypedDict, total=False):
    connect_timeout_s: float
    """How long to wait for a broker when the client is created; 0 skips the check."""
    request_timeout_s: float
    """How long to wait for the response to a request."""
    config: Mapping[str, Any] | None
    """Settings by librdkafka's names; they override all other options."""


def check_admin_names(options: Mapping[str, Any]) -> None:
    """Raise UnknownOption for an option that Admin does not have."""
    check_names(options, ("bootstrap", *AdminOptions.__annotations__))


class Admin:
    def __init__(self, bootstrap: str | None = None, **options: Unpack[AdminOptions]) -> None:
        """Connect to `bootstrap`: `host:port`, several separated by commas; PENSTOCK_BOOTSTRAP or
        localhost:9092 by default.
        """
        check_admin_names(options)
        config = options.get("config") or {}
        timeout_s = options.get("request_timeout_s", REQUEST_TIMEOUT_S)
        cluster = Cluster(bootstrap, options.get("connect_timeout_s", CONNECT_TIMEOUT_S), timeout_s, config)
        self.topics = Topics(cluster)
        self.groups = Groups(cluster)
        connection = InternalConnection(bootstrap, config)
        self.schedules = Schedules(connection, timeout_s)
        self.webhooks = Webhooks(connection, timeout_s)
        self.pipelines = Pipelines(connection, timeout_s)
        self.definitions = Definitions(connection, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: an Admin holds no resources. The method exists so that an Admin can be used with `with`, like
        producers and consumers.
        """
