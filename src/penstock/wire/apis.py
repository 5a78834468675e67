"""Every Kafka API by its key: its name, and the first version with the flexible encoding.

A request header must be decoded before the message is known, so this is a table instead of being derived from
the message schemas. A test compares the two.
"""

from __future__ import annotations

from typing import Final

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
CONSUMER_GROUP_HEARTBEAT: Final = 68

NEVER: Final = 1 << 15
"""Stands for the first flexible version of an API that has none. Every real version is lower."""

# name, first flexible version
_APIS: Final[dict[int, tuple[str, int]]] = {
    0: ("Produce", 9),
    1: ("Fetch", 12),
    2: ("ListOffsets", 6),
    3: ("Metadata", 9),
    8: ("OffsetCommit", 8),
    9: ("OffsetFetch", 6),
    10: ("FindCoordinator", 3),
    11: ("JoinGroup", 6),
    12: ("Heartbeat", 4),
    13: ("LeaveGroup", 4),
    14: ("SyncGroup", 4),
    15: ("DescribeGroups", 5),
    16: ("ListGroups", 3),
    17: ("SaslHandshake", NEVER),
    18: ("ApiVersions", 3),
    19: ("CreateTopics", 5),
    20: ("DeleteTopics", 4),
    21: ("DeleteRecords", 2),
    22: ("InitProducerId", 2),
    23: ("OffsetForLeaderEpoch", 4),
    24: ("AddPartitionsToTxn", 3),
    25: ("AddOffsetsToTxn", 3),
    26: ("EndTxn", 3),
    27: ("WriteTxnMarkers", 1),
    28: ("TxnOffsetCommit", 3),
    29: ("DescribeAcls", 2),
    30: ("CreateAcls", 2),
    31: ("DeleteAcls", 2),
    32: ("DescribeConfigs", 4),
    33: ("AlterConfigs", 2),
    34: ("AlterReplicaLogDirs", 2),
    35: ("DescribeLogDirs", 2),
    36: ("SaslAuthenticate", 2),
    37: ("CreatePartitions", 2),
    38: ("CreateDelegationToken", 2),
    39: ("RenewDelegationToken", 2),
    40: ("ExpireDelegationToken", 2),
    41: ("DescribeDelegationToken", 2),
    42: ("DeleteGroups", 2),
    43: ("ElectLeaders", 2),
    44: ("IncrementalAlterConfigs", 1),
    45: ("AlterPartitionReassignments", 0),
    46: ("ListPartitionReassignments", 0),
    47: ("OffsetDelete", NEVER),
    48: ("DescribeClientQuotas", 1),
    49: ("AlterClientQuotas", 1),
    50: ("DescribeUserScramCredentials", 0),
    51: ("AlterUserScramCredentials", 0),
    52: ("Vote", 0),
    53: ("BeginQuorumEpoch", 1),
    54: ("EndQuorumEpoch", 1),
    55: ("DescribeQuorum", 0),
    56: ("AlterPartition", 0),
    57: ("UpdateFeatures", 0),
    58: ("Envelope", 0),
    59: ("FetchSnapshot", 0),
    60: ("DescribeCluster", 0),
    61: ("DescribeProducers", 0),
    62: ("BrokerRegistration", 0),
    63: ("BrokerHeartbeat", 0),
    64: ("UnregisterBroker", 0),
    65: ("DescribeTransactions", 0),
    66: ("ListTransactions", 0),
    67: ("AllocateProducerIds", 0),
    68: ("ConsumerGroupHeartbeat", 0),
    69: ("ConsumerGroupDescribe", 0),
    70: ("ControllerRegistration", 0),
    71: ("GetTelemetrySubscriptions", 0),
    72: ("PushTelemetry", 0),
    73: ("AssignReplicasToDirs", 0),
    74: ("ListConfigResources", 0),
    75: ("DescribeTopicPartitions", 0),
    76: ("ShareGroupHeartbeat", 0),
    77: ("ShareGroupDescribe", 0),
    78: ("ShareFetch", 0),
    79: ("ShareAcknowledge", 0),
    80: ("AddRaftVoter", 0),
    81: ("RemoveRaftVoter", 0),
    82: ("UpdateRaftVoter", 0),
    83: ("InitializeShareGroupState", 0),
    84: ("ReadShareGroupState", 0),
    85: ("WriteShareGroupState", 0),
    86: ("DeleteShareGroupState", 0),
    87: ("ReadShareGroupStateSummary", 0),
    88: ("StreamsGroupHeartbeat", 0),
    89: ("StreamsGroupDescribe", 0),
    90: ("DescribeShareGroupOffsets", 0),
    91: ("AlterShareGroupOffsets", 0),
    92: ("DeleteShareGroupOffsets", 0),
}


BROKER_HANDSHAKE: Final = 32_000
FETCH_BY_KEY: Final = 32_001
KNOWN_TRANSACTIONS: Final = 32_002
SHARE_STATUS: Final = 32_003
SHARE_STATE: Final = 32_004
QUEUE_RECEIVE: Final = 32_005
QUEUE_SETTLE: Final = 32_006
INSPECT: Final = 32_010
OBJECT_CALL: Final = 32_011
# APIs between brokers and for the gateway. Their keys are outside the range that Kafka assigns, and not in
# ApiVersions.
_PRIVATE: Final[dict[int, tuple[str, int]]] = {
    BROKER_HANDSHAKE: ("BrokerHandshake", NEVER),
    FETCH_BY_KEY: ("FetchByKey", NEVER),
    KNOWN_TRANSACTIONS: ("KnownTransactions", NEVER),
    SHARE_STATUS: ("ShareStatus", NEVER),
    SHARE_STATE: ("ShareState", NEVER),
    QUEUE_RECEIVE: ("QueueReceive", NEVER),
    QUEUE_SETTLE: ("QueueSettle", NEVER),
    INSPECT: ("Inspect", NEVER),
    OBJECT_CALL: ("ObjectCall", NEVER),
}

FLEXIBLE_FROM: Final = {key: version for key, (_, version) in (_APIS | _PRIVATE).items()}
"""First version of each API whose messages have compact lengths and tagged fields (KIP-482)."""


def api_name(api_key: int) -> str:
    return (_APIS.get(api_key) or _PRIVATE[api_key])[0]


def has_flexible_response_header(api_key: int, version: int) -> bool:
    """True if the response header is flexible, as it is when the body is. The header of ApiVersions never is,
    because a client reads it before it knows the broker's versions.
    """
    return version >= FLEXIBLE_FROM[api_key] and api_key != API_VERSIONS
