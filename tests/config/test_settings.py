from __future__ import annotations

import pytest

from penstock.config import (
    CLEANUP_POLICY,
    DURABILITY,
    HOST,
    MAX_MESSAGE_BYTES,
    PORT,
    RETENTION_MS,
    Address,
    BrokerConfig,
    ConfigSource,
    Durability,
    Synonym,
    TopicConfig,
)
from penstock.errors import ConfigError


def test_topic_value_overrides_broker_value_and_default() -> None:
    broker = BrokerConfig({"log.retention.ms": "20"})
    assert TopicConfig(BrokerConfig())[RETENTION_MS] == 1_209_600_000
    assert TopicConfig(broker)[RETENTION_MS] == 20
    assert TopicConfig(broker.with_overrides({"log.retention.ms": "30"}))[RETENTION_MS] == 30
    assert TopicConfig(broker, {"retention.ms": "40"})[RETENTION_MS] == 40


@pytest.mark.parametrize("limit", [{"flush.messages": "1"}, {"flush.ms": "60000"}])
def test_flush_limit_of_a_topic_makes_it_fsync(limit: dict[str, str]) -> None:
    broker = BrokerConfig({"durability": "os"})
    assert TopicConfig(broker).durability is Durability.OS
    assert TopicConfig(broker, limit).durability is Durability.FSYNC
    assert TopicConfig(broker, {"durability": "os", **limit}).durability is Durability.FSYNC
    unlimited = dict.fromkeys(limit, str(2**63 - 1))
    assert TopicConfig(broker, unlimited).durability is Durability.OS


def test_synonyms_list_all_sources_value_in_force_first() -> None:
    broker = BrokerConfig({"log.retention.ms": "20"}, {"log.retention.ms": "30"})
    topic = TopicConfig(broker, {"retention.ms": "40"})
    assert list(topic.synonyms(RETENTION_MS)) == [
        Synonym("retention.ms", "40", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        Synonym("log.retention.ms", "30", ConfigSource.DYNAMIC_BROKER_CONFIG),
        Synonym("log.retention.ms", "20", ConfigSource.STATIC_BROKER_CONFIG),
        Synonym("log.retention.ms", "1209600000", ConfigSource.DEFAULT_CONFIG),
    ]
    assert topic.source(RETENTION_MS) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert topic.source(DURABILITY) is ConfigSource.DEFAULT_CONFIG


@pytest.mark.parametrize("text", ["compact,delete", "delete,compact"])
def test_list_option_keeps_the_given_order(text: str) -> None:
    topic = TopicConfig(BrokerConfig(), {"cleanup.policy": text})
    assert next(topic.synonyms(CLEANUP_POLICY)).value == text


def test_overrides_replace_earlier_ones_in_a_copy() -> None:
    first = BrokerConfig({"port": "1"}, {"num.partitions": "2"})
    second = first.with_overrides({"durability": "os"})
    assert dict(second.overrides) == {"durability": "os"}
    assert second[PORT] == 1
    assert dict(first.overrides) == {"num.partitions": "2"}


def test_config_is_isolated_from_callers_mappings() -> None:
    given = {"durability": "os"}
    config = BrokerConfig(given)
    given["durability"] = "fsync"
    with pytest.raises(TypeError):
        config.static["durability"] = "fsync"  # type: ignore[index]
    assert config.static["durability"] == "os"
    assert config[DURABILITY.synonym or DURABILITY] is Durability.OS


def test_only_dynamic_settings_can_be_overridden() -> None:
    with pytest.raises(ConfigError, match="port cannot be changed while the broker runs"):
        BrokerConfig().with_overrides({"port": "1"})


def test_topic_option_on_a_broker_suggests_the_broker_option() -> None:
    with pytest.raises(ConfigError, match=r"the broker's default for it is log\.retention\.ms"):
        BrokerConfig({"retention.ms": "5"})


def test_a_topic_refuses_a_brokers_setting() -> None:
    with pytest.raises(ConfigError, match="'port' is not a topic setting"):
        TopicConfig(BrokerConfig(), {"port": "1"})


def test_a_batch_cannot_be_larger_than_a_request() -> None:
    with pytest.raises(ConfigError, match=r"message\.max\.bytes=2000"):
        BrokerConfig({"message.max.bytes": "2000", "socket.request.max.bytes": "1999"})
    assert TopicConfig(BrokerConfig({"message.max.bytes": "2000"}))[MAX_MESSAGE_BYTES] == 2000


def test_min_compaction_lag_cannot_exceed_max() -> None:
    with pytest.raises(ConfigError, match=r"^min\.compaction\.lag\.ms=6: give at most"):
        TopicConfig(BrokerConfig(), {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})
    with pytest.raises(ConfigError, match=r"^log\.cleaner\.min\.compaction\.lag\.ms=6"):
        BrokerConfig({"log.cleaner.min.compaction.lag.ms": "6", "log.cleaner.max.compaction.lag.ms": "5"})


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({}, Address("127.0.0.1", 5000)),
        ({"host": "0.0.0.0"}, Address("localhost", 5000)),
        ({"host": "::"}, Address("localhost", 5000)),
        ({"host": "0.0.0.0", "advertised.listeners": "public:9"}, Address("public", 9)),
    ],
)
def test_advertised_address_is_reachable_for_clients(settings: dict[str, str], address: Address) -> None:
    plan = BrokerConfig(settings).listeners
    assert plan.advertised_address(plan.inter_broker, 5000) == address


def test_ipv6_address_is_written_in_brackets() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert BrokerConfig({"host": "::1"})[HOST] == "::1"


@pytest.mark.parametrize("name", ["retention.ms", "consumer.session.timeout.ms"])
def test_startup_option_of_another_resource_suggests_the_broker_option(name: str) -> None:
    with pytest.raises(ConfigError, match=r"is a setting of (topics|groups); the broker's default for it is"):
        BrokerConfig({name: "1000"})
