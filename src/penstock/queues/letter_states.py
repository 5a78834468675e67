"""Dead letters of a share-partition: batches of records that wait for their dead letters. Pure.

A batch is stored before it is sent, and sent with the same sequence number until it is known to be in the topic.
"""

from __future__ import annotations

from typing import Final

from penstock.queues.record_states import RecordStates
from penstock.queues.states import ARCHIVED, ARCHIVING, DeadReason, Letters, Reason

SEQUENCES: Final = 1 << 31
"""Number of sequence numbers of a producer; after the last one comes 0."""


class LetterStates(RecordStates):
    def begin_letters(self, producer_id: int, sequence: int, max_records: int) -> Letters | None:
        """Choose the records of the next batch of dead letters, the oldest first; None if no record waits."""
        assert self.letters is None or not self.letters.ranges, "a batch is being written"
        chosen: list[tuple[int, int]] = []
        while self._unsent and max_records > 0:
            first, last = self._unsent.popleft()
            for each in self._archiving_within(max(first, self.start_offset), last):
                end = min(each[1], each[0] + max_records - 1)
                if end >= each[0]:
                    chosen.append((each[0], end))
                    max_records -= end - each[0] + 1
                if end < each[1]:
                    self._unsent.append((max(each[0], end + 1), each[1]))
        if not chosen:
            return None
        self.letters = Letters(producer_id, sequence, tuple(chosen))
        return self.letters

    def _archiving_within(self, first: int, last: int) -> list[tuple[int, int]]:
        found = []
        while first <= last and first < self.end_offset:
            each = self._ranges.all[self._ranges.place(first)]
            if each.state == ARCHIVING:
                found.append((first, min(each.last, last)))
            first = each.last + 1
        return found

    def letter_of(self, offset: int) -> tuple[int, Reason]:
        """Delivery count and reason of a record that waits for its dead letter; 0 and REJECTED if it is not known."""
        if not self.start_offset <= offset < self.end_offset:
            return 0, Reason(DeadReason.REJECTED)
        found = self._ranges.all[self._ranges.place(offset)]
        return found.delivery_count, found.reason

    def finish_letters(self) -> None:
        """Archive the records of the batch, after all of their dead letters were written."""
        letters = self.letters
        assert letters is not None
        for first, last in letters.ranges:
            for each in self._archiving_within(max(first, self.start_offset), last):
                self._settle(*each, ARCHIVED)
        self.letters = Letters(letters.producer_id, (letters.sequence + letters.records) % SEQUENCES)

    def renumber_letters(self, producer_id: int) -> None:
        """Give the batch another producer id, because its sequence number does not fit the topic's producer state."""
        assert self.letters is not None
        self.letters = Letters(producer_id, 0, self.letters.ranges)

    def shorten_letters(self) -> None:
        """Reduce the batch to its first half, because the whole batch is too large for the topic."""
        assert self.letters is not None
        left, kept = max(1, self.letters.records // 2), []
        for first, last in self.letters.ranges:
            end = min(last, first + left - 1)
            if end >= first:
                kept.append((first, end))
                left -= end - first + 1
            if end < last:
                self._unsent.append((max(first, end + 1), last))
        self.letters = self.letters._replace(ranges=tuple(kept))
