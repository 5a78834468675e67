"""FetchByKey: the gateway reads the records of single keys from the leaders of topics with `index.by.key`."""

from __future__ import annotations

from functools import partial

from penstock.errors import BrokerError, ErrorCode
from penstock.net.response import Answer
from penstock.replication.replica import Replica
from penstock.server.dispatch import Api, Request
from penstock.server.key_session import KeySession
from penstock.server.security import Operation, ResourceType
from penstock.wire.apis import FETCH_BY_KEY
from penstock.wire.fetch_by_key import KeyLookup, decode_fetch_by_key_request


def handle(request: Request, frame: memoryview, position: int) -> Answer:
    asked = decode_fetch_by_key_request(frame, position)
    session = request.session.keys
    if session is None:
        session = request.session.keys = KeySession(request.context.clock, request.context.long_polls)
    session.give_up(asked.given_up)
    session.start(asked.lookups, partial(_leader, request))
    return session.answer(request.header.correlation_id)


API = Api(FETCH_BY_KEY, 0, 0, handle_raw=handle)


def _leader(request: Request, lookup: KeyLookup) -> Replica:
    topic = request.context.image.topic_by_id(lookup.topic_id)
    if topic is None:
        raise BrokerError(ErrorCode.unknown_topic_id)
    request.require(Operation.READ, ResourceType.TOPIC, topic.name)
    replica = request.context.replicas.get(topic.name, lookup.partition)
    replica.check_leader_epoch(lookup.current_leader_epoch)
    if replica.keyed is None:
        raise BrokerError(
            ErrorCode.invalid_request, f"topic {topic.name} has no key index; set index.by.key=true"
        )
    if not replica.partition.is_caught_up:
        # The high watermark of a new leader may be lower than the former leader's: records that clients have
        # already seen would look lost.
        raise BrokerError(ErrorCode.offset_not_available)
    return replica
