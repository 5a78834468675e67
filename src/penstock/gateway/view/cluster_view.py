"""View of the cluster: topics, logs and groups of all brokers, updated by reading changes from the brokers.

A refresh asks every broker for the changes since the last refresh, so its cost depends on the number of changes
and not on the size of the cluster. Responses are bounded and read page by page. Topics come from one broker, logs
from their leaders, groups from their coordinators. If a broker does not respond, its last figures are kept,
together with the error. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from typing import Any

from penstock.clock import Clock
from penstock.errors import BrokerError
from penstock.gateway.view.figures import BrokerFigures, GroupFigures, LogFigures, TopicFigures
from penstock.internal_client.inspection import JOURNALS, InspectionCalls
from penstock.internal_client.slices import in_slices
from penstock.model import BrokerId
from penstock.unreachable import reason_of

MAX_PAGES = 1_000
"""Maximum number of pages of one broker's changes that are read in one refresh."""


class ClusterView:
    def __init__(self, inspection: InspectionCalls, clock: Clock) -> None:
        self.topics: dict[str, TopicFigures] = {}
        self.logs: dict[str, dict[int, LogFigures]] = {}
        """Figures of logs by topic and partition."""
        self._log_totals: dict[str, tuple[int, int, int]] = {}
        """Sums of the logs of a topic, for topics whose logs have not changed since they were added up."""
        self.groups: dict[str, GroupFigures] = {}
        self.brokers: dict[BrokerId, BrokerFigures] = {}
        self.lagging: set[str] = set()
        """Topics whose lag was set by the last computation of lags."""
        self.moved: set[str] = set()
        """Topics whose logs have changed since the last sample."""
        self._inspection = inspection
        self._clock = clock
        self._topic_source = BrokerId(-1)
        self._former: dict[str, TopicFigures] = {}
        """Topics known before all topics are read again, kept so that their rates continue."""
        self._names: list[str] | None = None
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def names(self) -> list[str]:
        """Names of all topics, sorted."""
        if self._names is None:
            self._names = sorted(self.topics)
        return self._names

    @property
    def has_topics(self) -> bool:
        """True if a broker has returned the topics of the cluster. False if it refused or does not support this."""
        source = self.brokers.get(self._topic_source)
        return source is not None and "topics" in source.versions

    @property
    def has_groups(self) -> bool:
        """True if all brokers have returned their groups, at present or before they became unreachable."""
        return all("groups" in each.versions for each in self.brokers.values())

    def log_totals(self, topic: str) -> tuple[int, int, int]:
        """Return the number of stored records, the number of records ever written, and the bytes of a topic."""
        totals = self._log_totals.get(topic)
        if totals is None:
            if topic not in self.logs:
                return 0, 0, 0
            logs = self.logs[topic].values()
            ends = sum(each.end for each in logs)
            totals = ends - sum(each.start for each in logs), ends, sum(each.bytes for each in logs)
            self._log_totals[topic] = totals
        return totals

    async def refresh(self) -> None:
        """Read the changes of all brokers; raises OSError if no broker can be reached.

        Concurrent callers share a refresh. A caller that arrives during a refresh waits for the next one, because
        the running one may miss a change that the caller has made.
        """
        running = self._refreshing
        if running is not None:
            await asyncio.wait((running,))
        if self._refreshing is None or self._refreshing is running:
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
            self._refreshing.add_done_callback(self._on_done)
        await asyncio.shield(self._refreshing)

    def _on_done(self, done: asyncio.Task[None]) -> None:
        if self._refreshing is done:
            self._refreshing = None
        if not done.cancelled():
            done.exception()

    def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()

    async def _refresh(self) -> None:
        ids = await self._inspection.broker_ids()
        for gone in self.brokers.keys() - set(ids):
            del self.brokers[gone]
        for node_id in ids:
            self.brokers.setdefault(node_id, BrokerFigures(node_id))
        if self._topic_source not in ids or self.brokers[self._topic_source].error:
            self._topic_source = self._next_source(ids)
        await asyncio.gather(*(self._read(self.brokers[node_id]) for node_id in ids))

    def _next_source(self, ids: list[BrokerId]) -> BrokerId:
        working = [node_id for node_id in ids if not self.brokers[node_id].error]
        source = (working or ids)[0]
        self.brokers[source].versions.pop("topics", None)
        return source

    async def _read(self, broker: BrokerFigures) -> None:
        try:
            for _ in range(MAX_PAGES):
                if await self._read_page(broker):
                    return
        except BrokerError as error:
            # The broker refuses access to its figures, so earlier ones must not be shown either.
            broker.error, broker.versions, broker.epoch = str(error), {}, 0
            self._forget(broker.id, "logs")
            self._forget(broker.id, "groups")
        except OSError as error:
            broker.error = reason_of(error)

    async def _read_page(self, broker: BrokerFigures) -> bool:
        """Read and apply one page of changes; return True if it was the last."""
        wanted = {
            name: broker.versions.get(name, 0)
            for name in JOURNALS
            if name != "topics" or broker.id == self._topic_source
        }
        answer = await self._inspection.activity(broker.id, broker.epoch, wanted)
        if answer["epoch"] != broker.epoch:
            broker.epoch, broker.versions = answer["epoch"], {}
        broker.take(answer["broker"], self._clock.monotonic())
        is_last = True
        for name in wanted:
            journal = answer[name]
            await in_slices(self._apply(broker, name, journal))
            broker.versions[name] = journal["version"]
            is_last = is_last and journal["complete"]
        return is_last

    def _apply(
        self, broker: BrokerFigures, name: str, journal: Mapping[str, Any]
    ) -> Generator[None, None, None]:
        if journal["all"]:
            self._forget(broker.id, name)
        takers: dict[str, Callable[[BrokerId, Any, Any], None]] = {
            "topics": self._take_topic,
            "logs": self._take_log,
            "groups": self._take_group,
        }
        take = takers[name]
        for key, row in journal["changes"]:
            take(broker.id, key, row)
            yield

    def _forget(self, node_id: BrokerId, journal: str) -> None:
        if journal == "topics":
            self._former, self.topics, self._names = self.topics, {}, None
        elif journal == "groups":
            self.groups = {name: each for name, each in self.groups.items() if each.broker != node_id}
        else:
            self._log_totals.clear()
            for name, logs in self.logs.items():
                kept = {number: each for number, each in logs.items() if each.broker != node_id}
                self.logs[name] = kept

    def _take_topic(self, node_id: BrokerId, name: str, row: tuple[Any, ...] | None) -> None:
        if row is None:
            self.topics.pop(name, None)
            self.logs.pop(name, None)
            self._log_totals.pop(name, None)
            self.moved.discard(name)
            self._names = None
            return
        topic = self.topics.get(name) or self._former.pop(name, None)
        if topic is None or (topic.id and topic.id != row[0]):
            topic = TopicFigures(name)
        if name not in self.topics:
            self._names = None
        self.topics[name] = topic
        topic.update(row)

    def _take_log(self, node_id: BrokerId, key: tuple[str, int], row: tuple[int, int, int] | None) -> None:
        topic, number = key
        logs = self.logs.setdefault(topic, {})
        self._log_totals.pop(topic, None)
        if row is None:
            known = logs.get(number)
            if known is not None and known.broker == node_id:
                del logs[number]
            return
        logs[number] = LogFigures(node_id, *row)
        self.moved.add(topic)

    def _take_group(self, node_id: BrokerId, group_id: str, row: tuple[Any, ...] | None) -> None:
        known = self.groups.get(group_id)
        if row is None:
            if known is not None and known.broker == node_id:
                del self.groups[group_id]
            return
        kind, state, members, offsets = row
        self.groups[group_id] = GroupFigures(
            group_id, node_id, kind, state, members, offsets, 0 if known is None else known.lag
        )
