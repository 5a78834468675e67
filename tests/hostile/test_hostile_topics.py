"""Topic names and partition counts that must be refused (K24, K25)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import bad_batches
import pytest
from watch import Watch, create_topic, log_end, produce

from support import raw
from support.broker_process import BrokerProcess

SETTINGS = (
    "auto.create.topics.enable=true",
    "max.partitions.per.broker=300",
    "max.partitions.per.topic=100",
    "max.topics.per.request=50",
)
INVALID_TOPIC, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR = 17, 36, 37, 38
INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION = 39, 40, 42, 44
UNKNOWN_TOPIC = 3
INT_MAX = 2**31 - 1

BAD_NAMES = {
    "empty": "",
    "dot": ".",
    "dot-dot": "..",
    "slash": "a/b",
    "absolute": "/tmp/escape",
    "traversal": "../../escape",
    "deep-traversal": "../" * 40 + "tmp/escape",
    "windows-traversal": "..\\..\\escape",
    "nul": "escape\x00",
    "newline": "escape\n",
    "space": "es cape",
    "percent": "%2e%2e%2fescape",
    "tilde": "~root",
    "wildcard": "*",
    "shell": "$(touch escape)",
    "template": "${jndi:ldap://escape}",
    "look-alike-cyrillic": "\u0430\u0440\u0440\u0435",
    "look-alike-fullwidth": "\uff0e\uff0e\uff0fescape",
    "zero-width": "esc\u200bape",
    "250-characters": "a" * 250,
    "30000-characters": "a" * 30_000,
    "surrogate-pair": "\U0001f600",
}


@pytest.fixture
def client(watch: Watch) -> Iterator[raw.RawClient]:
    with watch.client() as connected:
        yield connected


def all_paths(broker: BrokerProcess) -> set[str]:
    """All paths beside the data directory."""
    found: set[str] = set()
    for directory, subdirectories, files in os.walk(broker.data_dir.parent):
        if directory == str(broker.data_dir):
            subdirectories.clear()
            continue
        found.update(os.path.join(directory, name) for name in (*subdirectories, *files))
    return found


def topic_names(client: raw.RawClient) -> set[str]:
    return {topic.name for topic in client.call(raw.METADATA, 4, topics=None).topics}


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
def test_invalid_topic_name_is_refused_by_every_api(watch: Watch, client: raw.RawClient, name: str) -> None:
    paths, names = all_paths(watch.broker), topic_names(client)
    assert create_topic(client, name).error_code == INVALID_TOPIC
    asked = client.call(raw.METADATA, 4, topics=[{"name": name}], allow_auto_topic_creation=True)
    assert [topic.error_code for topic in asked.topics] == [INVALID_TOPIC]
    assert produce(client, name, bad_batches.good()).error_code in (UNKNOWN_TOPIC, INVALID_TOPIC)
    grown = client.call(raw.CREATE_PARTITIONS, 0, topics=[{"name": name, "count": 3}], timeout=1000)
    assert grown.results[0].error_code in (UNKNOWN_TOPIC, INVALID_TOPIC)
    gone = client.call(raw.DELETE_TOPICS, 1, topic_names=[name], timeout=1000)
    assert gone.responses[0].error_code in (UNKNOWN_TOPIC, INVALID_TOPIC)
    assert topic_names(client) == names
    assert all_paths(watch.broker) == paths
    assert not os.path.exists("/tmp/escape")


@pytest.mark.parametrize(
    "name", ["a" * 249, "CON", "nul.txt", "...", "-rf", "--help", "a-0", "__internal", "0"]
)
def test_an_odd_but_allowed_name_works(client: raw.RawClient, name: str) -> None:
    assert create_topic(client, name).error_code == 0
    assert produce(client, name, bad_batches.good()).error_code == 0
    assert client.call(raw.DELETE_TOPICS, 1, topic_names=[name], timeout=5000).responses[0].error_code == 0


@pytest.mark.parametrize(
    ("first", "second"), [("a.b", "a_b"), ("Case", "case"), ("x", "x-0"), ("l" * 249, "l" * 248 + "m")]
)
def test_topics_with_similar_names_never_share_data(client: raw.RawClient, first: str, second: str) -> None:
    assert create_topic(client, first, partitions=2).error_code == 0
    created = create_topic(client, second).error_code
    assert created in (0, INVALID_TOPIC)
    assert produce(client, first, bad_batches.good(3)).error_code == 0
    if created == 0:
        assert log_end(client, second) == 0
        assert produce(client, second, bad_batches.good(1)).error_code == 0
    assert log_end(client, first) == 3
    client.call(raw.DELETE_TOPICS, 1, topic_names=[first, second], timeout=5000)


def test_creation_of_an_existing_topic_is_refused(client: raw.RawClient) -> None:
    assert create_topic(client, "once").error_code == 0
    assert create_topic(client, "once").error_code == TOPIC_ALREADY_EXISTS
    twice = {"name": "both", "num_partitions": 1, "replication_factor": 1}
    answer = client.call(raw.CREATE_TOPICS, 5, topics=[twice, twice], timeout=5000)
    assert INVALID_REQUEST in {topic.error_code for topic in answer.topics}


def attempt(client: raw.RawClient, **fields: Any) -> int:
    topic = {"name": "absurd", "num_partitions": 1, "replication_factor": 1} | fields
    code: int = client.call(raw.CREATE_TOPICS, 5, topics=[topic], timeout=5000).topics[0].error_code
    assert "absurd" not in topic_names(client)
    return code


@pytest.mark.parametrize("count", [INT_MAX, 101, 0, -2, -(2**31)])
def test_creation_with_an_extreme_number_of_partitions_is_refused(client: raw.RawClient, count: int) -> None:
    assert attempt(client, num_partitions=count) in (INVALID_PARTITIONS, POLICY_VIOLATION)


@pytest.mark.parametrize("factor", [32767, 2, 0, -2, -32768])
def test_creation_with_an_extreme_replication_factor_is_refused(client: raw.RawClient, factor: int) -> None:
    assert attempt(client, replication_factor=factor) == INVALID_REPLICATION_FACTOR


ASSIGNMENTS = {
    "unknown-broker": [{"partition_index": 0, "broker_ids": [77]}],
    "broker-twice": [{"partition_index": 0, "broker_ids": [1, 1]}],
    "no-broker": [{"partition_index": 0, "broker_ids": []}],
    "negative-broker": [{"partition_index": 0, "broker_ids": [-1]}],
    "negative-partition": [{"partition_index": -1, "broker_ids": [1]}],
    "gap": [{"partition_index": 0, "broker_ids": [1]}, {"partition_index": 2, "broker_ids": [1]}],
    "partition-twice": [{"partition_index": 0, "broker_ids": [1]}, {"partition_index": 0, "broker_ids": [1]}],
    "huge-partition": [{"partition_index": INT_MAX, "broker_ids": [1]}],
    "too-many": [{"partition_index": index, "broker_ids": [1]} for index in range(5000)],
}


@pytest.mark.parametrize("assignments", ASSIGNMENTS.values(), ids=ASSIGNMENTS)
def test_creation_with_an_invalid_replica_assignment_is_refused(
    client: raw.RawClient, assignments: list[Any]
) -> None:
    code = attempt(client, num_partitions=-1, replication_factor=-1, assignments=assignments)
    assert code in (INVALID_REPLICA_ASSIGNMENT, INVALID_PARTITIONS, INVALID_REQUEST, POLICY_VIOLATION)


CONFIGS = {
    "unknown": [{"name": "no.such.thing", "value": "1"}],
    "null": [{"name": "retention.ms", "value": None}],
    "not-a-number": [{"name": "retention.ms", "value": "soon"}],
    "too-large": [{"name": "retention.ms", "value": "9" * 400}],
    "digits-by-the-thousand": [{"name": "segment.bytes", "value": "9" * 30_000}],
    "negative": [{"name": "segment.bytes", "value": "-1"}],
    "tiny-segment": [{"name": "segment.bytes", "value": "1"}],
    "not-a-ratio": [{"name": "min.cleanable.dirty.ratio", "value": "nan"}],
    "infinite": [{"name": "min.cleanable.dirty.ratio", "value": "inf"}],
    "unknown-policy": [{"name": "cleanup.policy", "value": "../../etc"}],
    "a-broker-setting": [{"name": "log.dir", "value": "/tmp/escape"}],
    "empty-name": [{"name": "", "value": "1"}],
    "control-characters": [{"name": "retention.ms\n", "value": "1\x1b[31m"}],
}


@pytest.mark.parametrize("configs", CONFIGS.values(), ids=CONFIGS)
def test_creation_with_an_invalid_config_is_refused(client: raw.RawClient, configs: list[Any]) -> None:
    assert attempt(client, configs=configs) in (INVALID_CONFIG, INVALID_REQUEST)


def test_creation_with_20000_unknown_configs_is_refused_quickly(client: raw.RawClient) -> None:
    configs = [{"name": f"no.such.thing.{number}", "value": "1"} for number in range(20_000)]
    assert attempt(client, configs=configs) in (INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION)


def test_validate_only_creates_no_topic(client: raw.RawClient) -> None:
    paths = topic_names(client)
    topic = {"name": "dry", "num_partitions": 5, "replication_factor": 1}
    answer = client.call(raw.CREATE_TOPICS, 5, topics=[topic], timeout=5000, validate_only=True)
    assert answer.topics[0].error_code == 0
    assert topic_names(client) == paths


def test_too_many_topics_in_one_request_are_refused_together(client: raw.RawClient) -> None:
    topics = [
        {"name": f"many-{number}", "num_partitions": 1, "replication_factor": 1} for number in range(2000)
    ]
    client.send(raw.request(raw.CREATE_TOPICS, 5, topics=topics, timeout=5000))
    try:
        answer = raw.decode_response(raw.CREATE_TOPICS, 5, client.read_frame())
    except ConnectionError:
        return
    assert {topic.error_code for topic in answer.topics} <= {POLICY_VIOLATION, 89}
    assert not any(name.startswith("many-") for name in topic_names(client))


def test_partitions_beyond_the_limit_of_a_broker_are_refused(client: raw.RawClient) -> None:
    codes = [create_topic(client, f"heap-{number}", partitions=60).error_code for number in range(8)]
    made = codes.count(0)
    assert 1 <= made <= 5
    assert set(codes[made:]) == {POLICY_VIOLATION}
    asked = client.call(
        raw.METADATA, 4, topics=[{"name": f"auto-{n}"} for n in range(80)], allow_auto_topic_creation=True
    )
    assert any(topic.error_code not in (0, 5) for topic in asked.topics)
    names = [f"heap-{number}" for number in range(8)] + [topic.name for topic in asked.topics]
    for start in range(0, len(names), 40):
        client.call(raw.DELETE_TOPICS, 1, topic_names=names[start : start + 40], timeout=10_000)
    assert create_topic(client, "fits-again", partitions=60).error_code == 0


@pytest.mark.parametrize("count", [INT_MAX, 101, 1, 0, -1, -(2**31)])
def test_create_partitions_with_an_extreme_count_is_refused(client: raw.RawClient, count: int) -> None:
    create_topic(client, "grown", partitions=2)
    answer = client.call(raw.CREATE_PARTITIONS, 0, topics=[{"name": "grown", "count": count}], timeout=5000)
    assert answer.results[0].error_code in (INVALID_PARTITIONS, POLICY_VIOLATION)
    metadata = client.call(raw.METADATA, 4, topics=[{"name": "grown"}])
    assert len(metadata.topics[0].partitions) == 2


@pytest.mark.parametrize("timeout", [-1, -(2**31), INT_MAX])
def test_create_topics_with_an_extreme_timeout_does_not_harm_the_broker(
    client: raw.RawClient, timeout: int
) -> None:
    topic = {"name": f"timed{timeout}", "num_partitions": 1, "replication_factor": 1}
    client.call(raw.CREATE_TOPICS, 5, topics=[topic], timeout=timeout)
    client.call(raw.DELETE_TOPICS, 1, topic_names=[topic["name"]], timeout=timeout)
