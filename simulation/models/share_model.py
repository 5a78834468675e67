"""The rules of a share group: deliveries and acknowledgements as its members saw them.

A delivery has a `Grip` where the share-partition and the session that served it are known: holds are compared only
within one of them, because a new leader forgets locks. Raises InvariantViolated at the first contradiction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from penstock.queues.share_leader import ShareLeader
from penstock.queues.states import AcknowledgeType
from penstock.server.broker import Broker
from penstock.server.share_sessions import ShareSession
from simulation.models.history import InvariantViolated
from simulation.models.outcome_model import OutcomeModel
from simulation.models.partition_history import Place

SETTLING = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


@dataclass(frozen=True, slots=True)
class Grip:
    """The process, the share-partition and the session that gave a record to a member."""

    broker: Broker
    leader: ShareLeader
    session: ShareSession
    is_running: Callable[[], bool]
    """Whether the process still runs."""

    @property
    def is_firm(self) -> bool:
        """Whether share-partition and session are still open."""
        return self.leader.error is None and self.session.is_open and self.is_running()


@dataclass(slots=True, eq=False)
class Delivery:
    member: str
    count: int
    received_s: float
    until_s: float
    """Virtual time until which the lock lasts at least."""
    grip: Grip | None
    is_kept: bool = True
    """Whether the member has not acknowledged the record."""

    def is_held(self, now_s: float) -> bool:
        return self.is_kept and self.is_locked(now_s)

    def is_locked(self, now_s: float) -> bool:
        return now_s < self.until_s and self.grip is not None and self.grip.is_firm


@dataclass(slots=True)
class SharePlace:
    """Knowledge about one partition."""

    start: int = 0
    deliveries: dict[int, list[Delivery]] = field(default_factory=dict)
    settled: dict[int, float] = field(default_factory=dict)
    """Offsets that were answered as accepted or rejected, with the time of the answer."""
    maybe_settled: dict[int, int] = field(default_factory=dict)
    """Number of requests that have settled an offset, or may have."""
    locked: list[tuple[int, Delivery]] = field(default_factory=list)
    """Offsets and deliveries whose locks may last; `still_held` drops those that are over."""
    open_fetches: int = 0
    """Number of fetches without a response, lost ones and those under way: each may have acquired anything."""
    leaders: set[ShareLeader] = field(default_factory=set)
    """The share-partitions that were seen, one for each leader and for each reload."""
    stale: set[ShareLeader] = field(default_factory=set)
    """Share-partitions that were loaded before the offsets were reset."""
    resets: list[int] = field(default_factory=list)
    """Start offsets of resets that were sent and may be stored: a new leader may load each of them."""
    renewed: set[ShareLeader] = field(default_factory=set)
    """Share-partitions that have loaded a reset before its response."""
    state_epoch: int = -1
    """Newest state epoch of a leader that has loaded no reset in progress."""
    loaded: dict[int, float] = field(default_factory=dict)
    """Leader epochs whose leader has read the state, and the time when that was seen."""


@dataclass(slots=True, eq=False)
class SentAcknowledgement:
    """The acknowledgements of one request for one partition."""

    place: Place
    member: str
    types: Mapping[int, AcknowledgeType]
    sent_s: float
    leader: ShareLeader | None
    held: dict[int, Delivery]
    """The records that the member certainly held when the request was sent."""
    foreign: dict[int, Delivery]
    """The records that another member certainly held."""


class ShareModel:
    def __init__(
        self,
        group: str,
        deleted_before: Callable[[Place], int],
        *,
        is_committed: bool,
        now: Callable[[], float],
    ) -> None:
        """Records below `deleted_before` may be deleted: acknowledgements of them are ignored."""
        self.group = group
        self._deleted_before = deleted_before
        self.is_committed = is_committed
        self.places: dict[Place, SharePlace] = {}
        self.lock_durations: set[int] = set()
        """Lock durations in milliseconds that were in force at any time, perhaps."""
        self.limits: set[int] = set()
        """Delivery limits that were in force at any time, perhaps."""
        self.outcomes = OutcomeModel()
        self._now = now

    def add(self, place: Place, start: int = 0) -> SharePlace:
        return self.places.setdefault(place, SharePlace(start))

    # --- resets

    def begin_reset(self, starts: Mapping[Place, int]) -> None:
        """Note a reset of start offsets that is being sent."""
        for place, start in starts.items():
            self.places[place].resets.append(start)
            self.outcomes.forget(place)
            self.places[place].renewed.clear()

    def refuse_reset(self, starts: Mapping[Place, int]) -> bool:
        """Note that the last reset has changed nothing; return whether the outcome of an earlier one is unknown."""
        for place in starts:
            self.places[place].resets.pop()
        return any(self.places[place].resets for place in starts)

    def reset(self, place: Place, start: int, leaders: Iterable[ShareLeader]) -> None:
        """Note the response to a reset: everything may be delivered again. `leaders` are those of now."""
        renewed = self.places[place].renewed
        self.places[place] = SharePlace(start, stale=set(leaders) - renewed)

    def on_loaded(self, place: Place, leader: ShareLeader, state_epoch: int, start: int) -> int:
        """Note the start offset that a new leader has loaded; return the offset below which a reset explains it."""
        known = self.places[place]
        below = max((each for each in known.resets if each <= start), default=0)
        if below == 0 or state_epoch <= known.state_epoch:
            known.state_epoch = max(known.state_epoch, state_epoch)
            return 0
        known.renewed.add(leader)
        return below

    # --- deliveries

    def on_fetch(self, places: Iterable[Place]) -> list[SharePlace]:
        """Note a fetch that is being sent; return what its response is noted for."""
        asked = [self.places[place] for place in places if place in self.places]
        for known in asked:
            known.open_fetches += 1
        return asked

    @staticmethod
    def on_fetched(asked: Iterable[SharePlace]) -> None:
        """Note the response to a fetch; its records are noted as deliveries."""
        for known in asked:
            known.open_fetches -= 1

    def on_delivery(
        self, place: Place, member: str, offset: int, count: int, sent_s: float, grip: Grip | None
    ) -> None:
        """Note a record that a member got by a fetch that was sent at `sent_s`."""
        known = self.places[place]
        what = f"{self.group}: {place} {offset} for {member}, delivery {count}"
        now_s = self._now()
        if known.settled.get(offset, inf) <= sent_s:
            raise InvariantViolated("Q2", f"{what}: it was settled at {known.settled[offset]}")
        before = known.deliveries.setdefault(offset, [])
        delivery = Delivery(member, count, now_s, sent_s + min(self.lock_durations) / 1000, grip)
        for other in before:
            self._compare(what, other, delivery, sent_s)
            self._check_lock_back_off(what, offset, other, delivery)
        if not known.resets:
            self.outcomes.check_delivery(place, offset, what, now_s)
        before.append(delivery)
        known.locked.append((offset, delivery))
        if grip is not None:
            known.leaders.add(grip.leader)
        # A lost leader forgets the last delivery, and releases that were not stored yet.
        if count > max(self.limits) or len(before) > max(self.limits) + 2 * len(known.leaders) + 1:
            raise InvariantViolated("Q4", f"{what}: delivered {len(before)} times, limits {self.limits}")

    @staticmethod
    def _compare(what: str, other: Delivery, new: Delivery, sent_s: float) -> None:
        """Compare two deliveries of one share-partition: their counts tell which one was the first."""
        if new.grip is None or other.grip is None or other.grip.leader is not new.grip.leader:
            return
        if other.count == new.count or (other.received_s <= sent_s and new.count < other.count):
            raise InvariantViolated("Q4", f"{what}: the delivery before was number {other.count}")
        first, second = (other, new) if other.count < new.count else (new, other)
        if first.is_held(new.received_s):
            raise InvariantViolated(
                "Q3", f"{what}: {first.member} holds it until {first.until_s}, and {second.member} got it"
            )

    def _check_lock_back_off(self, what: str, offset: int, other: Delivery, new: Delivery) -> None:
        """A record whose lock has expired is delivered after the back-off, unless its session has ended."""
        if other.count >= new.count or not other.is_kept or other.grip is None or new.grip is None:
            return
        if other.grip.leader is not new.grip.leader or not other.grip.is_firm:
            return
        ready_s = other.until_s + self.outcomes.back_off_s(other.count, offset)
        if new.received_s < ready_s:
            raise InvariantViolated("back-off", f"{what}: its lock expired, and it was due at {ready_s}")

    def still_held(self, place: Place) -> list[tuple[int, Delivery]]:
        """Offsets and deliveries that members certainly hold."""
        known, now_s = self.places[place], self._now()
        known.locked = [each for each in known.locked if each[1].is_locked(now_s)]
        return [each for each in known.locked if each[1].is_kept]

    def held_by_others(self, place: Place, member: str) -> list[int]:
        """Offsets that members other than this one certainly hold."""
        now_s = self._now()
        return [
            offset
            for offset, deliveries in self.places[place].deliveries.items()
            if deliveries[-1].member != member and deliveries[-1].is_held(now_s)
        ]

    # --- acknowledgements

    def on_acknowledge(
        self, place: Place, member: str, types: Mapping[int, AcknowledgeType], leader: ShareLeader | None
    ) -> SentAcknowledgement:
        known, now_s = self.places[place], self._now()
        sent = SentAcknowledgement(place, member, types, now_s, leader, {}, {})
        for offset, kind in types.items():
            if kind in SETTLING:
                known.maybe_settled[offset] = known.maybe_settled.get(offset, 0) + 1
                self.outcomes.on_sent(place, offset, kind)
            for delivery in known.deliveries.get(offset, ()):
                if not delivery.is_held(now_s):
                    continue
                (sent.held if delivery.member == member else sent.foreign)[offset] = delivery
                if delivery.member == member and kind is AcknowledgeType.RENEW:
                    # A renewal may shorten a lock, if the setting was changed.
                    renewed_s = now_s + min(self.lock_durations) / 1000
                    delivery.until_s = min(delivery.until_s, renewed_s)
                elif delivery.member == member:
                    delivery.is_kept = False
        return sent

    def on_accepted(self, sent: SentAcknowledgement) -> None:
        """Note a positive answer."""
        known, now_s = self.places[sent.place], self._now()
        deleted_before = self._deleted_before(sent.place)
        for offset, delivery in sent.foreign.items():
            if delivery.is_held(now_s) and self._is_of(sent, delivery) and offset >= deleted_before:
                raise InvariantViolated(
                    "Q3", f"{sent.place} {offset}: {sent.member} acknowledged a record of {delivery.member}"
                )
        writes = [offset for offset in sent.held if sent.types[offset] is not AcknowledgeType.RENEW]
        self._check_fence(known, sent, writes)
        for offset, delivery in sent.held.items():
            if delivery.is_locked(now_s) and self._is_of(sent, delivery) and offset >= deleted_before:
                kind = sent.types[offset]
                self.outcomes.on_answered(sent.place, offset, kind, sent.sent_s, delivery.count)
        for offset, kind in sent.types.items():
            if kind in SETTLING:
                known.settled.setdefault(offset, now_s)
            elif kind is AcknowledgeType.RENEW and offset in sent.held:
                renewed_s = sent.sent_s + min(self.lock_durations) / 1000
                sent.held[offset].until_s = max(sent.held[offset].until_s, renewed_s)

    def _check_fence(self, known: SharePlace, sent: SentAcknowledgement, writes: list[int]) -> None:
        if sent.leader is None or not writes or any(not self._is_of(sent, sent.held[o]) for o in writes):
            return
        for epoch, seen_s in known.loaded.items():
            if epoch > sent.leader.leader_epoch and seen_s < sent.sent_s:
                raise InvariantViolated(
                    "Q9",
                    f"{sent.place} {writes}: the leader of epoch {sent.leader.leader_epoch} stored it after "
                    f"that of epoch {epoch} had read the state",
                )

    def on_refused(self, sent: SentAcknowledgement, *, is_certain: bool = True) -> None:
        """Note INVALID_RECORD_STATE or INVALID_REQUEST: the request has changed nothing.

        A refusal of the whole request is not `is_certain`: the member may hold nothing any more.
        """
        known, now_s = self.places[sent.place], self._now()
        for offset, kind in sent.types.items():
            if kind in SETTLING:
                known.maybe_settled[offset] -= 1
                self.outcomes.on_refused(sent.place, offset, kind)
        may_refuse = AcknowledgeType.RENEW in sent.types.values()  # an administrator may forbid renewals
        is_whole = len(sent.held) == len(sent.types) and is_certain and not may_refuse
        if is_whole and all(each.is_locked(now_s) and self._is_of(sent, each) for each in sent.held.values()):
            raise InvariantViolated(
                "Q3", f"{sent.place}: {sent.member} holds {sorted(sent.types)} and was refused"
            )
        for delivery in sent.held.values():
            delivery.is_kept = True

    @staticmethod
    def _is_of(sent: SentAcknowledgement, delivery: Delivery) -> bool:
        return delivery.grip is not None and delivery.grip.leader is sent.leader

    # --- what may be gone

    def is_done(self, place: Place, offset: int) -> bool:
        """Whether a record may be settled: acknowledged, archived by the delivery limit, or before the start."""
        known = self.places[place]
        return self.is_acknowledged(place, offset) or self.may_be_exhausted(known, offset)

    def is_acknowledged(self, place: Place, offset: int) -> bool:
        """Whether a member may have accepted or rejected a record, or it is before the start."""
        known = self.places[place]
        return offset < known.start or known.maybe_settled.get(offset, 0) > 0 or offset in known.settled

    def may_be_exhausted(self, known: SharePlace, offset: int) -> bool:
        """Whether a record may have reached its delivery limit."""
        return len(known.deliveries.get(offset, ())) + known.open_fetches >= min(self.limits)
