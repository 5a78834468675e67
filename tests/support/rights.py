"""The right that each API needs, and the answer to a client without it. `test_rights_matrix.py` tries every version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import ErrorCode
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.security.acl import CLUSTER_NAME, Operation, ResourceType
from penstock.wire.schema import Entity, SchemaField, entity_fields, load_entity

TOPIC, GROUP, TRANSACTION = "orders", "billing", "tx"
SHARE_GROUP = "packers"
SHARE_MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"
NEW_TOPIC = "made"
Right = tuple[Operation, ResourceType, str]

NO_TOPIC_RIGHT = ErrorCode.topic_authorization_failed
NO_GROUP_RIGHT = ErrorCode.group_authorization_failed
NO_CLUSTER_RIGHT = ErrorCode.cluster_authorization_failed
NO_TRANSACTION_RIGHT = ErrorCode.transactional_id_authorization_failed
REFUSALS = {NO_TOPIC_RIGHT, NO_GROUP_RIGHT, NO_CLUSTER_RIGHT, NO_TRANSACTION_RIGHT}


def on_topic(operation: Operation, name: str = TOPIC) -> Right:
    return operation, ResourceType.TOPIC, name


def on_group(operation: Operation, name: str = GROUP) -> Right:
    return operation, ResourceType.GROUP, name


def on_cluster(operation: Operation) -> Right:
    return operation, ResourceType.CLUSTER, CLUSTER_NAME


def on_transaction(operation: Operation) -> Right:
    return operation, ResourceType.TRANSACTIONAL_ID, TRANSACTION


@dataclass(frozen=True)
class Need:
    refused: ErrorCode | None
    """Code for a client without rights; None where it gets an answer without data."""
    rights: tuple[Right, ...] = ()
    """Rights with which no part of the answer is a refusal."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the request, by name at any depth."""
    is_for_brokers: bool = False
    """Whether no right of a user is enough."""
    brokers_from: int = 1_000
    """First version that is for brokers only."""

    refused_from: int = 0
    """First version whose response has a place for the code; older ones have no data."""
    further: tuple[Right, int] | None = None
    """Right that is needed from a version on."""

    def rights_in(self, version: int) -> tuple[Right, ...]:
        if self.is_for_brokers_in(version):
            return ()
        has_further = self.further is not None and version >= self.further[1]
        return (*self.rights, self.further[0]) if self.further is not None and has_further else self.rights

    def refused_in(self, version: int) -> ErrorCode | None:
        if version >= self.brokers_from:
            return NO_CLUSTER_RIGHT
        return self.refused if version >= self.refused_from else None

    def is_for_brokers_in(self, version: int) -> bool:
        return self.is_for_brokers or version >= self.brokers_from


READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE = Operation.ALTER, Operation.DESCRIBE
CONSUMES = (on_group(READ), on_topic(READ))
SHARES = (on_group(READ, SHARE_GROUP), on_topic(READ))
OF_SHARE_GROUP = {
    "group_id": SHARE_GROUP,
    "member_id": SHARE_MEMBER,
    "share_session_epoch": 0,
    "acknowledge_types": [1],
    "max_records": 10,
    "max_bytes": 10_000,
    "forgotten_topics_data": [],
}
CONFIGS = {"resource_type": 2, "resource_name": TOPIC, "configs": []}
ANY_ACL = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
NEW_ACL = {
    "resource_type": 2,
    "resource_name": TOPIC,
    "resource_pattern_type": 3,
    "principal": "User:bob",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}

NEEDS: dict[int, Need] = {
    0: Need(NO_TOPIC_RIGHT, (on_topic(WRITE),), {"transactional_id": None, "acks": -1}),
    1: Need(NO_TOPIC_RIGHT, (on_topic(READ),), {"replica_id": -1, "session_epoch": -1}),
    2: Need(NO_TOPIC_RIGHT, (on_topic(DESCRIBE),), {"replica_id": -1, "timestamp": -1}),
    3: Need(NO_TOPIC_RIGHT, (on_topic(DESCRIBE),), {"topic_id": None}),
    8: Need(NO_GROUP_RIGHT, CONSUMES, {"generation_id_or_member_epoch": -1}),
    9: Need(NO_GROUP_RIGHT, (on_group(DESCRIBE), on_topic(DESCRIBE)), {"member_epoch": -1}),
    10: Need(NO_GROUP_RIGHT, (on_group(DESCRIBE),), {"key": GROUP, "coordinator_keys": [GROUP]}),
    11: Need(NO_GROUP_RIGHT, (on_group(READ),)),
    12: Need(NO_GROUP_RIGHT, (on_group(READ),)),
    13: Need(NO_GROUP_RIGHT, (on_group(READ),)),
    14: Need(NO_GROUP_RIGHT, (on_group(READ),)),
    15: Need(NO_GROUP_RIGHT, (on_group(DESCRIBE),)),
    16: Need(None, (on_group(DESCRIBE),)),
    17: Need(None),
    18: Need(None, values={"client_software_name": "test", "client_software_version": "1"}),
    19: Need(
        NO_TOPIC_RIGHT,
        (on_topic(CREATE, NEW_TOPIC),),
        {"name": NEW_TOPIC, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []},
        further=(on_topic(Operation.DESCRIBE_CONFIGS, NEW_TOPIC), 5),
    ),
    20: Need(NO_TOPIC_RIGHT, (on_topic(DELETE),), {"topic_id": None, "topic_names": [TOPIC]}),
    21: Need(NO_TOPIC_RIGHT, (on_topic(DELETE),), {"offset": 0}),
    22: Need(NO_TRANSACTION_RIGHT, (on_transaction(WRITE),), {"producer_id": -1, "producer_epoch": -1}),
    23: Need(NO_TOPIC_RIGHT, (on_topic(DESCRIBE),), {"replica_id": -1}),
    24: Need(NO_TRANSACTION_RIGHT, (on_transaction(WRITE), on_topic(WRITE)), brokers_from=4),
    25: Need(NO_TRANSACTION_RIGHT, (on_transaction(WRITE), on_group(READ))),
    26: Need(NO_TRANSACTION_RIGHT, (on_transaction(WRITE),)),
    27: Need(NO_CLUSTER_RIGHT, (on_cluster(ALTER),), {"transaction_result": False}),
    28: Need(NO_TRANSACTION_RIGHT, (on_transaction(WRITE), *CONSUMES), {"generation_id": -1}),
    29: Need(NO_CLUSTER_RIGHT, (on_cluster(DESCRIBE),), ANY_ACL),
    30: Need(NO_CLUSTER_RIGHT, (on_cluster(ALTER),), NEW_ACL),
    31: Need(NO_CLUSTER_RIGHT, (on_cluster(ALTER),), {**ANY_ACL, "principal_filter": "User:nobody"}),
    32: Need(NO_TOPIC_RIGHT, (on_topic(Operation.DESCRIBE_CONFIGS),), CONFIGS),
    33: Need(NO_TOPIC_RIGHT, (on_topic(Operation.ALTER_CONFIGS),), CONFIGS),
    34: Need(NO_CLUSTER_RIGHT, (on_cluster(ALTER),)),
    35: Need(NO_CLUSTER_RIGHT, (on_cluster(DESCRIBE),), refused_from=3),
    36: Need(None),
    37: Need(NO_TOPIC_RIGHT, (on_topic(ALTER),), {"count": 2, "assignments": None}),
    42: Need(NO_GROUP_RIGHT, (on_group(DELETE),)),
    43: Need(NO_CLUSTER_RIGHT, (on_cluster(ALTER),)),
    44: Need(NO_TOPIC_RIGHT, (on_topic(Operation.ALTER_CONFIGS),), CONFIGS),
    45: Need(NO_CLUSTER_RIGHT, (on_cluster(ALTER),), {"replicas": None}),
    46: Need(NO_CLUSTER_RIGHT, (on_cluster(DESCRIBE),)),
    48: Need(
        NO_CLUSTER_RIGHT,
        (on_cluster(Operation.DESCRIBE_CONFIGS),),
        {"entity_type": "user", "match_type": 1, "match": None},
    ),
    49: Need(
        NO_CLUSTER_RIGHT,
        (on_cluster(Operation.ALTER_CONFIGS),),
        {"entity_type": "user", "entity_name": "bob", "key": "producer_byte_rate", "value": 1e9},
    ),
    47: Need(NO_GROUP_RIGHT, (on_group(DELETE), on_topic(READ))),
    50: Need(NO_CLUSTER_RIGHT, (on_cluster(DESCRIBE),), {"users": None}),
    51: Need(NO_CLUSTER_RIGHT, (on_cluster(ALTER),), {"upsertions": []}),
    55: Need(NO_CLUSTER_RIGHT, (on_cluster(DESCRIBE),)),
    57: Need(NO_CLUSTER_RIGHT, (on_cluster(ALTER),)),
    60: Need(None, values={"endpoint_type": 1}),
    61: Need(NO_TOPIC_RIGHT, (on_topic(READ),)),
    64: Need(NO_CLUSTER_RIGHT, (on_cluster(ALTER),), {"broker_id": 99}),
    65: Need(NO_TRANSACTION_RIGHT, (on_transaction(DESCRIBE),)),
    66: Need(None, (on_transaction(DESCRIBE),), {"state_filters": [], "producer_id_filters": []}),
    68: Need(
        NO_GROUP_RIGHT,
        (on_group(READ), on_topic(DESCRIBE)),
        {"member_id": "m", "server_assignor": None, "topic_partitions": [], "subscribed_topic_regex": None},
    ),
    69: Need(NO_GROUP_RIGHT, (on_group(DESCRIBE),)),
    74: Need(NO_CLUSTER_RIGHT, (on_cluster(Operation.DESCRIBE_CONFIGS),), {"resource_types": []}),
    75: Need(NO_TOPIC_RIGHT, (on_topic(DESCRIBE),), {"cursor": None, "response_partition_limit": 10}),
    76: Need(NO_GROUP_RIGHT, (on_group(READ), on_topic(DESCRIBE)), {"member_id": "m"}),
    77: Need(NO_GROUP_RIGHT, (on_group(DESCRIBE),)),
    78: Need(NO_GROUP_RIGHT, SHARES, {**OF_SHARE_GROUP, "acknowledgement_batches": []}),
    79: Need(NO_GROUP_RIGHT, SHARES, {**OF_SHARE_GROUP, "share_session_epoch": 1}),
    83: Need(NO_CLUSTER_RIGHT, is_for_brokers=True),
    84: Need(NO_CLUSTER_RIGHT, is_for_brokers=True),
    85: Need(NO_CLUSTER_RIGHT, is_for_brokers=True),
    86: Need(NO_CLUSTER_RIGHT, is_for_brokers=True),
    87: Need(NO_CLUSTER_RIGHT, is_for_brokers=True),
    90: Need(NO_GROUP_RIGHT, (on_group(DESCRIBE, SHARE_GROUP), on_topic(DESCRIBE)), OF_SHARE_GROUP),
    91: Need(NO_GROUP_RIGHT, SHARES, OF_SHARE_GROUP),
    92: Need(NO_GROUP_RIGHT, (on_group(DELETE, SHARE_GROUP), on_topic(READ)), OF_SHARE_GROUP),
}

PRIVATE: dict[int, str] = {
    32000: "the cluster secret (tests/server/test_replica_authentication.py)",
    32001: "READ on the topic (tests/server/test_fetch_by_key.py)",
    32002: "brokers only (tests/server/test_hanging_transactions.py)",
    32003: "DESCRIBE on the group (tests/server/test_share_groups.py)",
    32004: "brokers only",
    32005: "READ on the group and the topic (tests/server/test_queue_delivery.py)",
    32006: "READ on the group and the topic (tests/server/test_queue_delivery.py)",
    32010: "the operation of the question on the cluster (tests/server/test_inspect.py)",
    32011: "WRITE or DESCRIBE on the topic of a schedule (tests/server/test_schedules.py)",
}
"""Rights of the APIs that Kafka does not have, with their tests; `security/test_private_rights.py` tries them."""

_NAMES = {
    "group_id": GROUP,
    "groups": GROUP,
    "groups_names": GROUP,
    "group_ids": GROUP,
    "transactional_id": TRANSACTION,
    "transactional_ids": TRANSACTION,
    "v3_and_below_transactional_id": TRANSACTION,
    "name": TOPIC,
    "topic": TOPIC,
    "topic_name": TOPIC,
    "topics": TOPIC,
    "subscribed_topic_names": TOPIC,
}
_PLAIN: dict[str, Any] = {"string": "", "bytes": b"", "bool": False, "uuid": None}


def request_fields(
    api_key: int, version: int, topic_id: object, values: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A request of an API about one topic, group or transactional id. `values` win over those of the table."""
    wanted = {"topic_id": topic_id, **NEEDS[api_key].values, **(values or {})}
    return _struct(load_entity("request", api_key, version), wanted)


def _struct(entity: Entity, values: Mapping[str, Any]) -> dict[str, Any]:
    fields = (each for each in entity_fields(entity) if each.tag is None)
    return {each.name: _value(each, values) for each in fields}


def _value(each: SchemaField, values: Mapping[str, Any]) -> Any:
    if each.name in values and not (each.entity is not None and isinstance(values[each.name], str)):
        return values[each.name]
    if each.is_array and each.is_nullable and each.entity is None and each.name not in _NAMES:
        return None
    one = _struct(each.entity, values) if each.entity is not None else _plain(each)
    return [one] if each.is_array else one


def _plain(each: SchemaField) -> Any:
    if each.kafka_type == "records":
        return build_batch([NewRecord(b"k", b"v", 1)], codec=Codec.NONE)
    if each.name in _NAMES and each.kafka_type == "string":
        return _NAMES[each.name]
    return None if each.is_nullable else _PLAIN.get(each.kafka_type, 0)


def codes_in(answer: Any) -> list[ErrorCode]:
    """All error codes of a decoded response, at any depth."""
    if isinstance(answer, tuple | list):
        return [code for each in answer for code in codes_in(each)]
    names = getattr(answer, "__dataclass_fields__", None)
    if names is None:
        return []
    found: list[ErrorCode] = []
    for name in names:
        value = getattr(answer, name)
        if name.endswith("error_code"):
            found.append(ErrorCode(int(value)))
        else:
            found += codes_in(value)
    return found
