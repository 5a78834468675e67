"""Reading of a whole partition from its leader, for the comparisons at the end of a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.errors import BrokerError
from penstock.wire.fetch import FetchResult
from simulation.clients.client import READ_UNCOMMITTED, NoAnswer
from simulation.clients.routing_client import RoutingClient
from simulation.models.partition_history import Place

_LATEST, _EARLIEST = -1, -2
_MAX_BYTES = 1_000_000

R = TypeVar("R")
Decode = Callable[[FetchResult, int], tuple[int, list[R]]]
"""Function from a response and its position to the next position and the records from the position on."""


async def log_end(routing: RoutingClient, place: Place) -> int:
    """Return the high watermark that the leader of a partition has."""
    try:
        leader, epoch = await routing.leader(*place)
        return (await leader.list_offset(*place, _LATEST, epoch)).offset
    except (BrokerError, NoAnswer):
        routing.mistrust(*place)
        raise


async def read_whole_log(
    routing: RoutingClient,
    place: Place,
    decode: Decode[R],
    *,
    end: int | None = None,
    isolation_level: int = READ_UNCOMMITTED,
    compacted: bool = False,
) -> tuple[int, list[R]]:
    """Return the log start offset and all records up to `end`, by default the high watermark.

    Raises NoAnswer if the leader has no record before the end, unless compaction may have removed it.
    """
    try:
        leader, epoch = await routing.leader(*place)
        if end is None:
            end = (await leader.list_offset(*place, _LATEST, epoch)).offset
        start = position = (await leader.list_offset(*place, _EARLIEST, epoch)).offset
        records: list[R] = []
        while position < end:
            result = await leader.fetch(
                *place,
                position,
                max_bytes=_MAX_BYTES,
                max_wait_ms=0,
                leader_epoch=epoch,
                isolation_level=isolation_level,
            )
            following, found = decode(result, position)
            records += found
            if following == position:
                if compacted:
                    break
                raise NoAnswer(f"nothing at {position}")
            position = following
        return start, records
    except (BrokerError, NoAnswer):
        routing.mistrust(*place)
        raise
