"""Every path in the coordination store and how its node is encoded (JSON; unknown fields are kept out).

    /cluster                            ClusterNode                 written once, when the store is new
    /brokers/ids/<id>                   BrokerNode                  ephemeral: there while the broker lives
    /brokers/epoch                      BrokerEpochNode             the last broker epoch given out
    /brokers/directories/<id>           DirectoryNode               how the broker registered last
    /brokers/configs/<id or default>    ConfigsNode                 settings changed at run time
    /controller                         ControllerNode              ephemeral: who acts as controller
    /controller_epoch                   ControllerEpochNode         every write of a controller checks it
    /topics/<name>                      TopicNode
    /topics/<name>/<partition>          PartitionNode               its version is the partition epoch
    /producer_ids                       ProducerIdsNode             the first id not yet given away
    /group_configs/<group, quoted>      ConfigsNode                 settings of a consumer group
    /changes/change-<sequence>          ChangeNode                  what to read again, in order
    /deleted_topics/<id>-<sequence>     empty                       the topics deleted last

Any broker writes here, always on condition of what it has read; what is the controller's alone checks its epoch.
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
CHANGES = "/changes"
CHANGE_PREFIX = f"{CHANGES}/change-"
DELETED_TOPICS = "/deleted_topics"

CLUSTER_WIDE = "default"
"""The name of the settings that hold for every broker."""


def broker_path(broker_id: BrokerId) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def directory_path(broker_id: BrokerId) -> str:
    return f"{BROKER_DIRECTORIES}/{broker_id}"


def broker_configs_path(broker: BrokerId | None) -> str:
    return f"{BROKER_CONFIGS}/{CLUSTER_WIDE if broker is None else broker}"


def group_configs_path(group_id: str) -> str:
    """A group's name can be any text, a node's cannot."""
    return f"{GROUP_CONFIGS}/{quote(group_id, safe='').replace('.', '%2E')}"


def group_of(node_name: str) -> str:
    return unquote(node_name)


def change_path(number: int) -> str:
    return f"{CHANGE_PREFIX}{number:010d}"


def change_number(name: str) -> int:
    """Of an entry's name or path: they are counted through without a gap."""
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


class BrokerEpochNode(msgspec.Struct, frozen=True):
    epoch: int


class DirectoryNode(msgspec.Struct, frozen=True):
    """The data directory of a broker, by its id, and the broker epoch it was given: kept when it stops."""

    directory_id: UUID
    epoch: int
    kept_epoch: int = -1
    """The broker epoch that the directory still names until it has recorded `epoch`; -1 where it had lost data."""


class ControllerNode(msgspec.Struct, frozen=True):
    broker_id: int
    epoch: int


class ControllerEpochNode(msgspec.Struct, frozen=True):
    epoch: int


class ConfigsNode(msgspec.Struct, frozen=True):
    configs: dict[str, str]


class TopicNode(msgspec.Struct, frozen=True, omit_defaults=True):
    topic_id: UUID
    partitions: int
    """None: there is no such topic (any more, or yet)."""
    configs: dict[str, str]
    pending: int = 0
    """Partitions from `partitions` up to this may have nodes, of a change that is not finished."""
    writer: str = ""
    """Whose change that is: node id and broker epoch."""


class PartitionNode(msgspec.Struct, frozen=True, omit_defaults=True):
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    target: tuple[int, ...] = ()
    """Of a move that is under way."""
    last_resort: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()
    committed: int = -1
    sole_end: int = -1
    unclean_epoch: int = -1


class ProducerIdsNode(msgspec.Struct, frozen=True):
    next_producer_id: int


class ChangeNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change, what to read again for it; by the `token` its writer finds out whether it happened."""

    token: str
    topics: tuple[str, ...] = ()
    partitions: dict[str, tuple[int, ...]] = {}
    """Of topics of which nothing else has changed."""
    broker_configs: tuple[str, ...] = ()
    """Names of nodes: a broker's id or `default`."""
    groups: tuple[str, ...] = ()
    """Whose settings have changed."""
    members: bool = False
    """A broker says something new of itself."""


N = TypeVar("N", bound=msgspec.Struct)


def encode(node: msgspec.Struct) -> bytes:
    return msgspec.json.encode(node)


def decode(data: bytes, node_type: type[N]) -> N:
    """StorageError for what no broker has written."""
    try:
        return msgspec.json.decode(data, type=node_type)
    except msgspec.MsgspecError as error:
        raise StorageError(f"a {node_type.__name__} in the coordination store is damaged: {error}") from error
