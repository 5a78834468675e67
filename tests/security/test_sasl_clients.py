"""Unmodified Kafka clients that log in to a cluster of three brokers, with TLS and without."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from support.certificates import TestAuthority
from support.secure_brokers import add_user, address_of, consume, create, in_thread, named, produce
from support.whole_brokers import Brokers, run

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    import kafka

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def settings_of(brokers: Brokers, mechanism: str, authority: TestAuthority | None) -> dict[str, Any]:
    protocol = "SASL_PLAINTEXT" if authority is None else "SASL_SSL"
    settings = {
        "bootstrap.servers": str(address_of(brokers, 1, protocol)),
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": "secret",
        "log_level": 3,
    }
    return settings if authority is None else {**settings, "ssl.ca.location": str(authority.file)}


@pytest.mark.slow
@pytest.mark.parametrize("has_tls", [True, False], ids=["TLS", "plaintext"])
def test_confluent_kafka_logs_in_with_every_mechanism(tmp_path: Path, has_tls: bool) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        for number in (1, 2, 3):
            harness = await brokers.start(number)
        await add_user(harness, "alice", "secret")
        for mechanism in MECHANISMS:
            settings = settings_of(brokers, mechanism, authority if has_tls else None)
            topic = mechanism.lower()
            await in_thread(partial(create, settings, topic, 3))
            await in_thread(partial(produce, settings, topic, 300))
            read = await in_thread(partial(consume, settings, topic, 300))
            assert read == list(range(300))
        assert brokers.members(1, "plain") == {1, 2, 3}
        wrong = {**settings, "sasl.password": "guess"}
        with pytest.raises(KafkaException):
            await in_thread(lambda: AdminClient(wrong).list_topics(timeout=2))

    protocol = "SASL_SSL" if has_tls else "SASL_PLAINTEXT"
    run(
        tmp_path,
        scenario,
        listeners=f"{protocol}://127.0.0.1:0",
        sasl_plain_without_tls="true",
        **named(authority.settings()),
    )


@pytest.mark.slow
def test_clients_survive_logins_again_under_load(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await add_user(harness, "alice", "secret")
        settings = settings_of(brokers, "SCRAM-SHA-256", authority)
        await in_thread(lambda: create(settings, "t"))
        failures: list[object] = []

        def load() -> int:
            producer = Producer({**settings, "acks": "all", "linger.ms": 0})
            count = 0
            while logins() < 12:
                producer.produce(
                    "t", b"x", on_delivery=lambda error, _: failures.append(error) if error else None
                )
                producer.poll(0.01)
                count += 1
            assert producer.flush(30) == 0
            return count

        def logins() -> int:
            return brokers.running[1]._security.logins.accepted

        sent = await in_thread(load)
        assert sent > 100
        assert not failures
        assert brokers.running[1]._security.logins.failed == 0

    run(
        tmp_path,
        scenario,
        listeners="SASL_SSL://127.0.0.1:0",
        connections_max_reauth_ms="1000",
        **named(authority.settings()),
    )


def test_users_are_managed_by_the_admin_client(tmp_path: Path) -> None:
    def manage(admin: AdminClient) -> None:
        upsertions = [
            UserScramCredentialUpsertion("carol", ScramCredentialInfo(mechanism, 8192), b"pass", b"salt")
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for each in admin.alter_user_scram_credentials(upsertions).values():
            each.result(20)
        described = admin.describe_user_scram_credentials().result(20)
        assert set(described) == {"alice", "carol"}
        infos = described["carol"].scram_credential_infos
        assert {(info.mechanism, info.iterations) for info in infos} == {
            (ScramMechanism.SCRAM_SHA_256, 8192),
            (ScramMechanism.SCRAM_SHA_512, 8192),
        }
        few = UserScramCredentialUpsertion(
            "dan", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 100), b"p"
        )
        with pytest.raises(KafkaException, match="Too few iterations"):
            admin.alter_user_scram_credentials([few])["dan"].result(20)
        deletion = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)
        admin.alter_user_scram_credentials([deletion])["carol"].result(20)
        with pytest.raises(KafkaException, match="does not exist"):
            admin.alter_user_scram_credentials([deletion])["carol"].result(20)
        with pytest.raises(KafkaException, match="does not exist"):
            admin.describe_user_scram_credentials(["nobody"])["nobody"].result(20)

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await add_user(harness, "alice", "secret")
        settings = settings_of(brokers, "SCRAM-SHA-256", None)
        await in_thread(lambda: manage(AdminClient(settings)))
        as_carol = {**settings, "sasl.username": "carol", "sasl.password": "pass"}
        as_carol["sasl.mechanism"] = "SCRAM-SHA-512"
        await in_thread(lambda: AdminClient(as_carol).list_topics(timeout=10))

    run(tmp_path, scenario, listeners="SASL_PLAINTEXT://127.0.0.1:0")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_and_kafka_python_log_in(tmp_path: Path, mechanism: str) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        await add_user(await brokers.start(1), "alice", "secret")
        login = {
            "bootstrap_servers": str(address_of(brokers, 1, "SASL_SSL")),
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": "secret",
            "ssl_context": ssl.create_default_context(cafile=str(authority.file)),
        }
        producer = AIOKafkaProducer(**login)
        await producer.start()
        await producer.send_and_wait("t", b"from aiokafka")
        await producer.stop()

        def with_kafka_python() -> list[bytes]:
            producer = kafka.KafkaProducer(**login)
            producer.send("t", b"from kafka-python").get(20)
            producer.close()
            consumer = kafka.KafkaConsumer(
                "t", group_id="readers", auto_offset_reset="earliest", consumer_timeout_ms=20_000, **login
            )
            values = [next(consumer).value for _ in range(2)]
            consumer.close()
            return values

        assert await in_thread(with_kafka_python) == [b"from aiokafka", b"from kafka-python"]
        consumer = AIOKafkaConsumer("t", group_id="others", auto_offset_reset="earliest", **login)
        await consumer.start()
        async with asyncio.timeout(20):
            assert (await consumer.getone()).value == b"from aiokafka"
        await consumer.stop()

    run(tmp_path, scenario, listeners="SASL_SSL://127.0.0.1:0", **named(authority.settings()))
