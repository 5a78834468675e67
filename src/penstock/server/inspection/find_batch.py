"""Search for a batch by its producer id and sequence in a partition that this broker leads, for other brokers.

The log is read as it is stored, including pending delayed messages, which readers do not see.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from penstock.errors import BrokerError, ErrorCode
from penstock.model import Offset
from penstock.records.iteration import read_batches
from penstock.replication.replica import Replica
from penstock.server.context import BrokerContext
from penstock.server.inspection.question import Arguments, Question, integer, text
from penstock.server.security import Operation
from penstock.server.topic_writer import FIND_BATCH as NAME
from penstock.server.topic_writer import WantedBatch
from penstock.storage.log import Log
from penstock.threads import Threads

_READ_BYTES: Final = 1 << 20


async def find_batch(threads: Threads, replica: Replica, wanted: WantedBatch | None) -> tuple[int, bool]:
    """Return the high watermark, and True if the wanted batch is stored below it. Deleted records are not found."""
    log = replica.log
    high_watermark = log.high_watermark
    if wanted is None:
        return high_watermark, False
    offset = max(wanted.from_offset, log.log_start_offset)
    while offset < high_watermark:
        found, offset = await threads.run("read", partial(_read, log, offset, high_watermark, wanted))
        if found:
            return high_watermark, True
    return high_watermark, False


def _read(log: Log, offset: int, below: int, wanted: WantedBatch) -> tuple[bool, int]:
    """Search the next batches. Returns True if the wanted batch is among them, and the offset behind them. Waits for
    the disk.
    """
    content = log.read(Offset(offset), _READ_BYTES, below=Offset(below), at_least_one=True, wait=True).read()
    next_offset = offset
    for header, _ in read_batches(memoryview(content)):
        next_offset = header.next_offset
        if (header.producer_id, header.base_sequence) == (wanted.producer_id, wanted.sequence):
            return True, next_offset
    return False, next_offset if next_offset > offset else below


async def _answer(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    replica = context.replicas.get(text(arguments, "topic"), integer(arguments, "partition"))
    if str(replica.topic_id) != text(arguments, "topic_id"):
        raise BrokerError(
            ErrorCode.unknown_topic_id, f"topic {replica.name.topic} was deleted and created again"
        )
    wanted = None
    if "producer_id" in arguments:
        wanted = WantedBatch(
            integer(arguments, "producer_id"),
            integer(arguments, "sequence"),
            integer(arguments, "from_offset"),
        )
    high_watermark, is_found = await find_batch(context.threads, replica, wanted)
    return {"high_watermark": high_watermark, "is_found": is_found}


FIND_BATCH = Question(NAME, Operation.CLUSTER_ACTION, _answer)
