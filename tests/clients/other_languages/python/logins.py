"""Every login of confluent-kafka, kafka-python and aiokafka, at once and under load, while logins expire. The argument
is the file of `login_ground.py`.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import aiokafka
    from aiokafka.abc import AbstractTokenProvider
    from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

    import kafka

PAUSE_SECONDS = 0.01
PATIENCE_SECONDS = 60.0
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
Ground = dict[str, Any]


def protocols() -> Iterator[tuple[str, str]]:
    """Protocol and mechanism of each login; without a mechanism the client shows a certificate."""
    yield "SSL", ""
    for mechanism in MECHANISMS:
        yield "SASL_SSL", mechanism
        yield "SASL_PLAINTEXT", mechanism


def tls_context(ground: Ground, protocol: str) -> ssl.SSLContext | None:
    if not protocol.endswith("SSL"):
        return None
    context = ssl.create_default_context(cafile=ground["authority"])
    if protocol == "SSL":
        context.load_cert_chain(ground["certificate"])
    return context


def with_confluent_kafka(ground: Ground, protocol: str, mechanism: str, topic: str) -> int:
    settings: dict[str, Any] = {
        "bootstrap.servers": ground["addresses"][protocol],
        "security.protocol": protocol,
        "log_level": 3,
    }
    if protocol.endswith("SSL"):
        settings["ssl.ca.location"] = ground["authority"]
    if protocol == "SSL":
        file = ground["certificate"]
        settings |= {"ssl.certificate.location": file, "ssl.key.location": file}
    elif mechanism == "OAUTHBEARER":
        # The callback sees a short life of the token, so that librdkafka asks again and logs in again.
        settings |= {"sasl.mechanism": mechanism, "oauth_cb": lambda _: (ground["token"], time.time() + 60)}
    else:
        user = {"sasl.username": ground["user"], "sasl.password": ground["password"]}
        settings |= {"sasl.mechanism": mechanism, **user}
    failures: list[object] = []
    producer, sent = Producer({**settings, "linger.ms": 0}), 0
    consumer = Consumer({**settings, "group.id": f"{topic}-group", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read, end = 0, time.monotonic() + ground["seconds"]
    deadline = end + PATIENCE_SECONDS
    while time.monotonic() < end or read < sent:
        if time.monotonic() < end:
            content = f"record {sent}".encode()
            producer.produce(
                topic, content, on_delivery=lambda error, _: failures.append(error) if error else None
            )
            sent += 1
        producer.poll(0)
        message = consumer.poll(PAUSE_SECONDS)
        read += message is not None and message.error() is None
        assert time.monotonic() < deadline, f"{read} of {sent} records were read"
    assert producer.flush(30) == 0
    assert not failures, failures
    consumer.close()
    return sent


def _common(ground: Ground, protocol: str, mechanism: str) -> dict[str, Any]:
    """Settings that kafka-python and aiokafka share."""
    settings: dict[str, Any] = {
        "bootstrap_servers": ground["addresses"][protocol].split(","),
        "security_protocol": protocol,
        "ssl_context": tls_context(ground, protocol),
    }
    if mechanism and mechanism != "OAUTHBEARER":
        user = {"sasl_plain_username": ground["user"], "sasl_plain_password": ground["password"]}
        settings |= user
    return settings | ({"sasl_mechanism": mechanism} if mechanism else {})


def with_kafka_python(ground: Ground, protocol: str, mechanism: str, topic: str) -> int:
    class Tokens(KafkaPythonTokens):
        def token(self) -> str:
            return str(ground["token"])

    settings = _common(ground, protocol, mechanism)
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Tokens()
    producer, sent = kafka.KafkaProducer(**settings), 0
    end = time.monotonic() + ground["seconds"]
    while time.monotonic() < end:
        producer.send(topic, f"record {sent}".encode()).get(30)
        sent += 1
        time.sleep(PAUSE_SECONDS)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        group_id=f"{topic}-group",
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE_SECONDS * 1000,
        **settings,
    )
    for _ in range(sent):
        next(consumer)
    consumer.close()
    return sent


def with_aiokafka(ground: Ground, protocol: str, mechanism: str, topic: str) -> int:
    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:
            return str(ground["token"])

    async def use() -> int:
        settings = _common(ground, protocol, mechanism)
        if mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = Tokens()
        producer, sent = aiokafka.AIOKafkaProducer(**settings), 0
        await producer.start()
        end = time.monotonic() + ground["seconds"]
        while time.monotonic() < end:
            await producer.send_and_wait(topic, f"record {sent}".encode())
            sent += 1
            await asyncio.sleep(PAUSE_SECONDS)
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            topic, group_id=f"{topic}-group", auto_offset_reset="earliest", **settings
        )
        await consumer.start()
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in range(sent):
                await consumer.getone()
        await consumer.stop()
        return sent

    return asyncio.run(use())


CLIENTS: dict[str, Callable[[Ground, str, str, str], int]] = {
    "confluent-kafka": with_confluent_kafka,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}


def main() -> None:
    ground = json.loads(Path(sys.argv[1]).read_text())
    failed = False
    for client, use in CLIENTS.items():
        with ThreadPoolExecutor(20) as threads:
            running = {}
            for protocol, mechanism in protocols():
                name = f"{client}-{protocol}-{mechanism}".lower().strip("-").replace("_", "-")
                running[name] = threads.submit(use, ground, protocol, mechanism, name)
        for name, each in running.items():
            if error := each.exception():
                failed = True
                print(f"{name}: {error!r}", file=sys.stderr)
            else:
                print(f"{name}: {each.result()} records", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
