"""What a follower may append: the whole batches of a fetched range, checked before any of them is written.

The leader has decided what they are, so nothing of a client's rules counts here: there may be gaps between them
that compaction left, control batches, any state of a producer, attributes that only a cleaner sets. What must hold
is that they are whole, that they follow on what is there, and that no epoch goes back or is later than the leader's.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import BrokerError, ErrorCode
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import BatchHeader, crc_matches
from penstock.records.iteration import read_batches


class FetchedBatch(NamedTuple):
    position: int
    header: BatchHeader


def check_fetched(
    records: memoryview, log_end: Offset, last_epoch: LeaderEpoch, leader_epoch: LeaderEpoch
) -> list[FetchedBatch]:
    """The batches to append at `log_end`, after a record of `last_epoch`; one that is cut at the end is left out."""
    found = []
    position = 0
    for header, batch in read_batches(records):
        if not crc_matches(batch, header):
            raise BrokerError(
                ErrorCode.corrupt_message, f"the CRC of the batch at {header.base_offset} is wrong"
            )
        if header.base_offset < log_end or header.last_offset_delta < 0:
            raise BrokerError(
                ErrorCode.corrupt_message, f"a batch at {header.base_offset}, where the log ends at {log_end}"
            )
        if not last_epoch <= header.leader_epoch <= leader_epoch:
            raise BrokerError(
                ErrorCode.corrupt_message,
                f"a batch of epoch {header.leader_epoch} from a leader of epoch {leader_epoch}, after {last_epoch}",
            )
        found.append(FetchedBatch(position, header))
        log_end, last_epoch = header.next_offset, LeaderEpoch(header.leader_epoch)
        position += header.size
    return found
