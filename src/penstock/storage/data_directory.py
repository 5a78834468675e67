"""The owner of a data directory, and the evidence of its last use.

`meta.json` is written at the first start and names node, cluster and directory. Any other broker is refused, so that
no two brokers write the same logs. `clean-stop` holds the broker epoch of a clean stop and is removed at start.

`directory-marker` is written when a directory gets its id and when the broker has registered. It holds the status
(device, inode, change time) of the marker file `logs/marker-<broker epoch>`. A copy of the directory has a marker with
another status: it is another disk, may be older than the last write, and proves nothing.

`boot-id` is written when the broker has registered. It adds the boot of the machine and the broker epoch. In the same
boot, whatever a broker wrote is still there, in the kernel's memory if not on the disk, however its process ended. It
is removed when the disk has lost something in this boot; the directory is still the original then.
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
    """Change times of logs that were restored from a copy before this registration, by path."""


def open_directory(disk: Disk, node_id: BrokerId, new_directory_id: UUID) -> DirectoryMeta:
    """Claim the directory for this process and this broker; ConfigError if it belongs to another."""
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
    """Read the evidence of the last use. Call this before anything is written: recovery hides the traces of a
    copy.

    An empty boot id equals no other.
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
    """Record the registration of the broker: the cluster does not count on anything that the directory lacks.

    The former marker stays until the new record is durable, so that a crash in between leaves the former
    record true.
    """
    use = _mark(disk, boot_id, broker_epoch)
    disk.replace(BOOT_FILE, msgspec.json.encode(use))
    disk.replace(DIRECTORY_MARKER_FILE, msgspec.json.encode(use))
    for name in disk.list(LOGS):
        if name.startswith(MARKER_PREFIX) and f"{LOGS}/{name}" != _marker_path(broker_epoch):
            disk.remove(f"{LOGS}/{name}")


def _mark_unregistered(disk: Disk) -> None:
    """Mark a directory that has a new id: a copy that is taken before it is registered is recognised too."""
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
    """The record of the last registration; None without one, or if an earlier version wrote the boot id
    alone.
    """
    with suppress(FileNotFoundError, msgspec.MsgspecError):
        return msgspec.json.decode(disk.read(name), type=_Use)
    return None


def _marker_path(broker_epoch: int) -> str:
    return f"{LOGS}/{MARKER_PREFIX}{broker_epoch}"


def _has_marker(disk: Disk, use: _Use, *, is_same_boot: bool) -> bool:
    """True if the marker is the file that was recorded. Device numbers may change when the machine starts."""
    try:
        found = disk.status(_marker_path(use.broker_epoch))
    except FileNotFoundError:
        return False
    is_same_file = (found.inode, found.changed_ns) == (use.inode, use.changed_ns)
    return is_same_file and (found.device == use.device or not is_same_boot)


def _restored_logs(disk: Disk) -> dict[str, int]:
    """Logs that a tool which preserves times has restored: their paths and change times.

    Such a tool skips the marker, which is the same in the copy, but the files it writes have an older
    modification time than change time. Appends and new files set both times of the newest segment and of its
    directory. A log that was restored before the last registration, and not written since, is in the record
    of that registration.
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
