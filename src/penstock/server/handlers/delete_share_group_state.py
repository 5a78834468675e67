"""DeleteShareGroupState: a group coordinator deletes the state of a share-partition (KIP-932)."""

from __future__ import annotations

from typing import Any

from penstock.model import ShareKey
from penstock.queues.state_shard import ShareStateShard
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.share_state_requests import serve


async def handle(request: Request, message: Any) -> Fields:
    return await serve(request, message, _work, {})


API = Api(86, 0, 0, handle, is_concurrent=True)


async def _work(shard: ShareStateShard, key: ShareKey, asked: Any) -> Fields:
    await shard.delete(key)
    return {}
