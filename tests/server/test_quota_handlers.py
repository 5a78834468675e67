"""DescribeClientQuotas and AlterClientQuotas, and the effect of quotas on clients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from penstock.cluster.memory import MemoryEnsemble
from penstock.errors import ErrorCode
from penstock.net.connection import Connection
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.security.acl import Principal
from penstock.wire.messages import decode_response_frame, encode_request_frame
from support.harness import Harness, new_topic, serve
from support.raw import RawClient
from support.secure_brokers import in_thread
from support.whole_brokers import Brokers, run

DESCRIBE, ALTER = 48, 49
ANY_USER = [{"entity_type": "user", "match_type": 2, "match": None}]


def change(values: Mapping[str, float | None], **names: str | None) -> dict[str, Any]:
    """Quotas of an entity, by `user`, `client_id` and `ip`; None removes a quota, and names the default."""
    entity = [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in names.items()]
    operations = [
        {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
        for key, value in values.items()
    ]
    return {"entity": entity, "ops": operations}


async def alter(
    broker: Harness, *changes: dict[str, Any], version: int = 1, dry: bool = False
) -> list[ErrorCode]:
    response = await broker.ask(ALTER, version, {"entries": changes, "validate_only": dry})
    return [entry.error_code for entry in response.entries]


async def describe(
    broker: Harness, components: list[dict[str, Any]], *, strict: bool = False, version: int = 1
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    response = await broker.ask(DESCRIBE, version, {"components": components, "strict": strict})
    assert response.error_code == 0, response.error_message
    return {
        tuple((each.entity_type, each.entity_name) for each in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_removed_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        codes = await alter(
            broker,
            change({"producer_byte_rate": 1048576.0, "request_percentage": 50.0}, user="alice"),
            change({"consumer_byte_rate": 2.5}, user="alice", client_id="app"),
            change({"controller_mutation_rate": 9.0}, user=None),
            change({"connection_creation_rate": 5.0}, ip="127.0.0.9"),
            version=version,
        )
        assert codes == [ErrorCode.none] * 4
        assert await describe(broker, ANY_USER, version=version) == {
            (("user", "alice"),): {"producer_byte_rate": 1048576.0, "request_percentage": 50.0},
            (("user", "alice"), ("client-id", "app")): {"consumer_byte_rate": 2.5},
            (("user", None),): {"controller_mutation_rate": 9.0},
        }
        alice = [{"entity_type": "user", "match_type": 0, "match": "alice"}]
        assert len(await describe(broker, alice, version=version)) == 2
        assert list(await describe(broker, alice, strict=True, version=version)) == [(("user", "alice"),)]
        default = [{"entity_type": "user", "match_type": 1, "match": None}]
        assert list(await describe(broker, default, version=version)) == [(("user", None),)]
        assert len(await describe(broker, [], version=version)) == 4
        assert await describe(broker, [], strict=True, version=version) == {}
        await alter(broker, change({"producer_byte_rate": None, "request_percentage": None}, user="alice"))
        assert (("user", "alice"),) not in await describe(broker, ANY_USER, version=version)

    serve(tmp_path, scenario)


def test_invalid_quotas_are_refused_one_by_one(tmp_path: Path) -> None:
    rate = {"producer_byte_rate": 1.0}
    cases = [
        change({"producer_byte_rate": 0.0}, user="a"),
        change({"producer_byte_rate": -1.0}, user="b"),
        change({"producer_byte_rate": math.nan}, user="c"),
        change({"producer_byte_rate": math.inf}, user="d"),
        change({"unknown_rate": 1.0}, user="e"),
        change({"connection_creation_rate": 1.0}, user="f"),
        change(rate, ip="10.0.0.1"),
        change({"connection_creation_rate": 1.0}, ip="10.0.0.2", user="g"),
        change({"connection_creation_rate": 1.0}, ip="broker1.example.com"),
        change({"connection_creation_rate": 1.0}, ip="0:0:0:0:0:0:0:1"),
        change(rate),
        change(rate, user=""),
        change(rate, user="a\nb"),
        change(rate, user="x" * 1_001),
        {"entity": [{"entity_type": "planet", "entity_name": "mars"}], "ops": []},
        change(rate, user="twice"),
        change(rate, user="twice"),
    ]

    async def scenario(broker: Harness) -> None:
        codes = await alter(broker, *cases, change(rate, user="good"))
        assert codes == [ErrorCode.invalid_request] * len(cases) + [ErrorCode.none]
        assert list(await describe(broker, ANY_USER)) == [(("user", "good"),)]
        assert await alter(broker, change(rate, user="dry"), dry=True) == [ErrorCode.none]
        assert (("user", "dry"),) not in await describe(broker, ANY_USER)
        for wrong in (
            [{"entity_type": "planet", "match_type": 2, "match": None}],
            [{"entity_type": "user", "match_type": 9, "match": None}],
            [{"entity_type": "user", "match_type": 0, "match": None}],
            ANY_USER * 2,
        ):
            response = await broker.ask(DESCRIBE, 1, {"components": wrong, "strict": False})
            assert response.error_code == ErrorCode.invalid_request

    serve(tmp_path, scenario)


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    ensemble = MemoryEnsemble()

    async def first(broker: Harness) -> None:
        await alter(broker, change({"producer_byte_rate": 7.0}, user="ü,u-/", client_id=None))

    async def second(broker: Harness) -> None:
        assert await describe(broker, ANY_USER) == {
            (("user", "ü,u-/"), ("client-id", None)): {"producer_byte_rate": 7.0}
        }
        assert broker.context.quotas is not None

    serve(tmp_path, first, ensemble=ensemble)
    serve(tmp_path, second, ensemble=ensemble)


def test_mutations_over_the_quota_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        broker.session.principal = Principal("User", "alice")
        await alter(broker, change({"controller_mutation_rate": 2.0}, user="alice"))
        await broker.create("a", 50)
        fields = {"topics": [new_topic("b", 1)], "timeout": 5_000, "validate_only": False}
        response = await broker.ask(19, 7, fields)
        assert response.topics[0].error_code == ErrorCode.throttling_quota_exceeded
        assert "b" not in broker.context.image.topics
        broker.session.principal = Principal("User", "bob")
        await broker.create("b")

    serve(tmp_path, scenario)


def produce_fields(topic: str, value: bytes) -> dict[str, Any]:
    batch = build_batch([NewRecord(b"k", value, 1)], codec=Codec.NONE)
    partitions = [{"index": 0, "records": batch}]
    topics = [{"name": topic, "partition_data": partitions}]
    return {"transactional_id": None, "acks": 1, "timeout": 5_000, "topic_data": topics}


@pytest.mark.parametrize("version", [3, 9])
def test_throttled_producer_is_answered_first_and_muted_afterwards(tmp_path: Path, version: int) -> None:
    async def scenario(brokers: Brokers) -> None:
        broker = await brokers.start(1)
        await broker.create("t")
        await alter(broker, change({"producer_byte_rate": 20_000.0}, user="ANONYMOUS"))

        def talk() -> tuple[float, float, int]:
            with RawClient(brokers.running[1].port) as client:
                started = monotonic()
                client.send(encode_request_frame(0, version, 1, "app", produce_fields("t", bytes(20_000))))
                frame = client.read_frame()
                answered = monotonic() - started
                client.send(encode_request_frame(18, 0, 2, "app", {}))
                client.read_frame()
                answer = decode_response_frame(0, version, memoryview(frame))
                return answered, monotonic() - started, int(answer.throttle_time.total_seconds() * 1000)

        answered, next_answered, throttle_ms = await in_thread(talk)
        assert 400 <= throttle_ms <= 600
        assert next_answered * 1000 >= throttle_ms - 20
        assert answered < next_answered
        assert broker.context.metrics.throttled_users.counts == {"ANONYMOUS": 1}

    run(tmp_path, scenario)


def test_throttle_without_muting_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "mute", lambda self, seconds: None)
    with pytest.raises(AssertionError):
        test_throttled_producer_is_answered_first_and_muted_afterwards(tmp_path, 9)
