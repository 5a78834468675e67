"""Offset commits at a shard."""

from __future__ import annotations

import asyncio

from penstock.groups.offsets import OffsetCommit
from penstock.groups.shard import GroupShard


def committing(shard: GroupShard, commit: OffsetCommit) -> asyncio.Future[None]:
    """Begin a commit; the future is done when the offsets are committed, or has a BrokerError."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    shard.commit(commit, done)
    return done
