"""A valid request of every API that a single broker serves, for tests that damage it.

The requests have no long waits and name nothing that exists, so that a response comes at once and nothing
changes.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kio.schema.index import api_key_map, schema_name_map

from penstock.records.building import NewRecord, build_batch
from support import raw

_BATCH = bytes(build_batch([NewRecord(b"key", b"value", 1_700_000_000_000)]))
_TOPIC = "nowhere"
_TOPIC_ID = UUID(int=1)
_GROUP = "nobody"
_MEMBER = {"group_id": _GROUP, "member_id": "m", "group_instance_id": "i", "generation_id": 1}
_OFFSETS = {"name": _TOPIC, "topic_id": _TOPIC_ID, "partition_indexes": [0, 1]}

SPECIMENS: dict[int, dict[str, Any]] = {
    raw.PRODUCE: {
        "acks": -1,
        "timeout": 1000,
        "topic_data": [{"name": _TOPIC, "partition_data": [{"index": 0, "records": _BATCH}]}],
    },
    raw.FETCH: {
        "replica_id": -1,
        "max_bytes": 1000,
        "topics": [{"topic": _TOPIC, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}],
        "forgotten_topics_data": [{"topic": _TOPIC, "partitions": [1]}],
        "rack_id": "r",
    },
    raw.LIST_OFFSETS: {
        "replica_id": -1,
        "topics": [{"name": _TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    },
    raw.METADATA: {"topics": [{"name": _TOPIC}], "allow_auto_topic_creation": False},
    raw.API_VERSIONS: {"client_software_name": "hostile", "client_software_version": "1"},
    raw.CREATE_TOPICS: {
        "topics": [
            {
                "name": _TOPIC,
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 0, "broker_ids": [9]}],
                "configs": [{"name": "retention.ms", "value": "1"}],
            }
        ],
        "validate_only": True,
    },
    raw.DELETE_TOPICS: {"topics": [{"name": _TOPIC}], "topic_names": [_TOPIC]},
    raw.DELETE_RECORDS: {"topics": [{"name": _TOPIC, "partitions": [{"partition_index": 0, "offset": 1}]}]},
    raw.INIT_PRODUCER_ID: {"transaction_timeout": 1000},
    raw.OFFSET_FOR_LEADER_EPOCH: {
        "replica_id": -1,
        "topics": [{"topic": _TOPIC, "partitions": [{"partition": 0, "leader_epoch": 0}]}],
    },
    raw.DESCRIBE_CONFIGS: {
        "resources": [
            {"resource_type": 2, "resource_name": _TOPIC, "configuration_keys": ["retention.ms"]},
            {"resource_type": 4, "resource_name": "1", "configuration_keys": ["host"]},
        ]
    },
    raw.ALTER_CONFIGS: {
        "resources": [
            {"resource_type": 2, "resource_name": _TOPIC, "configs": [{"name": "retention.ms", "value": "1"}]}
        ],
        "validate_only": True,
    },
    raw.DESCRIBE_LOG_DIRS: {"topics": [{"topic": _TOPIC, "partitions": [0]}]},
    raw.CREATE_PARTITIONS: {
        "topics": [{"name": _TOPIC, "count": 2, "assignments": [{"broker_ids": [9]}]}],
        "validate_only": True,
    },
    raw.INCREMENTAL_ALTER_CONFIGS: {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": _TOPIC,
                "configs": [{"name": "retention.ms", "config_operation": 0, "value": "1"}],
            }
        ],
        "validate_only": True,
    },
    raw.DESCRIBE_CLUSTER: {},
    raw.DESCRIBE_TOPIC_PARTITIONS: {
        "topics": [{"name": _TOPIC}],
        "response_partition_limit": 10,
        "cursor": {"topic_name": _TOPIC, "partition_index": 0},
    },
    raw.FIND_COORDINATOR: {"key": _GROUP, "key_type": 2, "coordinator_keys": [_GROUP]},
    raw.JOIN_GROUP: {
        **_MEMBER,
        "session_timeout": 1000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"topics"}],
        "reason": "none",
    },
    raw.SYNC_GROUP: {
        **_MEMBER,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": "m", "assignment": b"partitions"}],
    },
    raw.HEARTBEAT: _MEMBER,
    raw.LEAVE_GROUP: {**_MEMBER, "members": [{"member_id": "m", "group_instance_id": "i", "reason": "none"}]},
    raw.OFFSET_COMMIT: {
        **_MEMBER,
        "topics": [
            {
                "name": _TOPIC,
                "topic_id": _TOPIC_ID,
                "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": "note"}],
            }
        ],
    },
    raw.OFFSET_FETCH: {
        "group_id": _GROUP,
        "topics": [_OFFSETS],
        "groups": [{"group_id": _GROUP, "member_id": "m", "topics": [_OFFSETS]}],
    },
    raw.OFFSET_DELETE: {
        "group_id": _GROUP,
        "topics": [{"name": _TOPIC, "partitions": [{"partition_index": 0}]}],
    },
    raw.DESCRIBE_GROUPS: {"groups": [_GROUP], "include_authorized_operations": True},
    raw.LIST_GROUPS: {"states_filter": ["Stable"], "types_filter": ["classic"]},
    raw.DELETE_GROUPS: {"groups_names": [_GROUP]},
    raw.CONSUMER_GROUP_HEARTBEAT: {
        "group_id": _GROUP,
        "member_id": "m",
        "member_epoch": 1,
        "instance_id": "i",
        "rack_id": "r",
        "subscribed_topic_names": [_TOPIC],
        "subscribed_topic_regex": "no.*",
        "server_assignor": "uniform",
        "topic_partitions": [{"topic_id": _TOPIC_ID, "partitions": [0]}],
    },
    raw.CONSUMER_GROUP_DESCRIBE: {"group_ids": [_GROUP], "include_authorized_operations": True},
    raw.DESCRIBE_PRODUCERS: {"topics": [_OFFSETS]},
    raw.LIST_CONFIG_RESOURCES: {"resource_types": [2, 4, 32]},
}
API_KEYS = sorted(SPECIMENS)
API_NAMES = [api_key_map[key] for key in API_KEYS]


def api_name(api_key: int) -> str:
    return api_key_map[api_key]


def body(api_key: int, version: int) -> bytes:
    return raw.body(api_key, version, **SPECIMENS[api_key])


def header(api_key: int, version: int) -> bytes:
    return raw.header(api_key, version)


def known_versions(api_key: int) -> set[int]:
    """Versions that have a schema."""
    return set(schema_name_map[api_key_map[api_key]])
