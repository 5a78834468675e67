from __future__ import annotations

from typing import Any

import pytest

from penstock.config import (
    ADVERTISED_LISTENERS,
    AUTO_CREATE_TOPICS_ENABLE,
    BROKER_OPTIONS,
    CLEANUP_POLICY,
    DURABILITY,
    GROUP_CONSUMER_ASSIGNORS,
    LISTENERS,
    MIN_CLEANABLE_DIRTY_RATIO,
    RETENTION_MS,
    TOPIC_OPTIONS,
    Address,
    CleanupPolicy,
    Durability,
    Kind,
    ListenerEndpoint,
    Option,
)
from penstock.config.options import OptionGroup, find, table
from penstock.config.types import Integer, Text
from penstock.errors import ConfigError

ALL_OPTIONS = [*BROKER_OPTIONS.values(), *TOPIC_OPTIONS.values()]


@pytest.mark.parametrize("option", ALL_OPTIONS, ids=lambda option: option.name)
def test_every_default_survives_formatting_and_parsing(option: Option[Any]) -> None:
    assert option.parse(option.format(option.default)) == option.default


@pytest.mark.parametrize("option", ALL_OPTIONS, ids=lambda option: option.name)
def test_every_option_explains_itself_in_sentences(option: Option[Any]) -> None:
    assert option.doc[0].isupper() or option.doc[0] == "`"
    assert option.doc.endswith(".")


@pytest.mark.parametrize(
    ("name", "ours", "other"),
    [
        ("preallocate", "false", "true"),
        ("remote.storage.enable", "FALSE", "true"),
        ("segment.jitter.ms", "0", "5"),
        ("unclean.leader.election.enable", "false", "true"),
    ],
)
def test_kafka_options_with_one_value_accept_that_value(name: str, ours: str, other: str) -> None:
    option = TOPIC_OPTIONS[name]
    assert option.parse(ours) == option.default
    with pytest.raises(ConfigError, match="the only choice"):
        option.parse(other)


@pytest.mark.parametrize(
    ("name", "accepted", "refused"),
    [
        (
            "compression.type",
            ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"],
            ["none", "brotli"],
        ),
        ("compression.gzip.level", ["-1", "1", "9"], ["10"]),
        ("compression.lz4.level", ["1", "17"], ["0", "18"]),
        ("compression.zstd.level", ["-131072", "22"], ["23"]),
        ("file.delete.delay.ms", ["0", "60000"], ["-1"]),
        ("segment.index.bytes", ["4", "10485760"], ["3"]),
        ("remote.log.copy.disable", ["true", "false"], ["1"]),
        ("remote.log.delete.on.disable", ["true", "false"], ["1"]),
    ],
)
def test_kafka_settings_without_effect_are_kept(name: str, accepted: list[str], refused: list[str]) -> None:
    option = TOPIC_OPTIONS[name]
    for text in accepted:
        assert option.format(option.parse(text)) == text
    for text in refused:
        with pytest.raises(ConfigError):
            option.parse(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [("remote.storage.enable", "true"), ("local.retention.ms", "1000"), ("local.retention.bytes", "-1")],
)
def test_tiered_storage_is_refused_and_the_archive_is_named(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match="penstock pipeline archive"):
        TOPIC_OPTIONS[name].parse(text)


def test_every_topic_option_has_a_broker_default_of_the_same_type_and_value() -> None:
    """Options that are set when a topic is created, and for that topic alone, have none."""
    own = {name for name, option in TOPIC_OPTIONS.items() if option.synonym is None}
    retry = {"retry.group", "retry.max.attempts", "retry.backoff.ms", "retry.dead.letter.topic"}
    assert (
        own
        == {"delivery.delay", "delivery.delay.default.ms", "message.ttl.ms", "retention.acknowledged"}
        | {"errors.deadletterqueue.group.enable"}
        | retry
    )
    for option in TOPIC_OPTIONS.values():
        if option.synonym is None:
            continue
        assert option.synonym is BROKER_OPTIONS[option.synonym.name]
        assert (option.synonym.type, option.synonym.default) == (option.type, option.default)


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        (RETENTION_MS, "-1", -1),
        (RETENTION_MS, " 5 ", 5),
        (AUTO_CREATE_TOPICS_ENABLE, "FALSE", False),
        (CLEANUP_POLICY, "compact, delete", (CleanupPolicy.COMPACT, CleanupPolicy.DELETE)),
        (DURABILITY, "fsync", Durability.FSYNC),
        (MIN_CLEANABLE_DIRTY_RATIO, "0.25", 0.25),
        (
            ADVERTISED_LISTENERS,
            "PLAINTEXT://broker.example:9093",
            (ListenerEndpoint("PLAINTEXT", Address("broker.example", 9093)),),
        ),
        (ADVERTISED_LISTENERS, "[::1]:9092", (ListenerEndpoint("", Address("::1", 9092)),)),
        (ADVERTISED_LISTENERS, "", None),
        (CLEANUP_POLICY, "", ()),
    ],
)
def test_parses_text_into_the_typed_value(option: Option[Any], text: str, value: object) -> None:
    assert option.parse(text) == value


@pytest.mark.parametrize(
    ("option", "text"),
    [
        (RETENTION_MS, "-2"),
        (RETENTION_MS, "9223372036854775808"),
        (RETENTION_MS, "1e3"),
        (RETENTION_MS, ""),
        (AUTO_CREATE_TOPICS_ENABLE, "yes"),
        (CLEANUP_POLICY, "compact,compress"),
        (GROUP_CONSUMER_ASSIGNORS, ""),
        (DURABILITY, "AUTO"),
        (MIN_CLEANABLE_DIRTY_RATIO, "1.5"),
        (MIN_CLEANABLE_DIRTY_RATIO, "nan"),
        (ADVERTISED_LISTENERS, "broker.example"),
        (ADVERTISED_LISTENERS, "broker.example:0"),
        (ADVERTISED_LISTENERS, "broker.example:70000"),
        (ADVERTISED_LISTENERS, "::1:9092"),
        (ADVERTISED_LISTENERS, "a:1,b:2"),
        (ADVERTISED_LISTENERS, "A://a:1,a://b:2"),
        (LISTENERS, "broker.example:9092"),
        (LISTENERS, "A B://broker.example:9092"),
        (LISTENERS, "A://broker.example"),
        (ADVERTISED_LISTENERS, "two words:9092"),
    ],
)
def test_invalid_text_is_refused(option: Option[Any], text: str) -> None:
    with pytest.raises(ConfigError):
        option.parse(text)


def test_error_names_option_value_and_valid_values() -> None:
    with pytest.raises(ConfigError, match=r"^durability='never': give auto, os or fsync$"):
        DURABILITY.parse("never")
    with pytest.raises(ConfigError, match=r"^retention\.ms='soon': give a whole number, -1 or more$"):
        RETENTION_MS.parse("soon")


def test_error_escapes_and_truncates_the_value() -> None:
    with pytest.raises(ConfigError) as refusal:
        RETENTION_MS.parse("x\n\x1b[31m" + "y" * 10_000)
    assert "\n" not in str(refusal.value)
    assert "\x1b" not in str(refusal.value)
    assert len(str(refusal.value)) < 200


def test_sensitive_value_is_never_shown() -> None:
    secret = OptionGroup("secrets").option("password.length", Integer(), 0, "Secret.", sensitive=True)
    with pytest.raises(ConfigError) as refusal:
        secret.parse("hunter2")
    assert "hunter2" not in str(refusal.value)


def test_unknown_name_suggests_a_similar_one() -> None:
    with pytest.raises(ConfigError, match=r"did you mean retention\.ms\?"):
        find(TOPIC_OPTIONS, "retension.ms", "topic")
    with pytest.raises(ConfigError, match="config show --docs"):
        find(TOPIC_OPTIONS, "zzzzz", "topic")


def test_a_name_cannot_be_declared_twice() -> None:
    option = Option("a.name", Text(), "x", "Doc.")
    with pytest.raises(ValueError, match=r"a\.name is declared twice"):
        table([option, option])


def test_option_types_are_those_of_kafka() -> None:
    kinds = {name: TOPIC_OPTIONS[name].kind for name in ("retention.ms", "segment.bytes", "cleanup.policy")}
    assert kinds == {"retention.ms": Kind.LONG, "segment.bytes": Kind.INT, "cleanup.policy": Kind.LIST}
