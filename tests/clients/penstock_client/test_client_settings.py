"""Settings of the client: the librdkafka configuration they produce, and the combinations they refuse."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from penstock import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    InvalidSetting,
    Producer,
    UnknownOption,
)
from penstock.client import bootstrap
from penstock.client.consumer_options import ConsumerOptions, consumer_config
from penstock.client.producer_options import ProducerOptions, producer_config


def producer(**options: Any) -> dict[str, Any]:
    return producer_config("h:1", cast(ProducerOptions, {"connect_timeout_s": 0, **options}))


def consumer(**options: Any) -> dict[str, Any]:
    chosen = {"connect_timeout_s": 0, "bootstrap": "h:1", "group": "g", **options}
    return consumer_config(cast(ConsumerOptions, chosen))


def without_callbacks(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if not callable(value)}


def test_at_least_once_is_the_default_and_idempotent() -> None:
    assert without_callbacks(producer()) == without_callbacks(producer(delivery="at-least-once"))
    assert (producer()["acks"], producer()["enable.idempotence"]) == ("all", True)
    assert (consumer()["enable.auto.commit"], consumer()["enable.auto.offset.store"]) == (True, False)


def test_at_most_once_never_sends_again_and_commits_itself() -> None:
    settings = producer(delivery="at-most-once")
    assert (settings["acks"], settings["message.send.max.retries"]) == (0, 0)
    assert settings["enable.idempotence"] is False
    assert consumer(delivery="at-most-once")["enable.auto.commit"] is False


def test_profiles_differ_in_batches_and_waiting() -> None:
    fast, full = producer(profile="latency"), producer(profile="throughput")
    assert fast["linger.ms"] < full["linger.ms"]
    assert fast["batch.size"] < full["batch.size"]
    assert (fast["compression.type"], full["compression.type"]) == ("none", "lz4")
    fast, full = consumer(profile="latency"), consumer(profile="throughput")
    assert fast["fetch.min.bytes"] < full["fetch.min.bytes"]


def test_a_setting_given_alone_wins_over_the_profile_and_config_over_all() -> None:
    assert producer(profile="throughput", linger_ms=1)["linger.ms"] == 1
    assert producer(profile="throughput", linger_ms=1, config={"linger.ms": 2})["linger.ms"] == 2
    assert consumer(profile="throughput", fetch_min_bytes=7)["fetch.min.bytes"] == 7
    assert consumer(fetch_max_wait_ms=9, fetch_max_bytes=8)["fetch.wait.max.ms"] == 9
    assert consumer(config={"group.id": "other"})["group.id"] == "other"


def test_groups_are_cooperative_or_of_the_new_protocol() -> None:
    assert consumer()["partition.assignment.strategy"] == "cooperative-sticky"
    settings = consumer(group_protocol="consumer", instance_id="i")
    assert (settings["group.protocol"], settings["group.instance.id"]) == ("consumer", "i")
    assert "partition.assignment.strategy" not in settings


def test_exactly_once_is_transactions_on_both_sides() -> None:
    sending = producer(delivery="exactly-once", transactional_id="t", transaction_timeout_s=5)
    assert (sending["transactional.id"], sending["transaction.timeout.ms"]) == ("t", 5_000)
    assert 0 < sending["connections.max.idle.ms"] < 60_000
    assert "connections.max.idle.ms" not in producer()
    assert (sending["acks"], sending["delivery.timeout.ms"]) == ("all", 5_000)
    ids = {producer(delivery="exactly-once")["transactional.id"] for _ in range(2)}
    assert len(ids) == 2
    reading = consumer(delivery="exactly-once")
    assert (reading["enable.auto.commit"], reading["isolation.level"]) == (False, "read_committed")


def test_the_new_group_protocol_is_used_where_the_broker_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeat = 68
    for api_keys, protocol in ((frozenset({heartbeat}), "consumer"), (frozenset({12}), "classic")):
        monkeypatch.setattr(bootstrap, "probe", lambda *_, keys=api_keys: keys)
        settings = consumer_config(ConsumerOptions(bootstrap="h:1", group="g"))
        assert settings["group.protocol"] == protocol
    monkeypatch.setattr(bootstrap, "probe", lambda *_: frozenset({heartbeat}))
    chosen = ConsumerOptions(bootstrap="h:1", group="g", config={"session.timeout.ms": 10_000})
    assert consumer_config(chosen)["group.protocol"] == "classic"


@pytest.mark.parametrize(
    ("make", "options", "advice"),
    [
        (Consumer, {"group_id": "billing"}, "there is no option 'group_id'; did you mean 'group'?"),
        (AsyncConsumer, {"gruop": "billing"}, "did you mean 'group'?"),
        (Consumer, {"auto_offset_reset": "latest"}, "did you mean 'start'?"),
        (Producer, {"bootstrap_servers": "h:1"}, "did you mean 'bootstrap'?"),
        (AsyncProducer, {"compresion": "lz4"}, "did you mean 'compression'?"),
        (Producer, {"client_id": "x"}, "librdkafka's settings go into config={'client.id': ...}"),
        (Admin, {"request_timeout": 3}, "did you mean 'request_timeout_s'?"),
        (AsyncAdmin, {"bootstrap_server": "h:1"}, "did you mean 'bootstrap'?"),
    ],
)
def test_unknown_options_are_refused_with_the_likely_name(
    make: Any, options: dict[str, Any], advice: str
) -> None:
    with pytest.raises(UnknownOption) as refusal:
        make("orders" if "Consumer" in make.__name__ else "h:1", **options)
    assert advice in str(refusal.value)
    assert isinstance(refusal.value, TypeError)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delivery": "twice"}, "at-most-once, at-least-once"),
        ({"profile": "fast"}, "throughput or latency"),
        ({"group_protocol": "new"}, "classic or consumer"),
        ({"start": "middle"}, "earliest or latest"),
    ],
)
def test_unknown_value_is_refused_with_the_valid_ones(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        consumer(**options)


def test_trouble_that_repeats_is_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    trouble = producer()["error_cb"]
    for _ in range(1000):
        trouble(KafkaError(KafkaError._TRANSPORT))
    trouble(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "is one running at the bootstrap address?" in caplog.text


def test_settings_that_librdkafka_does_not_know_are_named() -> None:
    with pytest.raises(InvalidSetting, match=r"no\.such\.setting"):
        Producer("127.0.0.1:1", connect_timeout_s=0, config={"no.such.setting": 1})


def test_an_address_in_place_of_a_topic_is_noticed() -> None:
    with pytest.raises(InvalidSetting, match="bootstrap="):
        Consumer("localhost:9092")
    with pytest.raises(InvalidSetting, match="HOST:PORT"):
        Producer("localhost")
