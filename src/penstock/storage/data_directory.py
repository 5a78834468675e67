"""Whose a data directory is, and how its broker last left it.

`meta.json` is written at the first start and names node, cluster and directory; a broker that is not that one
is refused, so that no two ever write the same logs. `clean-stop` holds the broker epoch of a clean stop and
is gone while a broker runs. `boot-id` names the boot of the machine in which the directory was last used: in the same
one, whatever a broker wrote is still there, in the kernel's memory if not on the disk, however its process ended.
"""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import msgspec

from penstock.errors import ConfigError
from penstock.model import BrokerEpoch, BrokerId
from penstock.storage.disk import Disk

META_FILE = "meta.json"
CLEAN_STOP_FILE = "clean-stop"
BOOT_FILE = "boot-id"
_VERSION = 1


class DirectoryMeta(msgspec.Struct, frozen=True):
    version: int
    node_id: int
    directory_id: UUID
    cluster_id: str | None = None


class _CleanStop(msgspec.Struct, frozen=True):
    broker_epoch: int


def open_directory(disk: Disk, node_id: BrokerId, new_directory_id: UUID) -> DirectoryMeta:
    """Claim the directory for this process and this broker; ConfigError where it is another's."""
    if not disk.lock():
        raise ConfigError("the data directory is in use by another broker; give each its own --data-dir")
    try:
        meta = msgspec.json.decode(disk.read(META_FILE), type=DirectoryMeta)
    except FileNotFoundError:
        meta = DirectoryMeta(_VERSION, node_id, new_directory_id)
        disk.replace(META_FILE, msgspec.json.encode(meta))
        return meta
    except msgspec.MsgspecError as problem:
        raise ConfigError(
            f"{META_FILE} in the data directory cannot be read ({problem}); restore it, "
            f"or remove it if this is surely the data of node {node_id}"
        ) from None
    if meta.version != _VERSION:
        raise ConfigError(f"the data directory has format {meta.version}, this broker knows {_VERSION}")
    if meta.node_id != node_id:
        raise ConfigError(
            f"the data directory belongs to node {meta.node_id}, not {node_id}; "
            f"start with --node-id {meta.node_id} or with another --data-dir"
        )
    return meta


def join_cluster(disk: Disk, meta: DirectoryMeta, cluster_id: str) -> DirectoryMeta:
    """The broker found out which cluster it is in; ConfigError where its data is another cluster's."""
    if meta.cluster_id == cluster_id:
        return meta
    if meta.cluster_id is not None:
        raise ConfigError(f"the data directory belongs to cluster {meta.cluster_id}, not {cluster_id}")
    meta = msgspec.structs.replace(meta, cluster_id=cluster_id)
    disk.replace(META_FILE, msgspec.json.encode(meta))
    return meta


def take_clean_stop(disk: Disk) -> BrokerEpoch | None:
    """The epoch under which the broker stopped cleanly, else None. The mark is durably gone when this
    returns."""
    epoch: BrokerEpoch | None = None
    with suppress(FileNotFoundError, msgspec.MsgspecError):
        epoch = BrokerEpoch(msgspec.json.decode(disk.read(CLEAN_STOP_FILE), type=_CleanStop).broker_epoch)
    disk.remove(CLEAN_STOP_FILE)
    disk.sync_dir("")
    return epoch


def is_same_boot(disk: Disk, boot_id: str) -> bool:
    """Whether the machine has run without a break since all the directory lacked was made known to the cluster."""
    known = b""
    with suppress(FileNotFoundError):
        known = disk.read(BOOT_FILE)
    return bool(boot_id) and known == boot_id.encode()


def trust_boot(disk: Disk, boot_id: str) -> None:
    """What the directory lacks is known to the cluster: from here on nothing goes while the machine runs."""
    disk.replace(BOOT_FILE, boot_id.encode())


def distrust_boot(disk: Disk) -> None:
    """The disk has lost something in this boot: so the next start must not take everything for kept.

    It need not be durable: a loss of power is another boot.
    """
    with suppress(OSError):
        disk.remove(BOOT_FILE)


def leave_clean_stop(disk: Disk, broker_epoch: BrokerEpoch) -> None:
    disk.replace(CLEAN_STOP_FILE, msgspec.json.encode(_CleanStop(broker_epoch)))
