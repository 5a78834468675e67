"""Lines with type errors that mypy must report."""

from __future__ import annotations

import penstock
from penstock import AsyncAdmin, Consumer, Producer

Producer(profile="quick")
Producer("localhost:9092", lingerms=5)
Consumer("orders", delivery="at-most-twice")
Producer().send(5)
penstock.Prducer()


async def wrong(admin: AsyncAdmin) -> None:
    await admin.topics.create("orders", partitions="three")
