"""Rights of the APIs that Kafka does not have: brokers alone, or exactly the rights that `support/rights.py` names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from test_rights_matrix import SETTINGS, USER, Matrix

from penstock.model import BrokerId, ProducerId, TopicId, TopicPartition
from penstock.server.handlers import all_apis
from penstock.server.inspection import QUESTIONS
from penstock.server.security import Operation, ResourceType
from penstock.wire.apis import SHARE_STATUS
from penstock.wire.broker_handshake import (
    NO_PROOF,
    NONCE_BYTES,
    HandshakeRequest,
    decode_handshake_response,
    encode_handshake_request,
)
from penstock.wire.fetch_by_key import (
    FetchByKeyRequest,
    KeyLookup,
    decode_fetch_by_key_response,
    encode_fetch_by_key_request,
)
from penstock.wire.headers import decode_response_header
from penstock.wire.inspect import (
    InspectRequest,
    InspectResponse,
    decode_inspect_response,
    encode_inspect_request,
)
from penstock.wire.known_transactions import (
    OpenTransaction,
    decode_known_transactions_response,
    encode_known_transactions_request,
)
from penstock.wire.share_state import (
    ShareStateRequest,
    decode_share_state_response,
    encode_share_state_request,
)
from penstock.wire.share_status import encode_share_status_request
from support.harness import Harness, serve
from support.queue_wire import QueueClient, exchange
from support.rights import (
    REFUSALS,
    SHARE_GROUP,
    TOPIC,
    Right,
    on_cluster,
    on_group,
    on_topic,
)

READ, DESCRIBE = Operation.READ, Operation.DESCRIBE
ALL_RIGHTS = [
    (operation, kind, "*" if kind is not ResourceType.CLUSTER else "kafka-cluster")
    for operation in Operation
    for kind in ResourceType
]


class PrivateRequests:
    """One request of each private API; each returns the error code of its response."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._topic_id = TopicId(harness.context.image.topics[TOPIC].id)

    async def fetch_by_key(self) -> int:
        request = FetchByKeyRequest((KeyLookup(1, self._topic_id, 0, b"k"),), ())
        frame = await exchange(self._harness, encode_fetch_by_key_request(1, "c", request))
        return decode_fetch_by_key_response(frame)[0].error_code

    async def share_status(self) -> int:
        frame = await exchange(self._harness, encode_share_status_request(1, "c", SHARE_GROUP))
        _, position = decode_response_header(SHARE_STATUS, 0, frame)
        return int.from_bytes(bytes(frame[position : position + 2]), "big")

    async def queue_receive(self) -> int:
        answer = await QueueClient(self._harness, SHARE_GROUP, TOPIC).ask()
        codes = [answer.error_code, *(each.error_code for each in answer.partitions)]
        return max(codes)

    async def known_transactions(self) -> int:
        asked = [OpenTransaction(ProducerId(1), TopicPartition(TOPIC, 0))]
        frame = await exchange(self._harness, encode_known_transactions_request(1, "c", asked))
        return decode_known_transactions_response(frame).error_code

    async def share_state(self) -> int:
        request = ShareStateRequest(SHARE_GROUP, self._topic_id, 0, 0, 0, b"")
        frame = await exchange(self._harness, encode_share_state_request(1, "c", request))
        return decode_share_state_response(frame).error_code

    async def handshake(self) -> int:
        proof = b"x" * len(NO_PROOF)
        request = HandshakeRequest(BrokerId(2), BrokerId(1), b"n" * NONCE_BYTES, proof)
        frame = await exchange(self._harness, encode_handshake_request(1, "c", request))
        return decode_handshake_response(frame).error_code

    async def inspect(self, question: str) -> int:
        return (await self.question(question, {"topic": TOPIC})).error_code

    async def question(self, name: str, arguments: Mapping[str, object]) -> InspectResponse:
        request = InspectRequest(name, msgspec.msgpack.encode(arguments))
        return decode_inspect_response(await exchange(self._harness, encode_inspect_request(1, "c", request)))


def try_rights(tmp_path: Path, name: str, rights: Iterable[Right]) -> None:
    """A request that lacks one right is refused and changes nothing; with all rights it is served."""
    wanted = list(rights)

    async def scenario(harness: Harness) -> None:
        matrix = Matrix(harness, next(iter(all_apis())))
        await matrix.prepare()
        ask = getattr(PrivateRequests(harness), name)
        before = matrix.state()
        for missing in [None, *wanted]:
            matrix.grant([] if missing is None else [each for each in wanted if each != missing])
            assert await ask() in REFUSALS, missing
        assert matrix.state() == before
        matrix.grant(wanted)
        assert await ask() not in REFUSALS

    serve(tmp_path, scenario, SETTINGS)


def test_lookup_by_key_needs_read_on_the_topic(tmp_path: Path) -> None:
    try_rights(tmp_path, "fetch_by_key", [on_topic(READ)])


def test_share_status_needs_describe_on_the_group(tmp_path: Path) -> None:
    try_rights(tmp_path, "share_status", [on_group(DESCRIBE, SHARE_GROUP)])


def test_receiving_from_a_queue_needs_read_on_group_and_topic(tmp_path: Path) -> None:
    try_rights(tmp_path, "queue_receive", [on_group(READ, SHARE_GROUP), on_topic(READ)])


def test_no_right_is_enough_for_requests_between_brokers(tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        matrix = Matrix(harness, next(iter(all_apis())))
        await matrix.prepare()
        matrix.grant(ALL_RIGHTS)
        requests = PrivateRequests(harness)
        assert await requests.known_transactions() in REFUSALS
        assert await requests.share_state() in REFUSALS
        assert await requests.handshake() in REFUSALS
        assert harness.session.broker_id is None
        assert not harness.session.is_gateway

    serve(tmp_path, scenario, SETTINGS)


def test_every_question_needs_exactly_its_right(tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        matrix = Matrix(harness, next(iter(all_apis())))
        await matrix.prepare()
        ask = PrivateRequests(harness).inspect
        for name, question in QUESTIONS.items():
            if question.about_each_of is not None:  # see the next test
                continue
            on = on_topic if question.is_about_topic else on_cluster
            matrix.grant([])
            before = matrix.state()
            assert await ask(name) in REFUSALS, name
            assert matrix.state() == before, name
            matrix.grant([on(question.operation)])
            assert (await ask(name) in REFUSALS) == question.is_for_gateways, name
            assert harness.session.principal == USER

    serve(tmp_path, scenario, SETTINGS)


def test_questions_about_names_leave_out_those_without_the_right(tmp_path: Path) -> None:
    asked = {"names": [TOPIC, SHARE_GROUP]}

    async def scenario(harness: Harness) -> None:
        matrix = Matrix(harness, next(iter(all_apis())))
        await matrix.prepare()
        requests = PrivateRequests(harness)
        for name, question in QUESTIONS.items():
            if question.about_each_of is None:
                continue
            matrix.grant([])
            assert msgspec.msgpack.decode((await requests.question(name, asked)).answer) == {}
            matrix.grant([(question.operation, question.about_each_of, TOPIC)])
            found = msgspec.msgpack.decode((await requests.question(name, asked)).answer)
            assert set(found) == ({TOPIC} if question.about_each_of is ResourceType.TOPIC else set())

    serve(tmp_path, scenario, SETTINGS)
