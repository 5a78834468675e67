"""The records of a share group whose outcome is certain: members held them, and their acknowledgements were answered.

Such a record that was accepted has no dead letter, one that was rejected has one, and one that was released is not
delivered before its back-off is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from penstock.config.retry_backoff import RetryBackoff
from penstock.queues.states import AcknowledgeType
from simulation.models.history import InvariantViolated
from simulation.models.partition_history import Place

Shared = tuple[Place, int]
"""Place and offset of a record."""


class OutcomeModel:
    def __init__(self) -> None:
        self.backoffs: set[RetryBackoff] = set()
        """Back-offs that were in force at any time, perhaps."""
        self.have_clocks_jumped: Callable[[], bool] = lambda: False
        """Whether another leader may take a record for due at another time."""
        self.resets = 0
        """Number of resets that were sent: after each of them a record may get another dead letter."""
        self.accepted: set[Shared] = set()
        self.rejected: set[Shared] = set()
        self._rejections: Counter[Shared] = Counter()
        self._ready_s: dict[Shared, float] = {}

    def forget(self, place: Place) -> None:
        """Note a reset of the offsets of a partition that is being sent."""
        self.resets += 1
        for known in (self.accepted, self.rejected):
            known.difference_update([each for each in known if each[0] == place])
        for each in [each for each in self._ready_s if each[0] == place]:
            del self._ready_s[each]

    def back_off_s(self, delivery_count: int, offset: int) -> float:
        """The shortest back-off in seconds of a record after this many deliveries."""
        delays_ms = [each.delay_ms(delivery_count, offset) for each in self.backoffs]
        return min(delays_ms, default=0) / 1000

    def on_sent(self, place: Place, offset: int, kind: AcknowledgeType) -> None:
        self._rejections[place, offset] += kind is AcknowledgeType.REJECT

    def on_refused(self, place: Place, offset: int, kind: AcknowledgeType) -> None:
        self._rejections[place, offset] -= kind is AcknowledgeType.REJECT

    def on_answered(
        self, place: Place, offset: int, kind: AcknowledgeType, sent_s: float, delivery_count: int
    ) -> None:
        """Note the answer to an acknowledgement by the member that held the record all the time."""
        if kind is AcknowledgeType.ACCEPT:
            self.accepted.add((place, offset))
        elif kind is AcknowledgeType.REJECT:
            self.rejected.add((place, offset))
        elif kind is AcknowledgeType.RELEASE:
            self._ready_s[place, offset] = sent_s + self.back_off_s(delivery_count, offset)

    def check_delivery(self, place: Place, offset: int, what: str, now_s: float) -> None:
        ready_s = self._ready_s.pop((place, offset), 0.0)
        if now_s < ready_s and not self.have_clocks_jumped():
            raise InvariantViolated("back-off", f"{what}: it was released and due at {ready_s}")

    def may_be_rejected(self, place: Place, offset: int) -> bool:
        return self._rejections[place, offset] > 0
