"""The rules of one partition: every fact that a client has learned, and which of them may be taken back.

Facts come from acknowledgements and from reads. Durability is a prefix: once a durable write is
acknowledged, or a record is shown that may not be taken back, everything before it is durable too. Raises
InvariantViolated at the first contradiction.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

from simulation.models.history import (
    Audit,
    InvariantViolated,
    Outcome,
    ReadRange,
    ReadRecord,
    Write,
    label,
)


@dataclass(frozen=True, slots=True)
class View:
    """The facts that were certain about a partition when a request was sent; its response may not say less."""

    log_start: int
    visible_end: int


class PartitionModel:
    def __init__(self, name: str, *, compacted: bool = False) -> None:
        self.name = name
        self.compacted = compacted
        """Whether only the newest record of a key has to stay."""
        self.log_start = 0
        """The log start offset is at least this while the broker runs."""
        self.kept_log_start = 0
        """The log start offset is at least this after any restart: a deletion of records was acknowledged."""
        self.log_start_limit = 0
        """The log start offset is at most this, except by retention."""
        self.may_expire = False
        """Whether retention may remove records at any time."""
        self.may_start_earlier = False
        """Whether a new leader may still have records that the last one has removed."""
        self.visible_end = 0
        """Offset below which everything was read or committed, so that every reader can see it."""
        self.durable_end = 0
        """Offset below which everything survives a power loss."""
        self._writes: dict[bytes, Write] = {}
        self._values: dict[int, bytes] = {}
        self._offsets: dict[bytes, int] = {}
        self._lanes: dict[str, list[tuple[int, int]]] = {}

    @property
    def known_end(self) -> int:
        """One past the last offset that is known to be taken."""
        return max(self.log_start, max(self._values, default=-1) + 1)

    def view(self) -> View:
        return View(self.log_start, self.visible_end)

    # --- writing

    def on_send(self, write: Write) -> None:
        for value in write.values:
            self._writes[value] = write

    def on_ack(self, write: Write, base_offset: int, *, durable: bool) -> None:
        """Note an acknowledgement; `durable` says that a power loss may not take the write or anything before
        it.
        """
        write.outcome = Outcome.OK
        for index, value in enumerate(write.values):
            self._learn(base_offset + index, value)
        end = base_offset + len(write.values)
        if write.acks == -1:
            self.visible_end = max(self.visible_end, end)
        if durable:
            self.durable_end = max(self.durable_end, end)

    def on_refusal(self, write: Write) -> None:
        """Note that a write was certainly not stored."""
        write.outcome = Outcome.FAIL
        for value in write.values:
            if value in self._offsets:
                raise self._violation("I1", f"{write} was refused but is at {self._offsets[value]}")

    def on_unknown(self, write: Write) -> None:
        write.outcome = Outcome.UNKNOWN

    # --- reading

    def on_read(self, read: ReadRange, *, durable: bool) -> None:
        for record in read.records:
            self._learn(record.offset, record.value)
            self._check_record(record)
        self._check_complete(read)
        if read.end > read.start:
            self.visible_end = max(self.visible_end, read.end)
            if durable:
                self.durable_end = max(self.durable_end, read.end)

    def _check_record(self, record: ReadRecord) -> None:
        write = self._writes[record.value]
        place = write.values.index(record.value)
        if record.key != write.keys[place]:
            raise self._violation("I15", f"the key at {record.offset} is another one")
        if write.timestamps and write.timestamps[place] != record.timestamp:
            sent = write.timestamps[place]
            raise self._violation("I15", f"timestamp {record.timestamp} at {record.offset}, sent {sent}")

    def _check_complete(self, read: ReadRange) -> None:
        """Check that every offset of the range is there, or was compacted in favour of a newer record of its
        key.
        """
        found = {record.offset for record in read.records}
        missing = [
            offset for offset in range(max(read.start, self.log_start), read.end) if offset not in found
        ]
        if missing and not self.compacted:
            raise self._violation("I5", f"no record at {missing[0]}")
        for offset in missing:
            value = self._values.get(offset)
            if value is not None and not self._is_superseded(offset, self._key(value)):
                raise self._violation("I1", f"{label(value)} at {offset} is gone, nothing newer has its key")

    def _is_superseded(self, offset: int, key: bytes) -> bool:
        """Whether a newer record has this key; a write with an unknown outcome may be one."""
        for value, write in self._writes.items():
            if write.outcome is not Outcome.FAIL and self._key(value) == key:
                newer = self._offsets.get(value)
                if newer is None or newer > offset:
                    return True
        return False

    def check_ends(self, view: View, log_start: int, high_watermark: int) -> None:
        """Check log start and high watermark of a response against what was known when the request was sent."""
        self.on_log_start(view, log_start)
        if high_watermark < view.visible_end:
            raise self._violation(
                "I8", f"high watermark {high_watermark}, but {view.visible_end - 1} was visible"
            )

    def on_log_start(self, view: View, log_start: int) -> None:
        if log_start < view.log_start and not self.may_start_earlier:
            raise self._violation("log start", f"went back from {view.log_start} to {log_start}")
        if log_start > self.log_start_limit and not self.may_expire:
            raise self._violation(
                "log start", f"is {log_start}, deletions were requested up to {self.log_start_limit}"
            )
        self.log_start = max(self.log_start, log_start)

    def on_truncation(self, view: View, log_start: int) -> None:
        """Note an acknowledged deletion of records."""
        self.on_log_start(view, log_start)
        self.kept_log_start = max(self.kept_log_start, log_start)

    def must_serve(self, view: View, offset: int) -> bool:
        """Whether a read at this offset has to return a record."""
        return self.log_start_limit <= offset < view.visible_end and not self.may_expire

    def check_time_lookup(self, view: View, timestamp: int, found: ReadRecord | None) -> None:
        """Check a lookup of the first record at or after a timestamp; `found` has its offset and timestamp."""
        if found is not None and found.timestamp < timestamp:
            raise self._violation("time index", f"{found.timestamp} at {found.offset} is before {timestamp}")
        end = view.visible_end if found is None else min(found.offset, view.visible_end)
        for offset in range(max(self.log_start, self.log_start_limit), end):
            value = self._values.get(offset)
            sent = None if value is None else self._timestamp(value)
            if sent is not None and sent >= timestamp and not self.may_expire and not self.compacted:
                raise self._violation("time index", f"looked for {timestamp}, missed {sent} at {offset}")

    # --- restarting

    def on_audit(self, audit: Audit, *, cache_lost: bool, durable: bool) -> None:
        """Compare with the whole log after a restart; `cache_lost` says that unsynced bytes may be gone.

        `durable`: whatever the log has now may not be taken back any more.
        """
        if cache_lost and self.durable_end <= self.log_start_limit:
            # No record was promised to stay, so the first files may be gone and later ones not.
            self.log_start_limit = max(self.log_start_limit, audit.log_start)
        self.log_start = self.kept_log_start
        self.on_log_start(self.view(), audit.log_start)
        required = self.durable_end if cache_lost else self.known_end
        if audit.log_end < max(required, audit.log_start):
            raise self._lost(audit.log_end)
        self._forget_from(audit.log_end)
        if cache_lost and self.compacted:
            # Recovery cannot tell a gap of compaction from a loss.
            found = {record.offset for record in audit.records}
            self._forget(
                [offset for offset in self._values if offset >= self.durable_end and offset not in found]
            )
        self.on_read(ReadRange(audit.log_start, audit.log_end, audit.records), durable=durable)

    def check_newest(self, audit: Audit) -> None:
        """Check a compacted partition in peace: a record is gone only where a newer one of its key is there.

        `_check_complete` also allows for newer records that may have been written; the whole log decides
        that.
        """
        newest: dict[bytes, int] = {}
        for record in audit.records:
            newest[record.key] = max(newest.get(record.key, -1), record.offset)
        found = {record.offset for record in audit.records}
        for offset, value in self._values.items():
            if (
                audit.log_start <= offset
                and offset not in found
                and newest.get(self._key(value), -1) < offset
            ):
                raise self._violation(
                    "I1", f"{label(value)} at {offset} is gone, no newer one of its key is there"
                )

    def _lost(self, log_end: int) -> InvariantViolated:
        offset = min((offset for offset in self._values if offset >= log_end), default=log_end)
        what = self._writes[self._values[offset]] if offset in self._values else "a committed record"
        return self._violation("I1", f"the log ends at {log_end}; {what} at {offset} is lost")

    def _forget_from(self, offset: int) -> None:
        """Allow a loss: offsets from here on are free again."""
        self._forget([known for known in self._values if known >= offset])
        self.visible_end = min(self.visible_end, offset)
        self.durable_end = min(self.durable_end, offset)

    def _forget(self, offsets: list[int]) -> None:
        for offset in offsets:
            value = self._values.pop(offset)
            del self._offsets[value]
            write = self._writes[value]
            self._lanes[write.lane].remove((write.order, offset))

    # --- facts

    def _learn(self, offset: int, value: bytes) -> None:
        known = self._values.get(offset)
        if known is not None:
            if known != value:
                raise self._violation("I3", f"{offset} was {label(known)} and is {label(value)}")
            return
        write = self._writes.get(value)
        if write is None:
            raise self._violation("I14", f"{label(value)} at {offset} was never sent here")
        if write.outcome is Outcome.FAIL:
            raise self._violation("I1", f"{write} was refused but is at {offset}")
        if value in self._offsets:
            raise self._violation("I2", f"{write} is at {self._offsets[value]} and again at {offset}")
        self._check_order(write, offset)
        self._values[offset] = value
        self._offsets[value] = offset

    def _check_order(self, write: Write, offset: int) -> None:
        lane = self._lanes.setdefault(write.lane, [])
        place = bisect_left(lane, (write.order, offset))
        if (place > 0 and lane[place - 1][1] > offset) or (place < len(lane) and lane[place][1] < offset):
            raise self._violation("I4", f"{write} is at {offset}, out of the order {write.lane} sent in")
        insort(lane, (write.order, offset))

    def _key(self, value: bytes) -> bytes:
        write = self._writes[value]
        return write.keys[write.values.index(value)]

    def _timestamp(self, value: bytes) -> int | None:
        """Return the timestamp that a record was sent with; None where the broker sets it."""
        write = self._writes[value]
        return write.timestamps[write.values.index(value)] if write.timestamps else None

    def _violation(self, invariant: str, message: str) -> InvariantViolated:
        return InvariantViolated(invariant, f"{self.name}: {message}")
