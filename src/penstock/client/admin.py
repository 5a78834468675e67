"""Administration: topics and consumer groups."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from penstock.client.bootstrap import CONNECT_TIMEOUT_S
from penstock.client.cluster import REQUEST_TIMEOUT_S, Cluster
from penstock.client.groups import Groups
from penstock.client.topics import Topics


class Admin:
    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        cluster = Cluster(bootstrap, connect_timeout_s, request_timeout_s, config or {})
        self.topics = Topics(cluster)
        self.groups = Groups(cluster)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left open: `with` is there because producers and consumers have it."""
