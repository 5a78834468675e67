"""Retry policy of every request that may be sent twice: retriable errors, pauses, and when to give up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.errors import BrokerError, ErrorCode, ProtocolError
from penstock.unreachable import Unreachable

T = TypeVar("T")

RETRY_SECONDS = 0.05
MAX_RETRY_SECONDS = 1.0

MOVED = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.kafka_storage_error,
        ErrorCode.replica_not_available,
        ErrorCode.broker_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
    }
)
"""Errors after which another broker may be the leader or the coordinator."""

RETRIABLE = MOVED | {
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_enough_replicas,
    ErrorCode.request_timed_out,
    ErrorCode.offset_not_available,
    ErrorCode.concurrent_transactions,
}
"""Errors after which nothing was done and the same request may succeed later."""


async def retry(attempt: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Repeat an attempt after retriable errors, with growing pauses. Raises the last error after `seconds`.

    Only for requests that may be sent twice. A port that speaks another protocol is not retried.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    pause_seconds = RETRY_SECONDS
    while True:
        try:
            return await attempt()
        except (BrokerError, OSError, ProtocolError) as error:
            if not is_retriable(error) or loop.time() + pause_seconds > deadline:
                raise
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, MAX_RETRY_SECONDS)


def is_retriable(error: BaseException) -> bool:
    """True if the same request may succeed later, as after every failure of a connection to a broker."""
    if isinstance(error, BrokerError):
        return error.code in RETRIABLE
    return not (isinstance(error, Unreachable) and error.is_wrong_port)
