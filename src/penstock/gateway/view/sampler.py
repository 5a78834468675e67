"""Sampler: refreshes the view every two seconds, and computes rates, consumer lag and the history.

Work that grows with the number of topics or groups runs in short steps, so that it does not block the event loop. A
failed refresh leaves a gap in the history, and is tried again at the next sample.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Any

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.gateway.view.cluster_view import ClusterView
from penstock.gateway.view.figures import GroupFigures, Sample
from penstock.gateway.view.history import FINE_STEP_MS, History
from penstock.internal_client.slices import in_slices
from penstock.observability.logs import Logger

FIRST_SAMPLE_SECONDS = 0.5
CLUSTER = "cluster"


class Sampler:
    def __init__(self, view: ClusterView, clock: Clock, log: Logger) -> None:
        self.history = History()
        self.sampled_ms = 0
        """Time of the last complete sample in milliseconds since the Unix epoch; 0 before the first."""
        self.samples = 0
        """Number of complete samples so far."""
        self.overview: asyncio.Future[dict[str, Any]] | None = None
        self.overview_of = -1
        """Number of samples when the computation of `overview` began."""
        self._problems: dict[str, int] = {}
        self.view = view
        self._clock = clock
        self._log = log
        self._active: set[str] = set()
        """Topics whose rate is not zero."""
        self._last: float | None = None
        """Monotonic time in seconds of the last sample; None if that sample did not have all topics."""
        self._ends: dict[str, tuple[float, dict[int, int]]] = {}
        """End offsets by partition of active topics at the last sample, with the monotonic time of that sample."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self.overview is not None:
            self.overview.cancel()
        self.view.close()

    async def _run(self) -> None:
        await asyncio.sleep(FIRST_SAMPLE_SECONDS)
        while True:
            began = self._clock.monotonic()
            try:
                await self.sample()
            except (PenstockError, OSError) as error:
                self._log.error_rarely("figures of the cluster could not be collected", error)
            took = self._clock.monotonic() - began
            await asyncio.sleep(max(0.1, FINE_STEP_MS / 1000 - took))

    async def sample(self) -> None:
        await self.view.refresh()
        await in_slices(self._rates())
        await in_slices(lags(self.view))
        await in_slices(self._record())
        self.sampled_ms = self._clock.now_ms()
        self.samples += 1

    def note_problems(self, keys: Sequence[str]) -> dict[str, int]:
        """Return the time since which each of the present problems `keys` exists, and forget all others."""
        now_ms = self._clock.now_ms()
        self._problems = {key: self._problems.get(key, now_ms) for key in keys}
        return self._problems

    def _rates(self) -> Generator[None, None, None]:
        view, now = self.view, self._clock.monotonic()
        moved, view.moved = view.moved, set()
        idle = self._active - moved
        for name in self._ends.keys() - moved - self._active:
            del self._ends[name]
        for name in moved | idle:
            topic = view.topics.get(name)
            self._active.discard(name)
            if topic is not None:
                _, written, size = view.log_totals(name)
                if topic.rate.is_new and self._last is not None:
                    # The last sample had all topics and not this one, so the topic was created after it.
                    topic.rate.add(Sample(self._last, 0, 0))
                topic.rate.add(Sample(now, written, size))
                topic.partition_rates = self._partition_rates(name, now)
                if not topic.rate.is_idle or name in moved:
                    self._active.add(name)
            yield
        self._last = now if view.has_topics else None

    def _partition_rates(self, name: str, now: float) -> dict[int, float]:
        """Return the records per second of each partition since the last sample."""
        ends = {number: log.end for number, log in self.view.logs.get(name, {}).items()}
        then, before = self._ends.get(name, (now, ends))
        self._ends[name] = now, ends
        seconds = max(0.1, now - then)
        return {number: max(0, end - before.get(number, end)) / seconds for number, end in ends.items()}

    def _record(self) -> Generator[None, None, None]:
        view, history, now_ms = self.view, self.history, self._clock.now_ms()
        records = size = 0.0
        for name in list(self._active):
            topic = view.topics.get(name)
            if topic is not None:
                records += topic.rate.records
                size += topic.rate.bytes
                figures = {"records": topic.rate.records, "bytes": topic.rate.bytes}
                history.put("topic", name, now_ms, figures)
            yield
        for name in history.names("topic"):
            if name not in view.topics:
                history.forget("topic", name)
            elif name not in self._active:
                history.put("topic", name, now_ms, {"records": 0.0, "bytes": 0.0})
            yield
        worst = 0
        for group in list(view.groups.values()):
            worst = max(worst, group.lag)
            history.put("group", group.id, now_ms, {"lag": group.lag})
            yield
        for name in history.names("group"):
            if name not in view.groups:
                history.forget("group", name)
        for broker in view.brokers.values():
            traffic = {"received": broker.received_rate, "sent": broker.sent_rate}
            history.put("broker", str(broker.id), now_ms, {**traffic, "requests": broker.request_rate})
        history.put(CLUSTER, CLUSTER, now_ms, {"records": records, "bytes": size, "lag": worst})


def lags(view: ClusterView) -> Generator[None, None, None]:
    """Compute the lag of every group and the greatest lag of every topic."""
    by_topic: dict[str, int] = {}
    for group in list(view.groups.values()):
        group.lag = 0
        for topic, lag in lag_by_topic(view, group).items():
            group.lag += lag
            by_topic[topic] = max(by_topic.get(topic, 0), lag)
        yield
    for name in view.lagging - by_topic.keys():
        if name in view.topics:
            view.topics[name].lag = 0
        yield
    view.lagging = set(by_topic)
    for name, lag in by_topic.items():
        if name in view.topics:
            view.topics[name].lag = lag
        yield


def lag_by_topic(view: ClusterView, group: GroupFigures) -> dict[str, int]:
    """Return the lag of a group by topic: the number of offsets between the committed offset and the end.

    A partition without a committed offset counts with all of its log.
    """
    lag: dict[str, int] = {}
    for topic, committed in group.offsets.items():
        logs = view.logs.get(topic, {})
        lag[topic] = sum(
            max(0, log.end - max(log.start, committed.get(number, 0))) for number, log in logs.items()
        )
    return lag
