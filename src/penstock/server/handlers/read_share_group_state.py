"""ReadShareGroupState: the leader of a partition loads the state of a share-partition (KIP-932)."""

from __future__ import annotations

from typing import Any

from penstock.model import ShareKey
from penstock.queues.state_shard import ShareStateShard
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.share_state_requests import serve

_EMPTY: Fields = {"state_epoch": 0, "start_offset": 0, "state_batches": ()}


async def handle(request: Request, message: Any) -> Fields:
    return await serve(request, message, _work, _EMPTY)


API = Api(84, 0, 0, handle, is_concurrent=True)


async def _work(shard: ShareStateShard, key: ShareKey, asked: Any) -> Fields:
    state = await shard.read(key, asked.leader_epoch)
    batches = [
        {"first_offset": first, "last_offset": last, "delivery_state": state, "delivery_count": count}
        for first, last, state, count, *_ in state.batches
    ]
    return {
        "state_epoch": state.state_epoch,
        "start_offset": state.start_offset,
        "state_batches": batches,
    }
