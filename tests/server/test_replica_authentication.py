"""Fetch as a replica: only the broker with that id may send it, after authentication."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ErrorCode, ProtocolError
from penstock.model import BrokerId
from penstock.server.dispatch import Session
from penstock.server.security import ANONYMOUS
from penstock.wire.apis import BROKER_HANDSHAKE
from penstock.wire.broker_handshake import (
    NO_PROOF,
    Challenge,
    HandshakeRequest,
    HandshakeResponse,
    decode_handshake_response,
    encode_handshake_request,
)
from penstock.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.fetch_client import FetchResponse, decode_fetch_response, encode_fetch_request
from penstock.wire.framing import SIZE_PREFIX
from support.harness import Harness, content_of, serve

SECRET = {"cluster.secret": "between us"}
ME, OTHER = BrokerId(1), BrokerId(2)
NONCE = b"sixteen bytes 16"


def shake(harness: Harness, session: Session, request: HandshakeRequest) -> HandshakeResponse:
    frame = encode_handshake_request(7, "test", request)
    answer = harness._broker._dispatcher.dispatch(session, memoryview(frame)[SIZE_PREFIX:])
    assert isinstance(answer, list)
    return decode_handshake_response(memoryview(content_of(answer[:1]))[SIZE_PREFIX:])


def connect(name: str = "test:1") -> Session:
    return Session(name, "test", ANONYMOUS)


def prove(harness: Harness, session: Session, secret: str = "between us", broker: BrokerId = OTHER) -> int:
    answer = shake(harness, session, HandshakeRequest(broker, ME, NONCE))
    proof = Challenge(broker, ME, NONCE, answer.nonce).asking_proof(secret)
    return shake(harness, session, HandshakeRequest(broker, ME, NONCE, proof)).error_code


def fetch(harness: Harness, session: Session, replica_id: int, version: int = 17) -> FetchResponse:
    topic = harness.context.image.topics["orders"]
    request = FetchRequest(
        0,
        0,
        [FetchTopic(topic.name, topic.id, [FetchPartition(0, 0, 1000, current_leader_epoch=-1)])],
        [],
        replica_id=replica_id,
        replica_epoch=1,
        session_epoch=0,
        uses_topic_ids=version >= 13,
    )
    frame = encode_fetch_request(7, version, "test", request)
    answer = harness._broker._dispatcher.dispatch(session, memoryview(frame)[SIZE_PREFIX:])
    assert isinstance(answer, list)
    return decode_fetch_response(memoryview(content_of(answer))[SIZE_PREFIX:], version)


@pytest.mark.parametrize("replica_id", [1, 2, 999, -2])
@pytest.mark.parametrize("version", [4, 12, 14])
def test_client_fetch_with_a_replica_id_moves_no_high_watermark(
    tmp_path: Path, replica_id: int, version: int
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create("orders")
        await harness.append("orders", b"a")
        replica = harness.context.replicas.get("orders", 0)
        before = (replica.log.high_watermark, harness.context.image.topics["orders"].partitions)
        proven = connect("test:2")
        assert prove(harness, proven, broker=BrokerId(3)) == 0
        for session in (connect(), proven):
            response = fetch(harness, session, replica_id, version)
            code = response.error_code or response.topics[0].partitions[0].error_code
            assert code == ErrorCode.cluster_authorization_failed
        assert (replica.log.high_watermark, harness.context.image.topics["orders"].partitions) == before
        assert replica.partition.in_sync.followers == {}

    serve(tmp_path, scenario, SECRET)


def test_authenticated_broker_fetches_only_as_itself(tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create("orders")
        session = connect()
        assert prove(harness, session) == 0
        assert fetch(harness, session, OTHER).error_code == 0
        assert fetch(harness, session, 3).error_code == ErrorCode.cluster_authorization_failed

    serve(tmp_path, scenario, SECRET)


def test_wrong_proof_is_refused_and_ends_the_authentication(tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create("orders")
        session = connect()
        assert prove(harness, session) == 0
        assert prove(harness, session, "a guess") == ErrorCode.cluster_authorization_failed
        assert session.broker_id is None

    serve(tmp_path, scenario, SECRET)


def test_handshake_proof_cannot_be_replayed_or_reflected(tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        first, second = connect(), connect("test:2")
        answer = shake(harness, first, HandshakeRequest(OTHER, ME, NONCE))
        challenge = Challenge(OTHER, ME, NONCE, answer.nonce)
        assert answer.proof == challenge.answering_proof("between us")
        proof = challenge.asking_proof("between us")
        shake(harness, second, HandshakeRequest(OTHER, ME, NONCE))
        for session, request in (
            (second, HandshakeRequest(OTHER, ME, NONCE, proof)),  # of another connection
            (first, HandshakeRequest(BrokerId(3), ME, NONCE, proof)),  # for another broker
            (first, HandshakeRequest(OTHER, ME, NONCE, proof)),  # after a wrong attempt
            (first, HandshakeRequest(OTHER, ME, NONCE, answer.proof)),  # our own, sent back
            (first, HandshakeRequest(ME, ME, NONCE, NO_PROOF)),  # as ourselves
            (first, HandshakeRequest(OTHER, OTHER, NONCE, NO_PROOF)),  # meant for another
        ):
            assert shake(harness, session, request).error_code == ErrorCode.cluster_authorization_failed
            assert session.broker_id is None

    serve(tmp_path, scenario, SECRET)


def test_broker_without_cluster_secret_uses_the_secret_in_the_store(tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        secret = harness.context.metadata.image.secret
        assert len(secret) == 64
        assert secret not in repr(harness.context.metadata.image)
        for guess in ("", "between us"):
            assert prove(harness, connect(), guess) == ErrorCode.cluster_authorization_failed
        assert prove(harness, connect(), secret) == 0

    serve(tmp_path, scenario)


def test_api_versions_hides_apis_between_brokers(tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        response = await harness.ask(18, 2, {})
        assert BROKER_HANDSHAKE not in {api.api_key for api in response.api_keys}
        short = encode_handshake_request(7, "test", HandshakeRequest(OTHER, ME, NONCE))[SIZE_PREFIX:-1]
        with pytest.raises(ProtocolError):
            harness._broker._dispatcher.dispatch(connect(), memoryview(short))

    serve(tmp_path, scenario, SECRET)
