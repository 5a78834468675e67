"""Calls of the Python client that librdkafka does not have use the connection settings of `config`, too."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from penstock import Admin, Queue
from penstock.client.errors import InvalidSetting
from penstock.config import Address
from support.certificates import TestAuthority
from support.secure_brokers import add_user, address_of, in_thread, named
from support.whole_brokers import Brokers, run

LISTENERS = "SASL_SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
LOGIN = {"sasl.username": "alice", "sasl.password": "secret"}


def use(address: Address, settings: dict[str, str], queue: str) -> None:
    """Truncate a topic, list schedules and send through a queue."""
    with Admin(str(address), config=settings) as admin:
        admin.topics.create(f"{queue}-topic", partitions=1)
        assert admin.topics.truncate(f"{queue}-topic") == 0
        assert admin.schedules.list() == []
    with Queue.create(queue, bootstrap=str(address), config=settings) as opened:
        opened.send("hello")
        with opened.receive(wait_s=20) as message:
            assert message.value == "hello"


def test_config_secures_calls_beside_librdkafka(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await add_user(harness, "alice", "secret")
        tls = {"ssl.ca.location": str(authority.file)}
        file = str(authority.issue("bob", ()))
        for number, (listener, settings) in enumerate(
            (
                ("SASL_SSL", {"sasl.mechanism": "PLAIN", **LOGIN, **tls}),
                ("SASL_SSL", {"sasl.mechanisms": "SCRAM-SHA-256", **LOGIN, **tls}),
                ("SASL_PLAINTEXT", {"sasl.mechanism": "SCRAM-SHA-512", **LOGIN}),
                ("SSL", {"ssl.certificate.location": file, "ssl.key.location": file, **tls}),
            )
        ):
            given = {"security.protocol": listener, **settings}
            await in_thread(partial(use, address_of(brokers, 1, listener), given, f"queue-{number}"))

    run(tmp_path, scenario, listeners=LISTENERS, **named(authority.settings()))


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"security.protocol": "SSL"}, "ssl.ca.location"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "sasl.username"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", **LOGIN}, "OAUTHBEARER"),
        ({"bootstrap.servers": "nowhere"}, "HOST:PORT"),
    ],
)
def test_setting_without_a_meaning_for_queues_is_named(settings: dict[str, str], missing: str) -> None:
    with pytest.raises(InvalidSetting, match=missing):
        Queue("jobs", config=settings)
