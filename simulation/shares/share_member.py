"""A simulated member of a share group: it acquires, delays, renews, accepts, releases and rejects records.

It dies and returns, repeats requests, and asks for records of other members, which must be refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.queues.share_leader import ShareLeader
from penstock.queues.states import AcknowledgeType
from simulation.clients.client import NoAnswer, SimulatedClient, check_error
from simulation.models.history import InvariantViolated
from simulation.models.partition_history import Place
from simulation.models.share_model import SentAcknowledgement
from simulation.scenarios.stage import Stage
from simulation.shares.share_group import ShareGroup
from simulation.shares.share_requests import (
    ACKNOWLEDGE,
    FETCH,
    NOTHING,
    Limits,
    PartitionAnswer,
    Types,
    acknowledgement_batches,
    read_answer,
    topics,
)

FINAL_EPOCH = -1
_REFUSALS = (ErrorCode.invalid_record_state, ErrorCode.invalid_request)
_ACCEPT, _RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
_REJECT, _RENEW, _GAP = AcknowledgeType.REJECT, AcknowledgeType.RENEW, AcknowledgeType.GAP
_SESSION_LOST = (
    ErrorCode.share_session_not_found,
    ErrorCode.invalid_share_session_epoch,
    ErrorCode.share_session_limit_reached,
)


@dataclass(slots=True)
class _Session:
    """A share session at one broker, on one connection."""

    connection: int
    epoch: int = 0
    places: set[Place] = field(default_factory=set)


@dataclass(slots=True)
class Request:
    """A request that was sent, with the share-partitions that were to answer it."""

    node_id: int
    sent_s: float
    leaders: dict[Place, ShareLeader | None]
    acknowledged: dict[Place, SentAcknowledgement]


class ShareMember:
    def __init__(self, stage: Stage, group: ShareGroup, number: int) -> None:
        self.name = f"{group.model.group.partition('.')[0]}/{number}"
        self.id = self.name
        self.group = group
        self.held: dict[Place, dict[int, int]] = {}
        """Offsets that were delivered and not acknowledged, with their delivery counts."""
        self._stage = stage
        self._model = group.model
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)
        self._sessions: dict[int, _Session] = {}
        self._epoch: int | None = None
        """Member epoch; None outside of the group."""
        self._lives = 0
        self._diligence = self._random.choice((8, 2))
        """Weight of acknowledgements among the acts: some members keep records until their locks expire."""

    async def step(self) -> None:
        if self.group.is_leaving or self._model is not self.group.model:
            await self.leave()
        elif self._epoch is None:
            await self.join()
        else:
            acts = (self._fetch_some, self._acknowledge_some, self._renew_some, self._report)
            others = (self._die, self._close_some, self._repeat, self._ask_for_others)
            weights = (8, self._diligence, 2, 1, 0.4, 0.4, 0.6, 2)
            [act] = self._random.choices(acts + others, weights=weights)
            await act()

    # --- membership

    async def join(self) -> None:
        if self.group.is_configured:
            self.group.members_inside.add(self.id)
            self._epoch = await self.group.heartbeat(self._routing, self.id, 0)
            self._note("join", self._epoch)

    async def _report(self) -> None:
        assert self._epoch is not None
        try:
            self._epoch = await self.group.heartbeat(self._routing, self.id, self._epoch)
        except BrokerError as error:
            if error.code in (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch):
                self._epoch = None
            raise

    async def leave(self) -> None:
        """End all sessions and leave the group; without effect outside of it."""
        if self._model is not self.group.model:
            self._disconnect()
            self._model, self._epoch = self.group.model, None
        elif self.id in self.group.members_inside:
            self._disconnect()
            self._epoch = None
            try:
                await self.group.heartbeat(self._routing, self.id, FINAL_EPOCH)
            except BrokerError as error:
                if error.code not in (ErrorCode.unknown_member_id, ErrorCode.group_id_not_found):
                    raise
            self.group.members_inside.discard(self.id)
            self._note("leave")

    async def _die(self) -> None:
        """Close all connections, and perhaps return as another member."""
        self._note("die")
        self._disconnect()
        if self._random.random() < 0.3:
            self._lives += 1
            self.id, self._epoch = f"{self.name}.{self._lives}", None

    def _disconnect(self) -> None:
        self._routing.disconnect()
        self._sessions.clear()
        self.held.clear()

    # --- acts

    async def _fetch_some(self) -> None:
        place = self._random.choice(list(self._model.places))
        types = self._choose(place) if self._random.random() < 0.3 else {}
        random = self._random
        limits = Limits(
            random.choice((0, 100, 500, 2_000)),
            random.choice((1, 2_000, 100_000)),
            random.choice((1, 3, 20, 500)),
            random.choice((1, 5, 500)),
            random.choice((0, 0, 1)),
        )
        await self.fetch(place, limits, types)

    async def _acknowledge_some(self) -> None:
        places = [place for place, held in self.held.items() if held]
        if places:
            place = self._random.choice(places)
            await self.acknowledge(place, self._choose(place))

    async def _renew_some(self) -> None:
        places = [place for place, held in self.held.items() if held]
        if places:
            place = self._random.choice(places)
            types = dict.fromkeys(self._choose(place), _RENEW)
            if self._random.random() < 0.5:
                await self.acknowledge(place, types)
            else:
                await self.fetch(place, NOTHING, types)

    async def _close_some(self) -> None:
        """Close a session, perhaps with acknowledgements in the last request."""
        if self._model.places:
            place = self._random.choice(list(self._model.places))
            await self.acknowledge(place, self._choose(place), is_last=True)

    async def _repeat(self) -> None:
        """Send an acknowledgement twice with one session epoch: the second one must be refused."""
        places = [place for place, held in self.held.items() if held]
        if not places:
            return
        place = self._random.choice(places)
        types = self._choose(place)
        client, node_id = await self._connect(place)
        session = self._session(node_id, client)
        if session.epoch == 0 or not types:
            return
        epoch = session.epoch
        await self.acknowledge(place, types)
        if not client.is_connected or self._sessions.get(node_id) is not session:
            return
        self._sessions.pop(node_id)  # the refusal does not tell which epoch is next
        self.held.clear()
        response = await client.ask(ACKNOWLEDGE, (1, 2), self._fields(place, types, epoch))
        client.disconnect()
        if not response.error_code:
            raise InvariantViolated("Q2", f"{place}: epoch {epoch} of {self.id} was accepted twice")

    async def _ask_for_others(self) -> None:
        """Acknowledge a record of another member, perhaps among own ones: refused, and without effect."""
        place = self._random.choice(list(self._model.places))
        others = self._model.held_by_others(place, self.id)
        if others:
            foreign = self._random.choice(others)
            types = self._choose(place) if self._random.random() < 0.7 else {}
            kinds = (_ACCEPT, _RELEASE, _REJECT, _RENEW)
            types[foreign] = self._random.choice(kinds)
            if types[foreign] is _RENEW:
                types = dict.fromkeys(types, _RENEW)
            await self.acknowledge(place, types)

    def _choose(self, place: Place) -> dict[int, AcknowledgeType]:
        """Choose records to acknowledge, and how."""
        held = sorted(self.held.get(place, ()))
        if not held:
            return {}
        first = self._random.randrange(len(held))
        chosen = held[first : first + self._random.choice((1, 2, 5, 100))]
        kinds = self._random.choices(
            (_ACCEPT, _RELEASE, _REJECT),
            weights=(6, 2, 1),
            k=len(chosen) if self._random.random() < 0.5 else 1,
        )
        return {offset: kinds[place % len(kinds)] for place, offset in enumerate(chosen)}

    # --- requests

    async def fetch(self, place: Place, limits: Limits, types: Types | None = None) -> dict[Place, list[int]]:
        """Fetch from the leader of a partition; return the offsets that were acquired."""
        client, node_id = await self._connect(place)
        session = self._session(node_id, client)
        types = {} if session.epoch == 0 else types or {}
        fields = self._fields(place, types, session.epoch) | limits.fields
        session.places.add(place)
        request = self._prepare(node_id, session.places, place, types)
        asked = self._model.on_fetch(session.places)
        try:
            response = await client.ask(FETCH, self._versions(types), fields)
        except NoAnswer:
            self._lose_session(node_id, place)
            raise
        self._model.on_fetched(asked)
        if not self._goes_on(node_id, session, int(response.error_code), request):
            return {}
        taken: dict[Place, list[int]] = {}
        for answer in self._answers(response):
            self._settle_request(request, answer)
            if answer.error_code:
                self._fail(answer)
            elif answer.acquired:
                taken[answer.place] = self._take(request, answer)
        self._note("fetch", place, session.epoch, taken)
        return taken

    async def acknowledge(self, place: Place, types: Types, *, is_last: bool = False) -> None:
        client, node_id = await self._connect(place)
        session = self._session(node_id, client)
        if session.epoch == 0:
            return
        epoch = FINAL_EPOCH if is_last else session.epoch
        request = self._prepare(node_id, (), place, types)
        try:
            response = await client.ask(ACKNOWLEDGE, self._versions(types), self._fields(place, types, epoch))
        except NoAnswer:
            self._lose_session(node_id, place)
            raise
        if is_last:
            self._sessions.pop(node_id, None)
            for each in session.places:
                self.held.pop(each, None)
        if self._goes_on(node_id, session, int(response.error_code), request):
            for answer in self._answers(response):
                self._settle_request(request, answer)
        self._note("acknowledge", place, epoch, dict(types))

    def _versions(self, types: Types) -> tuple[int, ...]:
        return (2,) if _RENEW in types.values() else (1, 2)

    async def _connect(self, place: Place) -> tuple[SimulatedClient, int]:
        client, _ = await self._routing.leader(*place)
        return client, self._routing.known_leader(*place)

    def _session(self, node_id: int, client: SimulatedClient) -> _Session:
        session = self._sessions.get(node_id)
        if session is None or session.connection != client.connections:
            session = self._sessions[node_id] = _Session(client.connections)
        return session

    def _lose_session(self, node_id: int, place: Place) -> None:
        """Forget a session after a response did not come: the client has closed its connection."""
        session = self._sessions.pop(node_id, None)
        for each in () if session is None else session.places:
            self.held.pop(each, None)
        self._routing.mistrust(*place)

    def _fields(self, place: Place, types: Types, epoch: int) -> dict[str, Any]:
        topic_id = self.group.topic.id
        assert topic_id is not None
        return {
            "group_id": self._model.group,
            "member_id": self.id,
            "share_session_epoch": epoch,
            "is_renew_ack": _RENEW in types.values(),
            "topics": topics(topic_id, {place[1]: acknowledgement_batches(types, self._random)}),
        }

    def _prepare(self, node_id: int, places: Iterable[Place], place: Place, types: Types) -> Request:
        leaders = {each: self.group.leader_at(node_id, each) for each in {*places, place}}
        request = Request(node_id, self._stage.world.loop.time(), leaders, {})
        if types:
            sent = self._model.on_acknowledge(place, self.id, types, leaders[place])
            request.acknowledged[place] = sent
            held = self.held.get(place, {})
            for offset, kind in types.items():
                if kind is not _RENEW:
                    held.pop(offset, None)
        return request

    # --- answers

    def _goes_on(self, node_id: int, session: _Session, code: int, request: Request) -> bool:
        """Whether a request was carried out; otherwise the session is over."""
        if not code:
            session.epoch += 1
            return True
        for sent in request.acknowledged.values():
            self._model.on_refused(sent, is_certain=False)
        self._sessions.pop(node_id, None)
        for each in session.places:
            self.held.pop(each, None)
        error = ErrorCode(code)
        self._note("refused", error.name)
        if error not in _SESSION_LOST:
            check_error(code)
        return False

    def _answers(self, response: Any) -> list[PartitionAnswer]:
        topic = self.group.topic
        assert topic.id is not None
        answers = read_answer(response, topic.id, topic.name)
        return [answer for answer in answers if answer.place in self._model.places]

    def _settle_request(self, request: Request, answer: PartitionAnswer) -> None:
        sent = request.acknowledged.pop(answer.place, None)
        if sent is None or self._model is not self.group.model:
            return
        code = ErrorCode(answer.acknowledge_error_code)
        if code is ErrorCode.none:
            self._model.on_accepted(sent)
        elif code in _REFUSALS:
            self._note("refused", answer.place, code.name, dict(sent.types))
            self._model.on_refused(sent)
            held = self.held.setdefault(answer.place, {})
            held.update({offset: delivery.count for offset, delivery in sent.held.items()})
        else:
            self._note("not acknowledged", answer.place, code.name)
            self._routing.mistrust(*answer.place)
            check_error(code if code is ErrorCode.unknown_server_error else 0)

    def _fail(self, answer: PartitionAnswer) -> None:
        self._routing.mistrust(*answer.place)
        code = ErrorCode(answer.error_code)
        self._note("not fetched", answer.place, code.name)
        check_error(code if code is ErrorCode.unknown_server_error else 0)

    def _take(self, request: Request, answer: PartitionAnswer) -> list[int]:
        """Check the records that were acquired. An offset without a record is answered as a gap later."""
        place, known = answer.place, self.held.setdefault(answer.place, {})
        if self._model is not self.group.model:
            return []
        grip = self.group.grip(request.node_id, place, self.id, request.leaders.get(place))
        topic = self.group.topic.model
        for offset, count in answer.acquired.items():
            self._model.on_delivery(place, self.id, offset, count, request.sent_s, grip)
            known[offset] = count
            if offset not in answer.values:
                raise InvariantViolated("Q1", f"{place} {offset} was acquired without its record")
            if not self._model.is_committed:
                topic.on_uncommitted(place, offset, answer.values[offset])
                continue
            try:
                topic.on_committed(place, offset, answer.values[offset])
            except InvariantViolated as error:
                raise InvariantViolated("Q8", f"{place} {offset} for {self.id}: {error}") from error
        return sorted(answer.acquired)

    def _note(self, what: str, *details: object) -> None:
        self._stage.note(self.id, what, *details)
