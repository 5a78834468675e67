"""The check that a member has joined its group, and the wait for it before the member leaves."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from confluent_kafka import Consumer

JOIN_PATIENCE_S = 3.0
"""How long `close` waits for the coordinator to respond to the first request of this member."""
JOIN_STEP_S = 0.02
_METADATA_MARK = b"CGMDv2:"


def finish_joining(consumer: Consumer, has_joined: Callable[[], bool]) -> None:
    """Wait until a member has joined its group, up to a limit.

    librdkafka does not leave a group while its join request is in flight: the member would keep its
    partitions until its session expires.
    """
    deadline = time.monotonic() + JOIN_PATIENCE_S
    while not has_joined() and time.monotonic() < deadline:
        consumer.poll(JOIN_STEP_S)


def has_member_epoch(consumer: Consumer) -> bool:
    """Return whether the coordinator has responded to the consumer's join request (KIP-848).

    librdkafka shows the member epoch only in the group metadata for transactions: a format mark, then the
    epoch in four bytes, -1 before the response. An unknown format counts as joined.
    """
    metadata = consumer.consumer_group_metadata()
    mark, epoch = metadata[:7], metadata[7:11]
    return bool(mark != _METADATA_MARK or int.from_bytes(epoch, sys.byteorder, signed=True) >= 0)
