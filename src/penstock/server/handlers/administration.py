"""Helpers of the handlers that change the cluster: they wait for a change, and turn its results into error fields."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import TypeVar

from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Request

R = TypeVar("R")

NO_TIME = timedelta(0)
NOT_ASKED = -(2**31)
"""Value of an authorized-operations field that was not requested."""


async def carried_out(
    request: Request, change: Awaitable[Sequence[R | BrokerError]], count: int, timeout: timedelta = NO_TIME
) -> Sequence[R | BrokerError]:
    """Results of a change once this broker has applied it. An error of the whole change becomes the error of each of
    its `count` items.

    After the timeout (none if 0 or less) the items get REQUEST_TIMED_OUT, and the change continues.
    """

    async def work() -> Sequence[R | BrokerError]:
        try:
            results = await change
        except BrokerError as error:
            return [error] * count
        await request.context.replicas.settled()
        return results

    limit_s = timeout.total_seconds() if timeout > NO_TIME else None
    try:
        return await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(work())), limit_s)
    except TimeoutError:
        return [
            BrokerError(
                ErrorCode.request_timed_out,
                "the change did not finish within the timeout of the request; it continues",
            )
        ] * count


def code_of(result: object) -> ErrorCode:
    return result.code if isinstance(result, BrokerError) else ErrorCode.none


def message_of(result: object) -> str | None:
    return str(result) if isinstance(result, BrokerError) else None
