"""Paths in the coordination store and the encoding of their nodes (JSON; unknown fields are ignored).

    /cluster                            ClusterNode                 written once, when the store is new
    /brokers/ids/<id>                   BrokerNode                  ephemeral: registration of the broker
    /brokers/epoch                      BrokerEpochNode             the last broker epoch given out
    /brokers/directories/<id>           DirectoryNode               last registration of the broker
    /brokers/configs/<id or default>    ConfigsNode                 dynamic broker configs
    /controller                         ControllerNode              ephemeral: the controller
    /controller_epoch                   ControllerEpochNode         checked by every write of a controller
    /topics/<name>                      TopicNode
    /topics/<name>/<partition>          PartitionNode               its version is the partition epoch
    /producer_ids                       ProducerIdsNode             the first unused producer id
    /group_configs/<group, quoted>      ConfigsNode                 configs of a consumer group
    /users/<name, quoted>               UserNode                    credentials of a user
    /acls/<type-pattern-name, quoted>   AclsNode                    access control list of a resource pattern
    /quotas/<entity>                    QuotasNode                  quotas of a user, client id or address
    /changes/change-<sequence>          ChangeNode                  change list: what to read again, in order
    /deleted_topics/<id>-<sequence>     empty                       the last deleted topics

Any broker writes these nodes, on condition that they are as it has read them. Writes of the controller also
check its epoch.
"""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import quote, unquote
from uuid import UUID

import msgspec

from penstock.errors import StorageError
from penstock.model import BrokerId, TopicId

CLUSTER = "/cluster"
BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
BROKER_EPOCH = "/brokers/epoch"
BROKER_DIRECTORIES = "/brokers/directories"
BROKER_CONFIGS = "/brokers/configs"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
TOPICS = "/topics"
PRODUCER_IDS = "/producer_ids"
GROUP_CONFIGS = "/group_configs"
USERS = "/users"
ACLS = "/acls"
QUOTAS = "/quotas"
CHANGES = "/changes"
CHANGE_PREFIX = f"{CHANGES}/change-"
DELETED_TOPICS = "/deleted_topics"

CLUSTER_WIDE = "default"
"""Node name of the cluster-wide broker configs."""


def broker_path(broker_id: BrokerId) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def directory_path(broker_id: BrokerId) -> str:
    return f"{BROKER_DIRECTORIES}/{broker_id}"


def broker_configs_path(broker: BrokerId | None) -> str:
    return f"{BROKER_CONFIGS}/{CLUSTER_WIDE if broker is None else broker}"


def group_configs_path(group_id: str) -> str:
    """Path with the quoted group id, because a group id may contain any character."""
    return f"{GROUP_CONFIGS}/{quoted(group_id)}"


def user_path(name: str) -> str:
    """Path with the quoted name, because a name may contain any character."""
    return f"{USERS}/{quoted(name)}"


def acls_path(node_name: str) -> str:
    return f"{ACLS}/{node_name}"


def quotas_path(node_name: str) -> str:
    return f"{QUOTAS}/{node_name}"


def quoted(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E")


def unquoted(node_name: str) -> str:
    """Original name of a node whose name is quoted."""
    return unquote(node_name)


def change_path(number: int) -> str:
    return f"{CHANGE_PREFIX}{number:010d}"


def change_number(name: str) -> int:
    """Number of a change list entry, from its name or path. Numbers have no gaps."""
    return int(name.rpartition("-")[2])


def deleted_topic_prefix(topic_id: TopicId) -> str:
    return f"{DELETED_TOPICS}/{topic_id.hex}-"


def deleted_topic(name: str) -> TopicId:
    return TopicId(UUID(hex=name.rpartition("-")[0]))


def deletion_number(name: str) -> int:
    return int(name.rpartition("-")[2])


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/{partition}"


class ClusterNode(msgspec.Struct, frozen=True):
    cluster_id: str
    format: int = 1
    secret: str = ""


class BrokerNode(msgspec.Struct, frozen=True):
    host: str
    port: int
    epoch: int
    machine_id: str
    rack: str | None = None
    stopping: bool = False
    directory_version: int = -1
    siblings: tuple[int, ...] = ()
    cordoned: bool = False
    listeners: dict[str, tuple[str, int]] = {}
    """Advertised host and port by listener name."""


class BrokerEpochNode(msgspec.Struct, frozen=True):
    epoch: int


class DirectoryNode(msgspec.Struct, frozen=True):
    """Data directory and broker epoch of a broker's last registration. The node stays when the broker stops."""

    directory_id: UUID
    epoch: int
    kept_epoch: int = -1
    """Broker epoch that the data directory names until it has recorded `epoch`; -1 if the broker had lost data."""


class ControllerNode(msgspec.Struct, frozen=True):
    broker_id: int
    epoch: int


class ControllerEpochNode(msgspec.Struct, frozen=True):
    epoch: int


class ConfigsNode(msgspec.Struct, frozen=True):
    configs: dict[str, str]


class ScramNode(msgspec.Struct, frozen=True):
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class TokenNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """Access token of a user."""

    digest: bytes
    created_ms: int
    expires_ms: int = 0
    label: str = ""


class UserNode(msgspec.Struct, frozen=True, omit_defaults=True):
    scram: dict[str, ScramNode] = {}
    """SCRAM records by mechanism."""
    credential: str = ""
    disabled: bool = False
    tokens: dict[str, TokenNode] = {}
    """Access tokens by id."""
    ended_sessions: dict[str, int] = {}
    """Browser sessions that have ended before they expired, by id, with the time at which each would have expired."""
    sessions_ended_until_ms: int = 0
    """Sessions that would have expired by this time count as ended. Milliseconds since the epoch."""


class AclNode(msgspec.Struct, frozen=True, array_like=True):
    """Entry of an access control list."""

    principal: str
    host: str
    operation: str
    permission: str


class AclsNode(msgspec.Struct, frozen=True):
    entries: tuple[AclNode, ...]


class QuotasNode(msgspec.Struct, frozen=True):
    values: dict[str, float]


class TopicNode(msgspec.Struct, frozen=True, omit_defaults=True):
    topic_id: UUID
    partitions: int
    """Number of visible partitions. Zero means that the topic does not exist (yet, or any more)."""
    configs: dict[str, str]
    pending: int = 0
    """Upper bound of the partition nodes that an unfinished change may have created: those from index
    `partitions` up to this number. 0 if no change is unfinished.
    """
    writer: str = ""
    """Broker that writes the unfinished change: node id and broker epoch."""
    removed: tuple[tuple[int, int], ...] = ()
    """Log end offset and leader epoch of each removed partition, beginning at index `partitions`."""


class PartitionNode(msgspec.Struct, frozen=True, omit_defaults=True):
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    target: tuple[int, ...] = ()
    """Replicas at the end of the reassignment in progress."""
    last_resort: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()
    committed: int = -1
    sole_end: int = -1
    unclean_epoch: int = -1
    phase: int = 0
    phase_since_ms: int = 0
    waits_for_groups: bool = True
    first_offset: int = 0


class ProducerIdsNode(msgspec.Struct, frozen=True):
    next_producer_id: int


class ChangeNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """Change list entry, which names what to read again. `token` tells the writer whether its change was written."""

    token: str
    topics: tuple[str, ...] = ()
    partitions: dict[str, tuple[int, ...]] = {}
    """Changed partitions by topic, for topics of which nothing else has changed."""
    broker_configs: tuple[str, ...] = ()
    """Node names of changed broker configs: broker ids or `default`."""
    groups: tuple[str, ...] = ()
    """Groups whose configs have changed."""
    members: bool = False
    """True if a registration has changed."""
    users: tuple[str, ...] = ()
    acls: tuple[str, ...] = ()
    """Node names of changed access control lists."""
    quotas: tuple[str, ...] = ()
    """Node names of changed quotas."""


N = TypeVar("N", bound=msgspec.Struct)


def encode(node: msgspec.Struct) -> bytes:
    return msgspec.json.encode(node)


def decode(data: bytes, node_type: type[N]) -> N:
    """Decode a node. Raises StorageError if it is damaged."""
    try:
        return msgspec.json.decode(data, type=node_type)
    except msgspec.MsgspecError as error:
        raise StorageError(f"a {node_type.__name__} in the coordination store is damaged: {error}") from error
