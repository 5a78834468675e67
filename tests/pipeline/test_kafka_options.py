"""Options of Spark's Kafka source: accepted, refused with the reason, or named as unknown. No Spark is started."""

from __future__ import annotations

import pickle

import pytest

from penstock.pipeline.kafka_security import SecureBootstrap
from penstock.pipeline.options import OptionError, SourceOptions, parse
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.sink.options import parse_sink
from penstock.pipeline.stream_reader import StreamReader

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="a\\"b";'


def options(**more: str) -> SourceOptions:
    given = {name.replace("_", "."): value for name, value in more.items()}
    return parse({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", **given})


def test_security_options_reach_tasks_with_the_bootstrap_address() -> None:
    given = {
        "kafka_security_protocol": "SASL_SSL",
        "kafka_sasl_mechanism": "SCRAM-SHA-512",
        "kafka_sasl_jaas_config": JAAS,
        "kafka_ssl_truststore_location": "/etc/ca.pem",
        "kafka_ssl_truststore_type": "PEM",
    }
    found = pickle.loads(pickle.dumps(options(**given))).bootstrap
    assert isinstance(found, SecureBootstrap)
    assert (found, found.security.ca) == ("localhost:9092", "/etc/ca.pem")
    assert (found.security.user, found.security.password) == ("ann", 'a"b')
    assert 'a"b' not in repr(found.security)
    sink = {name.replace("_", "."): value for name, value in given.items()}
    written = parse_sink({"bootstrap": "localhost:9092", "topic": "t", **sink})
    assert isinstance(written.bootstrap, SecureBootstrap)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"kafka_security_protocol": "TLS"}, "give one of PLAINTEXT, SSL"),
        ({"kafka_security_protocol": "SSL"}, "name a PEM file"),
        ({"kafka_security_protocol": "SSL", "kafka_ssl_truststore_location": "/a.jks"}, "must be a PEM file"),
        ({"kafka_security_protocol": "SASL_PLAINTEXT"}, "jaas.config"),
        (
            {"kafka_security_protocol": "SASL_SSL", "kafka_sasl_mechanism": "GSSAPI"},
            "SCRAM-SHA-512, not GSSAPI",
        ),
        ({"kafka_auto_offset_reset": "latest"}, "set startingOffsets"),
        ({"kafka_value_deserializer": "x"}, "valueSchema"),
        ({"kafka_colour": "x", "shape": "y"}, "unknown options 'kafka.colour', 'shape'"),
        ({"maxRecordsPerPartition": "many"}, "maxRecordsPerPartition: give a whole number"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: 'soon' is not a duration"),
        ({"valueSchema": "id bigin"}, "valueSchema: unknown type 'bigin'"),
    ],
)
def test_unusable_option_is_refused_with_the_reason(given: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        options(**given)


def test_no_task_has_more_offsets_than_max_records_per_partition() -> None:
    ranges = [OffsetRange("t", "id", 0, 0, 1_000), OffsetRange("t", "id", 1, 5, 10)]
    parts = options(maxRecordsPerPartition="300").split(ranges)
    assert max(map(len, parts)) <= 300
    assert sum(map(len, parts)) == 1_005
    assert len(options(maxRecordsPerPartition="300", minPartitions="10").split(ranges)) >= 10


def test_stream_waits_for_min_offsets_per_trigger() -> None:
    reader = StreamReader(options(minOffsetsPerTrigger="100", maxTriggerDelay="1h"))
    assert reader._waits_for_more(99)
    assert not reader._waits_for_more(100)
    impatient = StreamReader(options(minOffsetsPerTrigger="100", maxTriggerDelay="1ms"))
    impatient._batch_at = 0.0
    assert not impatient._waits_for_more(1)
    assert not StreamReader(options())._waits_for_more(1)


def test_typed_columns_can_replace_the_value() -> None:
    found = options(valueSchema="id bigint", columns="key,offset")
    assert (found.columns, found.hides_value) == (("key", "offset", "value"), True)


def test_properties_of_sparks_catalog_are_no_options() -> None:
    table = {
        "provider": "penstock",
        "owner": "me",
        "is_managed_location": "true",
        "option.bootstrap": "localhost:1",
    }
    assert parse({**table, "option.subscribe": "a"}).topics == ("a",)
    assert parse({**table, "option.subscribe": "a", "subscribe": "b"}).topics == ("b",)
    assert parse_sink({**table, "option.topic": "a"}).topic == "a"
