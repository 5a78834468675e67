"""Ownership of a data directory, and the evidence of its last use.

`meta.json` is written at the first start and holds the ids of node, cluster and directory. A broker with another node
id is refused, so that no two brokers write the same logs. `clean-stop` holds the broker epoch of a clean stop and is
removed at start.

`directory-marker` is written when a directory gets its id and when the broker has registered. It holds the status
(device, inode, change time) of the marker file `logs/marker-<broker epoch>`. In a copy of the directory the marker file
has another status. A copy is treated as another disk, because it may lack the last writes.

`boot-id` is written when the broker has registered. It holds the same status, the boot id of the machine and the broker
epoch. Within one boot of the machine every write of a broker is kept, at least in the page cache, even if its process
was killed. The file is removed when the disk has lost data in this boot; the directory still counts as the original.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

import msgspec

from penstock.errors import ConfigError
from penstock.model import BrokerEpoch, BrokerId
from penstock.storage.disk import Disk, FileStatus
from penstock.storage.log_directories import LOGS, parse_log_directory
from penstock.storage.segment import LOG_SUFFIX

META_FILE = "meta.json"
CLEAN_STOP_FILE = "clean-stop"
BOOT_FILE = "boot-id"
DIRECTORY_MARKER_FILE = "directory-marker"
MARKER_PREFIX = "marker-"
_VERSION = 1
_UNREGISTERED = BrokerEpoch(0)
"""Epoch in the name of the marker file until the broker registers for the first time."""


class DirectoryMeta(msgspec.Struct, frozen=True):
    version: int
    node_id: int
    directory_id: UUID
    cluster_id: str | None = None


class _CleanStop(msgspec.Struct, frozen=True):
    broker_epoch: int


class _Use(msgspec.Struct, frozen=True):
    boot_id: str
    broker_epoch: int
    device: int
    inode: int
    changed_ns: int
    restored: dict[str, int] = {}
    """Files of logs that were restored from a copy before this registration: change time in nanoseconds by path."""


def open_directory(disk: Disk, node_id: BrokerId, new_directory_id: UUID) -> DirectoryMeta:
    """Lock the directory for this process and read its `meta.json`; ConfigError if it belongs to another broker."""
    if not disk.lock():
        raise ConfigError("the data directory is in use by another broker; give each its own --data-dir")
    try:
        meta = msgspec.json.decode(disk.read(META_FILE), type=DirectoryMeta)
    except FileNotFoundError:
        meta = DirectoryMeta(_VERSION, node_id, new_directory_id)
        _mark_unregistered(disk)
        disk.replace(META_FILE, msgspec.json.encode(meta))
        return meta
    except msgspec.MsgspecError as problem:
        raise ConfigError(
            f"{META_FILE} in the data directory cannot be read ({problem}); restore it, "
            f"or remove it if this is surely the data of node {node_id}"
        ) from None
    if meta.version != _VERSION:
        raise ConfigError(
            f"the data directory has format {meta.version}, this version of Penstock supports {_VERSION}"
        )
    if meta.node_id != node_id:
        raise ConfigError(
            f"the data directory belongs to node {meta.node_id}, not {node_id}; "
            f"start with --node-id {meta.node_id} or with another --data-dir"
        )
    return meta


def join_cluster(disk: Disk, meta: DirectoryMeta, cluster_id: str) -> DirectoryMeta:
    """Record the cluster of this directory; ConfigError if its data belongs to another cluster."""
    if meta.cluster_id == cluster_id:
        return meta
    if meta.cluster_id is not None:
        raise ConfigError(f"the data directory belongs to cluster {meta.cluster_id}, not {cluster_id}")
    meta = msgspec.structs.replace(meta, cluster_id=cluster_id)
    disk.replace(META_FILE, msgspec.json.encode(meta))
    return meta


def take_clean_stop(disk: Disk) -> BrokerEpoch | None:
    """The broker epoch of the last clean stop, or None. The file is durably removed when this returns."""
    epoch: BrokerEpoch | None = None
    with suppress(FileNotFoundError, msgspec.MsgspecError):
        epoch = BrokerEpoch(msgspec.json.decode(disk.read(CLEAN_STOP_FILE), type=_CleanStop).broker_epoch)
    disk.remove(CLEAN_STOP_FILE)
    disk.sync_dir("")
    return epoch


@dataclass(frozen=True, slots=True)
class LastUse:
    """Evidence of the last use of a data directory."""

    is_copy: bool = False
    """True if the directory, or a part of it, was restored from a copy since a broker last registered with
    it.
    """
    epoch_in_boot: BrokerEpoch | None = None
    """Broker epoch of the last registration, if that was in this boot of the machine."""


def read_last_use(disk: Disk, boot_id: str) -> LastUse:
    """Read the evidence of the last use. Call this before anything is written: the writes of a recovery hide that files
    were copied.

    An empty `boot_id` means that the boot is unknown; it counts as another boot than the last one.
    """
    use = _read_use(disk, BOOT_FILE)
    marked = use or _read_use(disk, DIRECTORY_MARKER_FILE)
    if marked is None:
        return LastUse()
    is_same_boot = bool(boot_id) and marked.boot_id == boot_id
    is_original = _has_marker(disk, marked, is_same_boot=is_same_boot)
    if not is_original or not _restored_logs(disk).items() <= marked.restored.items():
        return LastUse(is_copy=True)
    return LastUse(epoch_in_boot=None if use is None or not is_same_boot else BrokerEpoch(use.broker_epoch))


def rename_copy(disk: Disk, meta: DirectoryMeta, new_directory_id: UUID) -> DirectoryMeta:
    """Give a copy a directory id of its own, so that the cluster treats it as another disk."""
    meta = msgspec.structs.replace(meta, directory_id=new_directory_id)
    disk.replace(META_FILE, msgspec.json.encode(meta))
    disk.remove(BOOT_FILE)
    _mark_unregistered(disk)
    return meta


def record_use(disk: Disk, boot_id: str, broker_epoch: BrokerEpoch) -> None:
    """Record that the broker has registered: the cluster no longer counts on records that this directory has lost.

    The former marker file is kept until the new record is durable, so that after a crash in between the former record
    is still valid.
    """
    use = _mark(disk, boot_id, broker_epoch)
    disk.replace(BOOT_FILE, msgspec.json.encode(use))
    disk.replace(DIRECTORY_MARKER_FILE, msgspec.json.encode(use))
    for name in disk.list(LOGS):
        if name.startswith(MARKER_PREFIX) and f"{LOGS}/{name}" != _marker_path(broker_epoch):
            disk.remove(f"{LOGS}/{name}")


def _mark_unregistered(disk: Disk) -> None:
    """Write the marker of a directory with a new id, so that a copy made before the broker registers is recognised."""
    disk.make_dir(LOGS)
    disk.sync_dir("")
    disk.replace(DIRECTORY_MARKER_FILE, msgspec.json.encode(_mark(disk, "", _UNREGISTERED)))


def _mark(disk: Disk, boot_id: str, broker_epoch: BrokerEpoch) -> _Use:
    """Create the marker file durably; return its record."""
    marker = _marker_path(broker_epoch)
    file = disk.open(marker, create=True)
    file.pwrite(0, (str(broker_epoch).encode(),))
    file.sync()
    disk.sync_dir(LOGS)
    device, inode, changed_ns, *_ = disk.status(marker)
    return _Use(boot_id, broker_epoch, device, inode, changed_ns, _restored_logs(disk))


def distrust_boot(disk: Disk) -> None:
    """Make the next start assume that something was lost in this boot.

    This need not be durable: after a power loss the boot is another one.
    """
    with suppress(OSError):
        disk.remove(BOOT_FILE)


def _read_use(disk: Disk, name: str) -> _Use | None:
    """Read the record of the last registration; None without one, or if an earlier version wrote only the boot id."""
    with suppress(FileNotFoundError, msgspec.MsgspecError):
        return msgspec.json.decode(disk.read(name), type=_Use)
    return None


def _marker_path(broker_epoch: int) -> str:
    return f"{LOGS}/{MARKER_PREFIX}{broker_epoch}"


def _has_marker(disk: Disk, use: _Use, *, is_same_boot: bool) -> bool:
    """True if the marker file is the recorded one. The device is compared only within one boot, because device numbers
    may change when the machine starts.
    """
    try:
        found = disk.status(_marker_path(use.broker_epoch))
    except FileNotFoundError:
        return False
    is_same_file = (found.inode, found.changed_ns) == (use.inode, use.changed_ns)
    return is_same_file and (found.device == use.device or not is_same_boot)


def _restored_logs(disk: Disk) -> dict[str, int]:
    """Files of logs that were restored by a tool that preserves modification times: change times by path.

    The tool may skip the marker file, because it is equal in the copy. But the modification time of a restored file is
    older than its change time. Appends and new files set both times of the newest segment and of its directory. A log
    that was restored before the last registration and not written since then is in the record of that registration.
    """
    if not disk.exists(LOGS):
        return {}
    logs = [f"{LOGS}/{name}" for name in disk.list(LOGS) if parse_log_directory(name) is not None]
    paths = [LOGS, *(path for log in logs for path in (log, *_newest_segment(disk, log)))]
    statuses = {path: disk.status(path) for path in paths}
    return {path: status.changed_ns for path, status in statuses.items() if _is_restored(status)}


def _newest_segment(disk: Disk, directory: str) -> list[str]:
    return [f"{directory}/{name}" for name in disk.list(directory) if name.endswith(LOG_SUFFIX)][-1:]


def _is_restored(status: FileStatus) -> bool:
    return status.modified_ns < status.changed_ns


def leave_clean_stop(disk: Disk, broker_epoch: BrokerEpoch) -> None:
    disk.replace(CLEAN_STOP_FILE, msgspec.json.encode(_CleanStop(broker_epoch)))
