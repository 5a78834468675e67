"""The dead-letter topic of simulated share groups: settings of the groups, and the audit of what is in the topic.

Each dead letter is compared with the outcomes that members saw, and each outcome with the dead letters.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from penstock.errors import BrokerError, ErrorCode
from penstock.queues.dead_letter_record import DEAD_REASON, DLQ_GROUP, DLQ_OFFSET, DLQ_PARTITION, DLQ_TOPIC
from penstock.records.iteration import iterate, read_batches
from penstock.records.log_slice import LogSlice
from penstock.wire.fetch import FetchResult
from simulation.clients.retries import retried
from simulation.clients.routing_client import RoutingClient
from simulation.clients.whole_log import read_whole_log
from simulation.models.history import InvariantViolated
from simulation.models.partition_history import Place
from simulation.models.share_model import ShareModel
from simulation.scenarios.stage import Stage
from simulation.shares.share_group import ShareGroup

_BACK_OFFS = ("", "100", "50,400,1500", "exponential:100:1000")
_LIMITS = (2, 2, 3, 5)
"""Limits of deliveries that records reach."""
_SETTLE_SECONDS = 60.0
_REJECTED, _ATTEMPTS = "rejected", "attempts"


class Letter(NamedTuple):
    group: str
    place: Place
    offset: int
    """Place and offset of the record that has the dead letter."""
    reason: str
    value: bytes | None


class DeadLetterTopic:
    def __init__(self, stage: Stage, random: Random, copies: int) -> None:
        self.random = random
        self._stage = stage
        self._copies = copies
        self._configs = {"min.insync.replicas": str(random.choice((1, 2)) if copies > 2 else 1)}
        self._places: list[Place] = [("dead-work", index) for index in range(random.randint(1, 2))]

    async def create(self) -> None:
        broker = await self._stage.routing("create-dead-work").any_broker()
        [name] = {topic for topic, _ in self._places}
        try:
            await broker.create_topic(name, len(self._places), self._configs, self._copies)
        except BrokerError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise

    # --- settings of groups

    def settings(self) -> dict[str, object]:
        """Settings of a new group, by the names of `ShareGroup.configure`."""
        copies_records = str(self.random.random() < 0.7).lower()
        name = self._places[0][0]
        settings: dict[str, object] = {"dead_letter_topic": name, "dead_letter_copy": copies_records}
        return settings | {"delivery_count_limit": self.random.choice(_LIMITS)} | self.back_off()

    def back_off(self) -> dict[str, object]:
        return {"retry_backoff_ms": self.random.choice(_BACK_OFFS)}

    # --- the audit

    async def audit(self, groups: Sequence[ShareGroup], routing: RoutingClient) -> None:
        """Wait until the dead letters of the present groups are written, and judge all of them."""
        deadline_s = self._stage.world.loop.time() + _SETTLE_SECONDS
        while waiting := [
            leader.key.name
            for group in groups
            for _, leader in group.leaders()
            if leader.partition is not None and leader.partition.archiving
        ]:
            if self._stage.world.loop.time() > deadline_s:
                raise InvariantViolated("dead letter", f"dead letters of {waiting} are not written")
            await asyncio.sleep(0.1)
        letters = [
            letter
            for place in self._places
            for letter in (
                await retried(partial(read_whole_log, routing, place, _letters), f"{place} cannot be read")
            )[1]
        ]
        counts = Counter((each.group, each.place, each.offset) for each in letters)
        for group in groups:
            for name, model in group.models.items():
                for (owner, place, offset), count in counts.items():
                    # After a reset a record is delivered, and may be rejected, again.
                    if owner == name and count > 1 + model.outcomes.resets:
                        what = f"{name}: {place} {offset} has {count} dead letters"
                        raise InvariantViolated("one dead letter", what)
            self._check_group(group, [each for each in letters if each.group == group.model.group])

    def _check_group(self, group: ShareGroup, letters: Sequence[Letter]) -> None:
        model, outcomes = group.model, group.model.outcomes
        found: dict[tuple[Place, int], Letter] = {}
        for stored in letters:
            topic, partition = stored.place
            letter = stored._replace(place=(group.topic.name, partition))
            if topic != group.topic.source or letter.place not in model.places:
                raise InvariantViolated("dead letter", f"{stored} is of another topic")
            found[letter.place, letter.offset] = letter
            if not outcomes.resets and letter.offset >= group.deleted_before(letter.place):
                _check_reason(model, letter)
        for place, offset in outcomes.rejected:
            if (place, offset) not in found and offset >= group.deleted_before(place):
                what = f"{model.group}: {place} {offset} was rejected and has none"
                raise InvariantViolated("dead letter", what)
        for place, leader in group.leaders():
            for offset in group.topic.written.get(place, ()):
                if leader.partition is None or leader.partition.is_unsettled(offset):
                    continue
                is_gone = offset < group.deleted_before(place) or model.is_acknowledged(place, offset)
                if not is_gone and (place, offset) not in found:
                    what = f"{model.group}: {place} {offset} is settled, was not acknowledged and has none"
                    raise InvariantViolated("dead letter", what)


def _check_reason(model: ShareModel, letter: Letter) -> None:
    """The record was certainly not accepted, and members have given cause for the reason."""
    place, offset = letter.place, letter.offset
    if (place, offset) in model.outcomes.accepted:
        raise InvariantViolated("dead letter", f"{letter}: it was accepted")
    if letter.reason == _REJECTED:
        is_right = model.outcomes.may_be_rejected(place, offset)
    else:
        is_right = letter.reason == _ATTEMPTS and model.may_be_exhausted(model.places[place], offset)
    if not is_right or (letter.reason == _ATTEMPTS and (place, offset) in model.outcomes.rejected):
        raise InvariantViolated("dead-letter reason", f"{letter} has a wrong reason")


def _letters(result: FetchResult, position: int) -> tuple[int, list[Letter]]:
    assert not isinstance(result.records, LogSlice)
    letters: list[Letter] = []
    for header, batch in read_batches(memoryview(result.records)):
        position = max(position, header.next_offset)
        for record in () if header.is_control else iterate(batch, header):
            headers = {name: (value or b"").decode() for name, value in record.headers}
            place = headers[DLQ_TOPIC], int(headers[DLQ_PARTITION])
            offset = int(headers[DLQ_OFFSET])
            letters.append(Letter(headers[DLQ_GROUP], place, offset, headers[DEAD_REASON], record.value))
    return position, letters
