"""Data directory of a broker at its start: recovers the logs, deletes logs of deleted topics, and reports the state of
the logs for the registration of the broker.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cluster.deletions import deleted_topics
from penstock.cluster.image import ClusterImage
from penstock.cluster.membership import BrokerIdentity
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.topics import draw_uuid
from penstock.config import Address
from penstock.model import BrokerEpoch, BrokerId, TopicPartition
from penstock.observability.logs import Logger
from penstock.server.environment import Environment
from penstock.storage.log_manager import LogManager
from penstock.storage.recovery import RecoveryReport


class DataDirectory:
    def __init__(
        self,
        logs: LogManager,
        node_id: BrokerId,
        metadata: ClusterMetadata,
        environment: Environment,
        logger: Logger,
    ) -> None:
        self._logs = logs
        self._node_id = node_id
        self._metadata = metadata
        self._environment = environment
        self._logger = logger

    async def open(self) -> None:
        """Lock the directory, recover all logs and report the result."""
        now_ms = self._environment.clock.now_ms()
        directory_id = draw_uuid(self._environment.random)
        boot_id = self._environment.boot_id
        await self._environment.threads.run(
            "background", lambda: self._logs.open(now_ms, directory_id, boot_id)
        )
        if self._logs.is_copy:
            self._logger.warning(
                "data directory is a copy of another one; its replicas become leaders only if no other replica can",
                directory_id=self._logs.directory_id,
            )
        self.report_problems()
        for report in self._logs.reports:
            self._report_recovery(report)

    async def join_cluster(self, image: ClusterImage) -> None:
        """Record in the directory to which cluster it belongs, and delete the logs of topics that were deleted while
        the broker was down.
        """
        await self._environment.threads.run("background", lambda: self._logs.join_cluster(image.cluster_id))
        deleted = await deleted_topics(self._environment.store)
        for topic_id in {log.topic_id for log in self._logs.orphans(image.topic_names)} & deleted:
            job = self._logs.begin_delete(topic_id)
            self._logger.info("deleting logs of a deleted topic", directories=job.directories)
            await self._environment.threads.run("background", job.work)
        for orphan in self._logs.orphans(image.topic_names):
            self._logger.warning("log of an unknown topic kept", directory=orphan.directory)

    async def record_use(self, epoch: BrokerEpoch) -> None:
        """Record that the broker writes to the directory in this broker epoch."""
        await self._environment.threads.run("background", lambda: self._logs.record_use(epoch))

    def identity(
        self, address: Address, rack: str | None, listeners: Mapping[str, Address]
    ) -> BrokerIdentity:
        """Return the identity with which the broker registers: `address` for other brokers, and the advertised address
        of each listener.
        """
        logs, share = self._logs, self._environment.share
        return BrokerIdentity(
            address.host,
            address.port,
            self._environment.machine_id,
            logs.directory_id,
            logs.was_clean,
            rack,
            logs.kept_epoch,
            siblings=share.siblings if share is not None else (),
            is_cordoned=share is not None and share.is_cordoned,
            listeners=listeners,
        )

    def has_log(self, name: TopicPartition) -> bool:
        topic = self._metadata.image.topics[name.topic]
        return self._logs.get(topic.id, name.partition) is not None

    def has_vanished(self, name: TopicPartition) -> bool:
        """True if the log is missing or has lost records: recovery has detected the loss, or the log ends below a
        recorded high watermark, or below the log end offset that was recorded when this replica became the only in-sync
        replica.
        """
        topic = self._metadata.image.topics[name.topic]
        log, state = self._logs.get(topic.id, name.partition), topic.partitions[name.partition]
        is_sole = state.isr == (self._node_id,)
        known_end = max(state.committed, state.sole_end) if is_sole else state.committed
        is_short = log is not None and log.log_end_offset < known_end
        return is_short or self._logs.has_vanished(topic.id, name.partition)

    def report_problems(self) -> None:
        """Log the problems that were found since the previous call."""
        problems, self._logs.problems = self._logs.problems, []
        for problem in problems:
            self._logger.warning("data directory damaged", problem=problem)

    def _report_recovery(self, report: RecoveryReport) -> None:
        self._logger.info(
            "log recovered",
            partition=report.topic_partition,
            checked_bytes=report.checked_bytes,
            truncated_bytes=report.cut_bytes,
            problems=report.problems,
            has_lost_records=report.has_lost,
        )
        for damaged in report.damage:
            self._logger.error(
                "log is damaged",
                topic=report.topic_partition.topic,
                partition=report.topic_partition.partition,
                base_offset=damaged.base_offset,
                end_offset=damaged.end_offset,
                reason=damaged.reason,
            )
