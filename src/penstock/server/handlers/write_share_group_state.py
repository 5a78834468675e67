"""WriteShareGroupState: the leader of a partition stores changes of a share-partition (KIP-932)."""

from __future__ import annotations

from typing import Any

from penstock.model import ShareKey
from penstock.queues.state_shard import ShareStateShard
from penstock.queues.states import StateBatch, StateUpdate
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.share_state_requests import serve


async def handle(request: Request, message: Any) -> Fields:
    return await serve(request, message, _work, {})


API = Api(85, 0, 1, handle, is_concurrent=True)


async def _work(shard: ShareStateShard, key: ShareKey, asked: Any) -> Fields:
    batches = [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in asked.state_batches
    ]
    count = getattr(asked, "delivery_complete_count", 0)
    update = StateUpdate(asked.start_offset, max(0, count), batches)
    await shard.store(key, asked.state_epoch, asked.leader_epoch, update)
    return {}
