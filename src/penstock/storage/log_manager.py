"""All logs of a data directory: recovered at start, created and deleted with their topics, closed at the end.

The loop thread looks up logs and begins jobs; `open`, `create`, `write_checkpoints` and `close` wait for the disk and
run in a thread pool, one call at a time. A directory is deleted only on request: the log of an unknown topic is kept.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from penstock.errors import StorageError
from penstock.model import BrokerEpoch, BrokerId, Offset, TopicId, TopicPartition
from penstock.storage.checkpoints import Checkpoints, LogCheckpoint, RecoveryMark
from penstock.storage.closed_segments import CLOSED_SEGMENTS_FILE, ClosedSegments, write_list, write_lists
from penstock.storage.data_directory import (
    DirectoryMeta,
    distrust_boot,
    join_cluster,
    leave_clean_stop,
    open_directory,
    read_last_use,
    record_use,
    rename_copy,
    take_clean_stop,
)
from penstock.storage.disk import Disk
from penstock.storage.file_cache import DEFAULT_MAX_OPEN_FILES, FileCache
from penstock.storage.jobs import work_together
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_directories import DELETED_SUFFIX, LOGS, log_directory, parse_log_directory
from penstock.storage.log_state import StorageContext
from penstock.storage.log_truncation import restart_log, truncate_log
from penstock.storage.losses import LogKey, forget_losses, keep_losses, load_losses
from penstock.storage.recovery import RecoveryReport, load
from penstock.storage.start_reserve import keep_reserve, release_reserve

_ANY_CONFIG = LogConfig()
"""Settings of a recovered log until the broker applies those of the topic, before the first append."""
_LOGS_AT_A_TIME = 500  # every log of a checkpoint has a few files open until they are synced


@dataclass(frozen=True, slots=True)
class RemoveJob:
    """Delete whole directories. They are renamed first, so that after a crash the next start can remove the rest."""

    disk: Disk
    directories: tuple[str, ...]

    def work(self) -> None:
        for directory in self.directories:
            with suppress(FileNotFoundError):
                self.disk.rename(directory, directory + DELETED_SUFFIX)
        if self.directories:
            self.disk.sync_dir(LOGS)
        for directory in self.directories:
            self.disk.remove_tree(directory + DELETED_SUFFIX)


class LogManager:
    def __init__(self, disk: Disk, node_id: BrokerId, max_open_files: int = DEFAULT_MAX_OPEN_FILES) -> None:
        self.context = StorageContext(disk, FileCache(disk, max_open_files))
        self.was_clean: BrokerEpoch | None = None
        """Broker epoch of the clean stop before this start; None after another end, or if the directory is a copy."""
        self.kept_epoch: BrokerEpoch | None = None
        """Broker epoch of the last registration, if it was in the present boot of the machine: everything written since
        then is still there, except for `lost_partitions`. Otherwise None.
        """
        self.is_copy = False
        """True if the data directory was restored from a copy since its last use."""
        self._boot_id = ""
        self._is_same_boot = False
        self.reports: list[RecoveryReport] = []
        """Recovery reports of all logs whose recovery found or checked anything."""
        self.problems: list[str] = []
        self.lost_partitions: frozenset[LogKey] = frozenset()
        """Partitions whose log in this directory lost records before this start."""
        self._disk = disk
        self._node_id = node_id
        self._meta: DirectoryMeta | None = None
        self._is_open = False
        self._checkpoints = Checkpoints(disk)
        self._topics: dict[TopicId, dict[int, Log]] = {}
        self._without_directory: dict[LogKey, LogCheckpoint] = {}
        """Checkpoints without a log directory: the log was deleted, or its directory was lost."""

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def __iter__(self) -> Iterator[Log]:
        for logs in tuple(self._topics.values()):
            yield from tuple(logs.values())

    def get(self, topic_id: TopicId, partition: int) -> Log | None:
        return self._topics.get(topic_id, {}).get(partition)

    def orphans(self, known: Container[TopicId]) -> list[Log]:
        """Logs of topics that are not in `known`."""
        return [log for log in self if log.topic_id not in known]

    @property
    def unsound(self) -> tuple[Log, ...]:
        """Logs that have failed or were damaged, until `forget_sound`."""
        return tuple(self.context.unsound)

    def forget_sound(self, log: Log) -> None:
        """Remove a log from `unsound` if it is whole again."""
        if not (log.failed or log.damage):
            self.context.unsound.pop(log, None)

    @property
    def directory_id(self) -> UUID:
        assert self._meta is not None, "the data directory is not open"
        return self._meta.directory_id

    @property
    def full(self) -> bool:
        """True if free disk space is below the limit: every append is refused. Set by the broker's maintenance."""
        return self.context.full

    @full.setter
    def full(self, full: bool) -> None:
        self.context.full = full

    @property
    def crowded(self) -> bool:
        """True if more files have unsynced bytes than may be open: some logs should be checkpointed at once."""
        return self.context.files.crowded

    # --- start and stop

    def open(self, now_ms: int, new_directory_id: UUID, boot_id: str = "") -> None:
        """Claim the data directory and recover every log in it. An empty boot id means that the boot is unknown."""
        self._meta = open_directory(self._disk, self._node_id, new_directory_id)
        last_use = read_last_use(self._disk, boot_id)
        release_reserve(self._disk)
        if last_use.is_copy:
            self.is_copy = True
            self._meta = rename_copy(self._disk, self._meta, new_directory_id)
        self._disk.make_dir(LOGS)
        self._disk.sync_dir("")
        self._is_same_boot = last_use.epoch_in_boot is not None
        self._load_losses()
        checkpoints = self._load_checkpoints()
        for name in self._disk.list(LOGS):
            if name.endswith(DELETED_SUFFIX):
                self._disk.remove_tree(f"{LOGS}/{name}")
            elif (identity := parse_log_directory(name)) is not None:
                self._load(f"{LOGS}/{name}", *identity, checkpoints, now_ms)
        self._write_outdated_lists()
        # A log directory that was created just before a crash is used from now on, so its name has to be durable.
        self._disk.sync_dir(LOGS)
        for key, checkpoint in (checkpoints or {}).items():
            if self.get(*key) is None:
                self._without_directory[key] = checkpoint
        if not self._checkpoints.intact:
            # At the first start too: if there are logs but no checkpoint file later, the file was lost.
            self.write_checkpoints(both=True)
        clean_epoch = take_clean_stop(self._disk)
        self.was_clean = None if self.is_copy else clean_epoch
        if not self.problems:
            self.kept_epoch = last_use.epoch_in_boot
        if self.kept_epoch is None:
            # The process may be killed before the cluster knows of the loss: the next start must not trust this boot.
            distrust_boot(self._disk)
        self._boot_id = boot_id
        self._is_open = True

    def record_use(self, broker_epoch: BrokerEpoch) -> None:
        """Record that the broker has registered: the cluster no longer counts on records that this disk has lost."""
        forget_losses(self._disk)
        if not any(log.failed for log in self):
            record_use(self._disk, self._boot_id, broker_epoch)
        keep_reserve(self._disk)

    def _load_losses(self) -> None:
        try:
            self.lost_partitions = load_losses(self._disk)
        except StorageError as problem:
            self.problems.append(str(problem))

    def _load_checkpoints(self) -> dict[LogKey, LogCheckpoint] | None:
        entries = self._checkpoints.load()
        self.problems += self._checkpoints.problems
        if entries is None:
            return None if self._checkpoints.problems or self._disk.list(LOGS) else {}
        return {(TopicId(UUID(bytes=entry.topic_id)), entry.partition): entry for entry in entries}

    def _load(
        self,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        checkpoints: dict[LogKey, LogCheckpoint] | None,
        now_ms: int,
    ) -> None:
        key = (topic_id, topic_partition.partition)
        checkpoint: LogCheckpoint | None = None
        if checkpoints is not None:
            checkpoint = checkpoints.get(key) or _empty_checkpoint(topic_partition, topic_id)
            topic_partition = TopicPartition(checkpoint.topic, topic_partition.partition)
        try:
            log, report = load(
                self.context,
                directory,
                topic_partition,
                topic_id,
                _ANY_CONFIG,
                checkpoint,
                now_ms,
                is_same_boot=self._is_same_boot,
                on_loss=partial(self._note_loss, key),
            )
        except OSError as error:
            raise StorageError(f"{directory} cannot be recovered: {error}") from error
        self._topics.setdefault(topic_id, {})[topic_partition.partition] = log
        if report.checked_bytes or report.cut_bytes or report.problems or report.damage:
            self.reports.append(report)
        # If the whole directory is a copy, it counts as another disk and its partitions need not be listed.
        if report.has_lost or (report.is_replaced and not self.is_copy):
            self._note_loss(key)

    def _note_loss(self, key: LogKey) -> None:
        if key not in self.lost_partitions:
            self.lost_partitions |= {key}
            keep_losses(self._disk, self.lost_partitions)

    def _write_outdated_lists(self) -> None:
        """Write the lists of closed segments that recovery made or changed."""
        outdated = [log for log in self if log.is_list_outdated]
        try:
            write_lists(self._disk, [(log.directory, log.closed) for log in outdated])
        except OSError as error:
            raise StorageError(f"the lists of closed segments cannot be written: {error}") from error
        for log in outdated:
            log.is_list_outdated = False

    def join_cluster(self, cluster_id: str) -> None:
        """Record the cluster; ConfigError if the data belongs to another."""
        assert self._meta is not None, "the data directory is not open"
        self._meta = join_cluster(self._disk, self._meta, cluster_id)

    def close(self, broker_epoch: BrokerEpoch | None) -> None:
        """Make everything durable, so that the next start has nothing to check. The object is unusable afterwards.

        `broker_epoch` is None if the broker has not registered; the stop then does not count as clean.
        """
        try:
            if not self._is_open:
                return
            self._checkpoint_all()
            self.write_checkpoints(both=True)
            is_whole = all(log.recovery_point == log.log_end_offset and not log.failed for log in self)
            if is_whole and broker_epoch is not None:
                leave_clean_stop(self._disk, broker_epoch)
        finally:
            self._disk.close()

    def _checkpoint_all(self) -> None:
        logs = list(self)
        for start in range(0, len(logs), _LOGS_AT_A_TIME):
            jobs = [
                (log, job)
                for log in logs[start : start + _LOGS_AT_A_TIME]
                if (job := log.jobs.begin_checkpoint()) is not None
            ]
            work_together(self._disk, [job for _, job in jobs])
            for log, job in jobs:
                if job.error is None:
                    log.jobs.finish_checkpoint(job)
                else:
                    log.jobs.abandon_checkpoint(job, job.error)

    # --- checkpoints

    def write_checkpoints(self, *, both: bool = False) -> None:
        """Write log starts, high watermarks and recovery marks durably; OSError if they could not be written.

        `both` writes both copies, for changes that must survive the loss of one: a log start moved on request, and a
        truncation.
        """
        self._checkpoints.write([log.checkpoint() for log in self], both=both)

    def truncate(self, log: Log, offset: Offset, now_ms: int) -> None:
        """Remove all records from `offset` on. The recovery point in the checkpoint is lowered before files change."""
        truncate_log(log, offset, now_ms, lambda: self.write_checkpoints(both=True))

    def restart(self, log: Log, offset: Offset, now_ms: int) -> None:
        """Remove all records and continue the log at `offset`."""
        restart_log(log, offset, now_ms, lambda: self.write_checkpoints(both=True))

    # --- topics

    def create(self, topic: str, topic_id: TopicId, partitions: Iterable[int], config: LogConfig) -> None:
        """Create empty logs; their directories are durable when this returns."""
        made: dict[int, Log] = {}
        try:
            for partition in partitions:
                name = TopicPartition(topic, partition)
                directory = log_directory(name, topic_id)
                # This file is left, without records, if an earlier attempt failed for another partition.
                if set(self._disk.list(directory)) - {CLOSED_SEGMENTS_FILE}:
                    raise StorageError(f"{directory} has files that were not loaded; restart the broker")
                made[partition] = Log.create(self.context, directory, name, topic_id, config)
                lost = self._without_directory.pop((topic_id, partition), None)
                if lost is not None:
                    made[partition] = self._go_on_after(lost, made[partition])
            write_lists(self._disk, [(log.directory, log.closed) for log in made.values()])
            self._disk.sync_dir(LOGS)
        except OSError as error:
            raise StorageError(f"the logs of topic {topic} could not be created: {error}") from error
        self._topics.setdefault(topic_id, {}).update(made)

    def _go_on_after(self, lost: LogCheckpoint, new: Log) -> Log:
        """A log in place of one whose directory was lost: lost records are damage, and offsets are not reused."""
        write_list(self._disk, new.directory, ClosedSegments(lost.log_start_offset))
        log, _ = load(self.context, new.directory, new.topic_partition, new.topic_id, new.config, lost, 0)
        if log.log_end_offset > 0:
            self.problems.append(
                f"{log.directory} has vanished; its records are lost, new records begin at {log.log_end_offset}"
            )
        return log

    def has_vanished(self, topic_id: TopicId, partition: int) -> bool:
        """True if the directory of the partition was deleted or lost, or its log has lost records."""
        key = (topic_id, partition)
        return key in self._without_directory or key in self.lost_partitions

    def forget(self, topic_id: TopicId, partition: int) -> None:
        """Forget the checkpoint of a lost log, so that a new log of the partition begins at offset 0."""
        self._without_directory.pop((topic_id, partition), None)

    def begin_delete(self, topic_id: TopicId, partitions: Iterable[int] | None = None) -> RemoveJob:
        """Close the logs of a topic, or of some of its partitions; return the job that removes their directories."""
        logs = self._topics.pop(topic_id, {})
        gone = list(logs) if partitions is None else [index for index in partitions if index in logs]
        deleted = [logs.pop(index) for index in gone]
        if logs:
            self._topics[topic_id] = logs
        for log in deleted:
            log.discard()
        return RemoveJob(self._disk, tuple(log.directory for log in deleted))


def _empty_checkpoint(topic_partition: TopicPartition, topic_id: TopicId) -> LogCheckpoint:
    """The checkpoint of a new log, which the checkpoint file does not have yet."""
    zero = Offset(0)
    return LogCheckpoint(
        topic_partition.topic, topic_id.bytes, topic_partition.partition, zero, zero, zero, RecoveryMark()
    )
