"""A topic that is deleted and created again under its name, while the logs of the first one still exist."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from penstock.cluster.image import ImageChange
from penstock.errors import BrokerError, ErrorCode
from penstock.model import TopicId
from support.harness import Harness, serve

ORDERS = "orders"
NEW_ID = TopicId(UUID(int=7))


def test_replica_of_a_deleted_topic_serves_no_request_for_the_recreated_one(tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create(ORDERS)
        await harness.append(ORDERS, b"old")
        replicas, before = harness.context.replicas, harness.context.image
        topic = replace(before.topics[ORDERS], id=NEW_ID)
        after = before.without_topics([ORDERS]).with_topics([topic])
        replicas.follow(ImageChange(before, after, frozenset({ORDERS})), harness.context.config)
        with pytest.raises(BrokerError) as caught:
            replicas.get(ORDERS, 0)
        assert caught.value.code is ErrorCode.not_leader_or_follower
        with pytest.raises(BrokerError):
            replicas.get_in_sync(ORDERS, 0)
        await replicas.settled()
        created = replicas.get(ORDERS, 0)
        assert (created.topic_id, created.log.log_end_offset) == (NEW_ID, 0)

    serve(tmp_path, scenario)
