"""ReadShareGroupStateSummary: start offset and epochs of a share-partition, for a group coordinator (KIP-932)."""

from __future__ import annotations

from typing import Any

from penstock.model import ShareKey
from penstock.queues.state_shard import ShareStateShard
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.share_state_requests import serve

_EMPTY: Fields = {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0, "delivery_complete_count": -1}


async def handle(request: Request, message: Any) -> Fields:
    return await serve(request, message, _work, _EMPTY)


API = Api(87, 0, 1, handle, is_concurrent=True)


async def _work(shard: ShareStateShard, key: ShareKey, asked: Any) -> Fields:
    summary = await shard.summary(key)
    return summary._asdict()
