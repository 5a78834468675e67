"""Partitions that lost records on this disk, kept in a file until the broker has reported them to the cluster.

Recovery finds a loss once: after a log was truncated or a file set aside, the next start finds nothing wrong. The
process may be killed between recovery and registration, so the file is durable before the broker registers and is
removed afterwards. Each entry is a topic id and a partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from uuid import UUID

import msgspec

from penstock.errors import StorageError
from penstock.model import TopicId
from penstock.storage.disk import Disk

LOST_FILE = "lost-partitions"

LogKey = tuple[TopicId, int]


def load_losses(disk: Disk) -> frozenset[LogKey]:
    """Partitions whose loss an earlier start found but did not report; StorageError if the file is damaged."""
    try:
        entries = msgspec.json.decode(disk.read(LOST_FILE), type=list[tuple[UUID, int]])
    except FileNotFoundError:
        return frozenset()
    except msgspec.MsgspecError as problem:
        raise StorageError(f"{LOST_FILE}: {problem}") from None
    return frozenset((TopicId(topic_id), partition) for topic_id, partition in entries)


def keep_losses(disk: Disk, losses: Iterable[LogKey]) -> None:
    """Write the partitions durably."""
    disk.replace(LOST_FILE, msgspec.json.encode(sorted(losses)))


def forget_losses(disk: Disk) -> None:
    """Remove the file after the broker has reported the losses. The removal is not durable: if a power loss restores
    the file, the replicas leave the ISR once more.
    """
    with suppress(OSError):
        disk.remove(LOST_FILE)
