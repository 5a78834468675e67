"""The wait of `penstock topic create` for a broker that has not heard of the new topic yet."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest

from penstock.cli import topic
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.client import InternalClient
from penstock.internal_client.topic_routes import PartitionRoute, TopicRoute
from penstock.internal_client.topics import NewTopic
from penstock.model import BrokerId, TopicId

PARTITION = PartitionRoute(BrokerId(1), 0, (BrokerId(1),), (BrokerId(1),))


class LateTopics:
    """A broker that knows a created topic only after some lookups."""

    def __init__(self, lookups: int) -> None:
        self._lookups = lookups

    @property
    def topics(self) -> Any:
        return self

    async def create(self, wanted: NewTopic) -> None: ...

    async def get(self, name: str, *, fresh: bool = False) -> TopicRoute:
        assert fresh
        self._lookups -= 1
        if self._lookups > 0:
            raise BrokerError(ErrorCode.unknown_topic_or_partition)
        return TopicRoute(name, TopicId(UUID(int=1)), False, (PARTITION, PARTITION))


async def test_missing_topic_is_waited_for() -> None:
    assert await topic._create(cast(InternalClient, LateTopics(3)), NewTopic("orders")) == 2


async def test_missing_topic_is_not_waited_for_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "RETRY_SECONDS", 0.2)
    with pytest.raises(BrokerError, match="orders is not known yet"):
        await topic._create(cast(InternalClient, LateTopics(1_000)), NewTopic("orders"))
